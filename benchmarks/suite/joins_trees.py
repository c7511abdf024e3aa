"""Joins of four streams as trees: MJoins, trees of MJoins and XJoins over the same rows, by what they do and store.

Points differ in how often the streams come and how many partners a row has. Each of the 26 trees runs over the same rows and finds
the same results; the best of a kind is the one that did least (look-ups, rows compared, inner rows made). An MJoin stores no
inner rows and makes them again with each probe; XJoins do less at every point, as the thesis has it at most of its own, and store up to as many
rows again as the streams have, or more. Hops search in one phase, as there; Headrace's join searches in two (`join-orders`). These figures are counts, the same on every machine. Babu, Adaptive Query Processing in Data Stream Management Systems (2005), chapter 5.

*In the engine*: a star with a key for each arm, in homes without a JVM. A row of the hub finds almost no row in one arm, two in another and four in the third;
which arm is which changes after each 80 epochs, and windows hold five. Six homes have one of the six orders of arms, one adapts: another tree of joins grows until it has a window
of rows, and is then in force. Counted are the rows that all joins but the last make, also in trees that grow; processor times are of whole epochs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import running_trees
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
    """All trees of four streams, at each point; and trees in the engine."""
    del rounds
    table, ratios, bars = counted(rows)
    engine_rows, engine_ratios = _in_the_engine()
    notes = [f"{_steps(rows)} steps; windows of ten steps. {(__doc__ or '').split('.', 1)[1].strip()}"]
    title = "Joins of four streams as trees"
    return Report(
        "joins-trees", title, [*table, *engine_rows], [*ratios, *engine_ratios], bars, "accesses", notes
    )


def _steps(rows: int) -> int:
    return max(15, min(rows // 1000, 60))


def counted(rows: int) -> tuple[list[dict[str, Any]], list[Ratio], list[Bar]]:
    """All trees of four streams, at each point."""
    count = _steps(rows)
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
    return table, ratios, bars


def _in_the_engine() -> tuple[list[dict[str, Any]], list[Ratio]]:
    """A star whose arms change: fixed orders and one that adapts."""
    fixed = {tree: running_trees.run(tree) for tree in running_trees.all_trees()}
    adaptive = running_trees.run(None)
    running_trees.checked([adaptive, *fixed.values()])
    phases = range(running_trees.PHASES)
    by_tree = {tree: running_trees.by_phase(one.inner) for tree, one in fixed.items()}
    best = [min(fixed, key=lambda tree, at=at: by_tree[tree][at]) for at in phases]
    inner = {
        "adaptive": sum(adaptive.inner),
        "best in hindsight": sum(by_tree[best[at]][at] for at in phases),
        "best fixed order": min(sum(one.inner) for one in fixed.values()),
    }
    seconds = {
        "adaptive": sum(adaptive.seconds),
        "best in hindsight": sum(running_trees.by_phase(fixed[best[at]].seconds)[at] for at in phases),
        "best fixed order": min(sum(one.seconds) for one in fixed.values()),
    }
    table: list[dict[str, Any]] = [
        {"point": f"in the engine: {way}", "inner_rows": int(rows), "seconds": float(f"{seconds[way]:.3g}")}
        for way, rows in inner.items()
    ]
    ratios = [
        Ratio(
            "in the engine, rows of inner joins: best fixed order to adaptive",
            inner["best fixed order"] / inner["adaptive"],
            2,
        ),
        Ratio(
            "in the engine, time: best in hindsight to adaptive",
            seconds["best in hindsight"] / seconds["adaptive"],
            0.85,
        ),
        Ratio(
            "in the engine, time: best fixed order to adaptive",
            seconds["best fixed order"] / seconds["adaptive"],
            1,
        ),
        Ratio(
            "in the engine, rows that trees make while they grow, to all",
            adaptive.growing / inner["adaptive"],
            0.05,
            True,
        ),
    ]
    return table, ratios


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
