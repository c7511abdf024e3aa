"""Spark's own streaming query over batches that arrive at a pace: the time from a batch that ends a window to that window's rows.

`python -m benchmarks.peers.spark.latency FOLDER PACE EVERY`: FOLDER/made holds the batches, in order of name, each with the greatest event
time (microseconds) in its name; they are moved to FOLDER/in one every PACE seconds. Windows are tumbling ones of EVERY seconds,
the watermark has no delay, the sink notes when Spark has written. Prints one line of JSON: the waits, in seconds.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from benchmarks.peers.spark.runner import session
from benchmarks.protocol import Request

SCHEMA = "at timestamp, key int, v bigint, a int, b int, c int, d int"
_PATIENCE = 60.0
_WARMING = 5
"""The first batches are not counted."""


class _Sink:
    """Notes when the windows up to an end were emitted: the greatest end of each micro-batch, and when it was written."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.emitted = folder, list[tuple[int, float]]()

    def __call__(self, rows: DataFrame, number: int) -> None:
        path = self.folder / str(number)
        rows.write.mode("overwrite").parquet(str(path))
        written = time.perf_counter()
        # Not by Spark: a job more would keep the next micro-batch waiting.
        ends = [pq.read_table(file, columns=["window_end"])["window_end"] for file in path.glob("*.parquet")]
        greatest = [end for column in ends if (end := pc.max(column).as_py()) is not None]
        if greatest:
            self.emitted.append((max(greatest), written))


def main() -> None:
    folder, pace, every = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    batches = sorted((folder / "made").iterdir())
    arriving = folder / "in"
    arriving.mkdir()
    spark = session(Request("tumbling", arriving, 0, folder / "out", {}))
    rows = spark.readStream.schema(SCHEMA).parquet(str(arriving)).withWatermark("at", "0 seconds")
    counted = (
        rows.where("a < 128")
        .groupBy(f.window("at", f"{every} seconds").alias("w"), "key")
        .agg(f.count("*").alias("n"), f.sum("v").alias("total"))
        .select(f.unix_micros("w.end").alias("window_end"), "key", "n", "total")
    )
    sink = _Sink(folder / "written")
    query = counted.writeStream.outputMode("append").foreachBatch(sink)
    running = query.option("checkpointLocation", str(folder / "checkpoint")).start()
    batches[0].rename(arriving / batches[0].name)
    while not running.recentProgress and running.exception() is None:
        time.sleep(0.05)  # what it takes to start is not its latency
    handed = _hand_over(batches[1:], arriving, pace, every * 1_000_000)
    until = time.perf_counter() + _PATIENCE
    while (not sink.emitted or sink.emitted[-1][0] < handed[-1][0]) and time.perf_counter() < until:
        if running.exception() is not None:
            raise RuntimeError(str(running.exception()))
        time.sleep(0.05)
    waits = [
        next((at for end, at in sink.emitted if end >= wanted), until) - since for wanted, since in handed
    ]
    print(json.dumps({"waits": waits}), flush=True)
    running.stop()
    spark.stop()


def _hand_over(batches: list[Path], arriving: Path, pace: float, every: int) -> list[tuple[int, float]]:
    """Each batch that ends a window, by the end of the last one that it does, and when it was pushed."""
    waits: list[tuple[int, float]] = []
    due, known = time.perf_counter(), 0
    for number, batch in enumerate(batches):
        time.sleep(max(0.0, due - time.perf_counter()))
        batch.rename(arriving / batch.name)
        now, ends = time.perf_counter(), int(batch.stem.rpartition("-")[2]) // every * every
        if number >= _WARMING and ends > known > 0:
            waits.append((ends, now))
        known, due = max(ends, known), due + pace
    return waits


if __name__ == "__main__":
    main()
