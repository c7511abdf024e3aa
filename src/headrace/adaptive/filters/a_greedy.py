"""A-Greedy: the greedy order of filters for the rows in the profile window, restored at once when it is violated.

It knows of each profiled row which filters drop it, so it sees every violation of the greedy invariant, also between
correlated filters. Once conditions are stable it has Static Greedy's order, which costs at most 4/slack of the optimum.
Source: Babu (2005), sections 4.2 and 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from headrace.adaptive.filters.matrix_view import MatrixView
from headrace.adaptive.filters.order_cost import Bools, Floats, Ints, Order
from headrace.adaptive.filters.ordering import SLACK, later_than
from headrace.adaptive.filters.profile_window import DropProfile, ProfileWindow

LEAST_PROFILED: Final = 400
"""Profiled rows from which on a window is compared with what a run drops."""
_STALE: Final = 0.2
"""The share of dropped rows that are dropped by another filter than the window says, from which on it is not of these conditions."""


@dataclass(slots=True)
class AGreedy:
    """A-Greedy that begins with an order and a first guess of each filter's cost."""

    plan: Order
    costs: Floats
    size: int = 1000
    slack: float = SLACK
    window: ProfileWindow = field(init=False)
    view: MatrixView = field(init=False)

    def __post_init__(self) -> None:
        self.window, self.view = ProfileWindow(len(self.plan), self.size), MatrixView(self.plan)

    def wanted(self, first: Ints) -> Bools:
        """All filters that the order has not evaluated."""
        return later_than(self.plan, first)

    def record(self, profile: DropProfile) -> bool:
        """Add profiled rows to the window, update the view, and test the invariant."""
        entered, expired = self.window.add(profile)
        self.view.add(entered, 1)
        self.view.add(expired, -1)
        self.costs = self.window.costs(self.costs)
        return self.view.violation(self.costs, self.slack) is not None

    def is_stale(self, dropped: Ints) -> bool:
        """Whether the order drops rows elsewhere than the window says: `dropped` has the newest drops of each filter.

        These are known of all rows at no cost, so that conditions that change are noticed long before the window has new rows.
        """
        if self.window.held.rows < LEAST_PROFILED or dropped.sum() < LEAST_PROFILED:
            return False
        believed = self.view.counts.diagonal() / self.window.held.rows
        found = dropped[list(self.plan)] / dropped.sum()
        return bool(np.abs(believed - found).sum() / 2 > _STALE)

    def forget(self) -> None:
        """Begin with an empty window."""
        self.window.clear()
        self.view = MatrixView(self.plan)

    def reoptimize(self) -> Order:
        """The greedy order of the window."""
        while (position := self.view.violation(self.costs, self.slack)) is not None:
            self.view.correct(self.window.held.dropped, self.costs, position)
        self.plan = self.view.order
        return self.plan
