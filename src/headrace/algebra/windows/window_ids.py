"""Definition of windows that slide, on a list of rows, for tests: the numbers of windows, the rows of each
(`extent`), and the windows of a row (`wids`).

`extent` is the definition; `wids` is the inverse by arithmetic. They agree: a row is in
extent(w) exactly when w is in wids(row). All are functions of the window and of the set of rows, never of the order of
processing. Source: Li 2008, ch. 5, with floors, an explicit origin and sets of distinct ends.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.algebra.windows.contract_check import called
from headrace.algebra.windows.window import (
    Custom,
    Delta,
    Landmark,
    RowsSlide,
    Session,
    SlidingWindow,
    TimeSlide,
    TupleSlide,
)
from headrace.dataclass import dataclass
from headrace.time import Instant


class Arrival(NamedTuple):
    """What windows read of a row: its event time, its position in the order of arrival, its partition's key, and the
    value of a delta (None for NULL and NaN).
    """

    at: Instant
    position: int
    part: Hashable = ()
    value: float | None = None


class WindowId(NamedTuple):
    """A window: its number (that of a window ending at a row's time is that time), and its partition's key."""

    number: int
    part: Hashable = ()


@dataclass(frozen=True, slots=True)
class WindowIds:
    """The numbers first <= i < stop in one partition (`stop` None: without end); with `among`, only those of them."""

    first: int
    stop: int | None
    part: Hashable = ()
    among: frozenset[int] | None = None

    def __contains__(self, window: object) -> bool:
        return (
            isinstance(window, WindowId)
            and window.part == self.part
            and window.number >= self.first
            and (self.stop is None or window.number < self.stop)
            and (self.among is None or window.number in self.among)
        )


def windows(window: SlidingWindow, rows: Sequence[Arrival]) -> list[WindowId]:
    """The windows that hold a row, in order; a landmark's up to the first that holds all rows."""
    match window:
        case TimeSlide():
            held = {number for row in rows for number in _run(wids(window, rows, row))}
            return [WindowId(number) for number in sorted(held)]
        case Landmark():
            firsts = [wids(window, rows, row).first for row in rows]
            return [WindowId(number) for number in range(min(firsts), max(firsts) + 1)] if firsts else []
        case RowsSlide():
            return [
                WindowId(number, part)
                for part, size in _sizes(rows)
                for number in range(1, size // window.slide + 1)
            ]
        case TupleSlide():
            return [
                WindowId(end, part) for part, _ in _sizes(rows) for end in sorted(_ends(window, rows, part))
            ]
        case Delta():
            parts = (part for part, _ in _sizes(rows))
            return [WindowId(n, part) for part in parts for n, _ in enumerate(_deltas(window, rows, part), 1)]
        case Custom():
            return [WindowId(number) for number in sorted(set(_called(window, rows)[1]))]
        case Session():
            return [
                WindowId(start, part)
                for part, _ in _sizes(rows)
                for start in sorted({_start(window, rows, row) for row in rows if row.part == part})
            ]


def extent(window: SlidingWindow, rows: Sequence[Arrival], window_id: WindowId) -> list[Arrival]:
    """The rows that a window holds."""
    if isinstance(window, TimeSlide | Landmark):
        return [row for row in rows if window.holds(window_id.number, row.at)]
    if isinstance(window, TupleSlide):
        return [row for row in rows if row.part == window_id.part and window.holds(window_id.number, row.at)]
    if isinstance(window, Delta):
        deltas = _deltas(window, rows, window_id.part)
        return deltas[window_id.number - 1] if 1 <= window_id.number <= len(deltas) else []
    if isinstance(window, Custom):
        values = [(row.value,) if window.on else () for row in rows]
        holds = window.kind.holds
        return [row for row, of in zip(rows, values, strict=True) if holds(window_id.number, row.at, *of)]
    if isinstance(window, Session):
        partition = (row for row in rows if row.part == window_id.part)
        return [row for row in partition if _start(window, rows, row) == window_id.number]
    last = window_id.number * window.slide
    return [
        row
        for row in rows
        if row.part == window_id.part and last - window.count < _number(window, rows, row) <= last
    ]


def wids(window: SlidingWindow, rows: Sequence[Arrival], row: Arrival) -> WindowIds:
    """The windows that hold a row; `rows` are all of its stream, for windows that depend on others."""
    match window:
        case TimeSlide():
            after = row.at - window.anchor
            return WindowIds(after // window.slide + 1, (after + window.range) // window.slide + 1)
        case Landmark():
            return WindowIds((row.at - window.anchor) // window.slide + 1, None)
        case RowsSlide():
            index = _number(window, rows, row) - 1
            full = sum(other.part == row.part for other in rows) // window.slide
            stop = min((index + window.count) // window.slide, full) + 1
            return WindowIds(index // window.slide + 1, stop, row.part)
        case TupleSlide():
            return WindowIds(row.at, row.at + window.range, row.part, _ends(window, rows, row.part))
        case Delta():
            number = next(n for n, held in enumerate(_deltas(window, rows, row.part), 1) if row in held)
            return WindowIds(number, number + 1, row.part)
        case Custom():
            _, numbers = _called(window, [row])
            return WindowIds(min(numbers, default=0), max(numbers, default=-1) + 1, (), frozenset(numbers))
        case Session():
            start = _start(window, rows, row)
            return WindowIds(start, start + 1, row.part)


def _run(ids: WindowIds) -> range:
    assert ids.stop is not None
    return range(ids.first, ids.stop)


def _sizes(rows: Sequence[Arrival]) -> list[tuple[Hashable, int]]:
    """The partitions, and their numbers of rows."""
    sizes: dict[Hashable, int] = {}
    for row in rows:
        sizes[row.part] = sizes.get(row.part, 0) + 1
    return list(sizes.items())


def _number(window: RowsSlide | TupleSlide, rows: Sequence[Arrival], row: Arrival) -> int:
    """The row's number in its partition, from 1."""
    partition = [other for other in rows if other.part == row.part]
    if window.numbered == "row_num":
        return sum(other.position <= row.position for other in partition)
    return sum((other.at, other.position) <= (row.at, row.position) for other in partition)


def _ends(window: TupleSlide, rows: Sequence[Arrival], part: Hashable) -> frozenset[Instant]:
    """The ends of windows of a partition: the times of its n-th, 2n-th, ... rows."""
    partition = [row for row in rows if row.part == part]
    return frozenset(row.at for row in partition if _number(window, rows, row) % window.every == 0)


def _deltas(window: Delta, rows: Sequence[Arrival], part: Hashable) -> list[list[Arrival]]:
    """The windows of a partition, each with its rows."""
    groups: list[list[Arrival]] = []
    first: float | None = None
    for row in sorted(row for row in rows if row.part == part):
        if not groups or (first is not None and window.leaves(first, row.value)):
            groups.append([])
            first = None
        groups[-1].append(row)
        first = row.value if first is None else first
    return groups


def _called(window: Custom, rows: Sequence[Arrival]) -> tuple[list[int], list[int]]:
    """(row, window) pairs; there is at most one column, the value."""
    columns = [pa.array([row.value for row in rows], pa.float64())] if window.on else []
    row, number = called(window.kind, np.array([row.at for row in rows], np.int64), columns)
    return row.tolist(), number.tolist()


def _start(window: Session, rows: Sequence[Arrival], row: Arrival) -> Instant:
    """The first time of the row's session."""
    start = row.at
    for at in sorted(
        (other.at for other in rows if other.part == row.part and other.at < row.at), reverse=True
    ):
        if not window.joins(at, start):
            break
        start = at
    return start


__all__ = ["Arrival", "WindowId", "WindowIds", "extent", "wids", "windows"]
