"""Cohorts: the queries of a family that advance together, and their finished results."""

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
from headrace.operators.families.family import QUERY_NUMBER, STORED_QUERY_NUMBER, QueryRowCounts, number_of
from headrace.operators.output.output_stage import Finish, finish
from headrace.operators.window_assembly.window_closing import Chunk, ClosedWindows, close
from headrace.schema import BIGINT

if TYPE_CHECKING:
    from headrace.operators.time_windows.pane_aggregate import PaneAggregate


_COLUMN: Final = Column(QUERY_NUMBER, BIGINT)
_NUMBER: Final = itemgetter(0)


@dataclass(frozen=True, slots=True)
class QueryStep:
    """One query's part of a `Step`."""

    results: pa.Table | None = None
    rejected: tuple[Rejected, ...] = ()
    open_windows: int = 0
    emitted_counts: EmittedCounts = NOTHING_EMITTED
    """Of all queries of the cohort."""


@dataclass(frozen=True, slots=True)
class Cohort(StateOwner):
    """Queries of one family with the same `Advance`, in the order of their numbers."""

    queries: tuple[PaneAggregate, ...]
    numbers: Ints
    """The queries' numbers."""

    @staticmethod
    def of(queries: Sequence[PaneAggregate]) -> Cohort:
        """The cohort of queries in the order of their numbers."""
        return Cohort(tuple(queries), np.array([number_of(query.id) for query in queries], np.int64))

    def own_rows(self, tables: Sequence[pa.Table]) -> list[pa.Table]:
        """The queries' rows of state tables."""
        return [self.only(table, QueryRowCounts.of(table)) for table in tables]

    def only(self, table: pa.Table, query_row_counts: QueryRowCounts) -> pa.Table:
        """The queries' rows of a state table; `query_row_counts` counts its rows by query."""
        if np.array_equal(query_row_counts.numbers, self.numbers):  # the common case, and cheap to check
            return table
        is_own = np.isin(query_row_counts.numbers, self.numbers)
        if is_own.all():
            return table
        mask = np.isin(ints(table, STORED_QUERY_NUMBER), self.numbers)
        return table.filter(pa.array(mask)) if is_own.any() else table.slice(0, 0)

    def advance(
        self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance
    ) -> tuple[Sections, dict[str, QueryStep]]:
        """The family's new state sections, and each query's answer; runs and deltas hold only rows of these queries."""
        closed = close(together(self.queries), runs, deltas, advance)
        results, rejected, counts = _finished(self.queries, self.numbers, closed)
        steps = {
            query.id: QueryStep(
                results.get(index),
                tuple(rejected.get(index, ())),
                closed.open_windows,
                counts,
            )
            for index, query in enumerate(self.queries)
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
    """One aggregate for all queries: grouped by the query's number first."""
    return replace(queries[0], keys=(Named(QUERY_NUMBER, _COLUMN), *queries[0].keys))


def over_panes(queries: Sequence[Operator]) -> list[PaneAggregate]:
    """The queries among the operators that aggregate over panes."""
    return [aggregate for operator in queries if (aggregate := operator.over_panes) is not None]


class _Finishing:
    """Collects result rows and rejects by query; queries with an equal finish are finished together."""

    def __init__(self, queries: Sequence[PaneAggregate]) -> None:
        same: dict[int, tuple[Finish, list[int]]] = {}  # thousands share one object, so hash its id
        for index, query in enumerate(queries):
            same.setdefault(id(query.finish), (query.finish, []))[1].append(index)
        self.plans: dict[Finish, list[int]] = {}
        for plan, indices in same.values():
            self.plans.setdefault(plan, []).extend(indices)
        self.tables: dict[int, list[pa.Table]] = {}
        self.rejected: dict[int, list[Rejected]] = {}


def _finished(
    queries: Sequence[PaneAggregate], numbers: Ints, closed: ClosedWindows
) -> tuple[dict[int, pa.Table], dict[int, list[Rejected]], EmittedCounts]:
    """Result rows and rejects by the index of the query, and counts of the pairs and rows emitted."""
    work, counts = _Finishing(queries), EmittedCounts()
    for chunk in closed.chunks:
        counts = counts.plus(len(chunk.windows), chunk.held)
        if len(queries) == 1:  # all rows are its own, in order
            _finish_rows(work, queries[0].finish, chunk, np.zeros(len(chunk.windows), np.int64))
            continue
        indices = np.searchsorted(numbers, flat(chunk.columns[QUERY_NUMBER]).to_numpy())
        order = np.argsort(indices, kind="stable")
        edges = np.searchsorted(indices[order], np.arange(len(queries) + 1))
        for plan, sharers in work.plans.items():
            rows = order if len(sharers) == len(queries) else _joined(order, edges, sharers)
            if len(rows):
                _finish_rows(work, plan, chunk.rows(rows), indices[rows])
    return {index: pa.concat_tables(tables) for index, tables in work.tables.items()}, work.rejected, counts


def _joined(order: Ints, edges: Ints, indices: Sequence[int]) -> Ints:
    """The rows of some queries, one after the other."""
    joined: Ints = np.concatenate([order[edges[index] : edges[index + 1]] for index in indices])
    return joined


def _finish_rows(work: _Finishing, plan: Finish, chunk: Chunk, indices: Ints) -> None:
    """Finish rows of queries with the same plan; one query at a time if a row fails, to know whose it is."""
    first, span = int(chunk.windows.min()), int(indices.max()) + 1
    by_query = replace(plan, columns=(*plan.columns, Named(QUERY_NUMBER, _COLUMN)))
    columns = {**chunk.columns, QUERY_NUMBER: pa.array(indices)}
    windows = (chunk.windows - first) * span + indices  # a window per query: LIMIT and DISTINCT are within it
    table, bad = finish(by_query, columns, windows, chunk.ends, chunk.failed)
    if bad and len(np.unique(indices)) > 1:
        for index in np.unique(indices).tolist():
            rows = np.flatnonzero(indices == index)
            _finish_rows(work, plan, chunk.rows(rows), indices[rows])
        return
    if bad:
        work.rejected.setdefault(int(indices[0]), []).extend(bad)
    numbered = ints(table, WINDOW) // span + first
    whole = table.set_column(table.column_names.index(WINDOW), WINDOW, pa.array(numbered))
    for index, part in _by_query(whole):
        work.tables.setdefault(index, []).append(part)


def _by_query(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each query in their order, without the column of its index."""
    if not table.num_rows:
        return
    indices = ints(table, QUERY_NUMBER)
    plain = table.drop_columns([QUERY_NUMBER])
    if (np.diff(indices) < 0).any():
        order = np.argsort(indices, kind="stable")
        plain, indices = plain.take(pa.array(order)), indices[order]
    starts = np.flatnonzero(np.r_[True, indices[1:] != indices[:-1]])
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(indices)], strict=True):
        yield int(indices[start]), plain.slice(start, stop - start)


def cohorts(operators: Sequence[Operator], advances: Mapping[str, Advance]) -> list[tuple[Cohort, Advance]]:
    """A family's queries by their `Advance`."""
    by_advance: dict[Advance, list[tuple[int, PaneAggregate]]] = {}
    queries = [(number_of(operator.id), operator) for operator in over_panes(operators)]
    for number, query in sorted(queries, key=_NUMBER):
        by_advance.setdefault(advances[query.id], []).append((number, query))
    return [
        (
            Cohort(tuple(operator for _, operator in sharers), np.array([n for n, _ in sharers], np.int64)),
            advance,
        )
        for advance, sharers in by_advance.items()
    ]
