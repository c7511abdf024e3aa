"""Operator for rows in sliding and landmark time windows, without aggregates: a row is in each window that holds it.

A row is stored once until its last window closes; it is repeated per window only when the window closes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.query import Revisions
from headrace.algebra.windows.context import Context
from headrace.dataclass import dataclass
from headrace.operators.base.batch import Rejected
from headrace.operators.base.group_codes import Ints
from headrace.operators.base.operator import Advance, Sections, Step, Windows
from headrace.operators.output.output_stage import Finish, finish
from headrace.operators.output.row_operator import RowOperator
from headrace.operators.panes.emission_limit import HIGHEST_WINDOW, EmissionCap, emission_limit_over, span
from headrace.operators.panes.late_panes import settled_at
from headrace.operators.panes.panes import Panes
from headrace.operators.rows.row_pipeline import RowStep
from headrace.operators.rows.row_state import ROWS, Held, RowLayout, hold
from headrace.operators.window_assembly.window_pairs import repeated
from headrace.schema import STAMP
from headrace.time import BEGINNING, FOREVER, Duration, Instant

_LOWEST: Final = -(1 << 60)


@dataclass(frozen=True, slots=True)
class WindowRows(RowOperator):
    """`Finish(Windowed(TimeSlide | Landmark))` of one query; `bounds_prefix` precedes `window_start` and the like."""

    id: str
    query: str
    stream: str
    panes: Panes
    range: Duration | None
    bounds_prefix: str
    rows: RowLayout
    finish: Finish
    relations: tuple[str, ...] = ()
    revisions: Revisions | None = None
    """With revisions, rows below the punctuation are read too, and the windows that were answered without them are revised.
    """
    rule: str = ""

    @property
    def context(self) -> Context:
        """The class of its window."""
        return Context.FREE

    @property
    def routing_steps(self) -> tuple[RowStep, ...]:
        """The steps of its rows."""
        return self.rows.routing_steps

    @property
    def emission_windows(self) -> Panes:
        """Its own."""
        return self.panes

    @property
    def ends_in_parts(self) -> bool:
        """Each window is made of its rows alone."""
        return True

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Store new rows; answer the windows that closed."""
        arrived = [delta[ROWS] for delta in deltas if ROWS in delta]
        state = {ROWS: pa.concat_tables(arrived)} if arrived else {}
        answered, last_due = self._closed(advance)
        revised = self._revised_windows(arrived, advance, answered)
        if last_due <= answered and not revised:
            return Step(state)
        held = hold(self.rows, [*(run[ROWS] for run in runs if ROWS in run), *arrived])
        low, high = self._windows(held.at)
        open_windows = max(0, int(high.max()) - last_due) if held.rows and self.panes.back is not None else 1
        tables: list[pa.Table] = []
        rejected: list[Rejected] = []
        for windows in (*revised, range(answered + 1, last_due + 1)):
            first, last = np.maximum(low, windows.start), np.minimum(high, windows.stop - 1)
            due = first <= last
            table, bad = self._answer(held.where(due), first[due], last[due])
            tables += [table] if table is not None else []
            rejected += bad
        return Step(
            state, pa.concat_tables(tables) if tables else None, tuple(rejected), open_windows, revised
        )

    def due_after(self, runs: Sequence[Sections], advance: Advance) -> Instant:
        """The first end of a window that holds a row."""
        low, high = self._windows(hold(self.rows, [run[ROWS] for run in runs if ROWS in run]).at)
        first = np.maximum(low, self._closed(advance)[1] + 1)
        first = first[first <= high]
        return self.panes.end_of(int(first.min())) if len(first) else FOREVER

    def emission_limit(
        self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance, cap: EmissionCap
    ) -> Instant | None:
        """The instant up to which to answer in one step, see `emission_limit`."""
        if span(self.panes, advance, cap) is None:
            return None
        held = hold(self.rows, [section[ROWS] for section in (*runs, *deltas) if ROWS in section])
        answered, last_due = self._closed(advance)
        low, high = self._windows(held.at)
        low, high = np.maximum(low, answered + 1), np.minimum(high, min(last_due, HIGHEST_WINDOW))
        due = np.flatnonzero(low <= high)
        due = due[np.argsort(low[due], kind="stable")]
        most = int((high[due] - low[due] + 1).sum())
        return emission_limit_over(self.panes, low[due], high[due], len(due), most, cap)

    def _revised_windows(self, arrived: Sequence[pa.Table], advance: Advance, answered: int) -> Windows:
        """Windows up to `answered` that late rows are in."""
        if self.revisions is None or advance.emitted_to == BEGINNING or not arrived:
            return ()
        at = hold(self.rows, arrived).at
        return self.panes.holding(self.panes.of_instants(at[at < advance.emitted_to]), answered)

    def _closed(self, advance: Advance) -> tuple[int, int]:
        """The last window answered before, and the last one to answer now."""
        answered = (
            _LOWEST if advance.emission_start == BEGINNING else self.panes.last_closed(advance.emission_start)
        )
        if advance.punctuation == BEGINNING:
            return answered, answered
        if advance.final and self.panes.back is None:
            return answered, max(answered, self.panes.last_closed(advance.max_event_time) + 1)
        return answered, self.panes.last_closed(advance.punctuation)

    def _windows(self, at: Ints) -> tuple[Ints, Ints]:
        """The first and the last window that holds each instant; last < first when none does."""
        first = (at - self.panes.anchor) // self.panes.slide + 1
        if self.range is None:
            return first, np.full(len(at), -_LOWEST)
        return first, (at + self.range - self.panes.anchor) // self.panes.slide

    def _answer(self, held: Held, low: Ints, high: Ints) -> tuple[pa.Table | None, tuple[Rejected, ...]]:
        tables: list[pa.Table] = []
        rejected: list[Rejected] = []
        for row, window in repeated(low, high):
            columns = {name: held.column(name).take(pa.array(row)) for name in self.rows.names}
            ends = self.panes.anchor + window * self.panes.slide
            columns[f"{self.bounds_prefix}window_start"] = (
                pa.nulls(len(row), STAMP) if self.range is None else pa.array(ends - self.range).cast(STAMP)
            )
            columns[f"{self.bounds_prefix}window_end"] = pa.array(ends).cast(STAMP)
            columns[f"{self.bounds_prefix}window_id"] = pa.array(window)
            table, bad = finish(self.finish, columns, window, ends)
            tables.append(table)
            rejected += bad
        return (pa.concat_tables(tables) if tables else None), tuple(rejected)

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:  # noqa: ARG002
        """Without rows whose last window has closed."""
        held = hold(self.rows, tables)
        settled = settled_at(advance.emitted_to, self.revisions)
        last_closed = _LOWEST if settled == BEGINNING else self.panes.last_closed(settled)
        low, high = self._windows(held.at)
        return held.where((high > last_closed) & (low <= high)).table
