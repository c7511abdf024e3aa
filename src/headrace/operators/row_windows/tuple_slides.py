"""Operator for `[RANGE r SLIDE n ROWS]`, with and without aggregates: time windows of length r that end at every n-th
row of a partition.

Rows are folded into cells by (partition, group, instant) when they arrive, in any order, and are not read again
(without aggregates they are stored). When a row is below punctuation, its number determines whether a window ends
there; `window_bins` then gives every window's aggregate at once.
State: the cells of the last range and of rows above punctuation, the instants where windows may still end, a count per
partition, and the answer of each partition's last window.
Source: Li 2008, section 6.2.3 (forward-context aware windows).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from headrace.algebra.windows.context import Context
from headrace.algebra.windows.window import Numbering
from headrace.dataclass import dataclass
from headrace.operators.aggregates.cell_table import KEY, Layout, WindowCells, merge
from headrace.operators.base.due import waiting_settle
from headrace.operators.base.group_codes import Ints, ints
from headrace.operators.base.operator import Advance, FamilyStep, Operator, Sections, Step
from headrace.operators.families.cohort import Cohort
from headrace.operators.families.family import numbers_in
from headrace.operators.row_windows.partitioned_rows import OverPartitions, PartitionedRows
from headrace.operators.row_windows.row_numbers import COUNTS, MARKS, Numbers, added, ends_among
from headrace.operators.row_windows.window_answers import LASTS, Chunk, Shown, newest
from headrace.operators.row_windows.window_bins import Ends, bins_of, cells_of, windows_holding
from headrace.operators.rows.row_state import ROWS, TIME, Held, hold
from headrace.operators.window_assembly.window_pairs import repeated
from headrace.time import BEGINNING, FOREVER, Duration, Instant


@dataclass(frozen=True, slots=True)
class TupleSlides(OverPartitions):
    """Windows of `range` that end at every `every`-th row of a partition."""

    spec: PartitionedRows
    range: Duration
    every: int
    numbered: Numbering

    @property
    def extent(self) -> int:
        """The length of its windows."""
        return self.range

    @property
    def shape(self) -> tuple[object, ...]:
        """Windows that end at the same rows of equal partitions, with answers of the same columns."""
        return *self.spec.shape, self.spec.answer_shape, self.every, self.numbered

    def together(self, queries: Sequence[Operator]) -> TupleSlides:
        """One operator for all queries of its family: their number is the first part of a partition."""
        if self.family is None:
            return self
        spec = self.spec.together(queries)
        assert spec.queries is not None
        return replace(self, spec=spec, range=int(spec.queries.values.max()))

    @property
    def context(self) -> Context:
        """The class of its window."""
        return Context.FORWARD_AWARE

    @property
    def counts_arrivals(self) -> bool:
        """Whether its rows are numbered by arrival."""
        return self.numbered == "row_num"

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Fold new rows; answer the windows that end at rows below punctuation."""
        state, ended = self.ended(runs, deltas, advance)
        if ended is None:
            return Step(state)
        results, rejected = self.spec.answered(*ended, runs, state)
        return Step(state, results, rejected)

    def advance_family(
        self, cohort: Cohort, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance
    ) -> FamilyStep:
        """The same for the rows of all queries, whose windows are then finished by query."""
        together = self.together(cohort.queries)
        state, ended = together.ended(runs, deltas, advance)
        if ended is None:
            return FamilyStep(state, {query.id: Step() for query in cohort.queries})
        return FamilyStep(state, together.spec.answered_by_query(cohort, *ended, runs, state))

    def ended(
        self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance
    ) -> tuple[dict[str, pa.Table], tuple[Ends, Shown, Iterator[Chunk]] | None]:
        """New state, and the windows that end at rows below punctuation; None if there are none."""
        limit = FOREVER if advance.final else advance.punctuation
        arrived = hold(self.rows, [delta[ROWS] for delta in deltas if ROWS in delta])
        state, ends = ends_among(self._numbers, arrived.table, runs, (advance.emitted_to, limit))
        state |= self._stored(arrived)
        if not ends.count:
            return state, None
        sections = (*runs, dict(state))
        chunks = self.spec.chunks(ends, self._rows(ends, sections), partial(self._cells, ends, sections))
        return state, (ends, Shown(ends.at - self._lengths(ends.keys), ends.at, ends.at), chunks)

    def _lengths(self, keys: Sequence[pa.Array]) -> Ints | Duration:
        return self.spec.lengths(keys, self.range)

    @property
    def _numbers(self) -> Numbers:
        return Numbers(self.spec.parts, self.every, self.numbered)

    def _stored(self, arrived: Held) -> dict[str, pa.Table]:
        """The state of new rows: cells per store, or rows."""
        live = arrived.where(arrived.live)
        if not live.rows:
            return {}
        if self.spec.grouped is None:
            return {ROWS: live.table}
        return self.spec.cells(live.table, live.at, self.rows.names)

    # -------------------------------------------------------------------------------------------------- windows that end

    def _cells(self, ends: Ends, sections: Sequence[Sections], layout: Layout, store: str) -> WindowCells:
        tables = _reaching(self, store, KEY, ends, sections)
        return cells_of(bins_of(layout, tables, ends, self._lengths, len(self.spec.parts)))

    def _rows(self, ends: Ends, sections: Sequence[Sections]) -> Iterator[Chunk]:
        """Rows in their windows."""
        held = hold(self.rows, _reaching(self, ROWS, TIME, ends, sections))
        parts = [held.column(name) for name in self.spec.parts]
        low, high = windows_holding(ends, parts, held.at, self._lengths(parts))
        inside = np.flatnonzero(low < high)
        yield np.empty(0, np.int64), self._columns(held, inside[:0]), None
        for row, window in repeated(low[inside], high[inside] - 1):
            yield window, self._columns(held, inside[row]), None

    def _columns(self, held: Held, rows: Ints) -> dict[str, pa.Array]:
        picked = pa.array(rows)
        return {name: held.column(name).take(picked) for name in self.rows.names}

    # ------------------------------------------------------------------------------------------------------------- at rest

    def due_after(self, runs: Sequence[Sections], advance: Advance) -> Instant:
        """When the first row that waits is below punctuation: a window may end there."""
        return waiting_settle(runs, MARKS, TIME, advance.punctuation)

    @property
    def expires_unvisited(self) -> bool:
        """Cells are below the last range as soon as punctuation is."""
        return True

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        """Cells (or rows) of later windows, marks above punctuation, one count per partition."""
        if section == COUNTS:
            return added(self._numbers, tables)
        if section in LASTS:
            return newest(pa.concat_tables(tables))
        if section == MARKS:
            whole = pa.concat_tables(tables)
            return whole.filter(pa.array(ints(whole, TIME) >= advance.emitted_to))
        if section == ROWS:
            return self._later(pa.concat_tables(tables), TIME, advance.emitted_to)
        return self._later(merge(self.spec.layout_of(section), tables), KEY, advance.emitted_to)

    def _later(self, table: pa.Table, name: str, emitted_to: Instant) -> pa.Table:
        """The rows in windows that end at `emitted_to` or later."""
        numbers = [] if self.spec.queries is None else [pa.array(numbers_in(table))]
        lengths = self._lengths(numbers)
        return table.filter(
            pa.array(ints(table, name) > np.maximum(emitted_to, BEGINNING + lengths) - lengths)
        )


def _lookback_start(at: Instant, length: Duration) -> Instant:
    """Rows after this instant are in windows that end at `at` or later."""
    return BEGINNING if at < BEGINNING + length else at - length


def _reaching(
    operator: TupleSlides, section: str, name: str, ends: Ends, sections: Sequence[Sections]
) -> list[pa.Table]:
    """The stored rows that a window which ends now may hold."""
    tables = [run[section] for run in sections if section in run]
    low, high = _lookback_start(int(ends.at.min()), operator.range), int(ends.at.max())
    result = []
    for table in tables:
        at = ints(table, name)
        result.append(table.filter(pa.array((at > low) & (at <= high))))
    return result
