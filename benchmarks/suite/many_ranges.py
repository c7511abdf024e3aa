"""Many ranges over one stream: what an epoch of ten rows costs by the number of queries that differ in their range.

All in one process without Spark, so that what is measured is the engine's own work. Windows slide by a second and are a
minute long and more; every epoch is one second of the stream, so one window of each query closes in it.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks import folders
from benchmarks.charts import Curve, Curves
from benchmarks.fresh_processes import in_each
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND

NUMBERS: Final = (1, 10, 40, 100, 1000)
_ROWS: Final = 10
_SHORTEST: Final = 60
_EPOCHS: Final = 20
_START: Final = 1_700_000_000 * SECOND


def many_ranges(rows: int, rounds: int) -> Report:
    """Milliseconds an epoch at each number of ranges, with and without groups; `rows` bounds the numbers of a quick run."""
    numbers = [number for number in NUMBERS if rows >= 1_000_000 or number <= 100]
    table: list[dict[str, Any]] = []
    curves, ratios = [], []
    for kind, groups in (("ten groups", "GROUP BY k"), ("no groups", "")):
        costs = {number: median(in_each(rounds, epoch_of, number, groups)) for number in numbers}
        table += [
            {
                "what": kind,
                "ranges": number,
                "epoch_ms": round(cost, 2),
                "epoch_ms_a_query": round(cost / number, 4),
            }
            for number, cost in costs.items()
        ]
        curves.append(Curve(kind, numbers, [cost / number for number, cost in costs.items()], "ours"))
        for number, most in ((40, 4), (100, 5), (1000, 20)):
            if number in costs:
                what = f"{kind}: epoch of {number:,} ranges to that of 1"
                ratios.append(Ratio(what, costs[number] / costs[1], most, True))
    axes = ("queries, each of another range", "ms an epoch a query")
    picture = Curves("Ranges over one stream, ten rows an epoch", axes, curves, logarithmic=(True, True))
    notes = [" ".join(str(__doc__).split())]
    return Report(
        "many-ranges", "Many ranges over one stream", table, ratios, (), "ms", notes, picture=picture
    )


def epoch_of(count: int, groups: str) -> float:
    """Median milliseconds of an epoch of ten rows with so many queries, once the shortest windows are full."""
    columns = "k, COUNT(*) AS n, SUM(x) AS total" if groups else "COUNT(*) AS n, SUM(x) AS total"
    queries = "".join(
        f"CREATE QUERY q{number} AS SELECT {columns} FROM s [RANGE {_SHORTEST + number} SECONDS SLIDE 1 SECONDS] {groups};"
        for number in range(count)
    )
    rng = np.random.default_rng(1)
    took: list[float] = []
    with Hub(folders.fresh("many-ranges") / "home", LocalExecutor(), tasks=1) as hub:
        hub.execute(
            "CREATE STREAM s (k BIGINT, x BIGINT, at TIMESTAMP) USING push OPTIONS (archive 'none') TIMESTAMP BY at"
        )
        hub.execute(queries)
        for second in range(_SHORTEST + _EPOCHS):
            at = _START + second * SECOND + np.arange(_ROWS) * (SECOND // _ROWS)
            values = {"k": rng.integers(0, 10, _ROWS), "x": rng.integers(0, 100, _ROWS)}
            hub.push("s", pa.table({**values, "at": pa.array(at).cast(pa.timestamp("us", tz="UTC"))}))
            started = time.perf_counter()
            hub.loop.drain()
            took.append((time.perf_counter() - started) * 1000)
    return median(took[-_EPOCHS:])
