"""The cost of a window's length: one query at ranges from a second to an hour, its windows full all the while."""

from __future__ import annotations

import json
import subprocess
import sys
from statistics import median
from typing import Any

from benchmarks import runs
from benchmarks.charts import Curve, Curves
from benchmarks.contenders import SPARK_BATCH
from benchmarks.folders import CHECKOUT
from benchmarks.protocol import RANGE_SECONDS
from benchmarks.report import Report
from benchmarks.thresholds import Ratio

RANGES = (1, 10, 60, 600, 3600)
WINDOWS = (*((length, 1) for length in RANGES), (3600, 60), (3601, 60))
_LEAST_ROWS, _LONGEST_SECONDS = 200_000, 900


def ranges(rows: int, rounds: int) -> Report:
    """Rates of rows at slide 1 s, of 3600 s by 60 s and 3601 s by 60 s, and Spark's of a minute by a second."""
    rows = max(rows, _LEAST_ROWS)
    ours = rates({"rows": rows, "rounds": rounds, "windows": WINDOWS}, rows)
    native = runs.run(SPARK_BATCH, "sliding", rows).rate
    hour = ours[3600, 1]
    ratios = [
        Ratio("rate at 3600 s by 1 s to that at 1 s by 1 s", hour / ours[1, 1], 0.6),
        Ratio(
            f"rate at {RANGE_SECONDS} s by 1 s to Spark's batch by panes", ours[RANGE_SECONDS, 1] / native, 5
        ),
        Ratio("rate at 3601 s by 60 s to that at 3600 s by 60 s", ours[3601, 60] / ours[3600, 60], 0.6),
    ]
    table = [
        {"what": "headrace", "range_s": length, "slide_s": slide, "rows_per_second": round(rate)}
        for (length, slide), rate in ours.items()
    ]
    spark = {"what": SPARK_BATCH.name, "range_s": RANGE_SECONDS, "slide_s": 1}
    table += [{**spark, "rows_per_second": round(native)}]
    drawn = Curves(
        "Rate by range, slide 1 s, 1000 keys",
        ("range in seconds", "rows/s"),
        [
            Curve("headrace", RANGES, [ours[length, 1] for length in RANGES], "ours"),
            Curve("Spark batch, panes", [RANGE_SECONDS], [native], "yardstick"),
        ],
        logarithmic=(True, True),
    )
    notes = [
        (
            f"{rows:,} rows, 50,000 an event-second, 1000 keys, COUNT, SUM and MAX. A window of an hour is full when the clock "
            "starts: a sparse hour before gives each key a row a second. Some windows of every run were compared with the truth."
        ),
        (
            "Spark's batch engine, which keeps no state, aggregates panes of a second and copies a pane for every window it is in; "
            "it takes minutes only to plan 3600 copies, so it has windows of a minute, over the same rows."
        ),
    ]
    return Report("ranges", "Rate by range", table, ratios, [], "rows/s", notes, picture=drawn)


def rates(asked: dict[str, Any], rows: int) -> dict[tuple[int, int], float]:
    """Median rows a second by (range, slide), from a process of their own."""
    command = [sys.executable, "-m", "benchmarks.ranges_runner", json.dumps(asked)]
    done = subprocess.run(
        command, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=_LONGEST_SECONDS
    )
    if done.returncode != 0:
        raise RuntimeError(f"Expected {' '.join(command)} to end well, found:\n{done.stderr[-3000:]}")
    took: dict[tuple[int, int], list[float]] = {}
    for measured in json.loads(done.stdout.strip().splitlines()[-1]):
        took.setdefault((measured["range_s"], measured["slide_s"]), []).append(measured["seconds"])
    return {window: rows / median(seconds) for window, seconds in took.items()}
