"""An order of filters for drop rates of which only intervals are known: the order whose cost is nowhere far above the best one's.

A point choice takes the estimates for the truth. Where few rows were sampled, intervals are wide, and an order that is best at
the estimates may be bad at the truth. Here the greatest regret in the box of all intervals decides: as a function of one rate the cost of
an order is linear and that of the best order concave, so the regret is greatest at a corner of the box.
Source: Babu (2005), chapter 8 (proactive re-optimization, Rio); for independent filters it is worked out here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations, product
from math import sqrt
from typing import Final

import numpy as np

from headrace.adaptive.filters.order_cost import Floats, Order
from headrace.dataclass import dataclass

MOST_FILTERS: Final = 7
"""All orders and corners of so many are compared."""
FEW: Final = 80
"""Sampled rows up to which intervals choose an order of an engine's filters. After some hundred a point choice is as good, or better where filters are correlated."""
_MOST_AT_ONCE: Final = 5
"""Filters of which that takes less than a millisecond."""
_Z: Final = 1.96
"""Standard deviations on both sides of an estimate, of 95 % confidence."""
_TOLERATED: Final = 0.2
"""The regret, as a part of the best cost, up to which an order counts as robust."""


@dataclass(frozen=True, slots=True)
class DropInterval:
    """Between which shares of the rows a filter drops, with 95 % confidence, and the estimate."""

    low: float
    estimate: float
    high: float

    @staticmethod
    def of(dropped: int, rows: int) -> DropInterval:
        """Wilson's interval for a sample; from 0 to 1 without one."""
        if not rows:
            return DropInterval(0.0, 0.5, 1.0)
        share, spread = dropped / rows, _Z * _Z / rows
        centre = (share + spread / 2) / (1 + spread)
        half = _Z * sqrt(share * (1 - share) / rows + spread / rows / 4) / (1 + spread)
        return DropInterval(max(0.0, centre - half), share, min(1.0, centre + half))


@dataclass(frozen=True, slots=True)
class RobustOrder:
    """The chosen order, what it may cost more than the best at most, as a part of the best cost there, and whether that is little."""

    order: Order
    regret: float

    @property
    def is_robust(self) -> bool:
        """Whether the order is near the best wherever the truth is; otherwise sampling more rows before the choice is worth it."""
        return self.regret <= _TOLERATED


def cost_of_a_row(orders: Sequence[Order], rates: Floats, costs: Floats) -> Floats:
    """By order and by row of `rates` (drop rates by filter): the expected cost of a row, filters being independent."""
    chosen = np.asarray(orders)
    passing = 1 - rates[:, chosen]  # by rates, order, position
    alive = np.cumprod(np.concatenate([np.ones_like(passing[..., :1]), passing[..., :-1]], axis=2), axis=2)
    cost: Floats = (alive * costs[chosen]).sum(axis=2).T
    return cost


def point_order(intervals: Sequence[DropInterval], costs: Floats) -> Order:
    """The order that is best if the estimates are the truth."""
    rates = np.asarray([interval.estimate for interval in intervals]) / costs
    return tuple(np.argsort(-rates, kind="stable").tolist())


def greatest_regret(order: Order, intervals: Sequence[DropInterval], costs: Floats) -> float:
    """What an order costs more than the best one for the same rates, wherever these are in the intervals, as a part of the least cost there; at the
    corner where that is greatest.
    """
    corners = _corners(intervals)
    least = cost_of_a_row(list(permutations(order)), corners, costs).min(axis=0)
    return float((cost_of_a_row([order], corners, costs)[0] / least).max() - 1)


def order_of_few(tried: Sequence[int], shares: Floats, costs: Floats) -> Order | None:
    """The robust order after a sample of few rows: by filter, on how many of them it was tried, and the share of the sample that it drops.

    None where the sample is larger, where there are many filters, or where a cost is unknown: a point choice is as good then, or all there is.
    """
    if len(tried) > _MOST_AT_ONCE or max(tried) > FEW or not np.isfinite(costs).all():
        return None
    return robust_order(intervals_of(tried, shares), costs).order


def intervals_of(tried: Sequence[int], shares: Floats) -> tuple[DropInterval, ...]:
    """By filter, where the share of all rows that it drops is, as a sample shows."""
    return tuple(
        DropInterval.of(round(rows * share), rows) for rows, share in zip(tried, shares.tolist(), strict=True)
    )


def _corners(intervals: Sequence[DropInterval]) -> Floats:
    return np.asarray(list(product(*[(interval.low, interval.high) for interval in intervals])))


def robust_order(intervals: Sequence[DropInterval], costs: Floats) -> RobustOrder:
    """The order with the least regret over all corners; of equal ones that which costs least at the estimates.

    Raises `ValueError` for more than seven filters.
    """
    if len(intervals) > MOST_FILTERS:
        raise ValueError(f"at most {MOST_FILTERS} filters, not {len(intervals)}: all orders are compared")
    orders = list(permutations(range(len(intervals))))
    corners = _corners(intervals)
    costs_there = cost_of_a_row(orders, corners, costs)
    least = costs_there.min(axis=0)
    regrets = ((costs_there - least) / least.max()).max(axis=1)
    at_estimates = cost_of_a_row(orders, np.asarray([[interval.estimate for interval in intervals]]), costs)[
        :, 0
    ]
    chosen = min(
        range(len(orders)), key=lambda index: (round(float(regrets[index]), 12), at_estimates[index])
    )
    return RobustOrder(orders[chosen], float(((costs_there[chosen] - least) / least).max()))
