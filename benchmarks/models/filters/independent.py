"""Independent: filters in the order of the rows that each drops by itself, per unit of cost.

It is the optimal order if filters are independent of each other, and may cost as much as their number times the greedy order if
they are correlated.
Source: Babu (2005), section 4.5 (example 4.5.1 is the worst case).
"""

from __future__ import annotations

from dataclasses import field

import numpy as np

from headrace.adaptive.filters.order_cost import Bools, Floats, Ints, Order
from headrace.adaptive.filters.ordering import SLACK, later_than
from headrace.adaptive.filters.profile_window import DropProfile, ProfileWindow
from headrace.dataclass import dataclass


@dataclass(slots=True)
class Independent:
    """Sorting by drops per cost, over the profile window."""

    plan: Order
    costs: Floats
    size: int = 1000
    slack: float = SLACK
    window: ProfileWindow = field(init=False)
    drops: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.window = ProfileWindow(len(self.plan), self.size)
        self.drops = np.zeros(len(self.plan), np.int64)

    def wanted(self, first: Ints) -> Bools:
        """All filters that the order has not evaluated."""
        return later_than(self.plan, first)

    def record(self, profile: DropProfile) -> bool:
        """Count drops; whether a later filter drops more per unit of cost."""
        entered, expired = self.window.add(profile)
        self.drops += np.count_nonzero(entered, axis=0) - np.count_nonzero(expired, axis=0)
        self.costs = self.window.costs(self.costs)
        rates = self._rates[list(self.plan)]
        return bool((rates[:-1] < self.slack * np.maximum.accumulate(rates[:0:-1])[::-1]).any())

    @property
    def _rates(self) -> Floats:
        rates: Floats = self.drops / self.costs
        return rates

    def reoptimize(self) -> Order:
        """All filters by their rates; equal ones as they were."""
        rates = self._rates
        self.plan = tuple(sorted(self.plan, key=lambda one: -rates[one]))
        return self.plan
