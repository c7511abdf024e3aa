"""Checksums of an Arrow stream that is written in pieces, behind its end mark, where other readers do not look.

Each piece has the position of its end, in 64 bits, and 32 bits of checksum; after them are their number, a CRC-32 of them, and a magic word.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from headrace.store.files.checksums.fast_checksum import fast_checksum
from headrace.store.files.container_index import MAGIC

END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"
"""The end mark of an Arrow stream, with which files of earlier versions end."""
_PIECE: Final = struct.Struct("<QI")
_TAIL: Final = struct.Struct("<II8s")


def with_checksums(pieces: Iterable[pa.Buffer]) -> Iterator[Any]:
    """The pieces, and then their checksums."""
    end, listed = 0, list[bytes]()
    for piece in pieces:
        end += piece.size
        listed.append(_PIECE.pack(end, fast_checksum(piece, 0, piece.size)))
        yield piece
    checksums = b"".join(listed)
    yield checksums + _TAIL.pack(len(listed), zlib.crc32(checksums), MAGIC)


def damaged_bytes(data: pa.Buffer) -> tuple[int, int] | None:
    """Between which bytes a file differs from what was written; None where it does not, or has no checksums, as of earlier versions."""
    if bytes(memoryview(data)[-len(END_OF_STREAM) :]) == END_OF_STREAM:
        return None
    last = max(0, data.size - _TAIL.size)
    count, crc, magic = _TAIL.unpack_from(memoryview(data), last) if last else (0, 0, b"")
    first = last - count * _PIECE.size
    if magic != MAGIC or first < 0:
        return last, data.size
    checksums = data.slice(first, last - first)
    if zlib.crc32(checksums) != crc:
        return first, last
    start = 0
    for end, expected in _PIECE.iter_unpack(checksums):
        if (
            not start <= end <= first
            or fast_checksum(data.slice(start, end - start), 0, end - start) != expected
        ):
            return start, end
        start = end
    return None if start == first else (start, first)
