"""The matrix view of a profile window: from which of the greedy invariant's comparisons can be read off, kept while rows
enter and expire, and corrected when the invariant is violated.

`counts[i, j]` (i ≤ j) is the number of profiled rows that no filter at a position before i drops, and that the one at position j
drops; so row i compares all filters that could be at position i.
Source: Babu (2005), section 4.2.2 and figures 4.5 to 4.7; the guard against thrashing is equation 4.4. The printed loop omits
the first row and the order itself, and swaps: here the filters between move back by one, so that equal ones stay in their order, as
in example 4.3.3.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np

from headrace.adaptive.filters.order_cost import Bools, Floats, Ints, Order
from headrace.dataclass import dataclass


@dataclass(slots=True)
class MatrixView:
    """The view of a window under an order; `scans` counts the passes over the window that corrections took."""

    order: Order
    counts: Ints = field(init=False)
    scans: int = 0

    def __post_init__(self) -> None:
        self.counts = np.zeros((len(self.order), len(self.order)), np.int64)

    def add(self, dropped: Bools, sign: int) -> None:
        """Rows that enter the window (`sign` 1) or expire (-1); each is dropped by some filter."""
        if len(dropped):
            self.counts += sign * recounted(dropped, self.order)

    def violation(self, costs: Floats, slack: float) -> int | None:
        """The first position at which a later filter drops more per unit of cost, by more than the slack allows."""
        rates = self.counts / costs[list(self.order)]
        best_later = np.triu(rates, 1).max(axis=1)
        positions = np.flatnonzero(rates.diagonal() < slack * best_later)
        return int(positions[0]) if len(positions) else None

    def correct(self, window: Bools, costs: Floats, position: int) -> None:
        """Restore the invariant from `position` on, where it holds before; positions that no filter crosses stay as they are."""
        order, last = list(self.order), position
        while position <= last:
            remaining = window[~window[:, order[:position]].any(axis=1)]
            self.scans += 1
            self.counts[position, position:] = np.count_nonzero(remaining[:, order[position:]], axis=0)
            best = position + int(np.argmax(self.counts[position, position:] / costs[order[position:]]))
            last = max(last, best)
            if best != position:
                order.insert(position, order.pop(best))
                moved = self.counts[: position + 1, position : best + 1]
                moved[:] = np.roll(moved, 1, axis=1)
            position += 1
        self.order = tuple(order)


def recounted(dropped: Bools, order: Order) -> Ints:
    """The view's counts of some rows, each dropped by some filter, from scratch."""
    by_position = dropped[:, order]
    counts = np.zeros((len(order), len(order)), np.int64)
    np.add.at(counts, by_position.argmax(axis=1), by_position.astype(np.int64))
    return counts[::-1].cumsum(axis=0)[::-1]
