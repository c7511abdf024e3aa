"""The index of a container, written and read: its header, schemas and groups, and where each section is; one section among
thousands is found without reading the entries of the others.

Two JSON texts with a line feed between them: the first has all but the sections, the second maps names to entries. Strings of
the second are names alone, and a quote in a name is escaped, so a name between its quotes after `{` or `,` occurs once.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa

from headrace.errors import CorruptStore, StoreError

VERSION: Final = 4
_OLDEST: Final = 1
"""The first version that is still read: in it every column was written for itself, as in all before 4 with its own width."""
MAGIC: Final = b"HEADRACE"
ALIGNMENT: Final = 64
PREAMBLE: Final = MAGIC + VERSION.to_bytes(4, "little") + bytes(ALIGNMENT - len(MAGIC) - 4)
TRAILER: Final = struct.Struct("<QII8s")
"""Length of the index, its CRC-32, version, magic."""

Entry: TypeAlias = list[Any]
"""Kind, schema, rows, checksum, offsets and sizes, None (statistics in files of earlier versions), and perhaps shared buffers."""
_BY_LINE: Final = 3
"""The first version of two texts; before, one text had all, and the statistics of a section were in its entry."""
_decoder: Final = json.JSONDecoder()
_encoder: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


def encoded(
    header: Mapping[str, Any],
    schemas: Sequence[Entry],
    groups: Sequence[Entry],
    blocks: Sequence[str],
    sections: Mapping[str, Entry],
) -> bytes:
    """The index as bytes; `blocks` are the checksums of groups. `StoreError` where the header has other values than those of JSON."""
    first = {"header": header, "schemas": schemas, "groups": groups}
    if blocks:
        first["blocks"] = blocks
    try:
        return f"{_encoder.encode(first)}\n{_encoder.encode(sections)}".encode()
    except (TypeError, ValueError) as error:
        raise StoreError(f"the header of a container must have JSON values: {error}") from error


class ContainerIndex:
    """What an index has; the entries of sections are read when they are asked for."""

    __slots__ = ("_sections", "_text", "blocks", "groups", "header", "schemas")

    def __init__(self, body: bytes, version: int) -> None:
        first, _, self._text = body.decode().partition("\n") if version >= _BY_LINE else (body, "", "")
        head: dict[str, Any] = json.loads(first)
        self.header: Mapping[str, Any] = head["header"]
        self.schemas: Sequence[Entry] = head["schemas"]
        self.groups: Sequence[Entry] = head.get("groups", [])  # files of the first version have none
        self.blocks: Sequence[str] = head.get("blocks", [])
        """The checksums of groups by block; none in files of earlier versions, whose groups have one each, as sections."""
        self._sections: dict[str, Entry] | None = head.get("sections")

    @property
    def sections(self) -> dict[str, Entry]:
        """All entries, by name, in the order they were written."""
        if self._sections is None:
            self._sections = json.loads(self._text)
        return self._sections

    def entry(self, name: str) -> Entry | None:
        """The entry of a section; None if there is none of that name."""
        if self._sections is not None:
            return self._sections.get(name)
        key = f"{_encoder.encode(name)}:["
        at = 0 if self._text.startswith(f"{{{key}") else self._text.find(f",{key}")
        if at < 0:
            return None
        entry: Entry = _decoder.raw_decode(self._text, at + len(key))[0]
        return entry


def index_of(buffer: pa.Buffer, name: str) -> ContainerIndex:
    """The index at the end of a container. Raises `CorruptStore` where it is not a whole one."""
    smallest = len(PREAMBLE) + TRAILER.size
    if buffer.size < smallest:
        raise CorruptStore(f"'{name}' is no container: {buffer.size} bytes, expected at least {smallest}")
    view = memoryview(buffer)
    size, expected, version, magic = TRAILER.unpack_from(view, len(view) - TRAILER.size)
    if magic != MAGIC or bytes(view[: len(MAGIC)]) != MAGIC:
        raise CorruptStore(
            f"'{name}' is no container, or was cut short: it does not begin and end with {MAGIC!r}"
        )
    if not _OLDEST <= version <= VERSION:
        raise StoreError(
            f"the container '{name}' has format version {version}, this program reads {_OLDEST} to {VERSION}: "
            "use the version of headrace that wrote it"
        )
    start = len(view) - TRAILER.size - size
    if start < len(PREAMBLE):
        raise CorruptStore(f"the container '{name}' is damaged: its index would be {size} bytes long")
    body = bytes(view[start : start + size])
    if zlib.crc32(body) != expected:
        raise CorruptStore(
            f"the container '{name}' is damaged: its index has another checksum than its trailer records"
        )
    return ContainerIndex(body, version)
