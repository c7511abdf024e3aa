"""Bars of adaptive plans that are counted, on generated traces: the same figures in every run.

*B1*: the greedy order against the best of all, on a thousand random distributions of up to eight filters. *B4*: evaluations that profiling adds, by algorithm and number
of filters of cost 1, and its part of the cost where half of the filters cost 100. *B5*: filters change places after 200,000 rows; the cost of a row, and the profile
windows until it is near the best for good, the worst of three changes (of the others the sum). *B10*: a chain of three streams of which one bursts; the choice of caches three
intervals later against the better fixed plan, and over all. *B11*: caches chosen greedily and by dynamic programming against all sets, on 300 random joins each. *B17*: the mean queue of the two
printed paths. *Few rows*: four hundred draws of four filters, two of which cost thirty times as much, half of them correlated; the order that is in force after a
sample of a few rows, with intervals (decision 84) and as the greedy order of the sample: what it costs more than the best, in the mean and in the worst hundredth.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.cache_traces import (
    CHAIN,
    CHAIN_ORDERS,
    OF_R,
    OF_T,
    chain,
    cost,
    costs_by_chunk,
    instances,
    plain_costs,
)
from benchmarks.caches_replay import CachesReplay
from benchmarks.charts import Curve, Curves
from benchmarks.few_rows import draws, lost
from benchmarks.filter_traces import Bools, correlated
from benchmarks.models.filters.independent import Independent
from benchmarks.models.filters.local_swaps import LocalSwaps
from benchmarks.models.filters.sweep import Sweep
from benchmarks.models.filters.trace_replay import Replayed, bernoulli, replayed
from benchmarks.models.schedules.chains import PathOperator
from benchmarks.models.schedules.queue_replay import chain_strategy, fifo, greedy
from benchmarks.models.schedules.queue_replay import replayed as queued
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from headrace.adaptive.caches.offline_selection import by_dynamic_programming, exhaustively, greedily
from headrace.adaptive.filters.a_greedy import AGreedy
from headrace.adaptive.filters.order_cost import best_order, expected_cost, static_greedy
from headrace.adaptive.filters.ordering import FilterOrdering
from headrace.adaptive.settling import robust_order

ALGORITHMS: dict[str, Callable[..., FilterOrdering]] = {
    "A-Greedy": AGreedy,
    "Independent": Independent,
    "Sweep": Sweep,
    "LocalSwaps": LocalSwaps,
}
ROWS, CHUNK, WINDOW, SHARE = 200_000, 2000, 1000, 0.05
PAIRS = (0.4, 0.4, 0.45, 0.45, 0.5, 0.5, 0.55, 0.55)
"""Pass rates of pairs of filters that agree on four rows of five."""
CHANGING = (0.2, 0.2, 0.4, 0.4, 0.6, 0.6, 0.8, 0.8)
NEAR = 1.07
"""The cost of a row in parts of the best one, up to which an algorithm has settled."""
Table = list[dict[str, object]]


def _row(bar: str, measured: str, way: str, value: float) -> dict[str, object]:
    return {"bar": bar, "measured": measured, "way": way, "value": float(f"{value:.4g}")}


def _replay(way: str, dropped: Bools, costs: np.ndarray, share: float = SHARE) -> Replayed:
    ordering = ALGORITHMS[way](tuple(range(dropped.shape[1])), costs)
    return replayed(dropped, costs, ordering, bernoulli(share, 2), CHUNK)


def greedy_orders() -> tuple[Table, list[Ratio]]:
    """B1: of dependent filters, whose sets of dropped rows are drawn."""
    rng, ratios = np.random.default_rng(7), list[float]()
    while len(ratios) < 1000:
        filters = int(rng.integers(2, 9))
        patterns = rng.integers(0, 1 << filters, 200)
        dropped = (patterns[:, None] >> np.arange(filters) & 1).astype(bool)
        dropped &= rng.random(filters) < 0.7
        costs = rng.integers(1, 20, filters).astype(float)
        best, found = (choose(dropped, costs) for choose in (best_order, static_greedy))
        ratios.append(expected_cost(dropped, found, costs) / expected_cost(dropped, best, costs))
    mean, most = float(np.mean(ratios)), max(ratios)
    table = [
        _row("B1", "greedy order to the best", way, value) for way, value in (("mean", mean), ("most", most))
    ]
    return table, [
        Ratio("B1: greedy order to the best of all, most of 1,000", most, 4, at_most=True),
        Ratio("B1: the same in the mean", mean, 1.02, at_most=True),
    ]


def profiling() -> tuple[Table, list[Ratio]]:
    """B4: what profiling adds."""
    trace = correlated(ROWS, PAIRS, 2, np.random.default_rng(1))
    table, added = Table(), dict[tuple[str, int], float]()
    for filters in (4, 8):
        for way in ALGORITHMS:
            found = _replay(way, trace[:, -filters:], np.ones(filters))
            added[way, filters] = float(found.profiling.sum()) / ROWS
            table.append(
                _row(
                    "B4",
                    f"evaluations that profiling adds to a row, {filters} filters",
                    way,
                    added[way, filters],
                )
            )
    shares = dict[str, float]()
    for way in ("A-Greedy", "Sweep"):
        found = _replay(way, trace, np.asarray([1.0, 100.0] * 4), 0.01)
        shares[way] = float(found.profiling.sum()) / found.total
        table.append(_row("B4", "part of the cost that profiling is, costs 1 and 100", way, shares[way]))
    gaps = [
        added["A-Greedy", filters] - max(added["Sweep", filters], added["LocalSwaps", filters])
        for filters in (4, 8)
    ]
    return table, [
        Ratio("B4: what A-Greedy adds more than the others, 8 filters to 4", gaps[1] / gaps[0], 2),
        Ratio("B4: part of A-Greedy's cost, costs 1 and 100", shares["A-Greedy"], 0.15),
        Ratio("B4: the same of Sweep", shares["Sweep"], 0.05, at_most=True),
    ]


def changes() -> tuple[Table, list[Ratio], list[Curve]]:
    """B5: windows until the cost is near the best, after three changes; and the costs of the first one over time."""
    trace, costs = correlated(ROWS, CHANGING, 2, np.random.default_rng(1)), np.ones(8)
    windows, curves = dict[str, list[float]](), list[Curve]()
    for seed in (0, 4, 5):
        after = trace[:, np.random.default_rng(seed).permutation(8)]
        least = expected_cost(after, best_order(after, costs), costs)
        for way in ALGORITHMS:
            spent = _replay(way, np.concatenate([trace, after]), costs).spent / CHUNK
            means = np.convolve(spent[len(spent) // 2 :], np.full(5, 0.2), "valid")
            late = np.flatnonzero(means > NEAR * least)
            chunks = int(late[-1]) + 1 if len(late) else 0
            windows.setdefault(way, []).append(chunks * CHUNK * SHARE / WINDOW)
            if not seed:
                kind = "ours" if way == "A-Greedy" else "yardstick"
                curves.append(Curve(way, (np.arange(len(spent)) * CHUNK).tolist(), spent.tolist(), kind))
    table = [
        _row("B5", f"profile windows until the cost is near the best, change {number}", way, value)
        for way, values in windows.items()
        for number, value in enumerate(values, 1)
    ]
    slow = min(sum(windows["Sweep"]), sum(windows["LocalSwaps"]))
    return (
        table,
        [
            Ratio("B5: windows of A-Greedy, most", max(windows["A-Greedy"]), 2, at_most=True),
            Ratio("B5: windows of Independent, most", max(windows["Independent"]), 2, at_most=True),
            Ratio(
                "B5: Sweep and LocalSwaps to A-Greedy, all windows",
                slow / max(sum(windows["A-Greedy"]), 1e-9),
                1,
            ),
        ],
        curves,
    )


def bursts() -> tuple[Table, list[Ratio]]:
    """B10: rows of R burst from the middle on."""
    rows, start = 8000, 4000
    trace = chain(rows, (start, rows))
    replay = CachesReplay(CHAIN, CHAIN_ORDERS, quota=6)
    replay.run(trace)
    after = 2 * start // replay.chunk + 3 * 10
    fixed = {"rows of T look up": OF_T, "rows of R look up": OF_R}
    by_chunk = {way: costs_by_chunk(trace, cache, replay.chunk) for way, cache in fixed.items()}
    by_chunk["as chosen"] = list(replay.costs)
    table = [
        _row("B10", measured, way, sum(costs[first:]))
        for measured, first in (("cost from three intervals after the burst", after), ("cost of all", 0))
        for way, costs in by_chunk.items()
    ]
    best, whole = (min(sum(by_chunk[way][first:]) for way in fixed) for first in (after, 0))
    return table, [
        Ratio(
            "B10: better fixed plan to the choice, three intervals after the burst",
            best / sum(replay.costs[after:]),
            0.9,
        ),
        Ratio("B10: better fixed plan to the choice, over all", whole / sum(replay.costs), 1),
        Ratio("B10: chunks without output", sum(not spent for spent in replay.costs), 0, at_most=True),
    ]


def selections() -> tuple[Table, list[Ratio]]:
    """B11: against the search of all sets."""
    alone, shared = list[float](), list[float]()
    for load, found in instances(300, shared=False):
        alone.append(
            cost(load, found, by_dynamic_programming(found)) / cost(load, found, exhaustively(found))
        )
    for load, found in instances(300, shared=True):
        chosen = greedily(found, plain_costs(load))
        shared.append(cost(load, found, chosen) / cost(load, found, exhaustively(found)))
    table = [
        _row(
            "B11", "cost to that of the best set, no shared caches", "dynamic programming, most", max(alone)
        ),
        _row("B11", "cost to that of the best set, shared caches", "greedy, most", max(shared)),
        _row("B11", "cost to that of the best set, shared caches", "greedy, mean", float(np.mean(shared))),
    ]
    return table, [
        Ratio("B11: dynamic programming to the best set, most", max(alone), 1 + 1e-9, at_most=True),
        Ratio("B11: greedy to the best set where caches are shared, most", max(shared), 1.5, at_most=True),
    ]


def schedules() -> tuple[Table, list[Ratio]]:
    """B17: the means of the printed queues."""
    paths = {
        "falls first": (
            (PathOperator(1, 0.2), PathOperator(1, 0.0)),
            {"FIFO": 2.4, "Greedy": 1.6, "Chain": 1.6},
        ),
        "falls last": (
            (PathOperator(1, 0.9), PathOperator(1, 1.0), PathOperator(1, 0.0)),
            {"FIFO": 3.2, "Greedy": 3.7, "Chain": 3.2},
        ),
    }
    table, worst = Table(), 0.0
    for name, (path, printed) in paths.items():
        for way, strategy in (("FIFO", fifo), ("Greedy", greedy), ("Chain", chain_strategy(path))):
            sizes = queued(path, range(7), strategy)
            mean = round(sum(sizes) / len(sizes), 1)
            table.append(_row("B17", f"mean queue of a path that {name}", way, mean))
            worst = max(worst, abs(mean - printed[way]))
    return table, [Ratio("B17: greatest difference from the printed means", worst, 0, at_most=True)]


def few_rows() -> tuple[Table, list[Ratio]]:
    """The order in force after a few sampled rows, with intervals and without."""
    table, ratios = Table(), list[Ratio]()
    drawn, limit = draws(400), robust_order.FEW
    for rows in (3, 5, 10, 20, 40, 80):
        means = dict[str, float]()
        for way, few in (("greedy", 0), ("for intervals", limit)):
            robust_order.FEW = few  # type: ignore[misc]  # as it was before, and as it is
            losses = [lost(dropped, rows) for dropped in drawn]
            means[way] = float(np.mean(losses))
            for what, value in (("mean", means[way]), ("worst hundredth", float(np.quantile(losses, 0.99)))):
                table.append(_row("few rows", f"cost beyond the best, {rows} rows, {what}", way, value))
        ratios.append(
            Ratio(
                f"few rows: loss of the mean for intervals to greedy, {rows} rows",
                means["for intervals"] / means["greedy"],
                1,
                at_most=True,
            )
        )
    robust_order.FEW = limit  # type: ignore[misc]
    return table, ratios


def adaptive_counts(rows: int, rounds: int) -> Report:
    """The page; `rows` and `rounds` have no effect."""
    del rows, rounds
    table, ratios = Table(), list[Ratio]()
    for part in (greedy_orders, profiling, bursts, selections, schedules, few_rows):
        found, bars = part()
        table, ratios = [*table, *found], [*ratios, *bars]
    found, bars, curves = changes()
    assert __doc__ is not None
    return Report(
        "adaptive-counts",
        "Adaptive plans, counted",
        [*table, *found],
        [*ratios, *bars],
        [],
        "evaluations a row",
        [__doc__.strip()],
        picture=Curves(
            "Filters that change places after 200,000 rows", ("rows", "evaluations a row"), curves
        ),
    )
