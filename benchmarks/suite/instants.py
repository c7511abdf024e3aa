"""A relation of every instant, `[RANGE r]`: an epoch at a window of 1x and of 20x the rows, with as many coming and leaving.

Two homes without a JVM, in turn in one process; the rows of a whole window first, then epochs of 2000 rows over a second of
event time. What an epoch costs should follow its 4000 changes, not the 60,000 or 1,200,000 rows that the window holds.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.plot import Bar
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from headrace.runtime.hub import Hub
from headrace.runtime.opening import open_hub

RATE = 2000
SECONDS = {"1x": 30, "20x": 600}
GROUPS = 100
BOUND = 1.5


def instants(rows: int, rounds: int) -> Report:
    """Medians over `10 * rounds` epochs; `rows` has no say."""
    del rows
    spent: dict[str, list[float]] = {name: [] for name in SECONDS}
    with tempfile.TemporaryDirectory(prefix="headrace-instants-") as folder, ExitStack() as opened:
        hubs = {
            name: opened.enter_context(_filled(Path(folder) / name, seconds))
            for name, seconds in SECONDS.items()
        }
        for turn in range(10 * rounds + 4):
            for name, hub in hubs.items():
                hub.push("s", _rows(SECONDS[name] + turn, 1))
                started = time.perf_counter()
                hub.loop.step()
                if turn >= 4:
                    spent[name].append(1000 * (time.perf_counter() - started))
    median = {name: statistics.median(each) for name, each in spent.items()}
    table = [
        {"window": name, "rows held": RATE * SECONDS[name], "median_ms": round(median[name], 1)}
        for name in SECONDS
    ]
    ratio = Ratio(
        "epoch at 20x the window's content to 1x, same delta", median["20x"] / median["1x"], BOUND, True
    )
    drawn = [Bar(f"window of {name}", median[name], "ours") for name in SECONDS]
    return Report(
        "instants", "An epoch of a relation at every instant", table, [ratio], drawn, "ms", [__doc__.strip()]
    )


def _filled(path: Path, seconds: int) -> Hub:
    hub = open_hub(path, local=True)
    hub.execute(
        "CREATE STREAM s (at TIMESTAMP, k BIGINT, v BIGINT) USING push OPTIONS (archive 'none') TIMESTAMP BY at"
    )
    hub.execute(
        f"CREATE QUERY q AS SELECT k, COUNT(*) AS n, SUM(v) AS total, MAX(v) AS top FROM s [RANGE {seconds} SECONDS] GROUP BY k"
    )
    hub.push("s", _rows(0, seconds))
    hub.loop.drain()
    return hub


def _rows(second: int, seconds: int) -> pa.Table:
    number = np.arange(second * RATE, (second + seconds) * RATE)
    at = 1_700_000_000_000_000 + number * (1_000_000 // RATE)
    stamps = pa.array(at).cast(pa.timestamp("us", tz="UTC"))
    return pa.table({"at": stamps, "k": number * 7919 % GROUPS, "v": number * 31 % 1000})
