"""Times epochs of 2000 rows and bare two-stage jobs over the same files, in turn, in one Spark session; prints JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median, quantiles

import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from benchmarks import data, folders
from benchmarks.suite.epoch import ROWS_AN_EPOCH

WARM_UP = 70  # epochs until the window is full: every timed one merges and closes a whole window


def files(folder: Path, count: int) -> list[Path]:
    """`count` files of 2000 rows, each an event-second long: every epoch closes a window of up to 1000 groups."""
    rows = data.table(0, min(data.ROWS_PER_FILE, count * ROWS_AN_EPOCH))
    since = rows["at"].cast(pa.int64()).to_numpy() - data.ORIGIN_US
    stretched = data.ORIGIN_US + since * (data.ROWS_PER_SECOND // ROWS_AN_EPOCH)
    rows = rows.set_column(0, "at", pa.array(stretched).cast(data.SCHEMA.field("at").type))
    paths = [folder / f"part-{index:05d}.parquet" for index in range(count)]
    for index, path in enumerate(paths):
        pq.write_table(rows.slice(index * ROWS_AN_EPOCH, ROWS_AN_EPOCH), path, compression="lz4")
    return paths


class Bare:
    """The job without Headrace: read a file, send a blob to each state task, count the rows there."""

    def __init__(self, context) -> None:
        self._context, self._tasks = context, context.defaultParallelism

    def __call__(self, path: Path) -> None:
        tasks = self._tasks

        def scan(paths: Iterable[str]) -> Iterator[tuple[int, bytes]]:
            for one in paths:
                sink = pa.BufferOutputStream()
                table = pq.read_table(one, use_threads=False)
                with pa.ipc.new_stream(sink, table.schema) as writer:
                    writer.write_table(table)
                blob = sink.getvalue().to_pybytes()
                for task in range(tasks):
                    yield task, blob

        def state(blobs: Iterable[tuple[int, bytes]]) -> Iterator[int]:
            yield sum(pa.ipc.open_stream(blob).read_all().num_rows for _, blob in blobs)

        job = (
            self._context.parallelize([str(path)], 1)
            .mapPartitions(scan)
            .partitionBy(tasks, lambda task: task)
        )
        counted = job.mapPartitions(state).collect()
        if counted != [ROWS_AN_EPOCH] * tasks:
            raise RuntimeError(f"Expected {ROWS_AN_EPOCH} rows in each of {tasks} tasks, found {counted}.")


def timed(action) -> float:
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1000


def summary(times: list[float]) -> dict[str, float]:
    cuts = quantiles(times, n=10)
    return {
        "runs": len(times),
        "median_ms": round(median(times), 1),
        "p10_ms": round(cuts[0], 1),
        "p90_ms": round(cuts[-1], 1),
    }


def main() -> None:
    count = int(sys.argv[1])
    scratch = folders.fresh("epoch")
    (scratch / "rows").mkdir()
    paths = files(scratch / "rows", count + WARM_UP)
    epochs, bares = [], []
    with hr.open(scratch / "home") as hub:
        hub.execute(f"""
            CREATE STREAM events (at TIMESTAMP, key INT, value DOUBLE)
              USING parquet OPTIONS (path '{scratch / "rows"}', maxFilesPerTrigger '1') TIMESTAMP BY at;
            CREATE QUERY answer AS SELECT window_end, key, COUNT(*) AS n, SUM(value) AS total, MAX(value) AS top
              FROM events [RANGE 60 SECONDS SLIDE 1 SECOND] GROUP BY key;
        """)
        bare = Bare(hub.session().sparkContext)
        for path in paths:
            epochs.append(timed(hub.loop.step))
            bares.append(timed(lambda path=path: bare(path)))
        rows = hub.last.as_dict() if hub.last else {}
    print(
        json.dumps(
            {"epoch": summary(epochs[WARM_UP:]), "bare": summary(bares[WARM_UP:]), "last": rows}, default=str
        )
    )


if __name__ == "__main__":
    main()
