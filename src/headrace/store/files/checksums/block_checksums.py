"""The checksum of a section, and those of a group of small sections by block: who reads one of thousands compares its bytes alone."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.errors import CorruptStore

BLOCK: Final = 1 << 12
"""Bytes of a block in all files, the last of a body may have fewer; comparing one takes 2 µs."""
_SMALL: Final = 8 * BLOCK
"""Bytes of a group that is compared as a whole: to find where some of its rows are takes longer."""
_HEAD: Final = 8
"""Bytes of an IPC message before its description: a mark, and how long that is."""


def encoded_checksums(bodies: Iterable[Any]) -> str:
    """The CRC-32 of each block of some bodies, 32 bits each, in base64."""
    views = [memoryview(body) for body in bodies]
    each = [zlib.crc32(view[at : at + BLOCK]) for view in views for at in range(0, len(view), BLOCK)]
    return base64.b64encode(np.array(each, "<u4").tobytes()).decode("ascii")


class BlockChecksums:
    """The checksums of a group in a container; a block that was compared once is not compared again."""

    __slots__ = ("_address", "_bytes", "_expected", "_fixed", "_name", "_places", "_seen")

    def __init__(self, buffer: pa.Buffer, places: Sequence[Sequence[int]], encoded: str, name: str) -> None:
        self._address, self._bytes = buffer.address, memoryview(buffer)
        self._places, self._name = places, name
        self._expected = memoryview(base64.b64decode(encoded)).cast("I")
        self._seen = bytearray(len(self._expected))
        self._fixed: list[tuple[int, int]] | None = None

    def compare_heads(self, section: str) -> None:
        """Compare what describes the columns, before it is read. All that compares raises `CorruptStore` with the name of the `section`."""
        if len(self._seen) * BLOCK <= _SMALL:
            self.compare_all(section)
            return
        for offset, _ in self._places:
            self._compare(offset, offset + _HEAD, section)
            size = int.from_bytes(self._bytes[offset + 4 : offset + _HEAD], "little")
            self._compare(offset, offset + _HEAD + size, section)

    def compare_all(self, section: str) -> None:
        """Compare the whole group."""
        for offset, size in self._places:
            self._compare(offset, offset + size, section)

    def compare_rows(self, group: pa.Table, first: int, rows: int, section: str) -> None:
        """Compare the bytes of some rows of the group's table."""
        if 0 not in self._seen:
            return
        if self._fixed is None:
            self._fixed = _of_fixed_width(group, self._address)
        ranges: Iterable[tuple[int, int]]
        if self._fixed:
            end = first + rows
            ranges = [(at + first * bits // 8, at - (-end * bits // 8)) for at, bits in self._fixed]
        else:
            chunks = (chunk for column in group.slice(first, rows).columns for chunk in column.chunks)
            ranges = (range_ for chunk in chunks for range_ in _ranges(chunk, self._address))
        for start, after in ranges:
            self._compare(start, after, section)

    def _compare(self, start: int, end: int, section: str) -> None:
        before = 0
        for offset, size in self._places:
            for block in range(max(0, start - offset) // BLOCK, -(-min(end - offset, size) // BLOCK)):
                if not self._seen[before + block]:
                    first = offset + block * BLOCK
                    self._compare_block(before + block, first, min(first + BLOCK, offset + size), section)
            before += -(-size // BLOCK)

    def _compare_block(self, number: int, first: int, end: int, section: str) -> None:
        if zlib.crc32(self._bytes[first:end]) != self._expected[number]:
            raise CorruptStore(
                f"the container '{self._name}' is damaged: section '{section}' has another checksum than the index records "
                f"in bytes {first} to {end}"
            )
        self._seen[number] = 1


def _of_fixed_width(group: pa.Table, base: int) -> list[tuple[int, int]]:
    """Where the values of each column begin, and the bits of each, and where the bits of those that are no NULL; none if values have no width."""
    places: list[tuple[int, int]] = []
    for column in group.columns:
        arrays = column.chunks
        if len(arrays) != 1 or arrays[0].offset or not (width := _width(arrays[0].type)):
            return []
        for buffer, bits in zip(arrays[0].buffers(), (1, width), strict=True):
            if buffer is not None:
                places.append((buffer.address - base, bits))
    return places


def _ranges(array: pa.Array, base: int) -> Iterator[tuple[int, int]]:
    """Where the bytes of the rows of an array begin and end. What a range has is read once it was compared."""
    if not len(array):
        return
    start, end, (valid, *rest) = array.offset, array.offset + len(array), array.buffers()
    if valid is not None:
        yield _bits(valid, start, end, 1, base)
    if len(rest) == 1 and (width := _width(array.type)):
        yield _bits(rest[0], start, end, width, base)
    elif len(rest) == 2 and (width := _width_of_offsets(array.type)):
        yield _bits(rest[0], start, end + 1, width, base)
        if rest[1] is not None:
            offsets = np.frombuffer(rest[0], f"<i{width // 8}")
            yield _bits(rest[1], int(offsets[start]), int(offsets[end]), 8, base)
    else:
        for buffer in rest:
            if buffer is not None:
                yield _bits(buffer, 0, buffer.size, 8, base)


def _bits(buffer: pa.Buffer, start: int, end: int, width: int, base: int) -> tuple[int, int]:
    first = buffer.address - base
    return first + start * width // 8, first - (-end * width // 8)


def _width(kind: pa.DataType) -> int:
    """Bits of a value where it has one buffer; else 0."""
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        return 0
    try:
        return int(kind.bit_width)
    except ValueError:  # a type whose values have no width of their own
        return 0


def _width_of_offsets(kind: pa.DataType) -> int:
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return 32
    return 64 if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) else 0


def compare(
    pieces: Iterable[pa.Buffer], expected: int | None, section: str, container: str, compared: set[str]
) -> None:
    """Compare a section with its checksum, unless it is among those `compared`, or has none. Raises `CorruptStore`."""
    if expected is None or section in compared:
        return
    crc = 0
    for piece in pieces:
        crc = zlib.crc32(piece, crc)
    if crc != expected:
        raise CorruptStore(
            f"the container '{container}' is damaged: section '{section}' has checksum {crc:08x}, expected {expected:08x}"
        )
    compared.add(section)
