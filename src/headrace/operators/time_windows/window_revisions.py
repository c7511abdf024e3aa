"""Operator for time windows WITH REVISIONS: windows that a late row changes are emitted again, as retractions and
insertions.

Composes with an operator that can answer closed windows again (`Step.revised_windows`). It stores what it emitted of
every window that may still change, and emits bag differences only; so a retraction equals the earlier insertion to the
last bit. All rows of a window must be in one place, so the inner operator routes everything to one slot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.query import Revisions
from headrace.algebra.windows.window import CHANGE
from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints, flat, group, ints
from headrace.operators.base.operator import SLOT, WINDOW, Advance, Operator, Sections, Step
from headrace.operators.base.wrapper import Around
from headrace.operators.output.output_stage import Finish
from headrace.operators.panes.emission_limit import EmissionCap
from headrace.operators.panes.late_panes import settled_at
from headrace.operators.panes.panes import Panes
from headrace.time import BEGINNING, Instant, render_duration

LAST_EMITTED: Final = "told"


@dataclass(frozen=True, slots=True)
class Revising(Around):
    """The windows of `inner`, which follow each other by `panes`, with their revisions; all rows are in `slot`."""

    inner: Operator
    panes: Panes
    revisions: Revisions
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
        """The revised rows, then the inner operator's lines."""
        yield revised(self.revisions)
        yield from self.inner.display()

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Answer the windows that closed, and those that late rows changed."""
        step = self.inner.advance([_without(run) for run in runs], deltas, advance)
        emitted = (
            [run[LAST_EMITTED].drop_columns([SLOT]) for run in runs if LAST_EMITTED in run]
            if step.revised_windows
            else []
        )
        earlier = [
            negated(table.filter(pa.array(within(_windows(table), step.revised_windows))))
            for table in emitted
        ]
        fresh = [signed(step.results)] if step.results is not None else []
        parts = [table for table in (*earlier, *fresh) if table.num_rows]
        if not parts:
            return Step(step.state, None, step.rejected, step.open_windows)
        changes = net(pa.concat_tables(parts))
        stored = changes.append_column(SLOT, pa.array(np.full(changes.num_rows, self.slot, np.int16)))
        return Step({**step.state, LAST_EMITTED: stored}, changes, step.rejected, step.open_windows)

    def due_after(self, runs: Sequence[Sections], advance: Advance) -> Instant:
        """The same as the inner operator's: late rows are new rows."""
        return self.inner.due_after([_without(run) for run in runs], advance)

    @property
    def expires_unvisited(self) -> bool:
        """Rows and emitted rows of closed windows are stored until no late row can change them."""
        return True

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        """The net emitted rows of windows that may still change."""
        if section != LAST_EMITTED:
            return self.inner.compact(section, tables, advance)
        whole = pa.concat_tables(tables)
        settled = settled_at(advance.emitted_to, self.revisions)
        if settled != BEGINNING:
            whole = whole.filter(pa.array(_windows(whole) > self.panes.last_closed(settled)))
        return net(whole)


def revised(revisions: Revisions) -> str:
    """The EXPLAIN line of revisions: what is emitted again, and for which rows."""
    within = revisions.within
    lateness = "however late" if within is None else f"up to {render_duration(within)} late"
    return f"closed windows are revised (retractions -1, insertions +1) for rows {lateness}"


def net(changes: pa.Table) -> pa.Table:
    """The net of rows with signs: each distinct row repeated by the absolute value of its sum, with the sign of its sum."""
    columns = [flat(changes.column(name)) for name in changes.column_names if name != CHANGE]
    groups = group(columns, changes.num_rows)
    total = np.zeros(groups.count, np.int64)
    np.add.at(total, groups.codes, ints(changes, CHANGE))
    first = np.full(groups.count, changes.num_rows, np.int64)
    np.minimum.at(first, groups.codes, np.arange(changes.num_rows))
    which = np.repeat(np.arange(groups.count), np.abs(total))
    rows = changes.take(pa.array(first[which]))
    signs = pa.array(np.sign(total[which]).astype(np.int8))
    return rows.set_column(rows.column_names.index(CHANGE), CHANGE, signs)


def signed(rows: pa.Table) -> pa.Table:
    """The rows as insertions."""
    return rows.append_column(CHANGE, pa.array(np.ones(rows.num_rows, np.int8)))


def negated(changes: pa.Table) -> pa.Table:
    """The changes with the other sign."""
    signs = pa.array(-ints(changes, CHANGE).astype(np.int8))
    return changes.set_column(changes.column_names.index(CHANGE), CHANGE, signs)


def _windows(table: pa.Table) -> Ints:
    return ints(table, WINDOW)


def within(windows: Ints, ranges: Sequence[range]) -> np.ndarray:
    """Which numbers are in one of the ranges, which are disjoint and ascending; there is at least one."""
    starts = np.array([range_.start for range_ in ranges])
    stops = np.array([range_.stop for range_ in ranges])
    index = np.searchsorted(starts, windows, side="right") - 1
    inside: np.ndarray = (index >= 0) & (windows < stops[np.maximum(index, 0)])
    return inside


def _without(run: Sections) -> Sections:
    return {name: table for name, table in run.items() if name != LAST_EMITTED}


__all__ = ["Revising", "net"]
