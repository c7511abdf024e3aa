"""Joins of two windows by unit-time costs, counted: nested loops or hash for each direction, whose rows to keep in a small memory,
and which rows probe and are kept where the processor is the limit.

Two streams of 64 keys, rates from 1:1 to 256:1, windows of two and of twenty seconds of the fast stream. All four combinations run over the same rows;
counted are comparisons, look-ups of buckets (four comparisons each) and rows moved. Memory: a quarter of what both windows need, divided
in nine ways; a window of 16 rows sometimes has more, so that a little more than its mean is better still. Processor: a quarter of the cost a
second of the cheapest combination; by the rule a part of the rows of each stream probes and a part is kept, plain ways treat
both streams the same or leave one direction out. All figures are counts, the same on every machine. Kang, Naughton, Viglas, Evaluating window joins over unbounded streams (2003).
Headrace stores sorted runs and has neither method: it looks up each row by bisection, or walks through a run where the
new rows are many, for each run and direction (`operators/joins/probing/stems.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from benchmarks.baselines.unit_time import (
    METHODS,
    Costs,
    Share,
    cheapest,
    join,
    memory_split,
    pairs_found,
    processor_split,
)
from benchmarks.charts import Curve, Curves
from benchmarks.expected import WrongAnswer
from benchmarks.report import Report
from benchmarks.thresholds import Ratio

RATIOS = (1, 4, 16, 64, 256)
_KEYS, _FAST, _COSTS = 64, 200.0, Costs()
_PARTS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_NOISE = 1.05
"""By how much a way may cost more than it should, since rows are drawn by chance."""
_WINDOWS = ((0.1, 2.0), (2.0, 20.0))
"""Seconds of the fast stream's window, and of the slow one's."""


@dataclass(frozen=True, slots=True)
class _Case:
    """Two streams of some rates under some windows: the cost of all combinations of methods by arrival, and the pairs found with too little.

    `kept` with a quarter of the memory and `done` with a quarter of the processor: first by the rule, then in other ways.
    """

    windows: tuple[float, float]
    ratio: int
    arrivals: int
    costs: dict[tuple[Any, Any], float]
    chosen: tuple[Any, Any]
    kept: list[int]
    done: list[int]

    @property
    def to_least(self) -> dict[tuple[Any, Any], float]:
        """The costs, the least of which is one."""
        least = min(self.costs.values())
        return {methods: cost / least for methods, cost in self.costs.items()}

    @property
    def row(self) -> dict[str, Any]:
        """The row of the report."""
        return {
            "windows_s": f"{self.windows[0]:g}, {self.windows[1]:g}",
            "rates": f"{self.ratio}:1",
            "chosen": "/".join(self.chosen),
            **{
                f"{'_'.join(methods)}_a_row": round(cost / self.arrivals, 2)
                for methods, cost in self.costs.items()
            },
            "pairs_kept_by_rule": self.kept[0],
            "pairs_kept_at_best": max(self.kept[1:]),
            "pairs_done_by_rule": self.done[0],
            "pairs_done_at_best": max(self.done[1:]),
        }


def joins_costs(rows: int, rounds: int) -> Report:
    """All combinations at all ratios, and the divisions of a memory."""
    del rounds
    seconds = max(20, min(rows // 500, 60))
    cases = [_case(windows, ratio, seconds) for windows, ratio in product(_WINDOWS, RATIOS)]
    longer = [case for case in cases if case.windows == _WINDOWS[1]]
    return Report(
        "joins-costs",
        "Joins by unit-time costs",
        [case.row for case in cases],
        _ratios(cases, longer),
        [],
        "",
        [f"{seconds} s. {(__doc__ or '').split('.', 1)[1].strip()}"],
        picture=_picture(longer),
    )


def _case(windows: tuple[float, float], ratio: int, seconds: int) -> _Case:
    rates = (_FAST, _FAST / ratio)
    arrivals = _arrivals(rates, seconds)
    return _Case(
        windows,
        ratio,
        len(arrivals),
        _counted(arrivals, windows),
        cheapest(rates, windows, _KEYS, _COSTS),
        _split(arrivals, rates, windows),
        _shed(rates, windows),
    )


def _ratios(cases: Sequence[_Case], longer: Sequence[_Case]) -> list[Ratio]:
    """`longer`: those with longer windows, since of windows with a handful of rows the best division is chance."""
    return [
        Ratio(
            "cost of the chosen combination to the least, greatest",
            max(case.to_least[case.chosen] for case in cases),
            1.02,
            True,
        ),
        Ratio(
            "cost of the best fixed combination to the least, greatest of all rates",
            min(max(case.to_least[methods] for case in cases) for methods in _PAIRS),
            1.02,
        ),
        Ratio(
            "pairs found with memory divided by rates, to the best of nine divisions, least of the longer windows",
            min(case.kept[0] / max(case.kept[1:]) for case in longer),
            0.9,
        ),
        Ratio(
            "pairs found with a quarter of the processor, to the best of 33 plain ways, least of the longer windows",
            min(case.done[0] / max(case.done[1:]) for case in longer),
            1.0,
        ),
    ]


def _picture(cases: Sequence[_Case]) -> Curves:
    return Curves(
        "Cost of a row, windows of 2 s and 20 s",
        ("ratio of rates", "comparisons"),
        [
            Curve(
                "/".join(methods),
                [case.ratio for case in cases],
                [case.costs[methods] for case in cases],
                "theirs",
            )
            for methods in _PAIRS
        ],
    )


_PAIRS = tuple(product(METHODS, METHODS))


def _arrivals(rates: tuple[float, float], seconds: int) -> list[tuple[float, int, int]]:
    rng = np.random.default_rng(16)
    times = [np.sort(rng.uniform(0, seconds, round(rate * seconds))) for rate in rates]
    at = np.concatenate(times)
    stream = np.repeat((0, 1), [len(stream_times) for stream_times in times])
    key, order = rng.integers(0, _KEYS, len(at)), np.argsort(at, kind="stable")
    return list(zip(at[order].tolist(), stream[order].tolist(), key[order].tolist(), strict=True))


def _counted(
    arrivals: list[tuple[float, int, int]], windows: tuple[float, float]
) -> dict[tuple[Any, Any], float]:
    """The cost of each combination of methods, which all find the same pairs."""
    outcomes = {methods: join(arrivals, methods, windows) for methods in _PAIRS}
    if len({pairs for pairs, _ in outcomes.values()}) != 1:
        raise WrongAnswer("Expected as many pairs of every method, found other numbers.")
    return {methods: counts.cost(_COSTS) for methods, (_, counts) in outcomes.items()}


def _split(
    arrivals: list[tuple[float, int, int]], rates: tuple[float, float], windows: tuple[float, float]
) -> list[int]:
    """Pairs that are found with a quarter of the memory: divided by rates, and in nine ways."""
    whole = sum(rate * window for rate, window in zip(rates, windows, strict=True))
    memory = max(8, round(whole / 4))
    first = memory_split(rates, windows, memory)
    assert pairs_found(rates, first, _KEYS) > 0
    ways = [round(first[0]), *(round(memory * part / 8) for part in range(9))]
    return [join(arrivals, ("hash", "hash"), windows, (rows, memory - rows))[0] for rows in ways]


def _shed(rates: tuple[float, float], windows: tuple[float, float]) -> list[int]:
    """Pairs that are found with a quarter of the cost a second: by the rule, and by ways in which every row counts the same.

    These let one direction be, or have the same share of rows in both; a way that costs more finds none. Windows are full.
    """
    full = max(windows)
    arrivals = _arrivals(rates, round(2 * full))
    before = [row for row in arrivals if row[0] < full]
    methods = cheapest(rates, windows, _KEYS, _COSTS)
    shares = [tuple(Share(method, part, part) for method in methods) for part in _PARTS]
    shares += [(Share(methods[0], part, 1.0), Share()) for part in _PARTS]
    shares += [(Share(), Share(methods[1], part, 1.0)) for part in _PARTS]

    def run(ways: Sequence[Share]) -> tuple[int, float]:
        both = (ways[0].method, ways[1].method)
        (found, counts), (early, at_first) = (
            join(rows, both, windows, shares=(ways[0], ways[1])) for rows in (arrivals, before)
        )
        return found - early, (counts.cost(_COSTS) - at_first.cost(_COSTS)) / full

    budget = run([Share(method, 1.0, 1.0) for method in methods])[1] / 4
    outcomes = [run(ways) for ways in (processor_split(rates, windows, _KEYS, budget, _COSTS), *shares)]
    return [found if cost <= budget * _NOISE else 0 for found, cost in outcomes]
