"""The interface of algorithms that order filters: profiler and re-optimizer in one, which also selects which filters the executor
evaluates on a profiled row besides those that the order evaluates anyway; and that choice for A-Greedy, Sweep, Independent and
LocalSwaps; and the order that is in force in the tasks of an epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from headrace.adaptive.filters.order_cost import Bools, Ints, Order
from headrace.adaptive.filters.profile_window import DropProfile
from headrace.dataclass import dataclass

SLACK: Final = 0.9
"""A filter moves forward if the one before it drops less than this share of what it would drop, per unit of cost."""
LEAST_PROFILED: Final = 400
"""Profiled rows from which on an order is settled, and dropped rows from which on their filters are compared with beliefs."""
_ELSEWHERE: Final = 0.2
"""The share of dropped rows that another filter drops than was believed, from which on conditions have changed."""
UNSETTLED_SHARE: Final = 1 / 16
"""The share of rows that is profiled in the first epochs of a conjunction, and after conditions have changed."""


@dataclass(frozen=True, slots=True)
class OrderInForce:
    """An order for the next epoch, the share of the rows to profile, and by filter the share of dropped rows that it is believed to
    drop in this order; empty: not known.
    """

    order: Order
    share: float
    believed: tuple[float, ...] = ()


class FilterOrdering(Protocol):
    """Profiles to orders."""

    @property
    def plan(self) -> Order:
        """The order to follow."""
        ...

    def wanted(self, first: Ints) -> Bools:
        """By profiled row, dropped at position `first[r]`, and by filter: whether to evaluate it on that row too."""
        ...

    def record(self, profile: DropProfile) -> bool:
        """Add profiled rows; whether the order violates the algorithm's invariant now."""
        ...

    def reoptimize(self) -> Order:
        """Restore the invariant; returns the order to follow from now on."""
        ...


def drops_elsewhere(believed: Sequence[float], dropped: Sequence[int]) -> bool:
    """Whether other filters drop the rows than is believed; `dropped` has the newest drops of each.

    These are known of all rows at no cost, so that conditions that change are noticed long before a window has new rows.
    """
    total = sum(dropped)
    if not believed or total < LEAST_PROFILED:
        return False
    return (
        sum(abs(share - rows / total) for share, rows in zip(believed, dropped, strict=True)) / 2 > _ELSEWHERE
    )


def drops_otherwise(usual: Sequence[int], dropped: Sequence[int], order: Order) -> bool:
    """Whether filters drop otherwise than usual in the same order: of the rows that reach any position, another part.

    Few rows reach the last filters, which may be the dearest: what these drop is next to nothing of all.
    """
    if not usual:
        return False
    one, other = (np.asarray(counts, float)[list(order)] for counts in (usual, dropped))
    for position in range(len(order) - 1):
        before, now = one[position:], other[position:]
        if min(before.sum(), now.sum()) < LEAST_PROFILED:
            return False
        if np.abs(before / before.sum() - now / now.sum()).sum() / 2 > _ELSEWHERE:
            return True
    return False


def later_than(order: Order, first: Ints) -> Bools:
    """By row and filter: whether the filter's position is after `first[r]`."""
    position = np.empty(len(order), np.int64)
    position[list(order)] = np.arange(len(order))
    return position[None, :] > first[:, None]
