"""Operator for ISTREAM and DSTREAM of sliding and landmark time windows: differences between each window's rows and
those of the one before.

Composes with any operator that answers windows: it stores the rows of the last window that closed, and emits bag
differences. All rows of a window must be in one place, so the inner operator routes everything to one slot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from typing import Literal as Choice

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import ints
from headrace.operators.base.operator import SLOT, WINDOW, Advance, Operator, Sections, Step
from headrace.operators.base.wrapper import Around
from headrace.operators.output.changelog import consolidated
from headrace.operators.output.output_stage import Finish
from headrace.operators.panes.emission_limit import EmissionCap
from headrace.operators.panes.panes import Panes
from headrace.time import BEGINNING, Instant

_BEFORE: Final = "before"


@dataclass(frozen=True, slots=True)
class WindowChanges(Around):
    """`Emit(...)` over the operator `inner`, whose windows follow each other by `panes`; all rows are in `slot`."""

    inner: Operator
    panes: Panes
    kind: Choice["istream", "dstream"]
    finish: Finish
    slot: int

    @property
    def emission_windows(self) -> Panes:
        """Its own: those of the inner operator."""
        return self.panes

    def emission_limit(
        self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance, cap: EmissionCap
    ) -> Instant | None:
        """The same as the inner operator's."""
        return self.inner.emission_limit([_without(run) for run in runs], deltas, advance, cap)

    def display(self) -> Iterator[str]:
        """The kind of differences, then the inner operator's lines."""
        yield f"{self.kind}: differences between each window and the next"
        yield from self.inner.display()

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Answer the windows that closed, and emit the differences between each and the next."""
        step = self.inner.advance([_without(run) for run in runs], deltas, advance)
        if advance.punctuation == BEGINNING:
            return step
        last_window = self.panes.last_closed(advance.punctuation)
        if advance.emitted_to != BEGINNING and last_window == self.panes.last_closed(advance.emitted_to):
            return step
        older = (
            []
            if advance.emitted_to == BEGINNING
            else self._of_window(runs, self.panes.last_closed(advance.emitted_to))
        )
        fresh = [step.results] if step.results is not None else []
        if not older and not fresh:
            return step
        rows = pa.concat_tables([*older, *fresh])
        changes = self._differences(rows, sum(table.num_rows for table in older), last_window, advance)
        state = dict(step.state)
        last = rows.filter(pa.array(_windows(rows) == last_window))
        if last.num_rows:
            state[_BEFORE] = last.append_column(SLOT, pa.array(np.full(last.num_rows, self.slot, np.int16)))
        return Step(state, changes, step.rejected, step.open_windows)

    def _differences(self, rows: pa.Table, older: int, last_window: int, advance: Advance) -> pa.Table:
        window = _windows(rows)
        entering = np.arange(rows.num_rows) >= older
        if not advance.final:
            leaving = window < last_window
        elif self.panes.back is not None:
            leaving = np.ones(rows.num_rows, bool)
        else:
            leaving = window < self.panes.last_closed(advance.max_event_time) + 1
        picked = np.concatenate([np.flatnonzero(entering), np.flatnonzero(leaving)])
        ends = self.panes.anchor + np.concatenate([window[entering], window[leaving] + 1]) * self.panes.slide
        signs = np.repeat([1, -1], [entering.sum(), leaving.sum()])
        return consolidated(rows.take(pa.array(picked)), ends, signs, self.kind)

    @staticmethod
    def _of_window(runs: Sequence[Sections], window: int) -> list[pa.Table]:
        """The stored rows of a window."""
        stored = [run[_BEFORE].drop_columns([SLOT]) for run in runs if _BEFORE in run]
        tables = [table.filter(pa.array(_windows(table) == window)) for table in stored]
        return [table for table in tables if table.num_rows]

    def due_after(self, runs: Sequence[Sections], advance: Advance) -> Instant:
        """The same as the inner operator's; or the end of the next window, in which rows of the last one may be missing."""
        due = self.inner.due_after([_without(run) for run in runs], advance)
        if advance.punctuation == BEGINNING:
            return due
        last = self.panes.last_closed(advance.punctuation)
        return min(due, self.panes.end_of(last + 1)) if self._of_window(runs, last) else due

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        """Only the rows of the last window that closed."""
        if section != _BEFORE:
            return self.inner.compact(section, tables, advance)
        whole = pa.concat_tables(tables)
        if advance.emitted_to == BEGINNING:
            return whole
        return whole.filter(pa.array(_windows(whole) == self.panes.last_closed(advance.emitted_to)))


def _windows(rows: pa.Table) -> np.ndarray:
    return ints(rows, WINDOW)


def _without(run: Sections) -> Sections:
    return {name: table for name, table in run.items() if name != _BEFORE}


__all__ = ["WindowChanges"]
