"""Checksums of the column chunks of a Parquet file, between its last page and its footer, where no reader of Parquet looks.

They are 32 bits for each column of each row group, of a small file one for all; after them are their number, a CRC-32 of them and of
the footer, and a magic word.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.errors import CorruptStore
from headrace.store.files.checksums.fast_checksum import fast_checksum
from headrace.store.files.container_index import MAGIC

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_SMALL: Final = 1 << 18
"""Bytes of a file that has one checksum: to find its columns takes longer."""
_TAIL: Final = struct.Struct("<II8s")
_PARQUET: Final = b"PAR1"
_END: Final = struct.Struct("<I4s")
"""The end of Parquet: the bytes of the footer, and its magic word."""


def finished(
    out: pa.BufferOutputStream,
    writer: pq.ParquetWriter,
    footer: Sequence[pq.FileMetaData],
    schema: pa.Schema,
    row_groups: int,
) -> pa.Buffer:
    """Close a writer of so many row groups with checksums; the file's bytes. `footer` is its metadata collector."""
    pages = out.tell()
    count = 1 if pages <= _SMALL else row_groups * sum(_leaves(field.type) for field in schema)
    out.write(bytes(4 * count + _TAIL.size))
    writer.close()
    data = out.getvalue()
    _fill(data, footer[0], count)
    return data


def _fill(data: pa.Buffer, footer: pq.FileMetaData, count: int) -> None:
    """Write the checksums of a finished file into their room, which was made for so many."""
    end = _footer_start(data)
    first, last = end - _TAIL.size - 4 * count, end - _TAIL.size
    places = [(len(_PARQUET), first)] if count == 1 else _places(footer)
    if len(places) != count:
        return  # without checksums
    written = memoryview(data).cast("B")
    written[first:last] = np.array([fast_checksum(data, *place) for place in places], "<u4").tobytes()
    written[last:end] = _TAIL.pack(count, _crc(data, first, last), MAGIC)


@dataclass(frozen=True, slots=True, eq=False)
class ChunkChecksums:
    """The checksums of a file, to be compared with what is read of it."""

    data: pa.Buffer
    expected: Sequence[int]
    name: str

    @staticmethod
    def of(data: pa.Buffer, name: str) -> ChunkChecksums | None:
        """Those of a file; None for one of a version that had none. Raises `CorruptStore` where they or the footer differ from what was written."""
        end = _footer_start(data)
        if end < _TAIL.size:
            return None
        count, crc, magic = _TAIL.unpack_from(memoryview(data), end - _TAIL.size)
        if magic != MAGIC:
            return None
        first = end - _TAIL.size - 4 * count
        if first < 0 or _crc(data, first, end - _TAIL.size) != crc:
            raise CorruptStore(
                f"the file '{name}' is damaged: its footer has another checksum than it records"
            )
        return ChunkChecksums(data, memoryview(data)[first : first + 4 * count].cast("I"), name)

    def compare(self, file: pq.ParquetFile, columns: Sequence[str] | None, groups: Sequence[int]) -> None:
        """Compare some columns (all when None) of some row groups, before they are decoded. Raises `CorruptStore` for bytes that differ."""
        if len(self.expected) == 1:
            end = _footer_start(self.data) - _TAIL.size - 4
            self._compare(0, (len(_PARQUET), end))
            return
        footer, leaves = file.metadata, _leaves_of(file.schema_arrow, columns)
        for group in groups:
            of_group, first = footer.row_group(group), group * footer.num_columns
            for leaf in leaves:
                self._compare(first + leaf, _place(of_group, leaf), leaf, group)

    def _compare(self, number: int, place: tuple[int, int], leaf: int = -1, group: int = -1) -> None:
        if fast_checksum(self.data, *place) != self.expected[number]:
            what = "it" if leaf < 0 else f"column {leaf} of row group {group}"
            raise CorruptStore(
                f"the file '{self.name}' is damaged: {what} has another checksum than it records"
            )


def _places(footer: pq.FileMetaData) -> list[tuple[int, int]]:
    groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
    return [_place(group, leaf) for group in groups for leaf in range(footer.num_columns)]


def _place(group: pq.RowGroupMetaData, leaf: int) -> tuple[int, int]:
    """Where the pages of a column of a row group begin and end."""
    chunk = group.column(leaf)
    start = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    return start, start + chunk.total_compressed_size


def _footer_start(data: pa.Buffer) -> int:
    """Where the footer begins; 0 of bytes that are no Parquet."""
    if data.size < _END.size:
        return 0
    size, magic = _END.unpack_from(memoryview(data), data.size - _END.size)
    return max(0, data.size - _END.size - size) if magic == _PARQUET else 0


def _crc(data: pa.Buffer, first: int, last: int) -> int:
    """Of the checksums, and of the footer and all after it."""
    view = memoryview(data)
    return zlib.crc32(view[last + _TAIL.size :], zlib.crc32(view[first:last]))


def _leaves_of(schema: pa.Schema, columns: Sequence[str] | None) -> list[int]:
    """The numbers of the leaves, which Parquet stores, of some columns."""
    numbers, first = list[int](), 0
    for field in schema:
        count = _leaves(field.type)
        if columns is None or field.name in columns:
            numbers += range(first, first + count)
        first += count
    return numbers


def _leaves(kind: pa.DataType) -> int:
    if not pa.types.is_nested(kind):
        return 1
    return sum(_leaves(kind.field(number).type) for number in range(kind.num_fields))
