"""The greatest rate of rows when the first level of an aggregation is a small table: experiment E9, by counting.

Li, Window Queries over Data Streams (2008), figure 8-7: a table of half, once and twice as many slots as groups, emptied in order
or out of order. Rows arrive evenly into a buffer; a row and an entry sent up cost one unit of work each; the rate is the
greatest at which the buffer never overflows. All is scaled down by 500, and nothing is measured with a clock: the figures are
the same on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.baselines.two_level import FirstLevel, Flush, rolled_up
from benchmarks.charts import Bar
from benchmarks.expected import WrongAnswer
from benchmarks.report import Report
from benchmarks.thresholds import Ratio

GROUPS = {"66K": 132, "130K": 260, "260K": 520, "520K": 1040}
TABLES = {"half": 0.5, "once": 1.0, "twice": 2.0}
PLANS: dict[str, Flush] = {"in order": "in order", "out of order, slow": "slow", "out of order, lazy": "lazy"}
_SPEED, _BUFFER = 1600, 200
"""Units of work a second, and rows that the buffer holds, which the thesis does not give: 800K and 100K, scaled down."""
_WINDOW, _WINDOWS, _EVERY, _MOST = 6, 3, 4, 2
_ALL_SIZES = 100_000
_STEP = 20
"""Rates are tried in steps of so many rows a second."""


@dataclass(frozen=True, slots=True)
class Sustained:
    """The greatest rate without loss, and which part of the time there was work at it."""

    rate: int
    busy: float


def overflows(plan: Flush, groups: int, slots: int, rate: int, seed: int) -> tuple[bool, float]:
    """Whether the buffer overflows at a rate, and the share of time with work. Raises `WrongAnswer` on wrong counts."""
    rows = rate * _WINDOW * _WINDOWS
    group = np.random.default_rng(seed).integers(0, groups, rows).tolist()
    table = FirstLevel(slots, plan, every=_EVERY, most=_MOST)
    per_row, waiting, most, work = _SPEED / rate, 0.0, 0.0, 0
    for number, key in enumerate(group):
        cost = 1 + table.row(number // (rate * _WINDOW), key)
        work += cost
        waiting = max(0.0, waiting - per_row) + cost
        most = max(most, waiting)
    table.end()
    counts = rolled_up(table.sent)
    windows = np.arange(rows) // (rate * _WINDOW)
    if len(counts) != len(np.unique(windows * groups + np.array(group))) or sum(counts.values()) != rows:
        raise WrongAnswer(f"{plan} with {slots} slots: {sum(counts.values())} of {rows} rows")
    rows_waiting = most * rate / _SPEED  # that come while there is so much to do
    return rows_waiting > _BUFFER, min(1.0, work / (rows * per_row))


def sustained(plan: Flush, groups: int, slots: int) -> Sustained:
    """The greatest rate on the grid at which the buffer does not overflow."""
    low, high = 0, _SPEED // _STEP
    busy = 0.0
    while low < high:
        middle = (low + high + 1) // 2
        lost, share = overflows(plan, groups, slots, middle * _STEP, seed=groups)
        if lost:
            high = middle - 1
        else:
            low, busy = middle, share
    return Sustained(low * _STEP, busy)


def two_level(rows: int, rounds: int) -> Report:
    """Four numbers of groups, three sizes of table, three plans; of few rows, half of the numbers. One round counts as many."""
    del rounds
    sizes = GROUPS if rows >= _ALL_SIZES else {size: GROUPS[size] for size in ("66K", "260K")}
    measured = {
        (size, share, plan): sustained(flush, groups, int(groups * factor))
        for size, groups in sizes.items()
        for share, factor in TABLES.items()
        for plan, flush in PLANS.items()
    }
    table: list[dict[str, Any]] = [
        {
            "groups": size,
            "slots": share,
            "plan": plan,
            "rows_per_second": run.rate,
            "busy": round(run.busy, 2),
        }
        for (size, share, plan), run in measured.items()
    ]
    drawn = [
        Bar(f"{size}, slots {share}, {plan}", run.rate, "theirs" if plan == "in order" else "ours")
        for (size, share, plan), run in measured.items()
        if size in ("66K", "260K") and share in ("half", "twice")
    ]

    def ratio(size: str, share: str, plan: str) -> float:
        return measured[size, share, plan].rate / measured[size, share, "in order"].rate

    def sensitivity(plan: str) -> float:
        """What the table's size changes, at 260K groups."""
        rates = [measured["260K", share, plan].rate for share in ("once", "twice")]
        return max(rates) / min(rates)

    ratios = []
    for plan in list(PLANS)[1:]:
        ratios += [
            Ratio(f"260K groups, slots twice: {plan}, to in order", ratio("260K", "twice", plan), 1.5),
            Ratio(f"66K groups, slots twice: {plan}, to in order", ratio("66K", "twice", plan), 1.1, True),
            Ratio(
                f"66K groups, slots twice: {plan}, to in order, at least", ratio("66K", "twice", plan), 0.9
            ),
        ]
    ratios.append(
        Ratio(
            "what the size of the table changes at 260K groups, out of order (slow) to in order",
            sensitivity("out of order, slow") / sensitivity("in order"),
            1.0,
            True,
        )
    )
    notes = [
        f"Scaled down by 500: {_SPEED} units of work a second, a buffer of {_BUFFER} rows (the thesis does not give their number), windows of {_WINDOW} s; {_WINDOWS} windows a run.",
        "Counts of every run were compared with the rows.",
        "In order, an entry of a new window may leave only after all old ones: that burst is what the buffer has to hold.",
    ]
    return Report(
        "two-level", "Rate without loss, two-level aggregation", table, ratios, drawn, "rows/s, scaled", notes
    )
