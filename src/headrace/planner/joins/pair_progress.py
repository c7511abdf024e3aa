"""Progress of the times of joined rows in the results of their join: below which instants of each side's time, and of the
times of all sides together, no later row comes, as functions of the punctuation of streams.

A later row of a join has at least one new row. So of a side that holds a row for R, none below the punctuation of its own
streams and below that of the others less R is in a later row (individual punctuation); and no later row has every time below
the punctuation of its own stream (joint punctuation), whatever the windows. Where an instant is emitted once all streams have
passed it, the punctuation is that of the results. Of windows that slide a row is emitted with each of them, so that a side's times are
bounded by the beginning of the next window.
Source: Li 2008, section 7.2 (Figures 7-1, 7-3 and 7-4).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, product
from math import gcd
from typing import Final, TypeAlias

from headrace.algebra.expressions.expression import Call, Column, Expression, Literal
from headrace.algebra.query import (
    Aggregate,
    Bounds,
    Distinct,
    Emit,
    Join,
    Node,
    Project,
    Query,
    StreamScan,
    Top,
    UnionAll,
    Windowed,
    walk,
)
from headrace.algebra.windows.window import TimeRange, TimeSlide, Unbounded
from headrace.dataclass import dataclass
from headrace.planner.joins.interval_joins import with_intervals
from headrace.planner.joins.join_graph import windows_of
from headrace.planner.joins.join_stage import inputs, stored_for
from headrace.time import DAY, HOUR, MINUTE, SECOND, Duration

RESULTS: Final = ""
"""In place of the name of a stream: the results of the join's query."""
_UNITS: Final = {"SECOND": SECOND, "MINUTE": MINUTE, "HOUR": HOUR, "DAY": DAY}
_MOST_TOGETHER: Final = 8
"""Combinations of columns with joint punctuation, at most."""

Term: TypeAlias = tuple[str, Duration]
"""The punctuation of a stream, less a length of time."""


@dataclass(frozen=True, slots=True)
class TimeBound:
    """No later row has a value of `column` below the least of `terms`, rounded down to a multiple of `unit`."""

    column: str
    terms: tuple[Term, ...]
    unit: Duration = 1


@dataclass(frozen=True, slots=True)
class PairProgress:
    """What a join of `streams` promises of its results: no later row is below all bounds of one of `bounds`."""

    streams: tuple[str, ...]
    bounds: tuple[tuple[TimeBound, ...], ...]


@dataclass(frozen=True, slots=True)
class _Side:
    """A joined stream: its time, the streams it reads, and how long it holds a row that was emitted; None without end."""

    time: str | None
    streams: tuple[str, ...]
    reach: Duration | None


def pair_progress(query: Query) -> PairProgress | None:
    """The progress of the times of an inner join's rows among the columns of its results; None where there is none.

    The results are rows of the join, each emitted once or with each of its windows, and all of its sources streams under windows of time.
    """
    nodes = walk(with_intervals(query).root)
    top = next((node for node in nodes if isinstance(node, Join) and isinstance(node.right, Windowed)), None)
    project = next((node for node in nodes if isinstance(node, Project)), None)
    if top is None or project is None or not _emits_combinations(query, nodes):
        return None
    windows = windows_of(top)
    grid = _grid_of(windows)
    if (grid is not None) != (query.emission == "windows"):
        return None
    sides = _sides(windows) if grid is None else _sliding_sides(windows, grid)
    if sides is None:
        return None
    bare = all(isinstance(window.window, Unbounded) for window in windows)
    joint = _Joint(sides, bare and not any(isinstance(node, Distinct) for node in nodes), grid)
    alone: list[TimeBound] = []
    by_side: list[list[TimeBound]] = [[] for _ in sides]
    for column in project.columns:
        source, of_column = _truncated(column.expression)
        unit = joint.unit(of_column)
        if unit is None:
            continue
        terms = joint.bound(source)
        if terms is not None:
            alone.append(TimeBound(column.name, terms, unit))
        for number, side in enumerate(sides):
            if isinstance(source, Column) and source.name == side.time:
                by_side[number].append(TimeBound(column.name, joint.own(side), unit))
    together = list(product(*by_side)) if grid is None else []
    bounds = (*((bound,) for bound in alone), *(together if len(together) <= _MOST_TOGETHER else ()))
    streams = tuple(sorted({name for side in sides for name in side.streams}))
    return PairProgress(streams, bounds) if bounds else None


def _emits_combinations(query: Query, nodes: Sequence[Node]) -> bool:
    """Whether the results are the rows of an inner join, each emitted at the instant at which it begins, or with each of its windows."""
    if query.emission not in ("stream", "windows") or query.revisions is not None or query.shedding:
        return False
    if any(isinstance(node, Aggregate | Bounds | Top) for node in nodes):
        return False
    joins = [node for node in nodes if isinstance(node, Join) and isinstance(node.right, Windowed)]
    emits = [node for node in nodes if isinstance(node, Emit)]
    return all(join.kind == "inner" for join in joins) and all(emit.kind == "istream" for emit in emits)


def _sides(windows: Sequence[Windowed]) -> list[_Side] | None:
    """The joined streams; None where one is no stream, or has no window of time."""
    sides = []
    for window in windows:
        scan = window.source
        if not isinstance(scan, StreamScan | UnionAll) or not _reads_streams(scan):
            return None
        if not isinstance(window.window, TimeRange | Unbounded | TimeSlide):
            return None
        time = None if scan.time is None else f"{scan.alias}.{scan.time}"
        sides.append(_Side(time, tuple(name for name, *_ in inputs(window)), stored_for(window.window)))
    return sides


def _grid_of(windows: Sequence[Windowed]) -> Duration | None:
    """The slide of windows whose ends and beginnings are multiples of it; 1 of others that slide; None where they do not."""
    slid = [window.window for window in windows if isinstance(window.window, TimeSlide)]
    if len(slid) < len(windows):
        return None
    slide = slid[0].slide
    return slide if all(gcd(window.range, window.anchor, slide) == slide for window in slid) else 1


def _sliding_sides(windows: Sequence[Windowed], grid: Duration) -> list[_Side] | None:
    """The sides of windows that slide: the next one ends after what was emitted, and begins its range before that."""
    sides = _sides(windows)
    if sides is None:
        return None
    return [replace(side, reach=None if side.reach is None else side.reach - grid) for side in sides]


def _reads_streams(scan: StreamScan | UnionAll) -> bool:
    members = scan.inputs if isinstance(scan, UnionAll) else (scan,)
    return all(isinstance(member, StreamScan) for member in members)


def _truncated(expression: Expression) -> tuple[Expression, Duration]:
    """An expression without `date_trunc` to a unit of constant length, and that length."""
    match expression:
        case Call(function="date_trunc", arguments=(Literal(value=str() as name), inner)):
            unit = _UNITS.get(name.upper())
            return (inner, unit) if unit is not None else (expression, 1)
        case _:
            return expression, 1


@dataclass(frozen=True, slots=True)
class _Joint:
    """The sides of a join; `at_once`: a result is emitted when its last row has come, not when all streams have passed it.

    `grid`: windows slide, by it where their bounds are multiples of it.
    """

    sides: Sequence[_Side]
    at_once: bool
    grid: Duration | None

    def unit(self, of_column: Duration) -> Duration | None:
        """The unit of the bounds of a column; None where neither is a multiple of the other."""
        if self.grid is None or of_column % self.grid == 0:
            return of_column
        return self.grid if self.grid % of_column == 0 else None

    def own(self, side: _Side) -> tuple[Term, ...]:
        """What bounds the time of new rows of a side."""
        return tuple((name, 0) for name in side.streams) if self.at_once else ((RESULTS, 0),)

    def bound(self, expression: Expression) -> tuple[Term, ...] | None:
        """What bounds the values of an expression over the times of the sides; None without a bound.

        The greatest of all times is that of a row that is new, or greater. The least is below every time.
        """
        match expression:
            case Column(name=name):
                side = next((side for side in self.sides if side.time == name), None)
                return None if side is None else self._individual(side)
            case Call(function="least", arguments=arguments):
                bounds = [self.bound(argument) for argument in arguments]
                known = [terms for terms in bounds if terms is not None]
                return _least(chain(*known)) if len(known) == len(bounds) else None
            case Call(function="greatest", arguments=arguments):
                names = {argument.name for argument in arguments if isinstance(argument, Column)}
                every = all(side.time in names for side in self.sides)
                if every and self.grid is not None:
                    return ((RESULTS, min(side.reach or 0 for side in self.sides)),)
                return _least(term for side in self.sides for term in self.own(side)) if every else None
            case _:
                return None

    def _individual(self, side: _Side) -> tuple[Term, ...] | None:
        """The bounds of one side's time; None where its rows are held without end."""
        if side.reach is None:
            return None
        if not self.at_once:
            return ((RESULTS, side.reach),)
        others = ((name, side.reach) for other in self.sides if other is not side for name in other.streams)
        return _least(chain(self.own(side), others))


def _least(terms: Iterable[Term]) -> tuple[Term, ...]:
    """The terms of which the least counts: of each stream that with the longest length."""
    longest: dict[str, Duration] = {}
    for name, length in terms:
        longest[name] = max(length, longest.get(name, 0))
    return tuple(sorted(longest.items()))
