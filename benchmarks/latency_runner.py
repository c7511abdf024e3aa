"""Latency of one setting: `python -m benchmarks.latency_runner ENGINE ROWS_A_SECOND QUERIES SECONDS`; prints JSON.

Every twenty milliseconds a batch is pushed, up to ten later, on schedule: a push that is late waits in its own latency. Its first row carries its
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
import pyarrow.compute as pc

import headrace as hr
from benchmarks import folders
from benchmarks.latency_rows import (
    EVERY_US,
    FOLLOWED,
    STREAM,
    WARM_UP,
    batches,
    dues_us,
    percentiles,
    queries,
    timeline_of,
    until_ms,
)

EVERY = EVERY_US / 1_000_000
"""Seconds between two pushes, on average."""
_LONGEST_START = 60.0


class Follower(threading.Thread):
    """When each batch's number was answered."""

    def __init__(self, hub: Any, count: int) -> None:
        super().__init__(daemon=True)
        self.arrived = np.full(count, np.nan)
        self.first = threading.Event()
        self._rows = hub.query("followed").follow(0)

    def run(self) -> None:
        left = len(self.arrived)
        for table in self._rows:
            now = time.perf_counter()
            numbers = table.column("n").to_numpy()
            self.arrived[numbers] = now
            self.first.set()
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


def answered(hub: Any, others: dict[str, str], until: int) -> dict[str, int]:
    """What the other queries answered, see `latency_rows.Answers`."""
    totals = {"selected": 0, "windows": 0, "counted": 0}
    for name in others:
        rows = hub.query(name).history()
        if "window_end" in rows.column_names:
            rows = rows.filter(pc.less_equal(pc.cast(rows["window_end"], pa.int64()), until * 1000))
            totals["windows"] += rows.num_rows
            totals["counted"] += pc.sum(rows["n"]).as_py() or 0
        else:
            totals["selected"] += rows.num_rows
    return totals


def main() -> None:
    engine, rate, count_of_queries, seconds = sys.argv[1], *map(int, sys.argv[2:])
    scratch = folders.fresh("latency")
    (scratch / "yardstick").mkdir()
    count = WARM_UP + round(seconds / EVERY)
    tables = batches(max(1, round(rate * EVERY)), count)
    data = tables[0].to_pandas().to_json().encode()
    epochs: list[float] = []
    yardstick = [synced_twice(scratch / "yardstick", data) for _ in range(150)]
    with hr.open(scratch / "home", local=engine == "local") as hub:
        hub.execute(f"{STREAM}; {FOLLOWED}")
        others = queries(count_of_queries)
        hub.register_many(others)
        hub.on_epoch(lambda seen: epochs.append(seen.seconds["execute"] + seen.seconds["publish"]))
        with hub.running():
            follower = Follower(hub, count)
            follower.start()
            scheduled, took = np.empty(count), np.empty(count)
            hub.push("e", tables[0])
            follower.first.wait(_LONGEST_START)  # what it takes to start is not its latency
            scheduled[:] = time.perf_counter() + 0.2 + dues_us(count) / 1_000_000
            for number, table in enumerate(tables[1:], 1):
                time.sleep(max(0.0, scheduled[number] - time.perf_counter()))
                began = time.perf_counter()
                hub.push("e", table)
                took[number] = time.perf_counter() - began
            follower.join(120)
        hub.catch_up()
        answers = answered(hub, others, until_ms(count))
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
                **answers,
                "batches_an_epoch": round(count / len(epochs), 2),
                "timeline": timeline_of(latencies),
            }
        )
    )


if __name__ == "__main__":
    main()
