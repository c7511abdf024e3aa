"""Operator for sessions WITH REVISIONS: a late row extends a session or joins two; the old ones are retracted, the new
one is inserted.

A session is always emitted from all of its rows, in stream order: so a retraction equals the earlier insertion to the
last bit. The cost is that rows are stored while a late row may still reach their session: a new row affects the
sessions it is in, and an advance reads the times of all stored rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.query import Revisions
from headrace.algebra.windows.window import CHANGE
from headrace.dataclass import dataclass
from headrace.operators.base.due import settles
from headrace.operators.base.group_codes import Ints, flat, group, ints
from headrace.operators.base.operator import AT, SLOT, WINDOW, Advance, Sections, Step
from headrace.operators.base.wrapper import Around
from headrace.operators.panes.late_panes import settled_at
from headrace.operators.row_windows.frame_windows import FrameWindows
from headrace.operators.row_windows.window_answers import LAST, LIVE, PART, answers, newest
from headrace.operators.rows.row_state import ROWS, Held, hold
from headrace.operators.time_windows.window_revisions import net, revised
from headrace.time import BEGINNING, FOREVER, Duration, Instant

MIN_EVENT_TIME: Final = "floor"
"""A section of one instant: rows before it are in no session that may change."""
_INSTANT: Final = "__floor"
_VERSION: Final = "__version"


@dataclass(frozen=True, slots=True)
class RevisingSessions(Around):
    """The sessions of `inner`, whose rows are all in one slot, with their revisions."""

    inner: FrameWindows
    gap: Duration
    revisions: Revisions

    @property
    def keeps_latest(self) -> bool:
        """Its state has the last session's answer."""
        return True

    def display(self) -> Iterator[str]:
        """The revised rows, then the inner operator's lines."""
        yield revised(self.revisions)
        yield from self.inner.display()

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Emit sessions that end now, and revise those that a new row is in."""
        layout, min_event_time = self.inner.rows, _min_event_time(runs)
        stored = hold(layout, [run[ROWS] for run in runs if ROWS in run])
        stored = stored.where(stored.at >= min_event_time)
        arrived = hold(layout, [delta[ROWS] for delta in deltas if ROWS in delta])
        state: dict[str, pa.Table] = {ROWS: arrived.table} if arrived.rows else {}
        if not stored.rows and not arrived.rows:
            return Step(state)
        rows = hold(layout, [stored.table, arrived.table])
        order = np.lexsort((rows.position, rows.at))
        rows = hold(layout, [rows.table.take(pa.array(order))])
        fresh = order >= stored.rows
        sessions = _Sessions.of(rows, self.inner.spec.parts, self.gap)
        limit = FOREVER if advance.final else advance.punctuation
        due = sessions.touched(fresh) | ((sessions.end >= advance.emitted_to) & (sessions.end < limit))
        picked = due[sessions.code]
        step = self._answer(
            rows.where(picked),
            Advance(BEGINNING, advance.punctuation, advance.max_event_time, advance.final),
        )
        before = self._answer(
            rows.where(picked & ~fresh), Advance(BEGINNING, advance.emitted_to, advance.max_event_time)
        )
        parts = [
            _signed(answer.results, sign)
            for answer, sign in ((before, -1), (step, 1))
            if answer.results is not None and answer.results.num_rows
        ]
        state |= self._settled(sessions, advance, min_event_time)
        state |= _last(before, step, int(rows.position.max()))
        changes = net(pa.concat_tables(parts)) if parts else None
        return Step(state, changes, step.rejected, int((sessions.end >= limit).sum()))

    def _answer(self, rows: Held, advance: Advance) -> Step:
        """The answer over these rows alone."""
        if not rows.rows or advance.punctuation == BEGINNING:
            return Step()
        return self.inner.advance([], [{ROWS: rows.table}], advance)

    def _settled(self, sessions: _Sessions, advance: Advance, min_event_time: Instant) -> dict[str, pa.Table]:
        """The new minimum: the beginning of the first session, stored or later, that a late row may still be in."""
        settled = settled_at(advance.punctuation, self.revisions)
        if settled == BEGINNING or advance.final:
            return {}
        may_change = sessions.end >= settled
        first_open = min(settled, int(sessions.first[may_change].min(initial=settled)))
        if first_open <= min_event_time:
            return {}
        columns = [pa.array([first_open]), pa.array([self.inner.rows.slot], pa.int16())]
        return {MIN_EVENT_TIME: pa.table(columns, names=[_INSTANT, SLOT])}

    def due_after(self, runs: Sequence[Sections], advance: Advance) -> Instant:
        """When the first session ends, or is out of the reach of late rows, so that its rows expire."""
        layout, min_event_time = self.inner.rows, _min_event_time(runs)
        stored = hold(layout, [run[ROWS] for run in runs if ROWS in run])
        stored = stored.where(stored.at >= min_event_time)
        if not stored.rows:
            return FOREVER
        ends = _Sessions.of(
            stored.take(np.lexsort((stored.position, stored.at))), self.inner.spec.parts, self.gap
        ).end
        due, within = settles(ends, advance.punctuation), self.revisions.within
        return due if within is None else min(due, settles(ends + within, advance.punctuation))

    def before_merge(
        self,
        sections: Mapping[str, Sequence[pa.Table]],
        advance: Advance,  # noqa: ARG002
    ) -> Mapping[str, Sequence[pa.Table]]:
        """Sections about to be merged, without rows before the minimum."""
        if MIN_EVENT_TIME not in sections or ROWS not in sections:
            return sections
        min_event_time = _min_event_time([{MIN_EVENT_TIME: table} for table in sections[MIN_EVENT_TIME]])
        held = (hold(self.inner.rows, [table]) for table in sections[ROWS])
        return {**sections, ROWS: [rows.where(rows.at >= min_event_time).table for rows in held]}

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:  # noqa: ARG002
        """All rows, or the last minimum."""
        whole = pa.concat_tables(tables)
        if section == LAST:
            return _newest(whole, self.inner.spec.partitions)
        if section != MIN_EVENT_TIME or not whole.num_rows:
            return whole
        return whole.take(pa.array([int(np.argmax(ints(whole, _INSTANT)))]))

    def latest(self, runs: Sequence[Sections]) -> pa.Table | None:
        """The last session of each partition; none for one that ended and was reopened by a late row."""
        stored = [run[LAST] for run in runs if LAST in run]
        if not stored:
            return None
        rows = answers(_newest(pa.concat_tables(stored), self.inner.spec.partitions)).drop_columns([_VERSION])
        return _signed(rows, 1)


@dataclass(frozen=True, slots=True)
class _Sessions:
    """Sessions: the session of each row, and the time of the first row and the end of each."""

    code: Ints
    first: Ints
    end: Ints

    @staticmethod
    def of(rows: Held, parts: Sequence[str], gap: Duration) -> _Sessions:
        """Cut rows in stream order into sessions."""
        partition = group([rows.column(name) for name in parts], rows.rows).codes
        order = np.argsort(partition, kind="stable")
        at, part = rows.at[order], partition[order]
        begins = np.r_[True, (part[1:] != part[:-1]) | (at[1:] - at[:-1] > gap)]
        starts = np.flatnonzero(begins)
        code = np.empty(rows.rows, np.int64)
        code[order] = np.cumsum(begins) - 1
        return _Sessions(code, at[starts], at[np.r_[starts[1:], len(at)] - 1] + gap)

    def touched(self, rows: np.ndarray) -> np.ndarray:
        """Which sessions contain one of the rows."""
        result = np.zeros(len(self.first), bool)
        result[self.code[rows]] = True
        return result


def _last(before: Step, after: Step, position: int) -> dict[str, pa.Table]:
    """The last sessions emitted now, and those emitted before that are retracted."""
    tables = []
    for number, step in enumerate((before, after)):
        if LAST in step.state:
            table = step.state[LAST]
            if step is before:
                not_live = pa.array(np.zeros(table.num_rows, bool))
                table = table.set_column(table.column_names.index(LIVE), LIVE, not_live)
            version = pa.array(np.full(table.num_rows, 2 * position + number))
            tables.append(table.append_column(_VERSION, version))
    return {LAST: pa.concat_tables(tables)} if tables else {}


def _newest(stored: pa.Table, partitions: int) -> pa.Table:
    """Each partition's last session as it was last emitted, from state of several epochs."""
    stored = newest(stored)
    parts = [flat(stored.column(f"{PART}{index}")) for index in range(partitions)]
    codes = group(parts, stored.num_rows).codes
    version = ints(stored, _VERSION)
    last = np.full(int(codes.max(initial=-1)) + 1, -1, np.int64)
    np.maximum.at(last, codes, version)
    return stored.filter(pa.array(version == last[codes]))


def _min_event_time(runs: Sequence[Sections]) -> Instant:
    instants_by_run = [ints(run[MIN_EVENT_TIME], _INSTANT) for run in runs if MIN_EVENT_TIME in run]
    return max((int(instants.max()) for instants in instants_by_run if len(instants)), default=BEGINNING)


def _signed(results: pa.Table, sign: int) -> pa.Table:
    """Changes; windows are numbered by their ends, since their indices within an advance are not stable."""
    results = results.set_column(results.column_names.index(WINDOW), WINDOW, results.column(AT))
    return results.append_column(CHANGE, pa.array(np.full(results.num_rows, sign, np.int8)))
