"""The order of the filters of one conjunction over epochs: from sums of what an epoch observed to the order for the next one, how
much of it is profiled, and the time that the choice took.

Filters are whatever drops rows: conditions, or the sides of a join in which a new row may have no partner. After a sample of few rows the order is that
which is good wherever the drop rates may be (`robust_order`), then the greedy order of the profile window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import Final, NamedTuple

import numpy as np

from headrace.adaptive.filters.a_greedy import AGreedy
from headrace.adaptive.filters.order_cost import Bools, Floats, Order
from headrace.adaptive.filters.ordering import (
    LEAST_PROFILED,
    UNSETTLED_SHARE,
    OrderInForce,
    drops_elsewhere,
    drops_otherwise,
)
from headrace.adaptive.filters.profile_window import DropProfile
from headrace.adaptive.filters.thinned_sample import cheap
from headrace.adaptive.settling.robust_order import order_of_few
from headrace.dataclass import dataclass

WINDOW: Final = 1000
BUDGET: Final = 0.005
"""The part of the time of a conjunction that profiling takes."""
_ENOUGH: Final = 1024
"""Sampled rows after which an order is settled, however few of them are dropped."""
_THINNED: Final = 2500
"""The same where some filters are much cheaper: few of the sampled rows reach the dear ones, whose order counts most."""
_MANY: Final = 16
"""Epochs of which the usual drops are remembered."""


class ChoiceTime(NamedTuple):
    """Nanoseconds that the choice of an order took after an epoch: to keep the window of profiled rows and its view, and to optimize again."""

    window: int
    reoptimizing: int

    def plus(self, other: ChoiceTime) -> ChoiceTime:
        """The sum of two epochs."""
        return ChoiceTime(self.window + other.window, self.reoptimizing + other.reoptimizing)


NO_CHOICE: Final = ChoiceTime(0, 0)


@dataclass(frozen=True, slots=True)
class Drops:
    """What an epoch observed of a conjunction; tuples are by filter.

    In this `order` each filter has `dropped` some of the `rows`, and a row took `spent`. `costs`: of one evaluation, infinite where it was not
    measured. `sampled` rows were evaluated by all filters; `patterns` counts those that are dropped, by the set of filters that
    drop them, as the bits of a number. A row may count for several: a filter was `tried` on so many, empty if on all.
    """

    order: Order
    rows: int
    dropped: tuple[int, ...]
    spent: float
    costs: Floats
    sampled: int
    patterns: Mapping[int, int]
    tried: tuple[int, ...] = ()

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
    so a change is noticed anyway, and more rows are profiled then. `spent`: what the last choice took.
    """

    ordering: AGreedy
    sampled: int = 0
    spent: ChoiceTime = NO_CHOICE
    usual: tuple[int, ...] = ()
    """By filter, the rows that it has dropped in this order since conditions last changed; of long ago half."""
    tried: tuple[int, ...] = ()
    """By filter, on how many of the sampled rows it was tried."""

    @staticmethod
    def of(order: Order) -> SettledOrder:
        """One that begins with an order."""
        return SettledOrder(AGreedy(order, np.ones(len(order)), WINDOW))

    def take(self, seen: Drops) -> OrderInForce:
        """The order after an epoch, and the share of rows to profile in the next."""
        ordering, believed = self.ordering, self.ordering.believed()
        same_order = seen.order == ordering.plan
        changed = same_order and drops_otherwise(self.usual, seen.dropped, seen.order)
        if changed or drops_elsewhere(believed, seen.dropped) or (not believed and self._drops_more(seen)):
            ordering.forget()
            self.sampled, self.usual, self.tried, believed = 0, (), (), ()
        self.usual = _later(self.usual, seen.dropped)
        self.sampled += seen.sampled
        self.spent = NO_CHOICE
        if seen.sampled:
            self._choose(seen)
            believed = ordering.believed()
        needed = _THINNED if cheap(ordering.costs).any() else _ENOUGH
        if self.sampled < needed and ordering.window.held.rows < LEAST_PROFILED * needed // _ENOUGH:
            return OrderInForce(ordering.plan, UNSETTLED_SHARE, believed)
        all_filters = float(self._costs(seen).sum())
        share = min(UNSETTLED_SHARE, round(BUDGET * seen.spent / all_filters, 6))
        return OrderInForce(ordering.plan, share, believed)

    def _choose(self, seen: Drops) -> None:
        """Take in a sample. While few rows were sampled, the order is the robust one, then the greedy one wherever the invariant is violated."""
        ordering, before, started = self.ordering, self.ordering.plan, perf_counter_ns()
        is_violated = ordering.record(DropProfile.whole(seen.sample(), seen.costs))
        recorded, chose = perf_counter_ns(), is_violated
        tried = seen.tried or (seen.sampled,) * len(before)
        self.tried = tuple(map(sum, zip(self.tried or (0,) * len(tried), tried, strict=True)))
        shares = ordering.window.held.dropped.sum(axis=0) / max(1, self.sampled)
        robust = order_of_few(self.tried, shares, self._costs(seen))
        if robust is not None:
            ordering.follow(robust)
            chose = True
        elif is_violated:
            ordering.reoptimize()
        self.usual = self.usual if ordering.plan == before else ()
        self.spent = ChoiceTime(recorded - started, perf_counter_ns() - recorded if chose else 0)

    def _costs(self, seen: Drops) -> Floats:
        """The costs that were measured in this epoch, and those of earlier ones."""
        return np.where(np.isfinite(seen.costs), seen.costs, self.ordering.costs)

    def _drops_more(self, seen: Drops) -> bool:
        """Whether a settled order that was sampled when few rows were dropped now drops many."""
        total, rate = sum(seen.dropped), self.ordering.window.held.rows / max(1, self.sampled)
        return self.sampled >= _ENOUGH and total >= LEAST_PROFILED and total > 2 * rate * seen.rows


def _later(usual: tuple[int, ...], dropped: Sequence[int]) -> tuple[int, ...]:
    """Counts with those of one more epoch; where they are those of many, half of the earlier ones."""
    if not usual:
        return tuple(dropped)
    many = sum(usual) > _MANY * sum(dropped)
    return tuple(one // (2 if many else 1) + other for one, other in zip(usual, dropped, strict=True))
