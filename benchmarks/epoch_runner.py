"""Times epochs of 2000 rows over the same files: as Spark jobs, in standing tasks and in this process; prints JSON.

Each way has a bare one to compare with, of kernels that do nothing. All are timed in turn in one process and one Spark session, in
blocks: while jobs are timed no standing task holds a core.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from benchmarks import data, folders
from benchmarks.suite.epoch import ROWS_AN_EPOCH
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.messages.task_messages import StateMessage, StateReceipt
from headrace.runtime.spark.given_session import GivenSession
from headrace.runtime.spark.spark_executor import SparkExecutor
from headrace.runtime.spark.standing.standing_job import StandingJob
from headrace.runtime.spark.standing.standing_task import StandingTask

WARM_UP = 70  # epochs until the window is full: every timed one merges and closes a whole window
BLOCK = 10  # jobs that are timed before it is the turn of standing tasks
TIMES = 5  # epochs in standing tasks for each job: their p99 takes more of them
SETTLING = 2  # first ones of a block that are not counted: standing tasks have just been started again


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


def blob_of(path: str) -> bytes:
    sink = pa.BufferOutputStream()
    table = pq.read_table(path, use_threads=False)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def counted(blobs: Iterable[bytes]) -> int:
    return sum(pa.ipc.open_stream(blob).read_all().num_rows for blob in blobs)


def require_rows(counts: Sequence[int], tasks: int) -> None:
    if counts != [ROWS_AN_EPOCH] * tasks:
        raise RuntimeError(f"Expected {ROWS_AN_EPOCH} rows in each of {tasks} tasks, found {counts}.")


class Bare:
    """The job without Headrace: read a file, send a blob to each state task, count the rows there."""

    def __init__(self, context) -> None:
        self._context, self._tasks = context, context.defaultParallelism

    def __call__(self, path: Path) -> None:
        tasks = self._tasks

        def scan(paths: Iterable[str]) -> Iterator[tuple[int, bytes]]:
            for one in paths:
                blob = blob_of(one)
                for task in range(tasks):
                    yield task, blob

        def state(blobs: Iterable[tuple[int, bytes]]) -> Iterator[int]:
            yield counted(blob for _, blob in blobs)

        job = (
            self._context.parallelize([str(path)], 1)
            .mapPartitions(scan)
            .partitionBy(tasks, lambda task: task)
        )
        require_rows(job.mapPartitions(state).collect(), tasks)


class BareTask(StandingTask):
    """The same kernels in standing tasks."""

    def scan(self, message: Any) -> dict[int, bytes]:
        path, tasks = message
        return dict.fromkeys(range(tasks), blob_of(path))

    def advance(self, message: StateMessage, blobs: Sequence[bytes]) -> StateReceipt:
        return StateReceipt(message.task, seconds={"rows": counted(blobs)})


class BareStanding:
    """The bare job in standing tasks, as many as an epoch has."""

    def __init__(self, context) -> None:
        self._context, self._tasks = context, context.defaultParallelism
        self._job: StandingJob | None = None

    def start(self) -> None:
        tasks = max(1, self._tasks // 2)
        self._job = StandingJob(self._context, tasks, idle_seconds=60, silence_seconds=60, task=BareTask)
        if not self._job.wait():
            raise RuntimeError("Expected standing tasks to start, found none.")

    def end(self) -> None:
        self._job.end()
        self._job.join(60)

    def __call__(self, path: Path) -> None:
        states = [StateMessage("", "", 0, task, 0, 0, (), {}, {}) for task in range(self._tasks)]
        receipts = self._job.run([(str(path), self._tasks)], states)
        require_rows([receipt.seconds["rows"] for receipt in receipts], self._tasks)


def timed(action) -> float:
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1000


def summary(times: list[float]) -> dict[str, float]:
    cuts = quantiles(times, n=100)
    return {
        "runs": len(times),
        "median_ms": round(median(times), 1),
        "p10_ms": round(cuts[9], 1),
        "p90_ms": round(cuts[89], 1),
        "p99_ms": round(cuts[98], 1),
    }


STATEMENTS = """
    CREATE STREAM events (at TIMESTAMP, key INT, value DOUBLE)
      USING parquet OPTIONS (path '{rows}', maxFilesPerTrigger '1') TIMESTAMP BY at;
    CREATE QUERY answer AS SELECT window_end, key, COUNT(*) AS n, SUM(value) AS total, MAX(value) AS top
      FROM events [RANGE 60 SECONDS SLIDE 1 SECOND] GROUP BY key;
"""


class Contenders:
    """A hub for each way to run an epoch, and the two bare ways."""

    def __init__(self, scratch: Path, epoch_hub: Hub, paths: Sequence[Path]) -> None:
        spark = epoch_hub.session()
        tasks = spark.sparkContext.defaultParallelism
        self.hubs = {
            "epoch": epoch_hub,
            "standing": Hub(
                scratch / "standing", SparkExecutor(GivenSession(spark), standing="always"), tasks=tasks
            ),
            "local": Hub(scratch / "local", LocalExecutor(), tasks=1),
        }
        epoch_hub.loop.engine.executor.standing.use = "never"
        for hub in self.hubs.values():
            hub.execute(STATEMENTS.format(rows=scratch / "rows"))
        self._bare, self._bare_standing = Bare(spark.sparkContext), BareStanding(spark.sparkContext)
        self._paths = paths
        self.times: dict[str, list[float]] = {}

    def warm_up(self) -> None:
        for hub in self.hubs.values():
            for _ in range(WARM_UP):
                hub.loop.step()
        self.hubs["standing"].loop.engine.executor.standing.end()

    def block(self) -> None:
        """Each way in turn."""
        self._run(BLOCK, epoch=self.hubs["epoch"].loop.step, bare=self._reading(self._bare))
        self._run(TIMES * BLOCK, standing=self.hubs["standing"].loop.step, local=self.hubs["local"].loop.step)
        self.hubs["standing"].loop.engine.executor.close()
        self._bare_standing.start()
        self._run(TIMES * BLOCK, bare_standing=self._reading(self._bare_standing))
        self._bare_standing.end()

    def _run(self, count: int, **ways: Callable[[], object]) -> None:
        for number in range(count + SETTLING):
            for name, way in ways.items():
                took = timed(way)
                if number >= SETTLING:
                    self.times.setdefault(name, []).append(took)

    def _reading(self, way: Callable[[Path], None]) -> Callable[[], None]:
        paths = iter(self._paths)
        return lambda: way(next(paths))

    def close(self) -> None:
        for name in ("standing", "local"):
            self.hubs[name].close()


def main() -> None:
    count = int(sys.argv[1])
    blocks = max(1, count // BLOCK)
    scratch = folders.fresh("epoch")
    (scratch / "rows").mkdir()
    paths = files(scratch / "rows", WARM_UP + blocks * (TIMES * BLOCK + SETTLING))
    with hr.open(scratch / "home") as hub:
        contenders = Contenders(scratch, hub, paths)
        contenders.warm_up()
        for _ in range(blocks):
            contenders.block()
        rows = hub.last.as_dict() if hub.last else {}
        contenders.close()
    summaries = {name: summary(times) for name, times in contenders.times.items()}
    print(json.dumps({**summaries, "last": rows}, default=str))


if __name__ == "__main__":
    main()
