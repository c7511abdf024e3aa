"""The cost of order where one input is split and merged: rows that a cheap condition passes overtake those of a slow one.

Li, Window Queries over Data Streams (2008), Figure 8-3: an ordered stream; rows of which condition A holds are in the answer, the
others if the costly condition B holds. Both branches meet in a union: in order it holds the rows of the fast branch for as long as the
slow one needs; out of order it holds none. All figures are counts and seconds of the stream, the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np

from benchmarks.baselines.plans import in_order, out_of_order
from benchmarks.baselines.plans.flows import Flow, Rows
from benchmarks.baselines.plans.plan import Delay, Node, Ran, run
from benchmarks.baselines.windows import Sliding
from benchmarks.charts import Curve, Curves
from benchmarks.expected import WrongAnswer
from benchmarks.report import Report
from benchmarks.thresholds import Ratio

DELAYS = (0, 1, 2, 4, 8)
"""Seconds that the costly condition needs for a row."""
_STEPS_A_SECOND, _SECONDS, _KEYS, _CHEAP = 10, 60, 100, 50
"""Half of the keys pass the cheap condition, and half of the others the costly one."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Rows that the union holds at most; how many seconds a row waits from its arrival until it leaves the union, on average."""

    held: int
    wait: float


def split_merge(rows: int, rounds: int) -> Report:
    """A minute of an ordered stream, 10 to 1,000 rows a second."""
    del rounds
    rate = max(10, min(rows // _SECONDS, 1000))
    loose = {delay: _cost(rate, delay, ordered=False) for delay in DELAYS}
    strict = {delay: _cost(rate, delay, ordered=True) for delay in DELAYS}
    growth = [strict[delay].held / (delay * rate * _CHEAP / _KEYS) for delay in DELAYS if delay]
    table: list[dict[str, Any]] = [
        {
            "costly_condition_s": delay,
            "held_out_of_order": loose[delay].held,
            "held_in_order": strict[delay].held,
            "wait_out_of_order_s": round(loose[delay].wait, 2),
            "wait_in_order_s": round(strict[delay].wait, 2),
        }
        for delay in DELAYS
    ]
    ratios = [
        Ratio(
            "rows that the union holds out of order, at most",
            max(cost.held for cost in loose.values()),
            0,
            True,
        ),
        Ratio("rows held in order, to those of the fast branch in that time, least", min(growth), 0.9),
        Ratio("the same, greatest", max(growth), 1.2, True),
        Ratio("wait out of order to in order, 8 seconds", loose[8].wait / strict[8].wait, 0.5, True),
    ]
    drawn = Curves(
        "Rows held by the union at most",
        ("seconds of the costly condition", "rows"),
        [
            Curve("out of order", list(DELAYS), [loose[delay].held for delay in DELAYS], "ours"),
            Curve("in order", list(DELAYS), [strict[delay].held for delay in DELAYS], "theirs"),
        ],
    )
    notes = [
        f"{rate} rows a second. Counts by window of both plans are equal, and those of the definition.",
        "Headrace has no union in order: rows pass its operators in any order, and punctuation alone closes windows.",
    ]
    return Report("split-merge", "Split and merge, Figure 8-3", table, ratios, [], "", notes, picture=drawn)


def _cost(rate: int, delay: int, *, ordered: bool) -> Cost:
    steps = delay * _STEPS_A_SECOND
    sent = _sent(rate, steps)
    union = in_order.Merge.of(2) if ordered else out_of_order.Meld.of(2)
    windows = Sliding(10_000, 5_000)
    count = in_order.WindowCount(windows) if ordered else out_of_order.WindowCount(windows)
    ran = run(
        [
            Node("cheap", out_of_order.Select(_passes(lambda key: key < _CHEAP)), ("sent",)),
            Node("rest", out_of_order.Select(_passes(lambda key: key >= _CHEAP)), ("sent",)),
            Node("slow", Delay(steps), ("rest",)),
            Node("costly", out_of_order.Select(_passes(lambda key: key % 2 == 0)), ("slow",)),
            Node("union", union, ("cheap", "costly")),
            Node("count", count, ("union",)),
        ],
        {"sent": sent},
    )
    _check(ran, windows)
    left = [
        step / _STEPS_A_SECOND - at / 1000
        for step, flow in enumerate(ran.edges["union"], 1)
        for at in flow.rows.at.tolist()
    ]
    return Cost(ran.held_at_most("union"), mean(left))


def _passes(condition: Callable[[np.ndarray], np.ndarray]) -> Callable[[Rows], np.ndarray]:
    return lambda rows: condition(rows.key)


def _sent(rate: int, more: int) -> list[Flow]:
    """Rows in order, in milliseconds, ten steps a second; then as many steps as the slow branch needs to empty."""
    at = np.arange(rate * _SECONDS) * 1000 // rate
    key = np.random.default_rng(83).integers(0, _KEYS, len(at))
    step = 1000 // _STEPS_A_SECOND
    cuts = np.searchsorted(at, np.arange(0, _SECONDS * 1000 + step, step))
    flows = [
        Flow(Rows(at[low:high], key[low:high], key[low:high]), (number + 1) * step)
        for number, (low, high) in enumerate(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True))
    ]
    return [*flows, *[Flow()] * more]


def _check(ran: Ran, windows: Sliding) -> None:
    """Compare the counts with those of the rows that the conditions pass. Raises `WrongAnswer`."""
    sent, emitted = ran.rows("sent"), ran.rows("count")
    passed = (sent.key < _CHEAP) | (sent.key % 2 == 0)
    for end in np.unique(emitted.at).tolist():
        held = passed & (sent.at >= end - windows.range) & (sent.at < end)
        right = np.bincount(sent.key[held], minlength=_KEYS)
        counts = np.zeros(_KEYS, np.int64)
        counts[emitted.key[emitted.at == end]] = emitted.value[emitted.at == end]
        if not np.array_equal(counts, right):
            raise WrongAnswer(f"The window that ends at {end} ms is wrong.")
    if int(emitted.at.max()) != _SECONDS * 1000:
        raise WrongAnswer("Expected a window that ends with the stream, found none.")
