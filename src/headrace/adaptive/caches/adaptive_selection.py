"""Adaptive choice of caches: which candidates are used, profiled or left alone, as their measured values and the join orders change.

Bad caches are left at once, good ones are found after the next interval. A set that is in use is kept unless a value has moved by more
than a fifth since it was chosen. A changed order drops the caches of its pipeline, and those of other pipelines that no longer keep the
prefix invariant.
Source: Babu (2005), section 5.5.4; that the caches of other pipelines have to be tested too is missing there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Final, TypeAlias

from headrace.adaptive.caches.cost_model import CacheValue
from headrace.adaptive.caches.estimates import OBSERVATIONS, RecentMean
from headrace.adaptive.caches.offline_selection import Candidate, Chosen, select
from headrace.adaptive.caches.segments import Orders, Segment, candidates
from headrace.dataclass import dataclass

CHANGE: Final = 0.2
"""The part of a value by which it has to move before caches are chosen again."""

Places: TypeAlias = dict[tuple[int, int], float]
"""By pipeline and place, the cost of processing without a cache."""


class State(Enum):
    """What is done with a candidate: its cache is used, its value is measured without using it, or neither."""

    USED = "used"
    PROFILED = "profiled"
    UNUSED = "unused"


@dataclass(slots=True)
class _Known:
    """A candidate with its recent values."""

    state: State = State.PROFILED
    benefit: RecentMean = field(default_factory=RecentMean)
    proc: RecentMean = field(default_factory=RecentMean)
    upkeep: RecentMean = field(default_factory=RecentMean)

    @staticmethod
    def of(most: int) -> _Known:
        return _Known(State.PROFILED, RecentMean(most), RecentMean(most), RecentMean(most))

    def add(self, value: CacheValue) -> None:
        self.benefit.add(value.benefit)
        self.proc.add(value.proc)
        self.upkeep.add(value.upkeep)

    @property
    def value(self) -> CacheValue:
        return CacheValue(self.benefit.mean, self.proc.mean, self.upkeep.mean)


def _group(segment: Segment) -> str:
    """Caches of the same windows are one cache: all of these joins have one key."""
    return ",".join(map(str, segment.windows))


@dataclass(slots=True)
class CacheSelection:
    """The caches of a join whose conditions share one key, with the orders of its pipelines.

    `observations` of a candidate before it is judged; `interval` between two judgements of the candidates that are not used, in any unit;
    `possible`: the candidates under an order.
    """

    orders: Orders
    interval: float
    observations: int = OBSERVATIONS
    possible: Callable[[Orders], Sequence[Segment]] = candidates
    choose: Callable[[Sequence[Candidate], Places], Chosen] = select
    _known: dict[Segment, _Known] = field(default_factory=dict)
    _elapsed: float = 0.0
    _chosen_by: dict[Segment, CacheValue] = field(default_factory=dict)
    _last: Chosen = frozenset()
    _plain: Places = field(default_factory=dict)
    selections: int = 0
    """How often caches were chosen."""

    def __post_init__(self) -> None:
        self._known = {segment: _Known.of(self.observations) for segment in self.possible(self.orders)}

    def begin_with(self, segment: Segment) -> None:
        """A candidate was used before."""
        self._known[segment].state = State.USED

    def state_of(self, segment: Segment) -> State:
        """What is done with a candidate now."""
        return self._known[segment].state

    def of_state(self, state: State) -> Chosen:
        """The candidates in a state."""
        return frozenset(segment for segment, known in self._known.items() if known.state is state)

    @property
    def plan(self) -> Chosen:
        """The caches to use."""
        return self.of_state(State.USED)

    def record(self, values: Mapping[Segment, CacheValue], plain: Places) -> bool:
        """Add one observation of candidates that are used or profiled; whether it is time to choose.

        Caches in use that cost more than they gain are left at once.
        """
        self._plain = plain
        for segment, value in values.items():
            known = self._known.get(segment)
            if known is not None and known.state is not State.UNUSED:
                known.add(value)
        self._leave_bad_ones()
        profiled = self.of_state(State.PROFILED)
        return bool(profiled) and all(self._known[segment].benefit.is_full for segment in profiled)

    def _leave_bad_ones(self) -> None:
        by_group: dict[str, list[Segment]] = {}
        for segment in self.plan:
            by_group.setdefault(_group(segment), []).append(segment)
        for used in by_group.values():
            values = [self._known[segment].value for segment in used]
            if sum(value.benefit for value in values) < values[0].upkeep:
                for segment in used:
                    self._known[segment].state = State.UNUSED

    def reoptimize(self) -> Chosen:
        """Choose among the candidates whose values are known, unless no value has moved since the last choice."""
        judged = {segment: known.value for segment, known in self._known.items() if known.benefit.is_full}
        if self._chosen_by and judged.keys() == self._chosen_by.keys() and not self._has_moved(judged):
            chosen = self._last
        else:
            among = [Candidate(segment, value, _group(segment)) for segment, value in sorted(judged.items())]
            chosen = self.choose(among, self._plain)
            self._chosen_by, self._last = judged, chosen
            self.selections += 1
        for segment, known in self._known.items():
            known.state = State.USED if segment in chosen else State.UNUSED
        return self.plan

    def _has_moved(self, judged: Mapping[Segment, CacheValue]) -> bool:
        """Whether a benefit or an upkeep is another one than when caches were chosen."""
        pairs = (
            (getattr(value, name), getattr(self._chosen_by[segment], name))
            for segment, value in judged.items()
            for name in ("benefit", "upkeep")
        )
        return any(abs(now - then) > CHANGE * abs(then) for now, then in pairs)

    def pass_time(self, elapsed: float) -> None:
        """Let time pass; after an interval the unused candidates are profiled, and the used ones that hide one of them."""
        self._elapsed += elapsed
        if self._elapsed < self.interval:
            return
        self._elapsed = 0.0
        unused = self.of_state(State.UNUSED)
        hiding = {used for used in self.plan if any(used.holds(segment) for segment in unused)}
        for segment in unused | hiding:
            self._known[segment] = _Known.of(self.observations)

    def reorder(self, orders: Orders) -> Chosen:
        """Take other orders; returns the caches that were dropped. New candidates are profiled."""
        changed = {pipeline for pipeline, order in enumerate(orders) if order != self.orders[pipeline]}
        possible = self.possible(orders)
        before, self.orders = self.plan, orders
        staying = {
            segment: known
            for segment, known in self._known.items()
            if segment.pipeline not in changed and segment in possible
        }
        self._known = {segment: staying.get(segment) or _Known.of(self.observations) for segment in possible}
        self._chosen_by, self._last = {}, frozenset()
        return before - self.plan
