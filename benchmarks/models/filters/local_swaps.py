"""LocalSwaps: each filter is compared with the next one only, and changes places with it.

One filter is evaluated on a profiled row besides those of the order, and orders change smoothly; but an order in which every filter is
better than the next may cost as much as their number times the greedy order.
Source: Babu (2005), section 4.6 (example 4.6.1 is the worst case). After a swap other pairs than before are neighbours: two filters
are compared over the profiled rows of which both are known.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np

from benchmarks.models.filters.pair_drops import pair_drops
from headrace.adaptive.filters.order_cost import Bools, Floats, Ints, Order
from headrace.adaptive.filters.ordering import SLACK
from headrace.adaptive.filters.profile_window import DropProfile, ProfileWindow
from headrace.dataclass import dataclass


@dataclass(slots=True)
class LocalSwaps:
    """Swaps of neighbours, over the profile window."""

    plan: Order
    costs: Floats
    size: int = 1000
    slack: float = SLACK
    window: ProfileWindow = field(init=False)

    def __post_init__(self) -> None:
        self.window = ProfileWindow(len(self.plan), self.size)

    def wanted(self, first: Ints) -> Bools:
        """The filter after the one that drops the row."""
        wanted = np.zeros((len(first), len(self.plan)), bool)
        rows = np.flatnonzero(first < len(self.plan) - 1)
        wanted[rows, np.asarray(self.plan)[first[rows] + 1]] = True
        return wanted

    def record(self, profile: DropProfile) -> bool:
        """Whether a filter drops more per unit of cost than the one before it."""
        self.window.add(profile)
        self.costs = self.window.costs(self.costs)
        return any(map(self._is_worse, range(len(self.plan) - 1)))

    def _is_worse(self, position: int) -> bool:
        first, second = pair_drops(self.window.held, self.plan, position, position + 1)
        one, other = self.plan[position : position + 2]
        return bool(first / self.costs[one] < self.slack * second / self.costs[other])

    def reoptimize(self) -> Order:
        """Swap each pair of neighbours that is in the wrong order, from the front, once."""
        position = 0
        while position < len(self.plan) - 1:
            if self._is_worse(position):
                order = list(self.plan)
                order[position : position + 2] = reversed(order[position : position + 2])
                self.plan = tuple(order)
                position += 1
            position += 1
        return self.plan
