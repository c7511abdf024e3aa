"""Time-window aggregates of a family's queries as one operator: panes are closed and windows made for all queries in
one step, then finished and separated by query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headrace.operators.base.batch import Rejected
from headrace.operators.base.group_codes import Ints, flat, ints
from headrace.operators.base.made_once import MadeOnce
from headrace.operators.base.operator import (
    QUERY_NUMBER,
    WINDOW,
    Advance,
    EmittedCounts,
    FamilyStep,
    Operator,
    Sections,
    Step,
)
from headrace.operators.families.cohort import Cohort
from headrace.operators.families.family import joined
from headrace.operators.families.finishing import (
    NUMBER,
    ResultsByQuery,
    by_query_with_instants,
    plans_of,
)
from headrace.operators.families.numbering import number_of
from headrace.operators.output.output_stage import Finish, finish
from headrace.operators.panes.window_lengths import WindowLengths
from headrace.operators.window_assembly.window_closing import Chunk, close
from headrace.time import Instant

if TYPE_CHECKING:
    from headrace.operators.time_windows.pane_aggregate import PaneAggregate


_MANY_ROWS: Final = 1 << 12
"""Rows of a chunk from which it pays to find those of one query."""
_LEAST_TOGETHER: Final = 4
"""Rows of one query that are together on average, from which it is looked up once for all of them."""


def together(queries: Sequence[PaneAggregate]) -> PaneAggregate:
    """One aggregate for all queries: grouped by the query's number first, with the longest of their windows."""
    return joined(queries, lambda: _together(queries))


def _together(queries: Sequence[PaneAggregate]) -> PaneAggregate:
    merged = replace(queries[0], keys=(NUMBER, *queries[0].keys))
    lengths = None
    if any(query.panes is not queries[0].panes for query in queries):
        lengths = WindowLengths.of(
            [(number_of(query.id), query.panes, query.range or 0) for query in queries]
        )
    if lengths is None:
        return merged
    return replace(merged, panes=lengths.grid, range=int(lengths.ranges.max()), lengths=lengths)


def over_panes(queries: Sequence[Operator]) -> tuple[PaneAggregate, ...]:
    """The queries among the operators that aggregate over panes; found once for the same operators."""
    return _over_panes.of(tuple(queries), lambda: _aggregates(queries))


def _aggregates(queries: Sequence[Operator]) -> tuple[PaneAggregate, ...]:
    return tuple(aggregate for operator in queries if (aggregate := operator.over_panes) is not None)


_over_panes: Final[MadeOnce[tuple[PaneAggregate, ...]]] = MadeOnce(64)
_plans: Final[MadeOnce[list[tuple[Finish, list[int]]]]] = MadeOnce(64)
"""By the tuple of queries that `over_panes` gives: their equal plans, and the places of each."""


def advance_panes(
    cohort: Cohort, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance
) -> FamilyStep:
    """The step of a cohort of aggregates over panes."""
    stream = PaneStream(cohort, runs, deltas, advance)
    return FamilyStep(stream.state, stream.steps())


class PaneStream:
    """The same as a stream: the new state at once, and results that are made when they are taken, some queries at a time.

    The results of ten thousand queries are new memory, whose first touch takes as long as the windows.
    """

    def __init__(
        self, cohort: Cohort, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance
    ) -> None:
        self._queries, self._numbers = over_panes(cohort.queries), cohort.numbers
        self._merged = together(self._queries)
        self._closed = close(self._merged, runs, deltas, advance)
        self._chunks, self._counts = iter(self._closed.chunks), EmittedCounts()
        self._work = _Finishing(_plans.of((self._queries,), self._plans))

    def _plans(self) -> list[tuple[Finish, list[int]]]:
        return plans_of([query.finish for query in self._queries])

    @property
    def state(self) -> Sections:
        """Sections to append to the family's state."""
        return self._closed.state

    def portions(self) -> Iterator[ResultsByQuery]:
        """All results of some queries; other queries have theirs in `steps`."""
        for chunk in self._chunks:
            if not chunk.is_whole:
                self._take(chunk, self._work)
                continue
            portion = _FinishingWhole(self._work.plans, self._work.rejected)
            self._take(chunk, portion)
            for table in portion.whole:
                yield ResultsByQuery.of(table, self._numbers)

    def steps(self) -> dict[str, Step]:
        """The step of each query by operator id, with the results that were not taken; nothing can be taken afterwards."""
        for chunk in self._chunks:
            self._take(chunk, self._work)
        work, counts, results = self._work, self._counts, self._work.results()
        longest, of_longest = self._merged.panes.back, self._closed.open_windows
        steps, without_rows = dict[str, Step](), dict[int | None, Step]()
        for index, query in enumerate(self._queries):
            slides = query.panes.back
            if index in results or index in work.rejected:
                bad = tuple(work.rejected.get(index, ()))
                open_windows = _open_windows(of_longest, longest, slides)
                steps[query.id] = Step(
                    {},
                    results.get(index),
                    bad,
                    open_windows,
                    instants=work.instants.get(index),
                    emitted_counts=counts,
                )
                continue
            if slides not in without_rows:  # one for all of them: most epochs close no window
                open_windows = _open_windows(of_longest, longest, slides)
                without_rows[slides] = Step({}, open_windows=open_windows, emitted_counts=counts)
            steps[query.id] = without_rows[slides]
        return steps

    def _take(self, chunk: Chunk, work: _Finishing) -> None:
        """Finish the rows of a chunk, and separate them by query."""
        self._counts, queries = self._counts.plus(len(chunk.windows), chunk.held), self._queries
        if len(queries) == 1:  # all rows are its own, in order
            table, bad = finish(queries[0].finish, chunk.columns, chunk.windows, chunk.ends, chunk.failed)
            work.rejected.setdefault(0, []).extend(bad)
            work.add_own(table)
            return
        indices = _indices(self._numbers, flat(chunk.columns[QUERY_NUMBER]).to_numpy())
        if len(work.plans) == 1:  # its results are separated by query
            if len(indices):
                _finish_rows(work, work.plans[0][0], chunk, indices)
            return
        order = np.argsort(indices, kind="stable")
        edges = np.searchsorted(indices[order], np.arange(len(queries) + 1))
        for plan, sharers in work.plans:
            rows = order if len(sharers) == len(queries) else _joined(order, edges, sharers)
            if len(rows):
                _finish_rows(work, plan, chunk.rows(rows), indices[rows])


def _open_windows(of_longest: int, longest: int | None, slides: int | None) -> int:
    """The number of open windows of `slides` slides, from that of the longest over the same panes."""
    return of_longest if longest is None or slides is None else max(0, of_longest - longest + slides)


class _Finishing:
    """Collects result rows and rejects by query; queries with an equal finish are finished together."""

    def __init__(self, plans: Sequence[tuple[Finish, list[int]]]) -> None:
        self.plans = plans
        self.tables: dict[int, list[pa.Table]] = {}
        self.instants: dict[int, tuple[Instant, Instant] | None] = {}
        """The first and the last instant of rows of one table in order."""
        self.rejected: dict[int, list[Rejected]] = {}

    def add(self, table: pa.Table) -> None:
        """Rows with the index of their query."""
        for index, part, instants in by_query_with_instants(table):
            self.instants[index] = None if index in self.tables else instants
            self.tables.setdefault(index, []).append(part)

    def add_own(self, table: pa.Table) -> None:
        """Rows of the only query."""
        self.tables.setdefault(0, []).append(table)

    def results(self) -> dict[int, pa.Table]:
        """The result rows of each query."""
        return {
            index: tables[0] if len(tables) == 1 else pa.concat_tables(tables)
            for index, tables in self.tables.items()
        }


class _FinishingWhole(_Finishing):
    """The same of chunks that have all rows of their queries: tables stay whole, and rejects go to those of all chunks."""

    def __init__(
        self, plans: Sequence[tuple[Finish, list[int]]], rejected: dict[int, list[Rejected]]
    ) -> None:
        super().__init__(plans)
        self.rejected = rejected
        self.whole: list[pa.Table] = []

    def add(self, table: pa.Table) -> None:
        """Rows with the index of their query."""
        self.whole += [table] if table.num_rows else []

    def add_own(self, table: pa.Table) -> None:
        """Rows of the only query."""
        self.add(table.append_column(QUERY_NUMBER, pa.array(np.zeros(table.num_rows, np.int64))))


def _indices(numbers: Ints, of_rows: Ints) -> Ints:
    """The index of each row's query; rows of one are mostly together, and looked up once."""
    if len(of_rows) < _MANY_ROWS:
        return np.searchsorted(numbers, of_rows)
    begins = np.flatnonzero(np.append(True, of_rows[1:] != of_rows[:-1]))
    if _LEAST_TOGETHER * len(begins) > len(of_rows):
        return np.searchsorted(numbers, of_rows)
    return np.repeat(np.searchsorted(numbers, of_rows[begins]), np.diff(np.append(begins, len(of_rows))))


def _joined(order: Ints, edges: Ints, indices: Sequence[int]) -> Ints:
    """The rows of some queries, one after the other."""
    joined: Ints = np.concatenate([order[edges[index] : edges[index + 1]] for index in indices])
    return joined


def _finish_rows(work: _Finishing, plan: Finish, chunk: Chunk, indices: Ints) -> None:
    """Finish rows of queries with the same plan; one query at a time if a row fails, to know whose it is."""
    first, span = int(chunk.windows.min()), int(indices.max()) + 1
    numbered = replace(plan, columns=(*plan.columns, NUMBER))
    columns = {**chunk.columns, QUERY_NUMBER: pa.array(indices)}
    windows = chunk.windows
    if plan.needs_whole_window:  # one window a query: LIMIT and DISTINCT are within it
        windows = (windows - first) * span + indices
    table, bad = finish(numbered, columns, windows, chunk.ends, chunk.failed)
    if bad and len(np.unique(indices)) > 1:
        for index in np.unique(indices).tolist():
            rows = np.flatnonzero(indices == index)
            _finish_rows(work, plan, chunk.rows(rows), indices[rows])
        return
    if bad:
        work.rejected.setdefault(int(indices[0]), []).extend(bad)
    if plan.needs_whole_window:
        ordinals = pa.array(ints(table, WINDOW) // span + first)
        table = table.set_column(table.column_names.index(WINDOW), WINDOW, ordinals)
    work.add(table)
