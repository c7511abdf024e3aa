"""Latency of one setting: `python -m benchmarks.latency_runner ENGINE ROWS_A_SECOND QUERIES SECONDS`; prints JSON.

Every twenty milliseconds a batch is pushed, on schedule: a push that is late waits in its own latency. Its first row carries its
number, which the followed query answers; a latency is from the scheduled time of the push to the follower's having the row. Before
and after it, a yardstick: a file of the same rows is written and synced twice, once for the rows and once for a result.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa

import headrace as hr
from benchmarks import folders

EVERY = 0.02
"""Seconds between two pushes."""
WARM_UP = 200
"""Batches that are not measured."""
_STREAM = "CREATE STREAM e (at TIMESTAMP, n BIGINT, key INT, value DOUBLE) USING push TIMESTAMP BY at"
_FOLLOWED = "CREATE QUERY followed OPTIONS (retain '10 SECONDS') AS SELECT n FROM e WHERE n >= 0"
_OTHERS = (
    "SELECT at, key, value FROM e WHERE key = {0} AND value > 0.9{0}",
    "SELECT key, COUNT(*) AS n, MAX(value) AS top FROM e [RANGE 10 SECONDS SLIDE 1 SECOND] WHERE key < {0} GROUP BY key",
)


def batches(rows: int, count: int) -> list[pa.Table]:
    """Batches of a fiftieth of a second of event time each; the first row of each has its number, the others -1."""
    random = np.random.default_rng(7)
    tables = []
    for number in range(count):
        at = number * 20_000 + np.arange(rows) * 20_000 // rows
        marks = np.full(rows, -1)
        marks[0] = number
        stamps = pa.array(1_700_000_000_000_000 + at, pa.timestamp("us", "UTC"))
        columns = [stamps, marks, random.integers(0, 100, rows).astype(np.int32), random.random(rows)]
        tables.append(pa.table(columns, names=["at", "n", "key", "value"]))
    return tables


class Follower(threading.Thread):
    """When each batch's number was answered."""

    def __init__(self, hub: Any, count: int) -> None:
        super().__init__(daemon=True)
        self.arrived = np.full(count, np.nan)
        self._rows = hub.query("followed").follow(0)

    def run(self) -> None:
        left = len(self.arrived)
        for table in self._rows:
            now = time.perf_counter()
            numbers = table.column("n").to_numpy()
            self.arrived[numbers] = now
            left -= len(numbers)
            if not left:
                return


def synced_twice(folder: Path, data: bytes) -> float:
    """Seconds to write bytes and sync them and their name, and once more."""
    started = time.perf_counter()
    for _ in range(2):
        descriptor = os.open(folder / uuid4().hex, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(descriptor, data)
        os.fsync(descriptor)
        os.close(descriptor)
        names = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(names)
        os.close(names)
    return time.perf_counter() - started


def main() -> None:
    engine, rate, queries, seconds = sys.argv[1], *map(int, sys.argv[2:])
    scratch = folders.fresh("latency")
    (scratch / "yardstick").mkdir()
    count = WARM_UP + round(seconds / EVERY)
    tables = batches(max(1, round(rate * EVERY)), count)
    data = tables[0].to_pandas().to_json().encode()
    epochs: list[float] = []
    yardstick = [synced_twice(scratch / "yardstick", data) for _ in range(150)]
    with hr.open(scratch / "home", local=engine == "local") as hub:
        hub.execute(f"{_STREAM}; {_FOLLOWED}")
        hub.register_many({f"q{n}": _OTHERS[n % 2].format(n % 90 + 10) for n in range(1, queries)})
        hub.on_epoch(lambda seen: epochs.append(seen.seconds["execute"] + seen.seconds["publish"]))
        with hub.running():
            follower = Follower(hub, count)
            follower.start()
            scheduled, took = np.empty(count), np.empty(count)
            start = time.perf_counter() + 0.2
            for number, table in enumerate(tables):
                scheduled[number] = start + number * EVERY
                time.sleep(max(0.0, scheduled[number] - time.perf_counter()))
                began = time.perf_counter()
                hub.push("e", table)
                took[number] = time.perf_counter() - began
            follower.join(120)
    if np.isnan(follower.arrived).any():
        raise RuntimeError(f"{np.isnan(follower.arrived).sum()} of {count} batches were not answered")
    yardstick += [synced_twice(scratch / "yardstick", data) for _ in range(150)]
    latencies = (follower.arrived - scheduled)[WARM_UP:] * 1000
    print(
        json.dumps(
            {
                "latency_ms": percentiles(latencies),
                "push_ms": percentiles(took[WARM_UP:] * 1000),
                "epoch_ms": percentiles(np.array(epochs[len(epochs) // 10 :]) * 1000),
                "yardstick_ms": percentiles(np.array(yardstick) * 1000),
                "batches_an_epoch": round(count / len(epochs), 2),
                "timeline": [
                    round(float(np.percentile(part, 99)), 2) for part in np.array_split(latencies, 40)
                ],
            }
        )
    )


def percentiles(values: np.ndarray) -> dict[str, float]:
    """Median, 99th and 99.9th percentile, maximum."""
    return {f"p{cut:g}": round(float(np.percentile(values, cut)), 2) for cut in (50, 99, 99.9, 100)}


if __name__ == "__main__":
    main()
