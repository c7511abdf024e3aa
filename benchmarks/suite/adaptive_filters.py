"""Conjunctions of costly filters, in orders that adapt: against the best order in hindsight, the best fixed order, and no adaptation.

*Counted*: traces of correlated filters (pairs agree on 80 % of the rows), eight of cost 1 or four of cost 1 and four of cost 100, in
stable conditions and with pass rates permuted after every 100,000 or 1,000,000 rows; the unit is the cost of one evaluation, and the
evaluations that profiling adds are counted too. *Timed*: one query with five terms (regular expressions, and functions of Python) over
lines of a web log, in epochs of 20,000 rows without a JVM; which terms drop rows changes after every eight epochs. The
homes run in turn in one process: with adapting orders, with the best order in hindsight of each phase, and with the best fixed order of
all, by the measured costs. *Nothing to gain*: the same query over rows of which every term passes all, with and without adaptation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.filter_traces import correlated, permuted
from headrace.adaptive.filters.a_greedy import AGreedy
from headrace.adaptive.filters.independent import Independent
from headrace.adaptive.filters.local_swaps import LocalSwaps
from headrace.adaptive.filters.order_cost import best_order, expected_cost
from headrace.adaptive.filters.ordering import FilterOrdering
from headrace.adaptive.filters.sweep import Sweep
from headrace.adaptive.filters.trace_replay import bernoulli, hindsight, replayed

PASS_RATES = (0.2, 0.2, 0.4, 0.4, 0.6, 0.6, 0.8, 0.8)
"""Of pairs of filters that agree on four rows of five."""
COSTS = {"equal": (1.0,) * 8, "1 and 100": (1.0, 100.0) * 4}
ALGORITHMS: Mapping[str, tuple[Callable[..., FilterOrdering], float]] = {
    "A-Greedy": (AGreedy, 0.01),
    "Sweep": (Sweep, 0.01),
    "Independent": (Independent, 0.005),
    "LocalSwaps": (LocalSwaps, 0.01),
}
"""With the share of dropped rows that each profiles (table 4.1)."""
TRACE_ROWS = 2_000_000


def counted() -> tuple[list[dict[str, object]], dict[tuple[str, str, str], float]]:
    """The cost of a row by condition, costs of filters and algorithm, with that of the best orders."""
    table, found = [], dict[tuple[str, str, str], float]()
    rng = np.random.default_rng(1)
    stable = correlated(TRACE_ROWS, PASS_RATES, 2, rng)
    for condition, period in (
        ("stable", TRACE_ROWS),
        ("each 1,000,000", 1_000_000),
        ("each 100,000", 100_000),
    ):
        dropped, phases = permuted(stable, period, np.random.default_rng(2))
        for label, each in COSTS.items():
            costs = np.asarray(each)
            ways = {
                "best in hindsight": hindsight(dropped, costs, phases) / TRACE_ROWS,
                "best fixed order": expected_cost(dropped, best_order(dropped, costs), costs),
            }
            for name, (algorithm, share) in ALGORITHMS.items():
                run = replayed(dropped, costs, algorithm(tuple(range(8)), costs), bernoulli(share, 3))
                ways[name] = run.total / TRACE_ROWS
                found[condition, label, f"{name} profiling"] = float(run.profiling.sum()) / run.total
            for way, cost in ways.items():
                found[condition, label, way] = cost
                table.append(
                    {
                        "measured": "cost of a row",
                        "conditions": condition,
                        "filters": label,
                        "way": way,
                        "value": float(f"{cost:.4g}"),
                    }
                )
    return table, found
