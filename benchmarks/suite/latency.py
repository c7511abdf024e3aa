"""From a push to its followed result, durable when it counts: rows on disk before the push returns, results before they are followed.

Every twenty milliseconds a batch is pushed, on schedule: a late push waits in its own latency. The yardstick in the same process is
what durability alone takes: a file of the same rows written and synced with its name, twice.
"""

from __future__ import annotations

import json
import subprocess
import sys
from statistics import median
from typing import Any

from benchmarks.charts import Bar, Curve, Curves
from benchmarks.folders import CHECKOUT
from benchmarks.report import Report
from benchmarks.thresholds import Ratio

SETTINGS = (
    ("local", 2_000, 1),
    ("local", 50_000, 1),
    ("local", 2_000, 100),
    ("local", 50_000, 100),
    ("spark", 2_000, 1),
    ("spark", 2_000, 100),
)
"""Executor, rows a second, standing queries."""


def latency(rows: int, rounds: int) -> Report:
    """`10 * rounds` seconds of each setting; `rows` has no effect."""
    del rows
    seconds = 10 * rounds
    measured = {setting: _run(*setting, seconds) for setting in SETTINGS}
    table = [_row(*setting, one) for setting, one in measured.items()]
    first = measured[SETTINGS[0]]
    timeline = first["timeline"]
    quarter = len(timeline) // 4
    ratios = [
        Ratio(
            "median latency at 2,000 rows/s and one query to two synced files",
            first["latency_ms"]["p50"] / first["yardstick_ms"]["p50"],
            15,
            at_most=True,
        ),
        Ratio(
            "p99 latency of the last quarter of the time to that of the first",
            median(timeline[-quarter:]) / median(timeline[:quarter]),
            1.5,
            at_most=True,
        ),
    ]
    drawn = [
        Bar(f"{name}, {rate:,} rows/s, {queries} queries", one["latency_ms"]["p99"], "ours")
        for (name, rate, queries), one in measured.items()
    ]
    curves = [
        Curve(f"{name}, {rate:,} rows/s, {queries} queries", *_over(one["timeline"], seconds), "ours")
        for (name, rate, queries), one in measured.items()
    ]
    picture = Curves("p99 from push to followed result", ("seconds", "ms"), curves, (False, True))
    assert __doc__ is not None
    return Report(
        "latency", "From push to result", table, ratios, drawn, "ms", [__doc__.strip()], {}, picture
    )


def _run(engine: str, rate: int, queries: int, seconds: int) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "benchmarks.latency_runner",
        engine,
        str(rate),
        str(queries),
        str(seconds),
    ]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"Expected {' '.join(command)} to end well, found:\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def _row(engine: str, rate: int, queries: int, measured: dict[str, Any]) -> dict[str, Any]:
    cuts = {f"{name}_ms": measured["latency_ms"][name] for name in ("p50", "p99", "p99.9")}
    parts = {f"{part}_p50_ms": measured[f"{part}_ms"]["p50"] for part in ("push", "epoch", "yardstick")}
    setting = {"executor": engine, "rows_a_second": rate, "queries": queries}
    return {**setting, **cuts, **parts, "batches_an_epoch": measured["batches_an_epoch"]}


def _over(timeline: list[float], seconds: int) -> tuple[list[float], list[float]]:
    """The middle of each part of the time, and its value."""
    return [(part + 0.5) * seconds / len(timeline) for part in range(len(timeline))], timeline
