"""Expected cost of an order of filters, the greedy order, the best order, and the test of the greedy invariant, all from a
sample of rows.

`dropped` is a matrix of booleans, a row of it for each row of the sample and a column for each filter: whether the filter
drops the row. `costs` has each filter's cost of one row, in any unit.
Source: Babu (2005), sections 4.1 to 4.3: equation 4.1, the greedy invariant, theorem 4.3.1 (at most four times the optimum).
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

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
    filters = dropped.shape[1]
    alive = _alive_after(dropped)
    least = np.zeros(1 << filters)
    last = np.zeros(1 << filters, np.int64)
    for chosen in range(1, 1 << filters):
        options = [
            (least[chosen & ~(1 << one)] + costs[one] * alive[chosen & ~(1 << one)], one)
            for one in range(filters)
            if chosen >> one & 1
        ]
        least[chosen], last[chosen] = min(options)
    order, chosen = list[int](), (1 << filters) - 1
    while chosen:
        order.append(int(last[chosen]))
        chosen &= ~(1 << order[-1])
    return tuple(reversed(order))


def _alive_after(dropped: Bools) -> Ints:
    """By set of filters, as bits of an index: how many rows none of them drops."""
    filters = dropped.shape[1]
    patterns = dropped @ (1 << np.arange(filters))
    within = np.bincount(patterns, minlength=1 << filters)
    for one in range(filters):  # sums over subsets: rows that only filters of the set drop
        bit = 1 << one
        has = (np.arange(1 << filters) & bit) > 0
        within[has] += within[np.flatnonzero(has) ^ bit]
    return within[::-1].astype(np.int64)  # the others of the set are its complement


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
