"""A-Greedy: the greedy order of filters for the rows in the profile window, restored at once when it is violated.

It knows of each profiled row which filters drop it, so it sees every violation of the greedy invariant, also between
correlated filters. Once conditions are stable it has Static Greedy's order, which costs at most 4/slack of the optimum.
Source: Babu (2005), sections 4.2 and 4.3.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np

from headrace.adaptive.filters.matrix_view import MatrixView
from headrace.adaptive.filters.order_cost import Bools, Floats, Ints, Order
from headrace.adaptive.filters.ordering import LEAST_PROFILED, SLACK, later_than
from headrace.adaptive.filters.profile_window import DropProfile, ProfileWindow
from headrace.dataclass import dataclass


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

    def believed(self) -> tuple[float, ...]:
        """By filter, the share of dropped rows that it drops in this order; empty while too few rows were profiled."""
        if self.window.held.rows < LEAST_PROFILED:
            return ()
        shares = np.empty(len(self.plan))
        shares[list(self.plan)] = self.view.counts.diagonal() / self.window.held.rows
        return tuple(shares.round(3).tolist())

    def forget(self) -> None:
        """Begin with an empty window."""
        self.window.clear()
        self.view = MatrixView(self.plan)

    def follow(self, order: Order) -> None:
        """Follow an order that was chosen otherwise, and count the window again by its positions."""
        if order != self.plan:
            self.plan, self.view = order, MatrixView(order)
            self.view.add(self.window.held.dropped, 1)

    def reoptimize(self) -> Order:
        """The greedy order of the window."""
        while (position := self.view.violation(self.costs, self.slack)) is not None:
            self.view.correct(self.window.held.dropped, self.costs, position)
        self.plan = self.view.order
        return self.plan
