"""OnWriteReplicate: the stream and copies of it at preset reductions, filled as rows arrive.

A scan reads the nearest copy that is fine enough, and drops of it what is more than it wants. It changes copies where its reduction changes:
it continues after the last row that it has read, by event time and position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from benchmarks.baselines.archive_layouts.heap import AT, FIRST, Block, Counters, Heap, Key, ints, key_of
from benchmarks.baselines.archive_layouts.layout import ALWAYS, EPSILON, Draw, Drawn, Interval, Unit, by_hash
from benchmarks.baselines.archive_layouts.reducers import Reducer
from headrace.archive.runs import POSITION


@dataclass(slots=True)
class Copy:
    """The rows whose draw is below `keep`, of those that arrived after `since`; they are written in a thread of its own."""

    keep: float
    heap: Heap
    since: Key = FIRST
    until: Key = FIRST
    """The last row of the stream that was there when it was flushed: whether or not the copy has it."""
    _writer: Executor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _written: list[Future[None]] = field(default_factory=list)

    def append(self, rows: pa.Table) -> None:
        """Take in rows, without waiting until they are written."""
        self._written.append(self._writer.submit(self.heap.append, rows))

    def flush(self) -> None:
        """Write the rows that wait."""
        self._written.append(self._writer.submit(self.heap.flush))

    def wait(self) -> None:
        """Wait until all is written. Raises what writing has raised."""
        for written in self._written:
            written.result()
        self._written.clear()

    def end_of(self, block: Block) -> Key:
        """The last row of the stream of which a block has what the copy has."""
        return max(block.last, self.until) if block == self.heap.blocks[-1] else block.last


@dataclass(slots=True)
class PresetCopies:
    """The archive; `copies` ascend by what they have, and the last one has everything."""

    folder: Path
    block_rows: int
    counters: Counters
    draw: Draw = by_hash
    copies: list[Copy] = field(default_factory=list)
    _last: Key = FIRST

    @staticmethod
    def at(folder: Path, block_rows: int, reductions: Sequence[float], draw: Draw = by_hash) -> PresetCopies:
        """An empty archive in a folder, with a copy for each reduction."""
        archive = PresetCopies(folder, block_rows, Counters(), draw)
        for reduction in (0.0, *reductions):
            archive.add(reduction)
        return archive

    def add(self, reduction: float) -> None:
        """A copy with the rows that arrive from now on; scans of earlier rows do not use it."""
        keep = 1 - reduction
        heap = Heap(self.folder, f"copy-{keep:.3f}", self.block_rows, self.counters)
        self.copies.append(Copy(keep, heap, self._last))
        self.copies.sort(key=lambda copy: copy.keep)

    def remove(self, reduction: float) -> None:
        """A copy less; the primary one remains."""
        self.copies = [
            copy for copy in self.copies if copy.keep == 1 or abs(copy.keep - (1 - reduction)) > EPSILON
        ]

    def insert(self, rows: pa.Table) -> None:
        """A copy is made of the next larger one; each is written in a thread of its own."""
        draws, self._last = self.draw(ints(rows, POSITION)), key_of(rows, rows.num_rows - 1)
        for copy in reversed(self.copies):
            if copy.keep < 1:
                chosen = draws < copy.keep
                rows, draws = rows.filter(pa.array(chosen)), draws[chosen]
            copy.append(rows)

    def flush(self) -> None:
        for copy in self.copies:
            copy.flush()
        for copy in self.copies:
            copy.wait()
            copy.until = self._last

    def scan(
        self, reducer: Reducer, interval: Interval = ALWAYS, columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        drawn = Drawn(self.draw, interval, reducer)
        cursor: Key = (interval.begin, -(1 << 62))
        while (chosen := self._next(reducer, cursor, interval.end)) is not None:
            copy, block = chosen
            unit = Unit(*block.times, 1 - reducer.level(copy.end_of(block)[0]), copy.keep)
            is_cut = block.first <= cursor
            rows = copy.heap.read([block], drawn.columns(columns, unit, in_order=is_cut))
            if is_cut:
                at, position = ints(rows, AT), ints(rows, POSITION)
                follows = (at > cursor[0]) | ((at == cursor[0]) & (position > cursor[1]))
                rows = rows.filter(pa.array(follows))
            yield drawn.of(rows, unit)
            cursor = copy.end_of(block)

    def _next(self, reducer: Reducer, cursor: Key, end: int) -> tuple[Copy, Block] | None:
        """The block that continues after a row, of the coarsest copy that is fine enough for all of it."""
        for copy in self.copies:
            number = copy.heap.after(cursor)
            if number == len(copy.heap.blocks) or (cursor < copy.since):
                continue
            block = copy.heap.blocks[number]
            if block.first[0] > end:
                if copy.keep == 1:
                    return None
                continue
            if copy.keep >= 1 - reducer.level(copy.end_of(block)[0]) - EPSILON:
                return copy, block
        return None
