"""OnReadModify: scans mark rows as dead, a vacuum copies what is live, and later scans read the copy; with the map of its free space.

Marks belong to one reducer, and its copy does too. Files are never changed: a mark is the least share that was wanted of a block (dead is a row
whose draw is not below it), and the vacuum writes files again that have dead rows. What waits for it is the free-space map: blocks
with the number and the bytes of their dead rows. Each row of a copy has the share that it survived, `samplerate`; a row of which less was
wanted cannot be in the sample for more, so that scans that want more read the stream, until these are too many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from benchmarks.baselines.archive_layouts.heap import Block, Counters, Doubles, Heap, ints
from benchmarks.baselines.archive_layouts.layout import ALWAYS, Draw, Drawn, Interval, Unit, by_hash
from benchmarks.baselines.archive_layouts.reducers import Reducer
from headrace.archive.runs import POSITION

SAMPLERATE: Final = "samplerate"
"""The column of copies with the share that a row survived."""
RESTART: Final = 0.5
"""The share of scans that read the stream, for want of rows in the copy, from which the copy is given up."""
_ACCESSES: Final = 20
"""The scans of which that is the share."""


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """The dead rows of a block, and about how many bytes they have."""

    rows: int
    bytes: float


@dataclass(slots=True)
class Reduced:
    """What scans of one reducer have marked, and their copy.

    `marks` has the least share that was wanted of a block, `wanted` those of the intervals of time that earlier vacuums have reduced: of
    such an interval a copy may have no row. `heap` is the stream's before the first vacuum.
    """

    heap: Heap
    has_copy: bool = False
    marks: dict[Block, float] = field(default_factory=dict)
    wanted: tuple[tuple[int, int, float], ...] = ()
    free: dict[Block, FreeSpace] = field(default_factory=dict)
    accesses: deque[bool] = field(default_factory=lambda: deque(maxlen=_ACCESSES))
    """Of the last scans, whether they read the stream because the copy was too coarse."""

    def survived(self) -> Iterator[tuple[int, int, float]]:
        """Intervals of time, of whose rows only a share is left or live."""
        yield from self.wanted
        for block, keep in self.marks.items():
            if keep < 1:
                yield block.first[0], block.last[0], keep

    @property
    def original_share(self) -> float:
        """The share of the last scans that read the stream since the copy was too coarse."""
        return sum(self.accesses) / len(self.accesses) if self.accesses else 0.0


@dataclass(slots=True)
class MarkedCopies:
    """The archive. With `by_reference` copies refer to new files of the stream, and have their rows only after a vacuum."""

    stream: Heap
    counters: Counters
    draw: Draw = by_hash
    by_reference: bool = False
    reduced: dict[str, Reduced] = field(default_factory=dict)
    _copies: int = 0

    @staticmethod
    def at(
        folder: Path, block_rows: int, draw: Draw = by_hash, *, by_reference: bool = False
    ) -> MarkedCopies:
        """An empty archive in a folder."""
        counters = Counters()
        return MarkedCopies(Heap(folder, "stream", block_rows, counters), counters, draw, by_reference)

    def insert(self, rows: pa.Table) -> None:
        before = self.stream.blocks
        self.stream.append(rows)
        self._refer(before)
        if not self.by_reference:
            for copy in self._with_copies():
                copy.heap.append(_rated(rows, np.ones(rows.num_rows)))

    def flush(self) -> None:
        before = self.stream.blocks
        self.stream.flush()
        self._refer(before)
        for copy in self._with_copies():
            copy.heap.flush()

    def scan(
        self, reducer: Reducer, interval: Interval = ALWAYS, columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        of = self.reduced.setdefault(reducer.name, Reduced(self.stream))
        heap, is_marking = of.heap, self._is_fine(of, reducer, interval)
        of.accesses.append(not is_marking)
        if not is_marking:
            heap = self.stream
            if of.original_share > RESTART and len(of.accesses) == _ACCESSES:
                del self.reduced[reducer.name]
        drawn = Drawn(self.draw, interval, reducer)
        for block in heap.blocks:
            low, high = block.first[0], block.last[0]
            if not interval.meets(low, high):
                continue
            unit = Unit(low, high, 1 - reducer.level(high))
            names = drawn.columns(columns, unit)
            if names is not None and is_marking:
                names = [*dict.fromkeys([*names, POSITION])]
            table = heap.read([block], names)
            if is_marking:
                self._mark(of, block, table, unit.keep)
            yield drawn.of(table, unit)

    def vacuum(self, reducer: str) -> None:
        """Copy the live rows of a reducer's scans, or write the files of its copy again that have dead rows."""
        of = self.reduced[reducer]
        if of.has_copy and not of.free:
            return
        self.flush()
        seen = of.heap.blocks
        self._copies += 1
        copy = Heap(
            self.stream.folder, f"{reducer}-{self._copies}", self.stream.block_rows, self.stream.counters
        )
        after: list[Block] = []
        dirty = {block.path for block in of.free} if of.has_copy else {block.path for block in seen}
        for is_dirty, blocks in groupby(seen, key=lambda block: block.path in dirty):
            if is_dirty:
                live = self._live(of, list(blocks))
                after += copy.write(live) if live.num_rows else ()
            else:
                after += blocks
        copy.blocks = tuple(after)
        self.reduced[reducer] = Reduced(
            copy, has_copy=True, wanted=tuple(of.survived()), accesses=of.accesses
        )

    def free_space(self, reducer: str) -> dict[Block, FreeSpace]:
        """The blocks that have rows that are dead for a reducer."""
        return dict(self.reduced[reducer].free) if reducer in self.reduced else {}

    def _is_fine(self, of: Reduced, reducer: Reducer, interval: Interval) -> bool:
        """Whether of every time that it asks for there is what the scan wants."""
        return all(
            keep >= 1 - reducer.level(high) for low, high, keep in of.survived() if interval.meets(low, high)
        )

    def _mark(self, of: Reduced, block: Block, table: pa.Table, keep: float) -> None:
        draws = self.draw(ints(table, POSITION))
        dead = int((draws >= min(keep, of.marks.get(block, 1.0))).sum())
        before = of.free.get(block, FreeSpace(0, 0.0)).rows
        of.marks[block] = min(keep, of.marks.get(block, 1.0))
        if dead > before:
            of.free[block] = FreeSpace(dead, dead / block.rows * block.bytes)
            self.counters.blocks_dirtied += 1

    def _live(self, of: Reduced, blocks: Sequence[Block]) -> pa.Table:
        """The rows of blocks that no scan has marked, each with the share that it has survived."""
        tables = []
        for block in blocks:
            table, keep = of.heap.read([block]), of.marks.get(block, 1.0)
            rates = (
                table.column(SAMPLERATE).to_numpy()
                if SAMPLERATE in table.column_names
                else np.ones(table.num_rows)
            )
            rated = _rated(table, np.minimum(rates, keep))
            tables.append(rated.filter(pa.array(self.draw(ints(table, POSITION)) < keep)))
        return pa.concat_tables(tables).combine_chunks()

    def _with_copies(self) -> list[Reduced]:
        return [of for of in self.reduced.values() if of.has_copy]

    def _refer(self, before: tuple[Block, ...]) -> None:
        """With copies that refer to files, let them refer to what is new."""
        if self.by_reference:
            for of in self._with_copies():
                of.heap.blocks += self.stream.blocks[len(before) :]


def _rated(table: pa.Table, rates: Doubles) -> pa.Table:
    plain = table.drop_columns([SAMPLERATE]) if SAMPLERATE in table.column_names else table
    return plain.append_column(SAMPLERATE, pa.array(rates))
