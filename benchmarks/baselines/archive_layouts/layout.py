"""The one access method to an archive in any layout, and the simplest layout: the stream itself, whose rows are drawn after reading.

All layouts return the same rows for the same reductions: those whose draw, a number from 0 to 1 that depends on the row alone, is below the share
that is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.baselines.archive_layouts.heap import AT, Counters, Doubles, Heap, Ints, ints
from benchmarks.baselines.archive_layouts.reducers import Reducer
from headrace.archive.blocks import hashes_of
from headrace.archive.runs import POSITION

Draw: TypeAlias = Callable[[Ints], Doubles]
"""The draw of each row, by its position."""
SEED = 7
EPSILON = 1e-9
"""A share of 0.3 that was computed as 1 - 0.7 is not less than 0.3."""


def by_hash(position: Ints) -> Doubles:
    """The draws that random blocks are made by."""
    return (hashes_of(position, SEED) >> np.uint64(11)).astype(np.float64) / 2.0**53


@dataclass(frozen=True, slots=True)
class Interval:
    """The event times from `begin` to `end` that a scan asks for."""

    begin: int = -(1 << 62)
    end: int = 1 << 62

    def rows(self, table: pa.Table) -> npt.NDArray[np.bool_]:
        """Which rows it has."""
        at = ints(table, AT)
        within: npt.NDArray[np.bool_] = (at >= self.begin) & (at <= self.end)
        return within

    def meets(self, low: int, high: int) -> bool:
        """Whether some instant is in it and in another interval."""
        return high >= self.begin and low <= self.end

    def holds(self, low: int, high: int) -> bool:
        """Whether it has all of another interval."""
        return low >= self.begin and high <= self.end


ALWAYS = Interval()


class Layout(Protocol):
    """An archive: it takes in a stream, and is scanned at reductions that a function of the scan decides."""

    counters: Counters

    def insert(self, rows: pa.Table) -> None:
        """Take in rows, which follow the ones before in the order of the stream."""

    def flush(self) -> None:
        """Write the rows that wait for more."""

    def scan(
        self, reducer: Reducer, interval: Interval = ALWAYS, columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """The archived rows of an interval, in the order of the stream, without those that are left out."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What a scan reads at a time: its event times, the share of its rows that is wanted, and of which the stored rows are a sample."""

    low: int
    high: int
    keep: float
    stored: float = 1.0

    @property
    def is_drawn(self) -> bool:
        """Whether the rows that are wanted have to be drawn of those that are stored."""
        return self.keep < self.stored - EPSILON


@dataclass(frozen=True, slots=True)
class Drawn:
    """Rows that a scan wants of a table that was read: it takes a share of the rows of an interval, and reads the columns that decide on it where it has to."""

    draw: Draw
    interval: Interval
    reducer: Reducer

    def columns(self, names: Sequence[str] | None, unit: Unit, *, in_order: bool = False) -> list[str] | None:
        """The columns to read of a unit for those that were asked for; with `in_order` those by which its rows are sorted."""
        if names is None:
            return None
        times = [] if self.interval.holds(unit.low, unit.high) and not in_order else [AT]
        places = [POSITION] if unit.is_drawn or in_order else []
        return [*dict.fromkeys([*names, *times, *places])]

    def of(self, table: pa.Table, unit: Unit) -> pa.Table:
        """The rows of a unit, which the reducer observes."""
        wanted = np.ones(table.num_rows, np.bool_)
        if unit.is_drawn:
            wanted &= self.draw(ints(table, POSITION)) < unit.keep
        if not self.interval.holds(unit.low, unit.high):
            wanted &= self.interval.rows(table)
        rows = table if wanted.all() else table.filter(pa.array(wanted))
        self.reducer.observe(rows)
        return rows


@dataclass(slots=True)
class Strawman:
    """The stream in order of time; a scan reads everything, and drops rows then."""

    heap: Heap
    counters: Counters
    draw: Draw = by_hash

    @staticmethod
    def at(folder: Path, block_rows: int, draw: Draw = by_hash) -> Strawman:
        """An empty archive in a folder."""
        counters = Counters()
        return Strawman(Heap(folder, "stream", block_rows, counters), counters, draw)

    def insert(self, rows: pa.Table) -> None:
        self.heap.append(rows)

    def flush(self) -> None:
        self.heap.flush()

    def scan(
        self, reducer: Reducer, interval: Interval = ALWAYS, columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        drawn = Drawn(self.draw, interval, reducer)
        for block in self.heap.blocks:
            low, high = block.first[0], block.last[0]
            if interval.meets(low, high):
                unit = Unit(low, high, 1 - reducer.level(high))
                yield drawn.of(self.heap.read([block], drawn.columns(columns, unit)), unit)
