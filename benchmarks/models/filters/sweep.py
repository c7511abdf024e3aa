"""Sweep: one filter at a time is compared with all before it, and moved to its greedy place.

A stage profiles the filter at one position. It ends when that filter has moved, or after enough profiled rows; the next stage takes
the next position. At most one filter is evaluated on a profiled row besides those of the order, so profiling is cheap, but a
violation may be hidden for as many stages as there are filters.
Source: Babu (2005), section 4.4. The place of a filter that moves is not printed: it is the first position at which it drops more,
and a stage begins with an empty window since the known filters differ. A violation counts from a fifth of the stage's rows on, or a
single row would move a filter.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final

import numpy as np

from benchmarks.models.filters.pair_drops import pair_drops
from headrace.adaptive.filters.order_cost import Bools, Floats, Ints, Order
from headrace.adaptive.filters.ordering import SLACK
from headrace.adaptive.filters.profile_window import DropProfile, ProfileWindow
from headrace.dataclass import dataclass

_TESTED_FROM: Final = 5


@dataclass(slots=True)
class Sweep:
    """Stages of at most `size` profiled rows; `position` is the one that is profiled."""

    plan: Order
    costs: Floats
    size: int = 500
    slack: float = SLACK
    position: int = 1
    window: ProfileWindow = field(init=False)

    def __post_init__(self) -> None:
        self.window = ProfileWindow(len(self.plan), self.size)

    def wanted(self, first: Ints) -> Bools:
        """The filter of the profiled position, where the order does not reach it."""
        wanted = np.zeros((len(first), len(self.plan)), bool)
        wanted[:, self.plan[self.position]] = first < self.position
        return wanted

    def record(self, profile: DropProfile) -> bool:
        """Compare the profiled filter with those before it; a stage that is full without a violation ends."""
        self.window.add(profile)
        self.costs = self.window.costs(self.costs)
        if self.window.held.rows >= self.size // _TESTED_FROM and self._violation is not None:
            return True
        if self.window.held.rows >= self.size:
            self._next_stage()
        return False

    @property
    def _violation(self) -> int | None:
        for earlier in range(self.position):
            first, second = pair_drops(self.window.held, self.plan, earlier, self.position)
            rate, other = (
                first / self.costs[self.plan[earlier]],
                second / self.costs[self.plan[self.position]],
            )
            if rate < self.slack * other:
                return earlier
        return None

    def _next_stage(self) -> None:
        self.position = self.position % (len(self.plan) - 1) + 1
        self.window.clear()

    def reoptimize(self) -> Order:
        """Move the profiled filter to the first position at which it drops more per unit of cost."""
        target = self._violation
        if target is not None:
            order = list(self.plan)
            order.insert(target, order.pop(self.position))
            self.plan = tuple(order)
        self._next_stage()
        return self.plan
