"""Expected cost of an order of filters, the greedy order, the best order for one sample of rows or for several, and the test of
the greedy invariant.

`dropped` is a matrix of booleans, a row of it for each row of the sample and a column for each filter: whether the filter
drops the row. `costs` has each filter's cost of one row, in any unit.
Source: Babu (2005), sections 4.1 to 4.3: equation 4.1, the greedy invariant, theorem 4.3.1 (at most four times the optimum).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.dataclass import dataclass

Bools: TypeAlias = npt.NDArray[np.bool_]
Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Order: TypeAlias = tuple[int, ...]
"""The filters in the order of their evaluation."""


def evaluations(dropped: Bools, order: Order) -> Ints:
    """How many rows each position of the order evaluates: those that no position before drops."""
    by_position = dropped[:, order]
    alive = np.logical_or.accumulate(by_position, axis=1)[:, :-1]
    return np.concatenate([[len(dropped)], len(dropped) - np.count_nonzero(alive, axis=0)])


def expected_cost(dropped: Bools, order: Order, costs: Floats) -> float:
    """The mean cost of a row (equation 4.1)."""
    return float(evaluations(dropped, order) @ costs[list(order)]) / max(1, len(dropped))


def static_greedy(dropped: Bools, costs: Floats) -> Order:
    """At each position the filter that drops most of the remaining rows per unit of cost; the first of equal ones."""
    rest, order = list(range(dropped.shape[1])), list[int]()
    while rest:
        drops = np.count_nonzero(dropped[:, rest], axis=0)
        chosen = rest.pop(int(np.argmax(drops / costs[rest])))
        order.append(chosen)
        dropped = dropped[~dropped[:, chosen]]
    return tuple(order)


def best_order(dropped: Bools, costs: Floats) -> Order:
    """The order with the least expected cost, by dynamic programming over sets of filters: for up to about 15 of them."""
    return best_single_order([Conditions.of(dropped, costs)])


@dataclass(frozen=True, slots=True)
class Conditions:
    """What filters drop and cost for a while: `rows[s]` rows, or a weight of them, are dropped by exactly the filters of set s, as bits
    of the index; none drops those of `rows[0]`.
    """

    rows: Floats
    costs: Floats

    @staticmethod
    def of(dropped: Bools, costs: Floats) -> Conditions:
        """Those of a sample."""
        filters = dropped.shape[1]
        patterns = dropped @ (1 << np.arange(filters))
        return Conditions(np.bincount(patterns, minlength=1 << filters).astype(np.float64), costs)

    def alive_after(self) -> Floats:
        """By set of filters, as bits of an index: how many rows none of them drops."""
        within, sets = self.rows.copy(), np.arange(len(self.rows))
        for one in range(len(self.costs)):  # sums over subsets: rows that only filters of the set drop
            has = (sets >> one & 1) > 0
            within[has] += within[sets[has] ^ (1 << one)]
        return within[::-1]  # the others of the set are its complement

    def cost_of(self, order: Order) -> float:
        """The cost of all rows in an order."""
        alive, applied, cost = self.alive_after(), 0, 0.0
        for one in order:
            cost += float(self.costs[one] * alive[applied])
            applied |= 1 << one
        return cost


def best_single_order(periods: Sequence[Conditions]) -> Order:
    """The order with the least cost over all periods together: what an optimizer would choose that knows all of them, and may choose
    once.
    """
    filters = len(periods[0].costs)
    evaluated = np.sum([np.outer(period.alive_after(), period.costs) for period in periods], axis=0)
    least = np.zeros(1 << filters)
    last = np.zeros(1 << filters, np.int64)
    for chosen in range(1, 1 << filters):
        options = [
            (least[chosen ^ 1 << one] + evaluated[chosen ^ 1 << one, one], one)
            for one in range(filters)
            if chosen >> one & 1
        ]
        least[chosen], last[chosen] = min(options)
    order, chosen = list[int](), (1 << filters) - 1
    while chosen:
        order.append(int(last[chosen]))
        chosen &= ~(1 << order[-1])
    return tuple(reversed(order))


def violation(dropped: Bools, order: Order, costs: Floats, slack: float = 1.0) -> int | None:
    """The first position at which a later filter would drop more of the remaining rows per unit of cost; None: the greedy
    invariant holds. With a `slack` below 1 a filter has to be better by that factor.
    """
    by_position, unit = dropped[:, order], costs[list(order)]
    for position in range(len(order) - 1):
        rates = np.count_nonzero(by_position[:, position:], axis=0) / unit[position:]
        if rates[0] < slack * rates[1:].max():
            return position
        by_position = by_position[~by_position[:, position]]
    return None
