"""The index of a container, written and read: its header, schemas and groups, and where each section is; one section among
thousands is found without reading the entries of the others.

Two JSON texts with a line feed between them: the first has all but the sections, the second maps names to entries. Strings of
the second are names alone, and a quote in a name is escaped, so a name between its quotes after `{` or `,` occurs once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from headrace.errors import StoreError

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
    sections: Mapping[str, Entry],
) -> bytes:
    """The index as bytes. `StoreError` where the header has other values than those of JSON."""
    first = {"header": header, "schemas": schemas, "groups": groups}
    try:
        return f"{_encoder.encode(first)}\n{_encoder.encode(sections)}".encode()
    except (TypeError, ValueError) as error:
        raise StoreError(f"the header of a container must have JSON values: {error}") from error


class ContainerIndex:
    """What an index has; the entries of sections are read when they are asked for."""

    __slots__ = ("_sections", "_text", "groups", "header", "schemas")

    def __init__(self, body: bytes, version: int) -> None:
        first, _, self._text = body.decode().partition("\n") if version >= _BY_LINE else (body, "", "")
        head: dict[str, Any] = json.loads(first)
        self.header: Mapping[str, Any] = head["header"]
        self.schemas: Sequence[Entry] = head["schemas"]
        self.groups: Sequence[Entry] = head.get("groups", [])  # files of the first version have none
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
