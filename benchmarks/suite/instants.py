"""A relation of every instant, `[RANGE r]`: an epoch at a window of 1x and of 20x the rows, with as many coming and leaving.

Two homes without a JVM, in turn in one process; the rows of a whole window first, then epochs of 2000 rows over a second of
event time. What an epoch costs should follow its 4000 changes, not the 60,000 or 1,200,000 rows that the window holds.
*Values*: COUNT(DISTINCT v) and MODE(v), where what is gone through are the values of a group, a thousand in all.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.charts import Bar
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub

RATE = 2000
SECONDS = {"1x": 30, "20x": 600}
GROUPS = 100
BOUND = 1.5
ASKED = {"": "SUM(v) AS total, MAX(v) AS top", ", values": "COUNT(DISTINCT v) AS different, MODE(v) AS usual"}
CASES = tuple((window, of) for of in ASKED for window in SECONDS)


def instants(rows: int, rounds: int) -> Report:
    """Medians over `10 * rounds` epochs; `rows` has no effect."""
    del rows
    spent: dict[tuple[str, str], list[float]] = {case: [] for case in CASES}
    with tempfile.TemporaryDirectory(prefix="headrace-instants-") as folder, ExitStack() as opened:
        hubs = {case: opened.enter_context(_filled(Path(folder) / "".join(case), *case)) for case in CASES}
        for advance in range(10 * rounds + 4):
            for case, hub in hubs.items():
                hub.push("s", _rows(SECONDS[case[0]] + advance, 1))
                started = time.perf_counter()
                hub.loop.step()
                if advance >= 4:
                    spent[case].append(1000 * (time.perf_counter() - started))
    median = {case: statistics.median(seconds) for case, seconds in spent.items()}
    table = [
        {
            "window": window + of,
            "rows held": RATE * SECONDS[window],
            "median_ms": round(median[window, of], 1),
        }
        for window, of in CASES
    ]
    ratios = [
        Ratio(
            f"epoch at 20x the window's content to 1x, same delta{of}",
            median["20x", of] / median["1x", of],
            BOUND,
            True,
        )
        for of in ASKED
    ]
    drawn = [Bar(f"window of {window}{of}", median[window, of], "ours") for window, of in CASES]
    return Report(
        "instants", "An epoch of a relation at every instant", table, ratios, drawn, "ms", [__doc__.strip()]
    )


def _filled(path: Path, window: str, of: str) -> Hub:
    hub = open_hub(path, local=True)
    hub.execute(
        "CREATE STREAM s (at TIMESTAMP, k BIGINT, v BIGINT) USING push OPTIONS (archive 'none') TIMESTAMP BY at"
    )
    asked = f"SELECT k, COUNT(*) AS n, {ASKED[of]} FROM s [RANGE {SECONDS[window]} SECONDS] GROUP BY k"
    hub.execute(f"CREATE QUERY q AS {asked}")
    hub.push("s", _rows(0, SECONDS[window]))
    hub.loop.drain()
    return hub


def _rows(second: int, seconds: int) -> pa.Table:
    number = np.arange(second * RATE, (second + seconds) * RATE)
    at = 1_700_000_000_000_000 + number * (1_000_000 // RATE)
    stamps = pa.array(at).cast(pa.timestamp("us", tz="UTC"))
    return pa.table({"at": stamps, "k": number * 7919 % GROUPS, "v": number * 31 % 1000})
