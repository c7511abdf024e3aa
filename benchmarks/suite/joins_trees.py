"""Joins of four streams as trees: MJoins, trees of MJoins and XJoins over the same rows, by what they do and store.

Points differ in how often the streams come and how many partners a row has. Each of the 26 trees runs over the same rows and finds
the same results; the best of a kind is the one that did least (look-ups, rows compared, inner rows made). An MJoin stores no
inner rows and makes them again with each probe; XJoins do less at every point, as the thesis has it at most of its own, and store up to as many
rows again as the streams have, or more. Hops search in one phase, as there; Headrace's join searches in two (`join-orders`). All figures are counts, the same on every machine. Babu, Adaptive Query Processing in Data Stream Management Systems (2005), chapter 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.baselines.join_trees import JoinTree, Tree, Work, sorted_rows, trees
from benchmarks.charts import Bar
from benchmarks.expected import WrongAnswer
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from headrace.operators.rows.sorted_rows import Sorted

_RANGE, _STEP, _STREAMS = 100, 10, 4


@dataclass(frozen=True, slots=True)
class Point:
    """Rows of each stream in a step, and of how many keys each stream has its rows, from its own key on: streams share those that overlap."""

    name: str
    rates: tuple[int, int, int, int]
    first: tuple[int, int, int, int]
    keys: tuple[int, int, int, int]

    def steps(self, count: int) -> list[list[Sorted | None]]:
        """The rows of each step."""
        rng = np.random.default_rng(len(self.name))
        steps: list[list[Sorted | None]] = []
        for start in range(0, count * _STEP, _STEP):
            step: list[Sorted | None] = []
            for rate, first, keys in zip(self.rates, self.first, self.keys, strict=True):
                at = np.sort(rng.integers(start, start + _STEP, rate))
                step.append(
                    sorted_rows(at, first + rng.integers(0, keys, rate), at + _RANGE) if rate else None
                )
            steps.append(step)
        return steps


POINTS = (
    Point("equal", (8, 8, 8, 8), (0, 0, 0, 0), (100, 100, 100, 100)),
    Point("one frequent", (30, 5, 5, 5), (0, 0, 0, 0), (60, 60, 60, 60)),
    Point("two frequent", (20, 20, 4, 4), (0, 0, 0, 0), (80, 80, 80, 80)),
    Point("a pair that hardly meets", (8, 8, 8, 8), (0, 50, 0, 0), (60, 60, 80, 80)),
    Point("many partners", (4, 4, 4, 4), (0, 0, 0, 0), (12, 12, 12, 12)),
)


def joins_trees(rows: int, rounds: int) -> Report:
    """All trees of four streams, at each point."""
    del rounds
    count = max(15, min(rows // 1000, 60))
    plans_by_point = {point.name: _ran(point, count) for point in POINTS}
    table, bars = list[dict[str, Any]](), list[Bar]()
    for point, plans in plans_by_point.items():
        best = _best(plans)
        row: dict[str, Any] = {"point": point}
        for kind, tree in best.items():
            work = plans[tree]
            row |= {f"{kind}_did": work.total, f"{kind}_inner_rows": work.inner_stored}
            bars.append(Bar(f"{point}: {kind}", work.total, "ours" if kind == "mjoin" else "theirs"))
        row["best_xjoin"], row["best_tree"] = str(best["xjoin"]), str(best["tree"])
        table.append(row)
    works = [{kind: plans[tree] for kind, tree in _best(plans).items()} for plans in plans_by_point.values()]
    to_mjoin = [work["xjoin"].total / work["mjoin"].total for work in works]
    ratios = [
        Ratio("inner rows that MJoins store", sum(work["mjoin"].inner_stored for work in works), 0, True),
        Ratio("work of the best XJoin to the MJoin's, greatest of all points", max(to_mjoin), 1, True),
        Ratio("the same, least", min(to_mjoin), 0.75, True),
        Ratio(
            "inner rows of the best XJoin to rows of the streams, greatest",
            max(work["xjoin"].inner_stored / work["xjoin"].stored for work in works),
            1,
        ),
    ]
    notes = [f"{count} steps; windows of ten steps. {(__doc__ or '').split('.', 1)[1].strip()}"]
    return Report("joins-trees", "Joins of four streams as trees", table, ratios, bars, "accesses", notes)


def _ran(point: Point, count: int) -> dict[tuple[Tree, ...], Work]:
    """The work of every tree."""
    steps, plans = point.steps(count), dict[tuple[Tree, ...], Work]()
    expected: Sequence[tuple[int, int]] | None = None
    for tree in trees(range(_STREAMS)):
        assert not isinstance(tree, int)
        plan, results = JoinTree(tree), list[tuple[int, int]]()
        for number, step in enumerate(steps, 1):
            results += plan.take(step, number * _STEP)
        results.sort()
        if expected is not None and results != expected:
            raise WrongAnswer(f"The tree {tree} finds other results than the MJoin.")
        expected, plans[tree] = results, plan.work
    if not expected:
        raise WrongAnswer(f"Expected results at point '{point.name}', found none.")
    return plans


def _best(plans: dict[tuple[Tree, ...], Work]) -> dict[str, tuple[Tree, ...]]:
    """The tree of each kind that did least."""
    xjoins = set(trees(range(_STREAMS), binary=True))
    return {
        "mjoin": (0, 1, 2, 3),
        "xjoin": min((tree for tree in plans if tree in xjoins), key=lambda tree: plans[tree].total),
        "tree": min(plans, key=lambda tree: plans[tree].total),
    }
