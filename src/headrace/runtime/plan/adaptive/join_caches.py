"""The caches of joins: what state tasks observed of them, added by side, and the choice after every epoch of the sides that look one up.

A cache of a side has the combinations of all others. The choice is a fact of the manifest: an epoch that is run again looks up the
same caches. What they hold is in the memory of processes, and is made again; results depend on neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Final, TypeAlias

from headrace.adaptive.caches.adaptive_selection import CacheSelection
from headrace.adaptive.caches.cost_model import CacheValue
from headrace.adaptive.caches.segments import Orders, Segment
from headrace.dataclass import dataclass
from headrace.observation import CacheObservation
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.task_messages import StateReceipt
from headrace.store.logs.manifest import Manifest

JOIN_CACHES: Final = "join caches"
"""In a manifest's facts: of joins with caches, the name, and of each side whose new rows look one up its number, the sides of which the
cache has the combinations, and the costs of a row without it.
"""
OBSERVATIONS: Final = 2
"""Epochs of which the mean value of a cache is taken."""
INTERVAL: Final = 4
"""Epochs with rows after which caches that are not used are judged again: their values are by-products of every epoch."""
MARGIN: Final = 0.1
"""The part of the cost without a cache that it has to save at least."""
SEARCH: Final = 100.0
"""Nanoseconds for the search of a row's partners in one side. This and the following are fitted to benchmarks/suite/caches.py: what counts
are their ratios.
"""
COMPARE: Final = 10.0
"""Nanoseconds for a combination with a row that was found."""
MATCH: Final = 20.0
"""Nanoseconds for a combination that was found in a cache."""
TEST: Final = 60.0
"""Nanoseconds for the conditions on a combination of all sides, and its columns."""
LOOK_UP: Final = 300.0
"""Nanoseconds for a look-up in a cache."""
CHECK: Final = 50.0
"""Nanoseconds for a new row of another side, which may change a cache."""
CALLS: Final = 500_000.0
"""Nanoseconds that a cache takes in an epoch, however few rows there are."""

ChosenSides: TypeAlias = Mapping[int, tuple[int, ...]]
BySide: TypeAlias = Mapping[int, CacheObservation]
Costs: TypeAlias = tuple[float, float, float]


def join_caches(manifest: Manifest) -> dict[str, dict[int, tuple[int, ...]]]:
    """By join, the sides that look up a cache in the next epoch, each with the sides of which it has the combinations."""
    return {
        name: {side: tuple(others) for side, others, _ in chosen}
        for name, chosen in manifest.facts.get(JOIN_CACHES, ())
    }


def observed_caches(receipts: Iterable[StateReceipt]) -> dict[str, CacheObservation]:
    """By the name of the side, the sums over state tasks."""
    sums: dict[str, CacheObservation] = {}
    for receipt in receipts:
        for name, seen in receipt.caches.items():
            sums[name] = sums[name].plus(seen) if name in sums else seen
    return sums


def whole_pipelines(orders: Orders) -> tuple[Segment, ...]:
    """The candidates: of each side the segment of all others. All have one key, so that changes need no order of probes."""
    return tuple(Segment(side, 0, len(order) - 1, tuple(sorted(order))) for side, order in enumerate(orders))


@dataclass(slots=True)
class _Join:
    """The caches of one join. `costs`: by side, what one row compares, makes and passes without a cache, as measured last; at first
    those of the sides that use one.
    """

    sides: int
    costs: dict[int, Costs] = field(default_factory=dict)
    selection: CacheSelection = field(init=False)

    def __post_init__(self) -> None:
        orders = tuple(
            tuple(other for other in range(self.sides) if other != side) for side in range(self.sides)
        )
        self.selection = CacheSelection(orders, INTERVAL, OBSERVATIONS, whole_pipelines)
        for segment in whole_pipelines(orders):
            if segment.pipeline in self.costs:
                self.selection.begin_with(segment)

    def take(self, seen: BySide) -> ChosenSides:
        """The caches after an epoch."""
        for side, one in seen.items():
            if one.measured:
                of_row = one.compared / one.measured, one.made / one.measured, one.passing / one.rows
                self.costs[side] = of_row
        values, plain = {}, dict[tuple[int, int], float]()
        for segment in whole_pipelines(self.selection.orders):
            side = segment.pipeline
            values[segment], plain[side, 0] = CacheValue(0.0, 0.0, 0.0), 0.0
            if side in seen and self.costs.keys() >= seen.keys():
                values[segment], plain[side, 0] = self._value(side, seen)
        if self.selection.record(values, plain):
            self.selection.reoptimize()
        self.selection.pass_time(1)
        return {segment.pipeline: segment.windows for segment in sorted(self.selection.plan)}

    def _plain(self, side: int, rows: int) -> float:
        """Nanoseconds for the new rows of a side without a cache."""
        compared, rows_made, _ = self.costs[side]
        return rows * (SEARCH * (self.sides - 1) + COMPARE * compared + TEST * rows_made)

    def _value(self, side: int, seen: BySide) -> tuple[CacheValue, float]:
        """The value of a side's cache in an epoch, and what the side costs without."""
        one, is_used = seen[side], seen[side].lookups > 0
        plain = self._plain(side, one.rows)
        matched = one.matched if is_used else one.rows * self.costs[side][2]
        misses = one.lookups - one.hits if is_used else one.missing
        proc = CALLS + LOOK_UP * one.rows + (MATCH + TEST) * matched + plain * misses / one.rows
        upkeep = 0.0
        for other, changes in seen.items():
            if other == side:
                continue
            followed = changes.followed if is_used else changes.rows
            changed = changes.changed if is_used else changes.rows * self.costs[other][0]
            upkeep += CHECK * changes.rows + SEARCH * (self.sides - 2) * followed + COMPARE * changed
        return CacheValue(plain * (1 - MARGIN) - proc, proc, upkeep), plain


@dataclass(slots=True)
class JoinCaches:
    """The values of caches, in the driver."""

    _joins: dict[str, _Join] = field(default_factory=dict)

    def decided(
        self, manifest: Manifest, observed: Mapping[str, CacheObservation], plan: EpochPlan
    ) -> Manifest:
        """The manifest with the caches for the next epoch; joins that were not observed keep theirs, while the plan has them."""
        if not observed:
            return manifest
        before = {
            name: side_facts
            for name, side_facts in manifest.facts.get(JOIN_CACHES, ())
            if name in plan.operators
        }
        by_join: dict[str, dict[int, CacheObservation]] = {}
        for name, seen in observed.items():
            join, _, side = name.rpartition("/")
            by_join.setdefault(join, {})[int(side)] = seen
        new: dict[str, list[list[object]]] = {}
        for join, of_sides in by_join.items():
            sides = len(plan.operators[join].joined_sides) if join in plan.operators else 0
            if sides > 2:  # before a change of its query it may have had more
                costs = {side: tuple(of_row) for side, _, of_row in before.get(join, ())}
                new[join] = self._facts(join, self.chosen(join, sides, of_sides, costs))
        self._joins = {name: known for name, known in self._joins.items() if name in plan.operators}
        facts = [[name, side_facts] for name, side_facts in {**before, **new}.items() if side_facts]
        if facts == manifest.facts.get(JOIN_CACHES, []):
            return manifest
        return replace(manifest, facts={**manifest.facts, JOIN_CACHES: facts})

    def _facts(self, join: str, chosen: ChosenSides) -> list[list[object]]:
        costs = self._joins[join].costs
        return [
            [side, list(others), [round(one, 3) for one in costs[side]]] for side, others in chosen.items()
        ]

    def chosen(
        self, join: str, sides: int, seen: BySide, costs: Mapping[int, Costs] | None = None
    ) -> ChosenSides:
        """The caches of a join of so many sides after an epoch; `costs` are of those that used one in it."""
        known = self._joins.get(join)
        if known is None or known.sides != sides:
            known = self._joins[join] = _Join(sides, dict(costs or {}))
        return known.take(seen)
