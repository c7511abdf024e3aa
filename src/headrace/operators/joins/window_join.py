"""Operator for the inner join of any number of streams under windows: combinations of a row of each, with the last
instant at which they hold together.

A row holds from its time t to t + RANGE, a combination while all of its rows do: from `at`, the latest of the times, to
`until`, the earliest of the ends. That is the relation of CQL at every instant. With sliding windows, a combination is in
the windows that end in (at, until], so one without a window end in that interval is dropped. A combination is emitted
once, when its last row arrives, whatever the order in which the streams arrive; readers do not need them in order.

New rows of a side probe the SteMs of the others (`two_phases`), in an order of its own: those of the sides before it with the
rows of this epoch, those of the sides after it without. So each combination is found from exactly one of its rows, the
one of the last side that has a new row in it, and the order in which SteMs are probed changes the cost, never the answer.
The order follows what rows have no partner in, from epoch to epoch (`probe_profiles`; decision 49).
Rows of hot keys are in parts, each a key of its own (`hot_keys`; decisions 80 and 93); those sent to former parts probe what is stored there.
A row is stored while any *other* stream may still bring a row to join it with; a row already below the punctuation of all
others is never stored.
Sources: Viglas, Naughton, Burger 2003 (MJoin); Babu 2005, chapter 5; Li 2008, chapter 7 (OA-Join, Figures 7-1 and 7-2), of which two sides are
the smallest case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.adaptive.filters.ordering import OrderInForce
from headrace.algebra.expressions.expression import Column, columns_of
from headrace.dataclass import dataclass
from headrace.observation import ProbeCounts
from headrace.operators.base.batch import Batch, Rejected
from headrace.operators.base.group_codes import SLOTS, Ints, flat, ints
from headrace.operators.base.operator import SLOT, Advance, Sections, Step
from headrace.operators.joins.caches.cached_join import CachedJoin
from headrace.operators.joins.caches.caching import Caching
from headrace.operators.joins.caches.caching import in_force as in_force_caching
from headrace.operators.joins.hot_keys.former_layouts import of_former_layouts, with_own_rows
from headrace.operators.joins.hot_keys.key_work import FEWEST, KeyWork
from headrace.operators.joins.hot_keys.routing import probes_of, share_a_hash
from headrace.operators.joins.join_side import (
    JoinOperator,
    JoinSpec,
    Side,
    failed_pairs,
    join_lines,
    passing,
    slots_and_hashes,
)
from headrace.operators.joins.key_promises import least_bound, storing_keys
from headrace.operators.joins.key_sample import in_sample, sample_counts
from headrace.operators.joins.probing.delay_monitor import SAMPLED, DelayMonitor
from headrace.operators.joins.probing.key_monitor import key_distances
from headrace.operators.joins.probing.probe_profiles import in_force, name_of_side
from headrace.operators.joins.probing.stems import Combinations, Stem
from headrace.operators.joins.probing.two_phases import Probing
from headrace.operators.rows.row_state import TIME
from headrace.operators.rows.sorted_rows import END, HASH, Sorted, pieces
from headrace.time import FOREVER, Duration, Instant

UNTIL: Final = "until"
"""The column of a combination's last instant; NULL in a row that only marks when a stream began."""
AGE: Final = "age"
"""With its side's number, the column of the age of a row at the instant of its combination, which is `AT_INSTANT`."""
AT_INSTANT: Final = "at"


@dataclass(frozen=True, slots=True)
class Grid:
    """The ends of sliding windows: `anchor + i*slide`."""

    slide: Duration
    anchor: Instant

    def last_end(self, until: Ints) -> Ints:
        """The last end at or before each instant."""
        ends: Ints = until - (until - self.anchor) % self.slide
        return ends

    def first_end(self, at: Ints) -> Ints:
        """The first end after each instant."""
        return self.last_end(at) + self.slide


@dataclass(frozen=True, slots=True)
class WindowJoin(JoinOperator):
    """Combinations of a row of each side, with `until`; with `grid` the windows slide.

    `orders`: for each side the others, in the order in which its new rows probe them, and combinations are made, in every epoch;
    empty: the order in force, and before there is one the smallest SteM first.
    `shows_ages`: in place of `until` with the age of each row, for readers with windows of their own. `heeds_key_promises`: rows are
    stored with their keys, and no longer than the other sides may get rows of their key. `most_rows`: beyond so many stored rows
    only a sample of the keys is joined (`key_sample`).
    """

    spec: JoinSpec
    grid: Grid | None = None
    orders: tuple[tuple[int, ...], ...] = ()
    shows_ages: bool = False
    heeds_key_promises: bool = False
    most_rows: int | None = None

    def display(self) -> Iterator[str]:
        """The join condition, the key by which rows are joined, and how long they are stored."""
        yield from join_lines(self, changes=False)
        if self.heeds_key_promises:
            yield "  or until promises of all others have passed that for its key"
        if self.most_rows is not None:
            yield f"  of more than {self.most_rows:,} rows at an epoch's end, a sample of the keys is joined from then on"

    def with_most_rows(self, most: int | None) -> WindowJoin:
        """The join that stores about so many rows."""
        if most is None:
            return self
        return replace(self, spec=replace(self.spec, signature=""), most_rows=most)

    @property
    def longest_stored(self) -> Duration | None:
        """The longest time that a side stores a row."""
        longest = [side.longest for side in self.spec.sides]
        return None if None in longest else max(filter(None, longest), default=0)

    def heeding_key_promises(self) -> WindowJoin:
        """The join, with the keys of rows in its state."""
        spec = replace(self.spec, sides=storing_keys(self.spec.sides))
        return replace(self, spec=spec, heeds_key_promises=True)

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Emit the combinations of new rows with stored ones and with each other."""
        if self.spec.grows:
            return self._grown(runs, deltas, advance)
        joined, stored_share = advance.key_shares
        new_rows = [_of_sampled_keys(rows, stored_share) for rows in self.arrived(deltas)]
        stems = dict[int, Stem]()
        for index, side in enumerate(self.spec.sides):
            stems[index] = Stem(self.searched(runs, index, new_rows), side.longest)
        stored_rows = [stems[side].rows for side in range(len(self.spec.sides))]
        tables: list[pa.Table] = []
        rejected: list[Rejected] = []
        counts, profiles, met_keys = ProbeCounts(), in_force(), list[Ints]()
        key_work = self._key_work(advance) if self.divides_keys and profiles.measures else None
        probes = self.arrived(deltas, probes=True) if advance.split_keys else []
        stored_probes = self._stored_probes(runs, advance) if advance.split_keys else {}
        apart = self._shares_hashes((*new_rows, *probes), stems, advance)
        for index, rows in enumerate(probes):
            if rows is None:
                continue
            made, seen = self._met(rows, index, stems, stored_probes, apart=apart)
            tables, rejected = [*tables, *(each for each, _ in made)], [*rejected, *_failures(made)]
            counts = counts.plus(seen.probes, seen.candidates)
        cached = CachedJoin(self.spec, stems, self._hold_together, self._partners, self._caching())
        for index, arrived in enumerate(new_rows):
            if arrived is None:
                continue
            lookback, searching = self.spec.sides[index].lookback, _of_sampled_keys(arrived, joined)
            rows, emitted = None if searching is None else Sorted.of(searching, lookback), 0
            if rows is not None:
                probing = self._probing(index, stems)
                probing.see = None if key_work is None else partial(key_work.see, index)
                probed = {**stems, index: Stem((rows,), None)}
                for combinations in cached.combinations(probing, rows, index):
                    found = _of_one_slot(combinations, probed) if apart else combinations
                    table, failed, met = self.emitted(found, probed)
                    met_keys += [rows.hash[met.rows[index]]] if joined < 1 else []
                    emitted += table.num_rows
                    tables += [table] if table.num_rows else []
                    rejected += [] if failed is None else [failed]
                if self.adapts and profiles.measures and probing.rows:
                    profiles.add(name_of_side(self.id, index), probing.observation())
                counts = counts.plus(sum(probing.probed) + probing.profiled, probing.compared)
                counts = counts.plus(*cached.used)
            new = rows if rows is not None and searching is arrived else Sorted.of(arrived, lookback)
            rejected += [] if advance.split_keys else self.compare_keys(new, index, stems)
            cached.add(new, index, emitted)
        cached.leave(advance)
        if (monitor := self._monitor()) is not None:
            punctuations = tuple(side.bound(advance) for side in self.spec.sides)
            rows_of = [0 if rows is None else rows.num_rows for rows in new_rows]
            monitor.advanced(rows_of, stored_rows, punctuations, self.bounds_in_force)
        if key_work is not None and (heavy := key_work.heavy()):
            profiles.heavy[self.id] = heavy
        state = self.new_state(new_rows, advance) | self._probes_to_store(probes, advance)
        tables += self.began(runs, deltas, state)
        results = pa.concat_tables(tables) if tables else None
        sample = None
        if self.most_rows is not None:
            sample = sample_counts(self._joinable(stems, advance), met_keys, joined)
        return Step(state, results, tuple(rejected), probe_counts=counts, key_sample=sample)

    def searched(
        self,
        runs: Sequence[Sections],
        index: int,
        new_rows: Sequence[pa.Table | None],  # noqa: ARG002
    ) -> tuple[Sorted, ...]:
        """The stored rows of a side among which partners of new rows are searched."""
        section = self.sections[index]
        return pieces([run[section] for run in runs if section in run], self.spec.sides[index].lookback)

    @property
    def divides_keys(self) -> bool:
        """Whether it stores rows for a known time by the hash of their key alone. All rows without a key are one."""
        by_hash = self.most_rows is None and not self.heeds_key_promises and not self.spec.grows
        return by_hash and self.longest_stored is not None

    def slot_of_key(self, key_hash: int) -> int:
        """That of its hash; of rows without a key the join's own."""
        return key_hash % SLOTS if self.spec.sides[0].keys else self.spec.slot

    @property
    def stores_probes(self) -> bool:
        """Whether rows that are sent to former layouts are found there by later ones: of two sides one row is the layout's own."""
        return len(self.spec.sides) > 2

    def _stored_probes(self, runs: Sequence[Sections], advance: Advance) -> dict[int, Stem]:
        """By side the rows that earlier epochs sent to layouts which have not ended."""
        stems = dict[int, Stem]()
        for index, (side, section) in enumerate(zip(self.spec.sides, self.sections, strict=True)):
            name = probes_of(section)
            tables = [of_former_layouts(run[name], advance.split_keys) for run in runs if name in run]
            stems[index] = Stem(pieces(tables, side.lookback), side.longest)
        return stems

    def _probes_to_store(self, probes: Sequence[pa.Table | None], advance: Advance) -> dict[str, pa.Table]:
        """The sections of rows sent to former layouts that later rows may be joined with."""
        if not self.stores_probes:
            return {}
        return {
            probes_of(self.sections[index]): needed
            for index, rows in enumerate(probes)
            if rows is not None and (needed := self.needed(rows, index, advance)).num_rows
        }

    def _met(
        self, rows: pa.Table, index: int, own: Mapping[int, Stem], probes: dict[int, Stem], *, apart: bool
    ) -> tuple[list[tuple[pa.Table, Rejected | None]], ProbeCounts]:
        """The combinations of rows of a side that are sent to former layouts with an own row of these, and what their search took. From now on the rows
        are among the `probes`.
        """
        new, made = Sorted.of(rows, self.spec.sides[index].lookback), list[tuple[pa.Table, Rejected | None]]()
        counts = ProbeCounts()
        for first, stems in with_own_rows(own, probes, index):
            others, probed = tuple(stems), {**stems, index: Stem((new,), None)}
            order = sorted(
                range(len(others)), key=lambda place: (others[place] != first, stems[others[place]].rows)
            )
            in_order = OrderInForce(tuple(order), 0.0)
            probing = Probing(stems, others, in_order, self._hold_together, self._partners)
            for combinations in probing.combinations(new, index):
                found = _of_one_slot(combinations, probed) if apart else combinations
                made.append(self.emitted(found, probed)[:2])
            counts = counts.plus(sum(probing.probed), probing.compared)
        if self.stores_probes:
            probes[index] = Stem((*probes[index].pieces, new), probes[index].longest)
        return made, counts

    def _key_work(self, advance: Advance) -> KeyWork:
        """The work of keys: of any number of rows, once some are divided."""
        return KeyWork(len(self.spec.sides), 1 if advance.split_keys else FEWEST)

    def _shares_hashes(
        self, new_rows: Sequence[pa.Table | None], stems: Mapping[int, Stem], advance: Advance
    ) -> bool:
        """Whether rows of different keys have one hash, as that of a part of a divided key, and no condition compares their keys."""
        if not (advance.split_keys and self.spec.hashes_exactly):
            return False
        new = (Sorted.of(rows, None) for rows in new_rows if rows is not None)
        stored = (piece for stem in stems.values() for piece in stem.pieces)
        return share_a_hash((*new, *stored), advance.split_keys)

    def _grown(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Store the new rows: their combinations are emitted by the tree in force."""
        state = self.new_state(self.arrived(deltas), advance)
        self.began(runs, deltas, state)
        return Step(state)

    def _monitor(self) -> DelayMonitor | None:
        """The measurement of delays between joined rows, where a bound on them could shorten what is stored."""
        sides = self.spec.sides
        return in_force().monitor(self.id, len(sides), every=self.finds_bounds) if sides[0].keys else None

    def compare_keys(self, new: Sorted, side: int, stems: Mapping[int, Stem]) -> list[Rejected]:
        """Measure, of a sample of the new rows of a side, how they follow by key those before them, where a bound on that could shorten what
        is stored. Returns the rows that break one that is in force.
        """
        monitor = self._monitor()
        if monitor is not None and monitor.sees_keys and self.shows_distances(side):
            share = min(1.0, SAMPLED / new.rows)
            monitor.see_keys(side, key_distances(new, stems[side], share, every=False).times)
        return []

    def shows_distances(self, side: int) -> bool:
        """Whether rows of a side are stored with their keys, and as long as a row of any side waits, so that no distance is missed."""
        longest = self.spec.sides[side].longest
        stores_all = self.most_rows is None and not self.heeds_key_promises
        return (
            stores_all and self.spec.hashes_exactly and longest is not None and longest == self.longest_stored
        )

    @property
    def finds_bounds(self) -> bool:
        """Whether it drops rows by bounds on delays that were found from its combinations."""
        return False

    @property
    def bounds_in_force(self) -> tuple[int | None, ...]:
        """Those bounds, by side and other side, and then by side that of its keys' order; None where there is none."""
        sides = len(self.spec.sides)
        return (None,) * (sides * sides + sides)

    def _joinable(self, stems: Mapping[int, Stem], advance: Advance) -> int:
        """How many rows, stored and new, may still be joined. The cost follows the state, which is limited."""
        tables = ((index, piece.table) for index, stem in stems.items() for piece in stem.pieces)
        return sum(int(self._is_needed(table, index, advance).sum()) for index, table in tables)

    def _caching(self) -> Caching:
        """The caches to use: none where keys leave the state as a sample shrinks."""
        return in_force_caching() if self.most_rows is None else Caching()

    @property
    def adapts(self) -> bool:
        """Whether there is more than one order in which new rows can probe the other sides."""
        return len(self.spec.sides) > 2 and not self.orders

    @property
    def joined_sides(self) -> tuple[str, ...]:
        """What the query calls its sides."""
        return tuple(side.name for side in self.spec.sides)

    @property
    def joined_keys(self) -> tuple[tuple[str, ...], ...]:
        """By side, the columns of its key; empty where one is computed."""
        sides = [side.keys for side in self.spec.sides]
        names = tuple(tuple(key.name for key in keys if isinstance(key, Column)) for keys in sides)
        return names if list(map(len, names)) == list(map(len, sides)) else ()

    def _probing(self, side: int, stems: Mapping[int, Stem]) -> Probing:
        """The search for new rows of a side."""
        others = tuple(other for other in range(len(self.spec.sides)) if other != side)
        indexes, profiles = range(len(others)), in_force()
        order = profiles.orders.get(name_of_side(self.id, side))
        if self.orders:
            order = OrderInForce(tuple(map(others.index, self.orders[side])), 0.0)
        elif order is None or sorted(order.order) != list(indexes):
            smallest = tuple(sorted(indexes, key=lambda index: stems[others[index]].rows))
            order = OrderInForce(smallest, profiles.share_without if self.adapts else 0.0)
        fixed = bool(self.orders)
        return Probing(stems, others, order, self._hold_together, self._partners, fixed)

    def _hold_together(self, at: Ints, until: Ints) -> npt.NDArray[np.bool_]:
        """With sliding windows, whether a window ends in (at, until]."""
        if self.grid is None:
            return np.ones(len(at), bool)
        ends_in: npt.NDArray[np.bool_] = self.grid.last_end(until) > at
        return ends_in

    def _partners(self, at: Ints, until: Ints) -> tuple[Ints, Ints]:
        """With sliding windows, rows that hold at the end of a window in (at, until] and begin before it."""
        return (at, until) if self.grid is None else (self.grid.first_end(at), self.grid.last_end(until) - 1)

    def emitted(
        self, combinations: Combinations, stems: Mapping[int, Stem]
    ) -> tuple[pa.Table, Rejected | None, Combinations]:
        """The combinations on which the condition is true, as result rows too; columns that it does not read are taken last."""
        condition, failed = self.spec.condition, None
        tested: dict[str, pa.Array] = {}
        if condition is not None:
            tested = self._taken(combinations, stems, columns_of(condition))
            keep, bad, reasons = passing(condition, tested, combinations.count)
            failed = failed_pairs(combinations.at[bad], reasons) if reasons else None
            if not keep.all():
                combinations, mask = combinations.where(keep), pa.array(keep)
                tested = {name: column.filter(mask) for name, column in tested.items()}
        if (monitor := self._monitor()) is not None:
            monitor.see(combinations, stems)
        shown = frozenset(self.spec.shown.names[:-1])
        rows = {**tested, **self._taken(combinations, stems, shown - tested.keys())}
        if not self.shows_ages:
            return self.pairs(rows, combinations.at, pa.array(combinations.until)), failed, combinations
        for side, numbers in combinations.rows.items():
            times = stems[side].columns((TIME,), numbers)[TIME].to_numpy()
            rows[f"{AGE}{side}"] = pa.array(combinations.at - times)
        return self.pairs(rows, combinations.at, pa.array(combinations.at)), failed, combinations

    def _taken(
        self, combinations: Combinations, stems: Mapping[int, Stem], names: frozenset[str]
    ) -> dict[str, pa.Array]:
        """Columns of the rows of combinations."""
        columns: dict[str, pa.Array] = {}
        for index, side in enumerate(self.spec.sides):
            of_side = [name for name in side.stored.names if name in names]
            if of_side:
                columns |= stems[index].columns(of_side, combinations.rows[index])
        return columns

    def needed(self, rows: pa.Table, index: int, advance: Advance) -> pa.Table:
        """The rows of a side that a row of another side may still be joined with."""
        return rows.filter(pa.array(self._is_needed(rows, index, advance)))

    def _is_needed(self, rows: pa.Table, index: int, advance: Advance) -> npt.NDArray[np.bool_]:
        held = Sorted.of(rows, self.spec.sides[index].lookback)
        until, bound = held.until(), least_bound(rows, index, self.spec.sides, advance)
        needed = until >= bound if self.grid is None else self.grid.last_end(until) > bound
        needed &= np.less(bound, FOREVER)  # after a promise without an end no row follows
        return np.asarray(needed & in_sample(held.hash, advance.key_shares[1]))

    def can_match(self, batch: Batch, side: Side) -> npt.NDArray[np.bool_]:
        """With sliding windows, the rows that are in a window."""
        return self._hold_together(batch.at, side.until(batch))

    def at_rest(self, batch: Batch, keys: Sequence[pa.Array], side: Side) -> pa.Table:
        """Rows with key hash, time and end."""
        slots, mixed = slots_and_hashes(keys, batch.rows, self.spec.slot)
        head = {SLOT: slots, HASH: mixed, TIME: batch.at}
        if side.ends is not None:
            head[END] = side.until(batch)
        stored = {name: flat(batch.columns[name]) for name in side.stored.names}
        return pa.table({**{name: pa.array(values) for name, values in head.items()}, **stored})


def _of_one_slot(combinations: Combinations, stems: Mapping[int, Stem]) -> Combinations:
    """The combinations of rows of one slot: of equal hashes, those of one key."""
    slots = [stems[side].columns((SLOT,), rows)[SLOT].to_numpy() for side, rows in combinations.rows.items()]
    return combinations.where(np.logical_and.reduce([slots[0] == other for other in slots[1:]]))


def _failures(made: Sequence[tuple[pa.Table, Rejected | None]]) -> Iterator[Rejected]:
    return (failed for _, failed in made if failed is not None)


def _of_sampled_keys(rows: pa.Table | None, share: float) -> pa.Table | None:
    """New rows whose key is in the sample of a share, if there are any."""
    if rows is None or share >= 1:
        return rows
    sampled = rows.filter(pa.array(in_sample(ints(rows, HASH), share)))
    return sampled if sampled.num_rows else None
