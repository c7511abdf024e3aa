"""Envelope of a small JSON document: a head with kind, version, length and checksum, so that damage is detected.

Two lines of text, the head and the body, readable by a person. Manifests, list segments and log chunks are such files.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, Final

from headrace.errors import CorruptStore, OtherVersion, StoreError

_encoder: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def seal(kind: str, version: int, body: Any) -> bytes:
    """The file's bytes. `body` must consist of JSON values; numbers must be finite."""
    return seal_text(kind, version, json_text(kind, body))


def json_text(kind: str, body: Any) -> str:
    """The JSON of a body of a `kind` of document, or of a part of one.

    Raises `StoreError` for other values.
    """
    try:
        return _encoder.encode(body)
    except (TypeError, ValueError) as error:
        raise StoreError(f"a {kind} can hold JSON values only: {error}") from error


def seal_text(kind: str, version: int, body: str) -> bytes:
    """The file's bytes, of a body that is JSON already."""
    try:
        encoded = body.encode()
    except ValueError as error:
        raise StoreError(f"a {kind} can hold JSON values only: {error}") from error
    head = {"headrace": kind, "version": version, "bytes": len(encoded), "crc32": zlib.crc32(encoded)}
    return b"%b\n%b\n" % (_encoder.encode(head).encode(), encoded)


def unseal(kind: str, version: int, data: bytes, name: str, *, oldest: int | None = None) -> Any:
    """The body; `CorruptStore` names the file `name` when it is not what `seal` made.

    Versions from `oldest` on are read, without it `version` alone; others are `OtherVersion`.
    """
    first, newline, rest = data.partition(b"\n")
    try:
        head = json.loads(first)
        stored_kind, written, size, crc = (head[key] for key in ("headrace", "version", "bytes", "crc32"))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptStore(
            f"the file '{name}' is damaged: expected the head of a {kind}, found {first[:60]!r}"
        ) from error
    if stored_kind != kind:
        raise CorruptStore(f"the file '{name}' holds a {stored_kind} where a {kind} is expected")
    first_read = version if oldest is None else oldest
    if not first_read <= written <= version:
        versions = str(version) if first_read == version else f"{first_read} to {version}"
        raise OtherVersion(
            f"the {kind} '{name}' has format version {written}, this program reads {versions}: "
            "use the version of headrace that wrote it"
        )
    body = rest[:-1]
    if not newline or len(body) != size or rest[-1:] != b"\n":
        raise CorruptStore(f"the {kind} '{name}' is damaged: {len(body)} bytes of body, expected {size}")
    if zlib.crc32(body) != crc:
        raise CorruptStore(
            f"the {kind} '{name}' is damaged: checksum {zlib.crc32(body):08x}, expected {crc:08x}"
        )
    return json.loads(body)
