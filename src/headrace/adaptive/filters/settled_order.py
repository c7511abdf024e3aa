"""The order of the filters of one conjunction over epochs: from sums of what an epoch observed to the order for the next one, and
how much of it is profiled.

Filters are whatever drops rows: conditions, or the sides of a join in which a new row may have no partner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace.adaptive.filters.a_greedy import AGreedy
from headrace.adaptive.filters.order_cost import Bools, Floats, Order
from headrace.adaptive.filters.ordering import (
    LEAST_PROFILED,
    UNSETTLED_SHARE,
    OrderInForce,
    drops_elsewhere,
)
from headrace.adaptive.filters.profile_window import DropProfile

WINDOW: Final = 1000
BUDGET: Final = 0.005
"""The part of the time of a conjunction that profiling takes."""
_ENOUGH: Final = 1024
"""Sampled rows after which an order is settled, however few of them are dropped."""


@dataclass(frozen=True, slots=True)
class Drops:
    """What an epoch observed of a conjunction; tuples are by filter.

    In this `order` each filter has `dropped` some of the `rows`, and a row took `spent`. `costs`: of one evaluation, infinite where it was not
    measured. `sampled` rows were evaluated by all filters; `patterns` counts those that are dropped, by the set of filters that
    drop them, as the bits of a number.
    """

    order: Order
    rows: int
    dropped: tuple[int, ...]
    spent: float
    costs: Floats
    sampled: int
    patterns: Mapping[int, int]

    def sample(self) -> Bools:
        """The sampled rows that are dropped, by filter; of more than a window's worth every so many."""
        bits = np.repeat(
            np.fromiter(self.patterns.keys(), np.int64, len(self.patterns)),
            np.fromiter(self.patterns.values(), np.int64, len(self.patterns)),
        )
        if len(bits) > WINDOW:
            bits = bits[np.linspace(0, len(bits) - 1, WINDOW).astype(np.int64)]
        dropped: Bools = (bits[:, None] >> np.arange(len(self.order)) & 1).astype(bool)
        return dropped


@dataclass(slots=True)
class SettledOrder:
    """A-Greedy's profile of one conjunction; `sampled` rows of it since conditions last changed, also those that no filter drops.

    Where enough rows were profiled since then, profiling takes a small part of the time; what the order drops is known of all rows,
    so a change is noticed anyway, and more rows are profiled then.
    """

    ordering: AGreedy
    sampled: int = 0

    @staticmethod
    def of(order: Order) -> SettledOrder:
        """One that begins with an order."""
        return SettledOrder(AGreedy(order, np.ones(len(order)), WINDOW))

    def take(self, seen: Drops) -> OrderInForce:
        """The order after an epoch, and the share of rows to profile in the next."""
        ordering, believed = self.ordering, self.ordering.believed()
        if drops_elsewhere(believed, seen.dropped) or (not believed and self._drops_more(seen)):
            ordering.forget()
            self.sampled, believed = 0, ()
        self.sampled += seen.sampled
        if seen.sampled:
            if ordering.record(DropProfile.whole(seen.sample(), seen.costs)):
                ordering.reoptimize()
            believed = ordering.believed()
        if self.sampled < _ENOUGH and ordering.window.held.rows < LEAST_PROFILED:
            return OrderInForce(ordering.plan, UNSETTLED_SHARE, believed)
        all_filters = float(np.where(np.isfinite(seen.costs), seen.costs, ordering.costs).sum())
        share = min(UNSETTLED_SHARE, round(BUDGET * seen.spent / all_filters, 6))
        return OrderInForce(ordering.plan, share, believed)

    def _drops_more(self, seen: Drops) -> bool:
        """Whether a settled order that was sampled when few rows were dropped now drops many."""
        total, rate = sum(seen.dropped), self.ordering.window.held.rows / max(1, self.sampled)
        return self.sampled >= _ENOUGH and total >= LEAST_PROFILED and total > 2 * rate * seen.rows
