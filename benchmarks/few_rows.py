"""The order of four filters that is in force after a sample of a few rows, and what it costs more than the best one, over many draws."""

from __future__ import annotations

from typing import Final

import numpy as np

from benchmarks.filter_traces import Bools
from headrace.adaptive.filters.order_cost import Floats, best_order, expected_cost
from headrace.adaptive.settling.settled_order import Drops, SettledOrder

COSTS: Final = np.asarray([1.0, 1.0, 30.0, 30.0])
_ROWS: Final = 4000


def draws(count: int) -> list[Bools]:
    """Rows of four filters with drop rates of their own; in half of the draws those of a pair agree on four rows of five."""
    rng, drawn = np.random.default_rng(7), list[Bools]()
    for number in range(count):
        dropped = rng.random((_ROWS, 4)) < rng.uniform(0.05, 0.95, 4)
        if number % 2:
            agrees = rng.random((_ROWS, 2)) < 0.8
            dropped[:, [2, 1]] = np.where(agrees, dropped[:, [0, 3]], dropped[:, [2, 1]])
        drawn.append(dropped)
    return drawn


def sampled(dropped: Bools, order: tuple[int, ...], costs: Floats = COSTS) -> Drops:
    """An epoch of which these rows were sampled, and no others seen."""
    bits, counts = np.unique(dropped @ (1 << np.arange(dropped.shape[1])), return_counts=True)
    patterns = {int(code): int(rows) for code, rows in zip(bits, counts, strict=True) if code}
    return Drops(order, 0, (0,) * len(order), 0.0, costs, len(dropped), patterns)


def lost(dropped: Bools, rows: int) -> float:
    """What the order in force after a sample of the first rows costs more than the best, as a part of it. The costly filters come first before."""
    order = (2, 3, 0, 1)
    chosen = SettledOrder.of(order).take(sampled(dropped[:rows], order)).order
    best = expected_cost(dropped, best_order(dropped, COSTS), COSTS)
    return expected_cost(dropped, chosen, COSTS) / best - 1
