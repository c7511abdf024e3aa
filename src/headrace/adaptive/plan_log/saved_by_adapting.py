"""What adapting saved in the periods of a log: the cost of the orders that were followed, of the best single order, and of profiling.

Source: Babu (2005), chapter 8 (return on investment).
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.adaptive.filters.order_cost import Conditions, Order, best_single_order
from headrace.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class LoggedPeriod:
    """A time with one order: what the filters dropped and cost, for its rows, and the cost of profiling in the unit of these costs."""

    order: Order
    conditions: Conditions
    profiling: float = 0.0


@dataclass(frozen=True, slots=True)
class Saved:
    """Costs of all rows of a log: as they were ordered, in the best single order, and of profiling."""

    followed: float
    single: float
    profiling: float
    best: Order

    @property
    def ratio(self) -> float:
        """The best single order to what was spent with profiling: above 1 adapting has paid."""
        return self.single / (self.followed + self.profiling)


def saved_by_adapting(periods: Sequence[LoggedPeriod]) -> Saved:
    """The costs of at least one period; the best single order is chosen with hindsight, so it is what no plan that is fixed can beat."""
    best = best_single_order([period.conditions for period in periods])
    return Saved(
        sum(period.conditions.cost_of(period.order) for period in periods),
        sum(period.conditions.cost_of(best) for period in periods),
        sum(period.profiling for period in periods),
        best,
    )
