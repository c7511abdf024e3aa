"""Operator for joins of windows whose streams have constraints: combinations as of `window_join`, with rows dropped once no new
row can be combined with them, and a reject for what breaks a constraint.

REFERENCES bounds the event time of a partner: a row is stored no longer than that, and a pair beyond it is left out of the
answer, whatever is still stored. UNIQUE, CLUSTERED and ORDERED finish single key values; rows that wait for a finished value
are dropped when runs are merged. A conclusion is drawn from rows that are there, so a merge of some of the runs drops less, but
nothing that is needed. While the constraints hold, answers are those without them.
A join that *spills* moves rows that are finished to sections which only their keys open (`probing/spilled_rows`), in place of dropping them, so pairs whose
rows are at most `spill` from each other in time are found whatever constraints hold.
Bounds that were found from delays of pairs (`probing/delay_monitor`), if the query allows it, are used as REFERENCES are, and those found
from the order of keys (`probing/key_monitor`) as CLUSTERED and ORDERED; but for rows of a sample of the keys, which are stored as without any
constraint: so it is noticed that rows have come to exceed a bound.
Source: Babu (2005), chapter 6 (k-Mon), with event time in place of arrival counters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import pyarrow as pa

from headrace.adaptive.constraints.key_promises import KINDS, NEVER, Bools, FoundPromise, KeyPromise, KeyRows
from headrace.adaptive.constraints.partner_delays import UNBOUNDED, PartnerBound, wait_briefly
from headrace.dataclass import dataclass
from headrace.operators.base.batch import Rejected
from headrace.operators.base.group_codes import Ints, ints, numbers_of_hashes
from headrace.operators.base.operator import AT, Advance, Sections, Step
from headrace.operators.joins.caches.caching import Caching
from headrace.operators.joins.join_side import failed_pairs
from headrace.operators.joins.probing import key_monitor, spilled_rows
from headrace.operators.joins.probing.stems import Combinations, Stem
from headrace.operators.joins.window_join import WindowJoin
from headrace.operators.rows.row_state import TIME
from headrace.operators.rows.sorted_rows import HASH, Sorted, in_order
from headrace.time import Duration, render_duration

_FEW = 1 / 32
"""The part of all stored rows up to which those that wait for a side are few: whatever finishes them saves next to nothing."""
_COMPARED = 4096
"""Rows of a side and epoch that are compared with the others of their keys, before any are dropped."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Rows of side `child` come at most `within` after those of side `parent` with which they are combined."""

    parent: int
    child: int
    within: Duration
    clause: str

    @property
    def bound(self) -> PartnerBound:
        """The reference without its clause."""
        return PartnerBound(self.parent, self.child, self.within)


@dataclass(frozen=True, slots=True)
class ConstrainedJoin(WindowJoin):
    """A join of windows with, by side, what its key promises, and with bounds on the event time of partners.

    `finds_bounds`: rows are dropped by bounds that were found, on delays and on the order of keys; `bounds` are those in force while it advances.
    `spill`: pairs with at most so much time between their rows are never lost, as rows are spilled so long in place of being dropped; 0: none is spilled, `UNBOUNDED`:
    for their whole windows.
    """

    promises: tuple[tuple[KeyPromise, ...], ...] = ()
    references: tuple[Reference, ...] = ()
    finds_bounds: bool = False
    bounds: tuple[PartnerBound, ...] = ()
    spill: Duration = 0

    @property
    def bounds_in_force(self) -> tuple[int | None, ...]:
        """By side and other side, how long after a row of the first the last row of the other is joined with it, of a side and itself how long
        after the first row of a key the last one comes; then by side how long after a row the last smaller key comes; None: unknown.
        """
        known = {(bound.kind == "ordered", bound.parent, bound.child): bound.within for bound in self.bounds}
        sides = range(len(self.spec.sides))
        in_time = (known.get((False, side, other)) for side in sides for other in sides)
        return (*in_time, *(known.get((True, side, side)) for side in sides))

    def display(self) -> Iterator[str]:
        """The join, and how each constraint shortens the time for which rows are stored."""
        yield from WindowJoin.display(self)
        sides = self.spec.sides
        for reference in self.references:
            parent, child = sides[reference.parent].name, sides[reference.child].name
            until = render_duration(reference.within) if reference.within else "0 SECONDS"
            yield f"  {reference.clause}: a row of {parent} waits {until} for those of {child}; a pair beyond that is rejected"
        for number, promises in enumerate(self.promises):
            others = " and ".join(side.name for other, side in enumerate(sides) if other != number)
            for promise in promises:
                yield f"  {promise.clause}: rows of {others} wait for a value of {sides[number].name} until it is finished"
        if self.finds_bounds:
            yield "  rows also wait no longer than bounds found from the delays of joined rows (EXPLAIN ADAPTIVE); a pair beyond one is rejected"
            if self.spec.hashes_exactly:
                yield "  or until their key is finished, as found from how the keys of each side follow each other"
        if self.spill:
            until = (
                "for their whole windows"
                if self.spill == UNBOUNDED
                else f"up to {render_duration(self.spill)}"
            )
            yield f"  rows that constraints finish are spilled {until}, and read again for new rows of their keys"

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Emit the combinations; a row that can be in no further one is not stored."""
        if self.bounds != advance.partner_bounds:
            return replace(self, bounds=advance.partner_bounds).advance(runs, deltas, advance)
        step = WindowJoin.advance(self, runs, deltas, advance)
        if not (self.references or self.bounds or any(self.promises)):
            return step
        stored, arrived = self._partners_known(runs, deltas)
        state = dict(step.state)
        for side, name in enumerate(self.sections):
            if name not in state:
                continue
            table = state[name]
            waits = self._waits(table, side, arrived, stored, advance)
            if waits.all():
                continue
            state |= self._spilled(side, [table.filter(pa.array(~waits))], advance) if self.spill else {}
            state[name] = table.filter(pa.array(waits))
        state = {name: table for name, table in state.items() if table.num_rows}
        broken = () if self.spill == UNBOUNDED else tuple(self._broken(arrived, stored))
        return replace(step, state=state, rejected=(*step.rejected, *broken))

    def _partners_known(
        self, runs: Sequence[Sections], deltas: Sequence[Sections]
    ) -> tuple[list[list[pa.Table]], list[KeyRows]]:
        """By side the stored rows, and the keys of new ones; none where neither rows of a third side nor promises are asked of them."""
        if len(self.sections) < 3 and not any(self.promises):
            runs, deltas = (), ()
        new, stored = (
            [[part[name] for part in parts if name in part] for name in self.sections]
            for parts in (deltas, runs)
        )
        return stored, [self._key_rows(tables) for tables in new]

    def searched(
        self, runs: Sequence[Sections], index: int, new_rows: Sequence[pa.Table | None]
    ) -> tuple[Sorted, ...]:
        """The stored rows, and of the spilled ones those of the keys of new rows of other sides."""
        stored = WindowJoin.searched(self, runs, index, new_rows)
        others = [rows for side, rows in enumerate(new_rows) if rows is not None and side != index]
        if not self.spill or not others:
            return stored
        hashes = np.concatenate([ints(rows, HASH) for rows in others])
        lookback = self.spec.sides[index].lookback
        return (*stored, *spilled_rows.with_keys(runs, self.sections[index], hashes, lookback))

    def new_state(self, new_rows: Sequence[pa.Table | None], advance: Advance) -> dict[str, pa.Table]:
        """The sections of new rows in the windows; which of them are not stored, `advance` decides."""
        return {
            section: needed
            for index, (section, new) in enumerate(zip(self.sections, new_rows, strict=True))
            if new is not None and (needed := WindowJoin.needed(self, new, index, advance)).num_rows
        }

    @property
    def divides_keys(self) -> bool:
        """No: what finishes a row is seen from other rows of its key."""
        return False

    def _caching(self) -> Caching:
        """None: the memory of a cache has the rows that constraints let the state drop."""
        return Caching()

    def _waits(
        self,
        table: pa.Table,
        side: int,
        arrived: Sequence[KeyRows],
        stored: Sequence[Sequence[pa.Table]],
        advance: Advance,
    ) -> Bools:
        """The new rows that wait for some side, and do not lack a partner which would have to be there already."""
        hashes = ints(table, HASH)
        closed_for = self._closed(hashes, ints(table, TIME), side, advance)
        keep: Bools = ~np.logical_and.reduce(list(closed_for.values()))
        for other, closed in closed_for.items() if len(self.sections) > 2 else ():
            if closed.any():
                there = np.isin(hashes, arrived[other].hash)
                there |= _first_stored(stored[other], hashes) != NEVER
                keep &= there | ~closed
        return keep

    def _spilled(self, side: int, tables: Sequence[pa.Table], advance: Advance) -> dict[str, pa.Table]:
        """The sections of rows of a side that are finished, while pairs with them are still emitted."""
        rows = WindowJoin.needed(self, in_order(tables), side, advance)
        limits, at = self._limits(advance.partner_bounds, self.spill)[side], ints(rows, TIME)
        needed = np.zeros(len(at), bool)
        for other, limit in enumerate(limits):
            if other != side:
                reach = limit if limit < UNBOUNDED else self.spill
                needed |= at + reach >= self.spec.sides[other].bound(advance)
        return spilled_rows.spilled(self.sections[side], rows.filter(pa.array(needed)))

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        """One table of the rows that are still needed, as `before_merge` has divided them."""
        if spilled_rows.are_keys(section):
            return spilled_rows.united(tables)
        if spilled_rows.are_spilled(section):
            return tables[0] if len(tables) == 1 else in_order(tables)
        return WindowJoin.compact(self, section, tables, advance)

    def emitted(
        self, combinations: Combinations, stems: Mapping[int, Stem]
    ) -> tuple[pa.Table, Rejected | None, Combinations]:
        """The combinations that no reference or bound excludes; the others are rejected."""
        failures: list[Rejected] = []
        declared = [
            (reference.bound, f"the pair breaks CONSTRAINT {reference.clause}")
            for reference in self.references
        ]
        found = [(bound, "") for bound in self.bounds if bound.kind == "partner"]
        for bound, clause in (*declared, *found):
            parent, child = (
                stems[side].times(combinations.rows[side]) for side in (bound.parent, bound.child)
            )
            beyond = child > parent + np.maximum(bound.limits(parent), self.spill)
            if beyond.any():
                excluded, _, met = WindowJoin.emitted(self, combinations.where(beyond), stems)
                reason = clause or self._left_out(bound, met, stems)
                failures.append(failed_pairs(ints(excluded, AT), (reason,) * excluded.num_rows))
                combinations = combinations.where(~beyond)
        table, failed, met = WindowJoin.emitted(self, combinations, stems)
        failures += [] if failed is None else [failed]
        if self.spill and (monitor := self._monitor()) is not None:
            monitor.from_spill += spilled_rows.count_read(met, stems)
        return table, reduce(_both, failures) if failures else None, met

    def _left_out(self, bound: PartnerBound, excluded: Combinations, stems: Mapping[int, Stem]) -> str:
        """Count combinations beyond a bound that was found; returns the reason of their rejects."""
        if (monitor := self._monitor()) is not None:
            (hashes,) = stems[bound.parent].columns((HASH,), excluded.rows[bound.parent]).values()
            monitor.leave_out(excluded.count, int(key_monitor.shadows(hashes.to_numpy()).sum()))
        parent, child = (self.spec.sides[side].name for side in (bound.parent, bound.child))
        return f"rows of {child} came later after those of {parent} than the constraint that was found allows"

    def compare_keys(self, new: Sorted, side: int, stems: Mapping[int, Stem]) -> list[Rejected]:
        """If it finds bounds, all new rows with the keys that finish theirs, and those of a sample with the rows of theirs: of the keys that are
        stored for a whole window, once others are not. None where the keys of the side would finish few rows.
        """
        monitor = self._monitor() if self.finds_bounds else None
        in_force = self._found(side, self.bounds)
        if (
            monitor is None
            or not (in_force or self._keys_matter(side, stems))
            or not self.shows_distances(side)
        ):
            return []
        drops = bool(self.bounds or self.references or any(self.promises))
        share = key_monitor.SHADOWS if drops else min(1.0, _COMPARED / new.rows)
        seen, broken = key_monitor.key_distances(new, stems[side], share, every=True), list[Rejected]()
        monitor.see_keys(side, seen.times)
        for promise in in_force:
            wrong = (seen.repeated if promise.kind == "clustered" else seen.inverted) > promise.within
            if wrong.any() and self.spill != UNBOUNDED:
                monitor.leave_out(int(wrong.sum()), int(key_monitor.shadows(seen.hashes[wrong]).sum()))
                reason = f"a row of {self.spec.sides[side].name} breaks the constraint that was found: {promise.kind} by key"
                broken.append(failed_pairs(seen.at[wrong], (reason,) * int(wrong.sum())))
        return broken

    def _keys_matter(self, side: int, stems: Mapping[int, Stem]) -> bool:
        """Whether a good part of the stored rows wait for a side, and long."""
        rows = sum(stem.rows for stem in stems.values())
        waiting = rows - stems[side].rows
        return waiting >= _FEW * rows and not wait_briefly(
            self.bounds, side, len(self.spec.sides), self.longest_stored
        )

    def _found(self, side: int, bounds: Sequence[PartnerBound]) -> tuple[FoundPromise, ...]:
        """What was found of the keys of a side."""
        return tuple(
            FoundPromise(kind, bound.within)
            for kind in KINDS
            for bound in bounds
            if bound.kind == kind and bound.parent == side and bound.within is not None
        )

    def _is_kept(self, hashes: Ints) -> Bools:
        """The rows of keys that are stored for their whole window, so that it is seen whether what was found still holds."""
        return key_monitor.shadows(hashes) if self.finds_bounds else np.zeros(len(hashes), bool)

    def _broken(self, arrived: Sequence[KeyRows], stored: Sequence[Sequence[pa.Table]]) -> Iterator[Rejected]:
        """New rows that break a promise of their stream's key, if rows before them that show it are stored."""
        for number, promises in enumerate(self.promises):
            rows = arrived[number]
            for promise in promises if rows.rows else ():
                before = self._key_rows(stored[number]) if promise.kind == "ordered" else None
                wrong = promise.broken(rows, _first_stored(stored[number], rows.hash), before)
                if wrong.any():
                    name = self.spec.sides[number].name
                    reasons = (f"a row of {name} breaks CONSTRAINT {promise.clause}",)
                    yield failed_pairs(rows.at[wrong], reasons * int(wrong.sum()))

    def needed(self, rows: pa.Table, index: int, advance: Advance) -> pa.Table:
        """The rows of a side that a row of another side may still be joined with, within the windows and the references."""
        in_windows = WindowJoin.needed(self, rows, index, advance)
        if self.spill:
            return in_windows
        closed = self._closed(ints(in_windows, HASH), ints(in_windows, TIME), index, advance)
        waits = ~np.logical_and.reduce(list(closed.values()))
        return in_windows if waits.all() else in_windows.filter(pa.array(waits))

    def before_merge(
        self, sections: Mapping[str, Sequence[pa.Table]], advance: Advance
    ) -> Mapping[str, Sequence[pa.Table]]:
        """The rows about to be merged, without those that wait for values that are finished; a join that spills moves these, and those that wait no
        longer.

        Of rows that show that a value is finished, by a promise that is declared, the first one of each value stays as long as rows here wait for it.
        """
        sides = range(len(self.sections))
        by_key = any(self.promises) or any(self._found(side, advance.partner_bounds) for side in sides)
        if not by_key and not self.spill:
            return sections
        held = [self._key_rows(sections.get(name, ())) for name in self.sections]
        dropped = [self._finished(side, held, advance) for side in sides]
        for side, promises in enumerate(self.promises):
            if any(promise.kind != "ordered" for promise in promises):
                others = (other for other in range(len(held)) if other != side)
                waiting = [held[other].hash[~dropped[other]] for other in others]
                dropped[side] &= ~_first_of(held[side], np.concatenate(waiting))
        ready = dict(sections)
        for name, gone in zip(self.sections, dropped, strict=True):
            if gone.any():
                ready[name] = _without(sections[name], gone)
        return self._with_spilled(ready, sections, dropped, advance) if self.spill else ready

    def _with_spilled(
        self,
        ready: Mapping[str, Sequence[pa.Table]],
        sections: Mapping[str, Sequence[pa.Table]],
        dropped: Sequence[Bools],
        advance: Advance,
    ) -> dict[str, Sequence[pa.Table]]:
        """Sections about to be merged, with the rows that are dropped from stored ones among the spilled, and new filters of their keys."""
        of_spilled = {
            rename(name) for name in self.sections for rename in (spilled_rows.rows_of, spilled_rows.keys_of)
        }
        divided = {name: tables for name, tables in ready.items() if name not in of_spilled}
        for side, (name, gone) in enumerate(zip(self.sections, dropped, strict=True)):
            moved = _without(sections[name], ~gone) if gone.any() else []
            tables = [*sections.get(spilled_rows.rows_of(name), ()), *moved]
            if tables:
                spilled = self._spilled(side, tables, advance)
                divided |= {section: [table] for section, table in spilled.items()}
        return divided

    def _finished(self, side: int, held: Sequence[KeyRows], advance: Advance) -> Bools:
        """The rows of a side for which no row of any other side comes."""
        rows = held[side]
        done, closed_for = np.ones(rows.rows, bool), self._closed(rows.hash, rows.at, side, advance)
        for other, theirs in enumerate(held):
            if other == side:
                continue
            bound, closed = self.spec.sides[other].bound(advance), closed_for[other]
            for promise in self.promises[other]:
                closed |= promise.finished(rows, theirs, bound)
            for found in self._found(other, advance.partner_bounds):
                shown = theirs.where(self._is_kept(theirs.hash)) if found.kind == "ordered" else theirs
                closed |= found.finished(rows, shown, bound)
            done &= closed
        return done & ~self._is_kept(rows.hash)

    def _key_rows(self, tables: Sequence[pa.Table]) -> KeyRows:
        """The keys of rows of a side."""
        if not tables:
            none = np.empty(0, np.int64)
            return KeyRows(none, none, none)
        hashes, at = (np.concatenate([ints(table, name) for table in tables]) for name in (HASH, TIME))
        return KeyRows(hashes, at, numbers_of_hashes(hashes) if self.spec.hashes_exactly else None)

    def _closed(self, hashes: Ints, at: Ints, side: int, advance: Advance) -> dict[int, Bools]:
        """By other side, the rows of a side for which none of it comes any more: by references, and by bounds that were found. Of a join that
        finds bounds, but for sampled keys.
        """
        limits, kept = self._limits(advance.partner_bounds), self._is_kept(hashes)
        closed_for = dict[int, Bools]()
        for other in range(len(self.spec.sides)):
            if other != side:
                bound = self.spec.sides[other].bound(advance)
                closed = np.zeros(len(at), bool)
                if limits[side][other] < UNBOUNDED:
                    closed |= (at + limits[side][other] < bound) & ~kept
                closed_for[other] = closed
        return closed_for

    def _limits(self, bounds: Sequence[PartnerBound], least: Duration = 0) -> list[list[int]]:
        """By side and other side, how long after a row of the first the last row of the second comes, by way of any sides; each bound is taken for
        `least` at least.
        """
        sides = range(len(self.spec.sides))
        limits = [[0 if one == other else UNBOUNDED for other in sides] for one in sides]
        found = (bound for bound in bounds if bound.kind == "partner")
        for bound in (*(reference.bound for reference in self.references), *found):
            within = UNBOUNDED if bound.within is None else max(bound.within, least)
            limits[bound.parent][bound.child] = min(limits[bound.parent][bound.child], within)
        for middle in sides:
            for one in sides:
                for other in sides:
                    by_way = limits[one][middle] + limits[middle][other]
                    limits[one][other] = min(limits[one][other], by_way, UNBOUNDED)
        return limits


def _first_stored(tables: Sequence[pa.Table], hashes: Ints) -> Ints:
    """The event time of the first row of each key hash in tables in order of (hash, time); the end of time without one."""
    first = np.full(len(hashes), NEVER)
    for table in tables:
        if not table.num_rows:
            continue
        known, times = ints(table, HASH), ints(table, TIME)
        index = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
        first = np.minimum(first, np.where(known[index] == hashes, times[index], NEVER))
    return first


def _first_of(rows: KeyRows, hashes: Ints) -> Bools:
    """The first row of each of these values."""
    order = np.lexsort((rows.at, rows.hash))
    begins = np.ones(rows.rows, bool)
    begins[1:] = rows.hash[order[1:]] != rows.hash[order[:-1]]
    is_first = np.zeros(rows.rows, bool)
    is_first[order[begins]] = True
    return is_first & np.isin(rows.hash, hashes)


def _without(tables: Sequence[pa.Table], gone: Bools) -> list[pa.Table]:
    """The tables without these of all their rows."""
    starts = np.cumsum([0, *(table.num_rows for table in tables)]).tolist()
    return [
        table.filter(pa.array(~gone[start : start + table.num_rows]))
        for start, table in zip(starts, tables, strict=False)
    ]


def _both(one: Rejected, other: Rejected) -> Rejected:
    return Rejected(
        np.concatenate([one.at, other.at]),
        np.concatenate([one.position, other.position]),
        one.reasons + other.reasons,
    )
