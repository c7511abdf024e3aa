"""A-Greedy with a log of its plans: when the order violates the greedy invariant, the order that was chosen for such statistics before
is followed, without an optimization.

Profiles are samples, so the invariant is violated by chance too; then the log has the order that is followed anyway. Each
`verified`-th look-up is compared with an optimization, so that a log that has aged is noticed: a choice that costs more is left out.
Source: Babu (2005), chapter 8.
"""

from __future__ import annotations

import numpy as np

from headrace.adaptive.filters.a_greedy import AGreedy
from headrace.adaptive.filters.order_cost import Bools, Floats, Ints, Order, expected_cost
from headrace.adaptive.filters.profile_window import DropProfile
from headrace.adaptive.plan_log.plan_log import Choice, PlanLog
from headrace.dataclass import dataclass


@dataclass(slots=True)
class LoggedOrder:
    """An A-Greedy and its log; `optimizations` and `reused` count how orders were chosen, `agreed` which of the `checked` ones were as good
    as the optimized ones.
    """

    ordering: AGreedy
    log: PlanLog
    verified: int = 20
    optimizations: int = 0
    reused: int = 0
    checked: int = 0
    agreed: int = 0
    _rows: int = 0

    @property
    def plan(self) -> Order:
        """The order to follow."""
        return self.ordering.plan

    def wanted(self, first: Ints) -> Bools:
        """Those of A-Greedy."""
        return self.ordering.wanted(first)

    def record(self, profile: DropProfile) -> bool:
        """Add profiled rows; whether the order violates the invariant now."""
        self._rows += profile.rows
        return self.ordering.record(profile)

    def statistics(self) -> Floats:
        """By filter, the share of the window's rows that it drops, and its share of all costs."""
        rows = max(1, self.ordering.window.held.rows)
        dropped = np.count_nonzero(self.ordering.window.held.dropped, axis=0) / rows
        return np.concatenate([dropped, self.ordering.costs / self.ordering.costs.sum()])

    def reoptimize(self) -> Order:
        """The order of the log for these statistics, or the greedy order of the window where it has none."""
        statistics = self.statistics()
        logged = self.log.nearest(statistics)
        if logged is None:
            return self._optimized(statistics)
        self.reused += 1
        self.ordering.follow(logged.plan)
        if self.reused % self.verified:
            return self.plan
        return self._compared(logged, statistics)

    def _compared(self, logged: Choice, statistics: Floats) -> Order:
        """The greedy order, after it was compared with that of the log."""
        window, costs = self.ordering.window.held.dropped, self.ordering.costs
        cost_of_logged = expected_cost(window, logged.plan, costs)
        plan = self._optimized(statistics)
        is_good = self.ordering.slack * cost_of_logged <= expected_cost(window, plan, costs)
        self.checked += 1
        self.agreed += is_good
        if not is_good:
            self.log.forget(logged)
        return plan

    def _optimized(self, statistics: Floats) -> Order:
        self.optimizations += 1
        plan = self.ordering.reoptimize()
        self.log.add(self._rows, statistics, plan)
        return plan
