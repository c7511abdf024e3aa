"""The members of a family that take the same turn, finished together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Column, Named
from headrace.operators.base.batch import Rejected
from headrace.operators.base.group_codes import Ints, flat, ints
from headrace.operators.base.operator import (
    NOTHING_EMITTED,
    WINDOW,
    Advance,
    EmittedCounts,
    Operator,
    Sections,
    StateOwner,
)
from headrace.operators.families.family import MEMBER_AT_REST, QUERY_NUMBER, QueryRowCounts, number_of
from headrace.operators.output.output_stage import Finish, finish
from headrace.operators.window_assembly.window_closing import Chunk, ClosedWindows, close
from headrace.schema import BIGINT

if TYPE_CHECKING:
    from headrace.operators.time_windows.pane_aggregate import PaneAggregate


_COLUMN: Final = Column(QUERY_NUMBER, BIGINT)
_NUMBER: Final = itemgetter(0)


@dataclass(frozen=True, slots=True)
class QueryStep:
    """What one query gets of an epoch; see `Step`."""

    results: pa.Table | None = None
    rejected: tuple[Rejected, ...] = ()
    open_windows: int = 0
    emitted_counts: EmittedCounts = NOTHING_EMITTED
    """Of all members that took the same turn."""


@dataclass(frozen=True, slots=True)
class Cohort(StateOwner):
    """Members of one family that take the same turn, in the order of their numbers."""

    queries: tuple[PaneAggregate, ...]
    numbers: Ints
    """The members' numbers."""

    @staticmethod
    def of(queries: Sequence[PaneAggregate]) -> Cohort:
        """The cohort of members in the order of their numbers."""
        return Cohort(tuple(queries), np.array([number_of(each.id) for each in queries], np.int64))

    def own_rows(self, tables: Sequence[pa.Table]) -> list[pa.Table]:
        """The members' rows of state tables."""
        return [self.only(table, QueryRowCounts.of(table)) for table in tables]

    def only(self, table: pa.Table, query_row_counts: QueryRowCounts) -> pa.Table:
        """The members' rows of a state table; `census` says whose rows are in it."""
        if np.array_equal(query_row_counts.numbers, self.numbers):  # most often, and cheap to see
            return table
        mine = np.isin(query_row_counts.numbers, self.numbers)
        if mine.all():
            return table
        mask = np.isin(ints(table, MEMBER_AT_REST), self.numbers)
        return table.filter(pa.array(mask)) if mine.any() else table.slice(0, 0)

    def advance(
        self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance
    ) -> tuple[Sections, dict[str, QueryStep]]:
        """The family's new state sections, and what each member answers; runs and deltas hold members' rows alone."""
        closed = close(together(self.queries), runs, deltas, advance)
        results, rejected, told = _finished(self.queries, self.numbers, closed)
        steps = {
            query.id: QueryStep(
                results.get(place),
                tuple(rejected.get(place, ())),
                closed.open_windows,
                told,
            )
            for place, query in enumerate(self.queries)
        }
        return closed.state, steps

    def before_merge(
        self, sections: Mapping[str, Sequence[pa.Table]], advance: Advance
    ) -> Mapping[str, Sequence[pa.Table]]:
        """See `PaneAggregate.before_merge`."""
        return together(self.queries).before_merge(sections, advance)

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        """One table with the same meaning; see `Operator.compact`."""
        return together(self.queries).compact(section, tables, advance)


def together(queries: Sequence[PaneAggregate]) -> PaneAggregate:
    """One aggregate for all members: grouped by member first."""
    return replace(queries[0], keys=(Named(QUERY_NUMBER, _COLUMN), *queries[0].keys))


def over_panes(queries: Sequence[Operator]) -> list[PaneAggregate]:
    """The members of a family of aggregates over panes."""
    return [found for each in queries if (found := each.over_panes) is not None]


class _Finishing:
    """Collects result rows and rejects by member; members of equal finish go through it together."""

    def __init__(self, queries: Sequence[PaneAggregate]) -> None:
        same: dict[
            int, tuple[Finish, list[int]]
        ] = {}  # thousands share the object, which spares hashing the value
        for place, query in enumerate(queries):
            same.setdefault(id(query.finish), (query.finish, []))[1].append(place)
        self.alike: dict[Finish, list[int]] = {}
        for plan, places in same.values():
            self.alike.setdefault(plan, []).extend(places)
        self.tables: dict[int, list[pa.Table]] = {}
        self.rejected: dict[int, list[Rejected]] = {}


def _finished(
    queries: Sequence[PaneAggregate], numbers: Ints, closed: ClosedWindows
) -> tuple[dict[int, pa.Table], dict[int, list[Rejected]], EmittedCounts]:
    """Result rows and rejects by the place of the member, and of how many pairs and rows they are."""
    work, counts = _Finishing(queries), EmittedCounts()
    for chunk in closed.chunks:
        counts = counts.plus(len(chunk.windows), chunk.held)
        if len(queries) == 1:  # its rows are all there is, and stand as they should
            _finish_rows(work, queries[0].finish, chunk, np.zeros(len(chunk.windows), np.int64))
            continue
        places = np.searchsorted(numbers, flat(chunk.columns[QUERY_NUMBER]).to_numpy())
        order = np.argsort(places, kind="stable")
        edges = np.searchsorted(places[order], np.arange(len(queries) + 1))
        for plan, alike in work.alike.items():
            rows = order if len(alike) == len(queries) else _joined(order, edges, alike)
            if len(rows):
                _finish_rows(work, plan, chunk.rows(rows), places[rows])
    return {place: pa.concat_tables(tables) for place, tables in work.tables.items()}, work.rejected, counts


def _joined(order: Ints, edges: Ints, places: Sequence[int]) -> Ints:
    """The rows of some members, one after the other."""
    joined: Ints = np.concatenate([order[edges[place] : edges[place + 1]] for place in places])
    return joined


def _finish_rows(work: _Finishing, plan: Finish, chunk: Chunk, places: Ints) -> None:
    """Finish rows of members with the same plan; one by one where a row fails, to know whose it is."""
    first, span = int(chunk.windows.min()), int(places.max()) + 1
    apart = replace(plan, columns=(*plan.columns, Named(QUERY_NUMBER, _COLUMN)))
    columns = {**chunk.columns, QUERY_NUMBER: pa.array(places)}
    windows = (chunk.windows - first) * span + places  # a member's window: LIMIT and DISTINCT are within it
    table, bad = finish(apart, columns, windows, chunk.ends, chunk.failed)
    if bad and len(np.unique(places)) > 1:
        for place in np.unique(places).tolist():
            mine = np.flatnonzero(places == place)
            _finish_rows(work, plan, chunk.rows(mine), places[mine])
        return
    if bad:
        work.rejected.setdefault(int(places[0]), []).extend(bad)
    numbered = ints(table, WINDOW) // span + first
    whole = table.set_column(table.column_names.index(WINDOW), WINDOW, pa.array(numbered))
    for place, part in _by_query(whole):
        work.tables.setdefault(place, []).append(part)


def _by_query(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each member, without the column that says so, in their order."""
    if not table.num_rows:
        return
    places = ints(table, QUERY_NUMBER)
    plain = table.drop_columns([QUERY_NUMBER])
    if (np.diff(places) < 0).any():
        order = np.argsort(places, kind="stable")
        plain, places = plain.take(pa.array(order)), places[order]
    starts = np.flatnonzero(np.r_[True, places[1:] != places[:-1]])
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(places)], strict=True):
        yield int(places[start]), plain.slice(start, stop - start)


def cohorts(operators: Sequence[Operator], advances: Mapping[str, Advance]) -> list[tuple[Cohort, Advance]]:
    """A family's members by the turn they take."""
    by_advance: dict[Advance, list[tuple[int, PaneAggregate]]] = {}
    queries = [(number_of(each.id), each) for each in over_panes(operators)]
    for number, query in sorted(queries, key=_NUMBER):
        by_advance.setdefault(advances[query.id], []).append((number, query))
    return [
        (Cohort(tuple(each for _, each in alike), np.array([n for n, _ in alike], np.int64)), advance)
        for advance, alike in by_advance.items()
    ]
