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
A row is stored while any *other* stream may still bring a row to join it with; a row already below the punctuation of all
others is never stored.
Sources: Viglas, Naughton, Burger 2003 (MJoin); Babu 2005, chapter 5; Li 2008, chapter 7 (OA-Join, Figures 7-1 and 7-2), of which two sides are
the smallest case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.adaptive.filters.ordering import OrderInForce
from headrace.algebra.expressions.expression import columns_of
from headrace.operators.base.batch import Batch, Rejected
from headrace.operators.base.group_codes import Ints, flat
from headrace.operators.base.operator import SLOT, Advance, ProbeCounts, Sections, Step
from headrace.operators.joins.caches.cached_join import CachedJoin
from headrace.operators.joins.caches.caching import Caching
from headrace.operators.joins.caches.caching import in_force as in_force_caching
from headrace.operators.joins.join_side import (
    JoinOperator,
    JoinSpec,
    Side,
    failed_pairs,
    join_lines,
    passing,
    slots_and_hashes,
)
from headrace.operators.joins.probe_profiles import in_force, name_of_side
from headrace.operators.joins.stems import Combinations, Stem
from headrace.operators.joins.two_phases import Probing
from headrace.operators.rows.row_state import TIME
from headrace.operators.rows.sorted_rows import END, HASH, Sorted, pieces
from headrace.time import Duration, Instant

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
    `shows_ages`: in place of `until` with the age of each row, for readers with windows of their own.
    """

    spec: JoinSpec
    grid: Grid | None = None
    orders: tuple[tuple[int, ...], ...] = ()
    shows_ages: bool = False

    def display(self) -> Iterator[str]:
        """The join condition, the key by which rows are joined, and how long they are stored."""
        return join_lines(self, changes=False)

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Emit the combinations of new rows with stored ones and with each other."""
        new_rows = self.arrived(deltas)
        new, stems = list[Sorted | None](), dict[int, Stem]()
        for index, (side, section) in enumerate(zip(self.spec.sides, self.sections, strict=True)):
            stored = pieces([run[section] for run in runs if section in run], side.lookback)
            stems[index] = Stem(stored, side.longest)
            arrived = new_rows[index]
            new.append(None if arrived is None else Sorted.of(arrived, side.lookback))
        tables: list[pa.Table] = []
        rejected: list[Rejected] = []
        counts, profiles = ProbeCounts(), in_force()
        cached = CachedJoin(self.spec, stems, self._hold_together, self._partners, self._caching())
        for index, rows in enumerate(new):
            if rows is None:
                continue
            probing = self._probing(index, stems)
            probed = {**stems, index: Stem((rows,), None)}
            emitted = 0
            for found in cached.combinations(probing, rows, index):
                table, failed = self.emitted(found, probed)
                emitted += table.num_rows
                tables += [table] if table.num_rows else []
                rejected += [] if failed is None else [failed]
            if self.adapts and profiles.measures and probing.rows:
                profiles.add(name_of_side(self.id, index), probing.observation())
            counts = counts.plus(sum(probing.probed) + probing.profiled, probing.compared)
            cached.add(rows, index, emitted)
        cached.leave(advance)
        state = self.new_state(new_rows, advance)
        tables += self.began(runs, deltas, state)
        results = pa.concat_tables(tables) if tables else None
        return Step(state, results, tuple(rejected), probe_counts=counts)

    def _caching(self) -> Caching:
        """The caches to use."""
        return in_force_caching()

    @property
    def adapts(self) -> bool:
        """Whether there is more than one order in which new rows can probe the other sides."""
        return len(self.spec.sides) > 2 and not self.orders

    @property
    def joined_sides(self) -> tuple[str, ...]:
        """What the query calls its sides."""
        return tuple(side.name for side in self.spec.sides)

    def _probing(self, side: int, stems: Mapping[int, Stem]) -> Probing:
        """The search for new rows of a side."""
        others = tuple(other for other in range(len(self.spec.sides)) if other != side)
        places, profiles = range(len(others)), in_force()
        order = profiles.orders.get(name_of_side(self.id, side))
        if self.orders:
            order = OrderInForce(tuple(map(others.index, self.orders[side])), 0.0)
        elif order is None or sorted(order.order) != list(places):
            smallest = tuple(sorted(places, key=lambda place: stems[others[place]].rows))
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

    def emitted(self, found: Combinations, stems: Mapping[int, Stem]) -> tuple[pa.Table, Rejected | None]:
        """The combinations on which the condition is true, as result rows; columns that it does not read are taken last."""
        condition, failed = self.spec.condition, None
        tested: dict[str, pa.Array] = {}
        if condition is not None:
            tested = self._taken(found, stems, columns_of(condition))
            keep, bad, reasons = passing(condition, tested, found.count)
            failed = failed_pairs(found.at[bad], reasons) if reasons else None
            if not keep.all():
                found, mask = found.where(keep), pa.array(keep)
                tested = {name: column.filter(mask) for name, column in tested.items()}
        shown = frozenset(self.spec.shown.names[:-1])
        rows = {**tested, **self._taken(found, stems, shown - tested.keys())}
        if not self.shows_ages:
            return self.pairs(rows, found.at, pa.array(found.until)), failed
        for side, numbers in found.rows.items():
            times = stems[side].columns((TIME,), numbers)[TIME].to_numpy()
            rows[f"{AGE}{side}"] = pa.array(found.at - times)
        return self.pairs(rows, found.at, pa.array(found.at)), failed

    def _taken(
        self, found: Combinations, stems: Mapping[int, Stem], names: frozenset[str]
    ) -> dict[str, pa.Array]:
        """Columns of the rows of combinations."""
        taken: dict[str, pa.Array] = {}
        for index, side in enumerate(self.spec.sides):
            of_side = [name for name in side.stored.names if name in names]
            if of_side:
                taken |= stems[index].columns(of_side, found.rows[index])
        return taken

    def needed(self, rows: pa.Table, index: int, advance: Advance) -> pa.Table:
        """The rows of a side that a row of another side may still be joined with."""
        bound = min(side.bound(advance) for other, side in enumerate(self.spec.sides) if other != index)
        until = Sorted.of(rows, self.spec.sides[index].lookback).until()
        if self.grid is None:
            return rows.filter(pa.array(until >= bound))
        return rows.filter(pa.array(self.grid.last_end(until) > bound))

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
