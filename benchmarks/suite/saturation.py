"""The rate at which a hub saturates, as it predicts it and as measured.

Three hubs without a JVM, with queries WITH QOS. Small epochs at a low rate are measured, as in every hub, and the rate is predicted at
which no time is left. Then rows wait for a second and a half of processing or more, by what is predicted, and the hub processes them as fast
as it can. A row costs what the line through epochs
of different sizes rises by: what an epoch costs by itself does not count.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from benchmarks.charts import Bar
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub

_STREAM: Final = "CREATE STREAM s (at TIMESTAMP, k INT, v INT) USING push TIMESTAMP BY at;"
_QOS: Final = "WITH SHEDDING WITH QOS (delay (1 AT 10 MINUTES), loss (1 AT 0 PERCENT, 0.9 AT 90 PERCENT))"
_COUNTED: Final = (
    "SELECT k % {0} AS g, COUNT(*) AS n, SUM(v) AS t FROM s [RANGE TUMBLING 1 MINUTE] GROUP BY k % {0}"
)
PLANS: Final[Mapping[str, Mapping[str, str]]] = {
    "one query": {"q0": _COUNTED.format(10)},
    "ten groupings": {f"q{n}": _COUNTED.format(10 + n) for n in range(10)},
    "filters, and a query without shedding": {
        "few": "SELECT COUNT(*) AS n FROM s [RANGE TUMBLING 1 MINUTE] WHERE v < 10",
        "slide": "SELECT k, AVG(v) AS mean FROM s [RANGE 1 MINUTE SLIDE 10 SECONDS] WHERE v > 20 GROUP BY k",
        "exact": "SELECT k, MAX(v) AS top FROM s [RANGE TUMBLING 1 MINUTE] GROUP BY k",
    },
}
SIZES: Final = (20_000, 50_000, 100_000, 30_000, 80_000, 40_000, 150_000, 60_000) * 16
"""Rows of the epochs before the prediction; many, since a row costs little compared with an epoch."""
LARGE: Final = 200_000
"""Rows of the batches that wait."""
BATCHES: Final = 25
"""The least number of them."""
LASTS: Final = 1.5
"""Seconds of processing that wait, at the predicted rate: in less, what an epoch costs by itself is a part of what is measured."""


def saturation(rows: int, rounds: int) -> Report:
    """Medians over `rounds` hubs of each plan; `rows` does not matter."""
    del rows
    table, ratios, bars = [], list[Ratio](), list[Bar]()
    for name, texts in PLANS.items():
        measurements = [_measured(texts) for _ in range(rounds)]
        predicted, measured = (statistics.median(rates) for rates in zip(*measurements, strict=True))
        table.append(
            {
                "plan": name,
                "predicted_rows_per_s": round(predicted),
                "measured_rows_per_s": round(measured),
                "predicted_to_measured": round(predicted / measured, 2),
            }
        )
        ratios.append(
            Ratio(
                f"{name}: predicted to measured, the lesser by the greater",
                min(predicted, measured) / max(predicted, measured),
                0.8,
            )
        )
        bars += [
            Bar(f"{name}, predicted", predicted / 1e6, "ours"),
            Bar(f"{name}, measured", measured / 1e6, "yardstick"),
        ]
    assert __doc__ is not None
    return Report("saturation", "Predicted saturation", table, ratios, bars, "M rows/s", [__doc__.strip()])


def _measured(texts: Mapping[str, str]) -> tuple[float, float]:
    """Rows per second at which a hub saturates: as it predicts, and as it does."""
    with (
        tempfile.TemporaryDirectory(prefix="headrace-saturation-") as name,
        open_hub(Path(name) / "home", local=True) as hub,
    ):
        hub.execute(_STREAM)
        for query, text in texts.items():
            hub.execute(f"CREATE QUERY {query} AS {text}{'' if query == 'exact' else ' ' + _QOS}")
        sent = 0
        for size in SIZES:
            hub.push("s", _batch(sent, size))
            hub.catch_up()
            sent += size
        predicted = hub.status()["overload"]["saturation"]
        count = max(BATCHES, ceil(LASTS * predicted / LARGE))
        return predicted, _rate(hub, [_batch(sent + LARGE * number, LARGE) for number in range(count)])


def _rate(hub: Hub, batches: list[pa.Table]) -> float:
    for batch in batches:
        hub.push("s", batch)
    started = time.perf_counter()
    hub.catch_up()
    return sum(batch.num_rows for batch in batches) / (time.perf_counter() - started)


def _batch(first: int, rows: int) -> pa.Table:
    """Rows in order of time, 10,000 a second."""
    rng = np.random.default_rng(first)
    at = 1_700_000_000_000_000 + 100 * np.arange(first, first + rows)
    return pa.table(
        {
            "at": pa.array(at).cast(pa.timestamp("us", tz="UTC")),
            "k": pa.array(rng.integers(0, 1000, rows), pa.int32()),
            "v": pa.array(rng.integers(0, 100, rows), pa.int32()),
        }
    )
