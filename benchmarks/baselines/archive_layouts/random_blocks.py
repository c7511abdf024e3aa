"""RandomizeThenSort: runs of equal random blocks, in the product's own files, of which a scan reads the first ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.baselines.archive_layouts.heap import AT, Counters, bytes_of, ints, stored_bytes
from benchmarks.baselines.archive_layouts.layout import ALWAYS, EPSILON, SEED, Drawn, Interval, Unit, by_hash
from benchmarks.baselines.archive_layouts.reducers import Reducer
from headrace.archive.blocks import Blocks, Parts
from headrace.archive.prefixes import Prefixes
from headrace.archive.run_file import RunFile
from headrace.archive.runs import BLOCK, POSITION, Order, randomised


class WholeBlocks(Blocks):
    """Blocks as in the paper: none is cut into halves."""

    def parts(self, rows: int) -> Parts:
        """The parts of a run of so many rows: its blocks."""
        del rows
        return Parts(self.seed, self.count)


@dataclass(frozen=True, slots=True)
class Run:
    """A file: its prefixes, the event times of its rows, and the bytes of the columns of each row group."""

    path: Path
    prefixes: Prefixes
    low: int
    high: int
    sizes: tuple[dict[str, int], ...]


@dataclass(slots=True)
class RandomBlocks:
    """The archive: runs of `blocks.count` blocks of about `block_rows` rows."""

    folder: Path
    block_rows: int
    blocks: Blocks
    counters: Counters = field(default_factory=Counters)
    is_ordered: bool = True
    """Whether a scan returns the rows of a run in the order of the stream, rather than block by block."""
    runs: tuple[Run, ...] = ()
    _waiting: list[pa.Table] = field(default_factory=list)

    @staticmethod
    def at(folder: Path, block_rows: int, run_blocks: int, *, halved: bool = False) -> RandomBlocks:
        """An empty archive in a folder; `halved`: as the product cuts the first block."""
        kind = Blocks if halved else WholeBlocks
        return RandomBlocks(folder, block_rows, kind(SEED, run_blocks))

    def insert(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        full = self.block_rows * self.blocks.count
        while sum(table.num_rows for table in self._waiting) >= full:
            table = pa.concat_tables(self._waiting)
            self._waiting = [table.slice(full)]
            self._write(table.slice(0, full))

    def flush(self) -> None:
        rows = pa.concat_tables(self._waiting) if self._waiting else None
        self._waiting = []
        if rows is not None and rows.num_rows:
            self._write(rows)

    def scan(
        self, reducer: Reducer, interval: Interval = ALWAYS, columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        drawn = Drawn(by_hash, interval, reducer)
        for run in self.runs:
            if not interval.meets(run.low, run.high):
                continue
            keep = 1 - reducer.level(run.high)
            if keep > EPSILON:
                prefix = run.prefixes.holding(keep - EPSILON)
                unit = Unit(run.low, run.high, keep, run.prefixes.shares[prefix])
                names = drawn.columns(columns, unit, in_order=self.is_ordered)
                yield drawn.of(self._read(run, run.prefixes.groups[prefix], names), unit)

    def _read(self, run: Run, count: int, names: Sequence[str] | None) -> pa.Table:
        """The rows of the first row groups of a run, in the order of the stream."""
        groups = range(count)
        with pq.ParquetFile(run.path, metadata=run.prefixes.footer) as file:
            rows = RunFile(file, str(run.path)).read(names, groups)
        self.counters.seeks += 1
        self.counters.blocks_read += len(groups)
        self.counters.rows_read += rows.num_rows
        self.counters.bytes_read += sum(bytes_of(run.sizes[group], names) for group in groups)
        self.counters.bytes_of_blocks += sum(bytes_of(run.sizes[group], None) for group in groups)
        if BLOCK in rows.column_names:
            rows = rows.drop_columns([BLOCK])
        if not self.is_ordered:
            return rows
        return rows.take(pa.array(np.lexsort([ints(rows, POSITION), ints(rows, AT)])))

    def _write(self, rows: pa.Table) -> None:
        at, position = ints(rows, AT), ints(rows, POSITION)
        drawn = rows.append_column(BLOCK, pa.array(self.blocks.of(position)))
        data = randomised(drawn, Order(at, position, position), self.blocks)
        path = self.folder / f"run-{len(self.runs)}.parquet"
        path.write_bytes(data)
        prefixes = Prefixes.of(pq.read_metadata(pa.BufferReader(data)))
        sizes = tuple(stored_bytes(prefixes.footer, group) for group in range(prefixes.footer.num_row_groups))
        self.counters.wrote(rows.num_rows, len(sizes), data.size)
        self.runs += (Run(path, prefixes, int(at.min()), int(at.max()), sizes),)
