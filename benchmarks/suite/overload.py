"""The utility of answers in a flood of five times what a hub can take, for ten minutes.

On a simulated clock (`benchmarks/simulated_hub.py`): epochs take as long as their rows cost, and control is that of a hub. Eighteen
queries: alerts that are cheap and worthless at half the rows, dashboards that hardly suffer from few rows, reports that cost
most and lose with every row, some of which count large values more. Shares by QOS are compared with rows dropped at random (the same
detection of overload, equal shares) and with backpressure alone (rows wait). Utility is the sum over queries, 18 at
best, on average over the seconds in which the flood's rows arrive. Mixes of queries drawn at random are a check that the first mix is not
the reason. `benchmarks flood` is one by the clock, on Spark.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from benchmarks.charts import Bar
from benchmarks.report import Report
from benchmarks.simulated_hub import (
    EqualShares,
    NoControl,
    SimulatedHub,
    SimulatedQuery,
    most_in_a_minute,
    without_importance,
)
from benchmarks.thresholds import Ratio
from headrace.algebra.quality_of_service import Importance, QualityOfService, UtilityGraph
from headrace.overload.controller import PATIENCE_SECONDS, Control

BEFORE, FLOOD = 60.0, 600.0
"""Seconds."""
USUAL, CAPACITY = 0.4, 1000.0
"""Rows before the flood, as a part of what the hub can take: rows a second."""
OTHERS = 0.06
"""The part of the cost of a row that no query has: reading and archiving it."""
MIXES = 10
FLOODS: Final = (1.5, 2.0, 3.0, 5.0)
"""Rows in the flood, by what the hub can take."""
_POLICIES: Final[Mapping[str, type[Control]]] = {
    "QOS": Control,
    "random dropping": EqualShares,
    "backpressure": NoControl,
}
_STRICT: Final = UtilityGraph(((0.0, 1.0), (0.1, 0.9), (0.5, 0.0)))
_TOLERANT: Final = UtilityGraph(((0.0, 1.0), (0.75, 0.9), (0.95, 0.8)))
_LINEAR: Final = UtilityGraph(((0.0, 1.0), (1.0, 0.0)))
_LARGE: Final = Importance("v", (10.0, 100.0), (0.1, 0.5, 1.0))
Queries = Mapping[str, SimulatedQuery]
Utilities = dict[tuple[str, float], float]
"""By policy and flood."""


def overload(rows: int, rounds: int) -> Report:
    """One run of each policy, which is exact on the simulated clock; `rows` and `rounds` do not matter."""
    del rows, rounds
    table, utilities = _compared()
    gains = _gains()
    ratios = _ratios(utilities, gains, max(row["most_in_a_minute"] for row in table))
    bars = [
        Bar(f"{name}, {times:g}x", utility, "ours" if name == "QOS" else "yardstick")
        for (name, times), utility in utilities.items()
    ]
    assert __doc__ is not None
    notes = [
        __doc__.strip(),
        f"Random mixes: {min(gains):.2f} to {max(gains):.2f} times random dropping.",
    ]
    return Report("overload", "Utility in a flood", table, ratios, bars, "utility of 18", notes)


def _compared() -> tuple[list[dict[str, Any]], Utilities]:
    """Each policy in floods of each size: rows of the page, and utilities on average over the flood."""
    table: list[dict[str, Any]] = []
    utilities: Utilities = {}
    for times in FLOODS:
        for name, policy in _POLICIES.items():
            hub = flooded(policy, monitoring(), times)
            utilities[name, times] = hub.utility / FLOOD
            table.append(
                {
                    "flood": f"{times:g}x",
                    "policy": name,
                    "utility_of_18": round(utilities[name, times], 2),
                    "greatest_delay_s": round(max(point.delay for point in hub.points), 1),
                    "changes_of_shares": hub.control.changes,
                    "most_in_a_minute": most_in_a_minute(hub.points),
                }
            )
    return table, utilities


def _gains() -> list[float]:
    """Utility at five times the capacity to that of random dropping, of each mix of queries drawn at random."""
    mixes = [drawn(seed) for seed in range(MIXES)]
    return [flooded(Control, mix, 5.0).utility / flooded(EqualShares, mix, 5.0).utility for mix in mixes]


def _by_value() -> float:
    """Utility of reports where the rows that count least are dropped first, to that where any are."""
    valued = reports()
    plain = {name: without_importance(query) for name, query in valued.items()}
    return _worth(flooded(Control, valued, 3.0), valued) / _worth(flooded(Control, plain, 3.0), valued)


def _ratios(utilities: Utilities, gains: list[float], most: int) -> list[Ratio]:
    """What the page is to show; `most` is the greatest number of changes of shares in a minute."""

    def to(policy: str, times: float, least: float) -> Ratio:
        name = f"{times:g}x: utility to that of {policy}"
        return Ratio(name, utilities["QOS", times] / utilities[policy, times], least)

    by_value = "3x, reports alone: utility by importance of values to dropping any of their rows"
    return [
        to("random dropping", 5.0, 1.3),
        to("backpressure", 5.0, 2),
        to("random dropping", 1.5, 1),
        Ratio(f"5x: median of {MIXES} random mixes to random dropping", statistics.median(gains), 1),
        Ratio(by_value, _by_value(), 1),
        Ratio("changes of shares in a minute", most, 60 / PATIENCE_SECONDS, at_most=True),
    ]


def flooded(policy: type[Control], queries: Queries, times: float) -> SimulatedHub:
    """A hub at the end of a flood of so many times its capacity; its utility is that of the flood's rows."""

    def rate(at: float) -> float:
        return CAPACITY * (times if at >= BEFORE else USUAL)

    hub = SimulatedHub(queries, OTHERS / CAPACITY, policy(at=1e-9), counts_from=BEFORE)
    return hub.run(rate, BEFORE + FLOOD).drain()


def _worth(hub: SimulatedHub, queries: Queries) -> float:
    """The utility at the end, of what is important: the shares of a run without importance are those of each interval."""
    return sum(
        query.quality.utility(
            0, query.quality.lost(_shares(hub, name, len(query.frequencies)), query.frequencies)
        )
        for name, query in queries.items()
    )


def _shares(hub: SimulatedHub, name: str, intervals: int) -> tuple[float, ...]:
    shares = hub.control.shares(hub.stated)[name]
    return shares if len(shares) == intervals else shares * intervals


def monitoring() -> Queries:
    """Eight alerts, six dashboards, four reports; a row costs these 1, 8 and 20 parts."""
    quick, patient = UtilityGraph(((2.0, 1.0), (6.0, 0.0))), UtilityGraph(((5.0, 1.0), (30.0, 0.0)))
    slow = UtilityGraph(((60.0, 1.0), (600.0, 0.0)))
    queries = {f"alert {n}": _query(quick, _STRICT, 1.0) for n in range(8)}
    queries |= {f"dashboard {n}": _query(patient, _TOLERANT, 8.0) for n in range(6)}
    queries |= {f"report {n}": _query(slow, _LINEAR, 20.0, valued=n < 2) for n in range(4)}
    return _scaled(queries)


def reports() -> Queries:
    """Five reports that count large values more."""
    patient = UtilityGraph(((10.0, 1.0), (60.0, 0.0)))
    return _scaled({f"report {n}": _query(patient, _LINEAR, 1.0 + n, valued=True) for n in range(5)})


def drawn(seed: int) -> Queries:
    """Eighteen queries of random kinds, delays and costs; these differ as the logarithms of a normal distribution."""
    rng = np.random.default_rng(seed)
    queries = {}
    for number in range(18):
        good = float(rng.uniform(2, 20))
        delay = UtilityGraph(((good, 1.0), (good * float(rng.uniform(3, 6)), 0.0)))
        loss = (_STRICT, _TOLERANT, _LINEAR)[int(rng.integers(3))]
        valued = bool(rng.random() < 0.3)
        queries[f"q{number}"] = _query(delay, loss, float(rng.lognormal(0, 1.5)), valued=valued)
    return _scaled(queries)


def _query(delay: UtilityGraph, loss: UtilityGraph, parts: float, *, valued: bool = False) -> SimulatedQuery:
    frequencies = (0.6, 0.3, 0.1) if valued else (1.0,)
    return SimulatedQuery(QualityOfService(delay, loss, _LARGE if valued else None), parts, frequencies)


def _scaled(queries: Queries) -> Queries:
    """The queries with costs that saturate the hub at its capacity."""
    unit = (1 - OTHERS) / CAPACITY / sum(query.seconds_per_row for query in queries.values())
    return {
        name: replace(query, seconds_per_row=query.seconds_per_row * unit) for name, query in queries.items()
    }
