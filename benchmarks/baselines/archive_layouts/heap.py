"""A heap of blocks: rows in order of time, in Parquet files whose row groups are blocks of equal size; and what reading it costs.

Rows have the columns of the product's archive: event time, position, fate, and the stream's own. They are appended in the order (event time,
position), as a buffer before the archive delivers them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.archive.runs import FATE, POSITION, RunEncoder

Ints: TypeAlias = npt.NDArray[np.int64]
Doubles: TypeAlias = npt.NDArray[np.float64]
Key: TypeAlias = tuple[int, int]
"""Event time and position of a row: its place in the stream."""

AT: Final = "at"
"""The column with event times, in microseconds."""
FIRST: Final[Key] = (-(1 << 63), -(1 << 63))
"""Before every row."""


def rows_of(at: Ints, position: Ints, **columns: Doubles) -> pa.Table:
    """Rows as layouts take them in."""
    fate = pa.array(np.zeros(len(at), np.int8))
    return pa.table({AT: at, **columns, POSITION: position, FATE: fate})


def ints(rows: pa.Table, name: str) -> Ints:
    """A column of whole numbers."""
    column: Ints = rows.column(name).to_numpy()
    return column


def key_of(rows: pa.Table, index: int) -> Key:
    """The place of a row in the stream."""
    return rows.column(AT)[index].as_py(), rows.column(POSITION)[index].as_py()


@dataclass(slots=True)
class Counters:
    """What a layout has read and written. A seek is a range of adjacent row groups, read one after the other; of bytes those of the columns
    that were read count.
    """

    rows_written: int = 0
    blocks_written: int = 0
    bytes_written: int = 0
    rows_read: int = 0
    blocks_read: int = 0
    bytes_read: int = 0
    bytes_of_blocks: int = 0
    """Of all columns of the blocks that were read."""
    seeks: int = 0
    blocks_dirtied: int = 0
    """Blocks of which a scan marked rows that no scan had marked."""
    _writing: Lock = field(default_factory=Lock, repr=False, compare=False)

    def wrote(self, rows: int, blocks: int, size: int) -> None:
        """Add a file; from any thread."""
        with self._writing:
            self.rows_written += rows
            self.blocks_written += blocks
            self.bytes_written += size


@dataclass(frozen=True, slots=True)
class Block:
    """A row group of a file: its rows are from the first key to the last one; `sizes` are the bytes of its columns."""

    path: Path
    group: int
    rows: int
    sizes: Mapping[str, int] = field(compare=False)
    first: Key
    last: Key

    @property
    def times(self) -> tuple[int, int]:
        """The first and the last event time."""
        return self.first[0], self.last[0]

    @property
    def bytes(self) -> int:
        """Of all columns."""
        return sum(self.sizes.values())


@dataclass(slots=True)
class Heap:
    """The blocks of one file series, oldest first; only those of finished files are seen by readers.

    `blocks` is replaced when files are, never changed, so that a reader has the blocks that there were when it began.
    """

    folder: Path
    name: str
    block_rows: int
    counters: Counters
    file_blocks: int = 64
    blocks: tuple[Block, ...] = ()
    _waiting: list[pa.Table] = field(default_factory=list)
    _files: int = 0
    _footers: dict[Path, pq.FileMetaData] = field(default_factory=dict)

    def append(self, rows: pa.Table) -> None:
        """Take in rows that follow; full files are written."""
        self._waiting.append(rows)
        full = self.block_rows * self.file_blocks
        while sum(table.num_rows for table in self._waiting) >= full:
            table = pa.concat_tables(self._waiting)
            self._waiting = [table.slice(full)]
            self.blocks += self.write(table.slice(0, full))

    def flush(self) -> None:
        """Write the rows that wait; the last block may not be full."""
        table = pa.concat_tables(self._waiting) if self._waiting else None
        self._waiting = []
        if table is not None and table.num_rows:
            self.blocks += self.write(table)

    def write(self, table: pa.Table) -> tuple[Block, ...]:
        """Write a file; its blocks, which readers do not see yet."""
        path = self.folder / f"{self.name}-{self._files}.parquet"
        self._files += 1
        at, position = ints(table, AT), ints(table, POSITION)
        encoder = RunEncoder(table.schema)
        encoder.write(table, at, row_group=self.block_rows)
        data = encoder.close()
        path.write_bytes(data)
        footer = pq.read_metadata(pa.BufferReader(data))
        first = np.arange(0, table.num_rows, self.block_rows)
        last = np.minimum(first + self.block_rows, table.num_rows) - 1
        ends = [list(zip(at[rows].tolist(), position[rows].tolist(), strict=True)) for rows in (first, last)]
        blocks = tuple(
            Block(path, group, int(stop - start) + 1, stored_bytes(footer, group), *keys)
            for group, (start, stop, *keys) in enumerate(zip(first, last, *ends, strict=True))
        )
        self.counters.wrote(table.num_rows, len(blocks), data.size)
        return blocks

    def after(self, key: Key) -> int:
        """The number of the first block with a row after a key."""
        return bisect_left(self.blocks, (key[0], key[1] + 1), key=lambda block: block.last)

    def read(self, blocks: Sequence[Block], columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of blocks, of which adjacent ones are read together; by default all columns."""
        names = None if columns is None else list(columns)
        tables = []
        for path, groups in _ranges(blocks):
            if path not in self._footers:
                self._footers[path] = pq.read_metadata(path)
            with pq.ParquetFile(path, metadata=self._footers[path]) as file:
                tables.append(file.read_row_groups(groups, names, use_threads=False))
            self.counters.seeks += 1
        self.counters.blocks_read += len(blocks)
        self.counters.rows_read += sum(block.rows for block in blocks)
        self.counters.bytes_read += sum(bytes_of(block.sizes, names) for block in blocks)
        self.counters.bytes_of_blocks += sum(block.bytes for block in blocks)
        return pa.concat_tables(tables)


def stored_bytes(footer: pq.FileMetaData, group: int) -> dict[str, int]:
    """The size of each column of a row group in its file."""
    row_group = footer.row_group(group)
    columns = (row_group.column(number) for number in range(row_group.num_columns))
    return {column.path_in_schema: column.total_compressed_size for column in columns}


def bytes_of(sizes: Mapping[str, int], columns: Sequence[str] | None) -> int:
    """The size of some columns; by default of all."""
    return sum(sizes.values()) if columns is None else sum(sizes[name] for name in columns)


def _ranges(blocks: Sequence[Block]) -> list[tuple[Path, list[int]]]:
    """Adjacent row groups of one file, in the order of the blocks."""
    ranges: list[tuple[Path, list[int]]] = []
    for block in blocks:
        if ranges and ranges[-1][0] == block.path and ranges[-1][1][-1] + 1 == block.group:
            ranges[-1][1].append(block.group)
        else:
            ranges.append((block.path, [block.group]))
    return ranges
