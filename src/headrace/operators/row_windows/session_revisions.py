"""WITH REVISIONS of sessions: a late row makes one longer, or joins two that had been told; both go, and what they are now comes.

A session is told from all of its rows at once, in stream order, whenever it is told: so what is taken back is what was
told, to the last bit. Rows are kept while a late row may still reach their session, which is what this costs: a row that
comes touches the sessions it is in, and a turn looks at the times of all rows that are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.query import Revisions
from headrace.algebra.windows.window import CHANGE
from headrace.operators.base.group_codes import Ints, flat, group, ints
from headrace.operators.base.operator import AT, SLOT, WINDOW, Advance, Sections, Step
from headrace.operators.base.wrapper import Around
from headrace.operators.panes.late_panes import settled_at
from headrace.operators.row_windows.frame_windows import FrameWindows
from headrace.operators.row_windows.last_window import LAST, LIVE, PART, answers, newest
from headrace.operators.rows.row_state import ROWS, Held, hold
from headrace.operators.time_windows.window_revisions import net, revised
from headrace.time import BEGINNING, FOREVER, Duration, Instant

FLOOR: Final = "floor"
"""A section of one instant: rows before it are in no session that may change."""
_AT: Final = "__floor"
_VERSION: Final = "__version"


@dataclass(frozen=True, slots=True)
class RevisingSessions(Around):
    """The sessions of `inner`, of which all rows meet in one slot, with their revisions."""

    inner: FrameWindows
    gap: Duration
    revisions: Revisions

    @property
    def keeps_latest(self) -> bool:
        """Its state does."""
        return True

    def display(self) -> Iterator[str]:
        """For which rows, then the inner operator's lines."""
        yield revised(self.revisions)
        yield from self.inner.display()

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Tell sessions that end now, and again those that a row which came is in."""
        layout, min_punctuation = self.inner.rows, _floor(runs)
        kept = hold(layout, [run[ROWS] for run in runs if ROWS in run])
        kept = kept.where(kept.at >= min_punctuation)
        arrived = hold(layout, [delta[ROWS] for delta in deltas if ROWS in delta])
        state: dict[str, pa.Table] = {ROWS: arrived.table} if arrived.rows else {}
        if not kept.rows and not arrived.rows:
            return Step(state)
        every = hold(layout, [kept.table, arrived.table])
        order = np.lexsort((every.position, every.at))
        every = hold(layout, [every.table.take(pa.array(order))])
        fresh = order >= kept.rows
        sessions = _Sessions.of(every, self.inner.spec.parts, self.gap)
        limit = FOREVER if advance.final else advance.punctuation
        due = sessions.touched(fresh) | ((sessions.end >= advance.emitted_to) & (sessions.end < limit))
        picked = due[sessions.code]
        step = self._answer(
            every.where(picked),
            Advance(BEGINNING, advance.punctuation, advance.max_event_time, advance.final),
        )
        before = self._answer(
            every.where(picked & ~fresh), Advance(BEGINNING, advance.emitted_to, advance.max_event_time)
        )
        parts = [
            _signed(each.results, sign)
            for each, sign in ((before, -1), (step, 1))
            if each.results is not None and each.results.num_rows
        ]
        state |= self._settled(sessions, advance, min_punctuation)
        state |= _last(before, step, int(every.position.max()))
        changes = net(pa.concat_tables(parts)) if parts else None
        return Step(state, changes, step.rejected, int((sessions.end >= limit).sum()))

    def _answer(self, rows: Held, advance: Advance) -> Step:
        """What these rows alone make by then."""
        if not rows.rows or advance.punctuation == BEGINNING:
            return Step()
        return self.inner.advance([], [{ROWS: rows.table}], advance)

    def _settled(
        self, sessions: _Sessions, advance: Advance, min_punctuation: Instant
    ) -> dict[str, pa.Table]:
        """The new floor: where the first session begins, there or to come, that a late row may still be in."""
        settled = settled_at(advance.punctuation, self.revisions)
        if settled == BEGINNING or advance.final:
            return {}
        may_change = sessions.end >= settled
        now = min(settled, int(sessions.first[may_change].min(initial=settled)))
        if now <= min_punctuation:
            return {}
        columns = [pa.array([now]), pa.array([self.inner.rows.slot], pa.int16())]
        return {FLOOR: pa.table(columns, names=[_AT, SLOT])}

    def before_merge(
        self,
        sections: Mapping[str, Sequence[pa.Table]],
        advance: Advance,  # noqa: ARG002
    ) -> Mapping[str, Sequence[pa.Table]]:
        """Sections about to be merged, without rows before the floor."""
        if FLOOR not in sections or ROWS not in sections:
            return sections
        min_punctuation = _floor([{FLOOR: table} for table in sections[FLOOR]])
        held = (hold(self.inner.rows, [table]) for table in sections[ROWS])
        return {**sections, ROWS: [each.where(each.at >= min_punctuation).table for each in held]}

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:  # noqa: ARG002
        """All rows, or the last floor."""
        whole = pa.concat_tables(tables)
        if section == LAST:
            return _newest(whole, self.inner.spec.partitions)
        if section != FLOOR or not whole.num_rows:
            return whole
        return whole.take(pa.array([int(np.argmax(ints(whole, _AT)))]))

    def latest(self, runs: Sequence[Sections]) -> pa.Table | None:
        """The last session of each partition; of one that has ended and goes on since a row came late, none."""
        stored = [run[LAST] for run in runs if LAST in run]
        if not stored:
            return None
        found = answers(_newest(pa.concat_tables(stored), self.inner.spec.partitions)).drop_columns(
            [_VERSION]
        )
        return _signed(found, 1)


@dataclass(frozen=True, slots=True)
class _Sessions:
    """Sessions: of each row which one, and of each the time of its first row and its end."""

    code: Ints
    first: Ints
    end: Ints

    @staticmethod
    def of(rows: Held, parts: Sequence[str], gap: Duration) -> _Sessions:
        """Cut rows that stand in stream order."""
        partition = group([rows.column(name) for name in parts], rows.rows).codes
        order = np.argsort(partition, kind="stable")
        at, part = rows.at[order], partition[order]
        begins = np.r_[True, (part[1:] != part[:-1]) | (at[1:] - at[:-1] > gap)]
        starts = np.flatnonzero(begins)
        code = np.empty(rows.rows, np.int64)
        code[order] = np.cumsum(begins) - 1
        return _Sessions(code, at[starts], at[np.r_[starts[1:], len(at)] - 1] + gap)

    def touched(self, rows: np.ndarray) -> np.ndarray:
        """Which sessions hold one of the rows."""
        found = np.zeros(len(self.first), bool)
        found[self.code[rows]] = True
        return found


def _last(before: Step, now: Step, position: int) -> dict[str, pa.Table]:
    """The last sessions told now, and those that were told before and are not any more."""
    found = []
    for number, step in enumerate((before, now)):
        if LAST in step.state:
            table = step.state[LAST]
            if step is before:
                gone = pa.array(np.zeros(table.num_rows, bool))
                table = table.set_column(table.column_names.index(LIVE), LIVE, gone)
            version = pa.array(np.full(table.num_rows, 2 * position + number))
            found.append(table.append_column(_VERSION, version))
    return {LAST: pa.concat_tables(found)} if found else {}


def _newest(kept: pa.Table, partitions: int) -> pa.Table:
    """Of what was kept at several times, each partition's last session as it was told last."""
    kept = newest(kept, partitions)
    parts = [flat(kept.column(f"{PART}{place}")) for place in range(partitions)]
    codes = group(parts, kept.num_rows).codes
    version = ints(kept, _VERSION)
    last = np.full(int(codes.max(initial=-1)) + 1, -1, np.int64)
    np.maximum.at(last, codes, version)
    return kept.filter(pa.array(version == last[codes]))


def _floor(runs: Sequence[Sections]) -> Instant:
    min_punctuations = [ints(run[FLOOR], _AT) for run in runs if FLOOR in run]
    return max((int(each.max()) for each in min_punctuations if len(each)), default=BEGINNING)


def _signed(results: pa.Table, sign: int) -> pa.Table:
    """Changes; windows are numbered by their ends, since their places among those of a turn say nothing later."""
    results = results.set_column(results.column_names.index(WINDOW), WINDOW, results.column(AT))
    return results.append_column(CHANGE, pa.array(np.full(results.num_rows, sign, np.int8)))
