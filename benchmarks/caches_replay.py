"""A-Caching over a recorded trace: the join of `traced_join` as executor, profiles of its rows, and the adaptive choice of caches,
which are added and dropped as it decides.

The unit of cost is that of the join's counts, and of time an update. Source: Babu (2005), sections 5.5.2 and 5.5.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.join_traces import Update
from benchmarks.models.caches.global_caches import GlobalSegment, within_quota
from benchmarks.models.caches.traced_join import TracedJoin
from headrace.adaptive.caches.adaptive_selection import CacheSelection, State
from headrace.adaptive.caches.cost_model import CacheCosts, CacheValue, value_of
from headrace.adaptive.caches.estimates import MissEstimate, PipelineProfile, load_of
from headrace.adaptive.caches.segments import Equality, Orders, Segment

PROFILED, PROBE, UPDATE = 0.05, 1.0, 1.0
"""The share of rows that are profiled; the costs of a look-up and of a change."""


@dataclass(slots=True)
class CachesReplay:
    """The loop of A-Caching; an observation is made every `chunk` updates, candidates are judged again after ten of them."""

    equalities: Sequence[Equality]
    orders: Orders
    quota: int = 6
    chunk: int = 200
    join: TracedJoin = field(init=False)
    selection: CacheSelection = field(init=False)
    costs: list[int] = field(default_factory=list)
    """The cost of each chunk."""
    plans: list[frozenset[Segment]] = field(default_factory=list)
    _forms: dict[Segment, GlobalSegment] = field(default_factory=dict)

    def __post_init__(self) -> None:
        segments, more = within_quota(self.orders, self.quota)
        forms = [*(GlobalSegment(segment, segment.windows) for segment in segments), *more]
        self._forms = {one.segment: one for one in forms}
        self.join = TracedJoin(self.equalities, self.orders)
        self.selection = CacheSelection(self.orders, 10 * self.chunk, 3, lambda _: tuple(self._forms))
        self._watch()

    def run(self, trace: Sequence[Update], seed: int = 1) -> int:
        """The cost of the whole trace."""
        filled = [update for update in trace if not update[2]]
        for window, row, _ in filled:
            self.join.hold(window, row)
        rng, updates = np.random.default_rng(seed), trace[len(filled) :]
        profiles = [PipelineProfile.of(len(order), 40) for order in self.orders]
        for start in range(0, len(updates), self.chunk):
            part, before = updates[start : start + self.chunk], self.join.counts.cost
            for window, row, sign in part:
                if rng.random() < PROFILED:
                    seen = self.join.profile(window, row)
                    profiles[window].add([rows for rows, _ in seen], [cost for _, cost in seen[:-1]])
                self.join.change(window, row, sign)
            self.costs.append(self.join.counts.cost - before)
            arriving = [sum(window == one for window, _, _ in part) for one in range(len(self.orders))]
            self._decide(profiles, arriving)
        return sum(self.costs)

    def _decide(self, profiles: Sequence[PipelineProfile], arriving: Sequence[float]) -> None:
        values = self.values(profiles, arriving)
        load = load_of(profiles, arriving)
        places = range(len(self.orders) - 1)
        plain = {
            (pipeline, position): load.plain(pipeline, position)
            for pipeline in range(len(self.orders))
            for position in places
        }
        if self.selection.record(values, plain):
            self.selection.reoptimize()
        self.selection.pass_time(self.chunk)
        plan = self.selection.plan
        for segment in self.join.used.keys() - plan:
            self.join.drop(segment)
        for segment in sorted(plan - self.join.used.keys()):
            try:
                self.join.use(self._forms[segment])
            except ValueError:
                continue  # another one's hits would leave out its changes
        self._watch()
        self.plans.append(frozenset(self.join.used))

    def values(
        self, profiles: Sequence[PipelineProfile], arriving: Sequence[float]
    ) -> dict[Segment, CacheValue]:
        """The value of each candidate in a chunk, by the cost model."""
        load = load_of(profiles, arriving)
        return {
            segment: value_of(load, segment, CacheCosts(PROBE, UPDATE, self._misses(segment)), form.seen_with)
            for segment, form in self._forms.items()
        }

    def _misses(self, segment: Segment) -> float:
        used = self.join.used.get(segment)
        if used is not None and used.lookups:
            return 1 - used.hits / used.lookups
        estimate = self.join.watched.get(segment)
        return 1.0 if estimate is None else estimate.probability

    def _watch(self) -> None:
        """Watch the keys of the candidates that are profiled."""
        profiled = self.selection.of_state(State.PROFILED)
        self.join.watched = {
            segment: self.join.watched.get(segment) or MissEstimate(100, 16) for segment in profiled
        }
