"""`[RANGE r SLIDE n ROWS]`: windows that end at rows, so that a row's windows depend on later rows.

Rows are folded into cells by (partition, group, instant) when they arrive, in any order, and are not read again
(without aggregates they are stored). When a row is below punctuation, its number determines whether a window ends
there; `window_bins` then gives every window's aggregate at once.
State: the cells of the last range and of rows above punctuation, the instants where windows may still end, a count per
partition, and the answer of each partition's last window.
Source: Li 2008, section 6.2.3 (forward-context aware windows).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from headrace.algebra.windows.context import Context
from headrace.algebra.windows.window import Numbering
from headrace.operators.aggregates.cell_table import KEY, Layout, WindowCells, merge
from headrace.operators.base.group_codes import Ints, ints
from headrace.operators.base.operator import Advance, Sections, Step
from headrace.operators.base.ranges import repeated
from headrace.operators.row_windows.last_window import LASTS, Chunk, Shown, newest
from headrace.operators.row_windows.partitioned_rows import OverPartitions, PartitionedRows
from headrace.operators.row_windows.row_numbers import COUNTS, MARKS, Numbers, added, ends_among
from headrace.operators.row_windows.window_bins import Ends, bins_of, cells_of, windows_holding
from headrace.operators.rows.row_state import ROWS, TIME, Held, hold
from headrace.time import BEGINNING, FOREVER, Duration, Instant


@dataclass(frozen=True, slots=True)
class TupleSlides(OverPartitions):
    """Windows of `range` that end at every `every`-th row of a partition."""

    spec: PartitionedRows
    range: Duration
    every: int
    numbered: Numbering

    @property
    def context(self) -> Context:
        """The class of its window."""
        return Context.FORWARD_AWARE

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Fold new rows; answer the windows that end at rows below punctuation."""
        limit = FOREVER if advance.final else advance.punctuation
        arrived = hold(self.rows, [delta[ROWS] for delta in deltas if ROWS in delta])
        state, ends = ends_among(self._numbers, arrived.table, runs, (advance.emitted_to, limit))
        state |= self._stored(arrived)
        if not ends.count:
            return Step(state)
        sections = (*runs, state)
        chunks = self.spec.chunks(ends, self._rows(ends, sections), partial(self._cells, ends, sections))
        shown = Shown(ends.at - self.range, ends.at, ends.at)
        results, rejected = self.spec.answered(ends, shown, chunks, runs, state)
        return Step(state, results, rejected)

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
        return cells_of(bins_of(layout, tables, ends, self.range, self.spec.partitions))

    def _rows(self, ends: Ends, sections: Sequence[Sections]) -> Iterator[Chunk]:
        """Rows in their windows."""
        held = hold(self.rows, _reaching(self, ROWS, TIME, ends, sections))
        low, high = windows_holding(
            ends, [held.column(name) for name in self.spec.parts], held.at, self.range
        )
        inside = np.flatnonzero(low < high)
        yield np.empty(0, np.int64), self._columns(held, inside[:0]), None
        for row, window in repeated(low[inside], high[inside] - 1):
            yield window, self._columns(held, inside[row]), None

    def _columns(self, held: Held, rows: Ints) -> dict[str, pa.Array]:
        picked = pa.array(rows)
        return {name: held.column(name).take(picked) for name in self.rows.names}

    # ------------------------------------------------------------------------------------------------------------- at rest

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        """Cells (or rows) of later windows, marks above punctuation, one count per partition."""
        if section == COUNTS:
            return added(self._numbers, tables)
        if section in LASTS:
            return newest(pa.concat_tables(tables), self.spec.partitions)
        if section == MARKS:
            return _above(
                pa.concat_tables(tables),
                TIME,
                advance.emitted_to - 1 if advance.emitted_to > BEGINNING else BEGINNING,
            )
        if section != ROWS:
            return _above(
                merge(self.spec.layout_of(section), tables),
                KEY,
                _lookback_start(advance.emitted_to, self.range),
            )
        return _above(pa.concat_tables(tables), TIME, _lookback_start(advance.emitted_to, self.range))


def _lookback_start(at: Instant, length: Duration) -> Instant:
    """Rows after this instant are in windows that end at `at` or later."""
    return BEGINNING if at < BEGINNING + length else at - length


def _above(table: pa.Table, name: str, bound: Instant) -> pa.Table:
    if bound == BEGINNING:
        return table
    return table.filter(pa.array(ints(table, name) > bound))


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
