"""Bytewax with many standing queries over one stream, query by query. Prints one line of JSON.

Each query is a branch of one flow: Arrow filters a batch by its condition, every row left is an item, every window an
accumulator that the engine keeps. As in `runner`, one process a core takes its share of the keys. Answers are put into
Parquet after the clock has stopped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import bytewax.operators as op
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import windowing
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

from benchmarks.protocol import cores

BATCH = 25_000
WAIT = timedelta(days=1)  # see `runner`: no row may be late because the machine is slow
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RANGE, SLIDE = timedelta(seconds=60), timedelta(seconds=10)
SHARDS = cores()
_SHARD = "HEADRACE_BENCH_SHARD"
_NAMES = [str(key) for key in range(1000)]
Predicate = list[tuple[str, int, int]]


class ParquetBatches(FixedPartitionedSource[pa.RecordBatch, int]):
    """The record batches of a folder in time order, reduced to the keys of one shard."""

    def __init__(self, source: Path, output: Path, shard: int) -> None:
        self._source, self._output, self._shard = source, output, shard

    def list_parts(self) -> list[str]:
        return ["rows"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> _Part:  # noqa: ARG002 - Bytewax's names
        return _Part(self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        (self._output / f"first-{self._shard}").write_text(repr(time.time()))
        for path in sorted(self._source.iterdir()):
            for batch in pq.ParquetFile(path).iter_batches(BATCH):
                yield batch.filter(pa.array(batch["key"].to_numpy() % SHARDS == self._shard))


class _Part(StatefulSourcePartition[pa.RecordBatch, int]):
    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches

    def next_batch(self) -> Iterable[pa.RecordBatch]:
        return [next(self._batches)]

    def snapshot(self) -> int:
        return 0


class CsvSink(DynamicSink[tuple[int, str, int, list[int]]]):
    """One CSV file per shard."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _CsvPart:  # noqa: ARG002 - Bytewax's names
        return _CsvPart(self._path)


class _CsvPart(StatelessSinkPartition[tuple[int, str, int, list[int]]]):
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")

    def write_batch(self, items: list[tuple[int, str, int, list[int]]]) -> None:
        self._file.writelines(f"{q},{key},{window},{n},{total}\n" for q, key, window, (n, total) in items)

    def close(self) -> None:
        self._file.close()


def wanted(factors: Predicate, batches: list[pa.RecordBatch]) -> Iterator[tuple[str, tuple[datetime, int]]]:
    """The rows that satisfy a condition, as (key, (time, value))."""
    for batch in batches:
        mask = np.ones(batch.num_rows, bool)
        for name, low, high in factors:
            column = batch[name].to_numpy()
            mask &= (column >= low) & (column <= high)
        selected = batch.filter(pa.array(mask))
        seconds = selected["at"].cast(pa.int64()).to_numpy() / 1e6
        times = [datetime.fromtimestamp(second, UTC) for second in seconds.tolist()]
        keys = [_NAMES[key] for key in selected["key"].to_pylist()]
        yield from zip(keys, zip(times, selected["v"].to_pylist(), strict=True), strict=True)


def fold(state: list[int], item: tuple[datetime, int]) -> list[int]:
    state[0] += 1
    state[1] += item[1]
    return state


def merge(left: list[int], right: list[int]) -> list[int]:
    return [left[0] + right[0], left[1] + right[1]]


def answer_row(number: int, item: tuple[str, tuple[int, list[int]]]) -> tuple[int, str, int, list[int]]:
    key, (window, state) = item
    return number, key, window, state


def dataflow(source: Path, output: Path, predicates: list[Predicate], shard: int) -> Dataflow:
    flow = Dataflow("queries")
    batches = op.input("read", flow, ParquetBatches(source, output, shard))
    clock = windowing.EventClock(ts_getter=itemgetter(0), wait_for_system_duration=WAIT)
    windower = windowing.SlidingWindower(length=RANGE, offset=SLIDE, align_to=EPOCH)
    answers: list[Any] = []
    for number, factors in enumerate(predicates):
        keyed = op.flat_map_batch(f"items{number}", batches, partial(wanted, factors))
        windows = windowing.fold_window(
            f"windows{number}", keyed, clock, windower, lambda: [0, 0], fold, merge, ordered=False
        )
        answers.append(op.map(f"answers{number}", windows.down, partial(answer_row, number)))
    op.output("write", op.merge("all", *answers), CsvSink(output / f"part-{shard}.csv"))
    return flow


def save(output: Path) -> None:
    """The answers as the suite reads them."""
    lines = [line for path in output.glob("part-*.csv") for line in path.read_text().splitlines()]
    q, key, window, n, total = np.array([line.split(",") for line in lines], np.int64).T
    slide, length = int(SLIDE.total_seconds()) * 1_000_000, int(RANGE.total_seconds()) * 1_000_000
    columns = {"q": q, "window_end": window * slide + length, "key": key, "n": n, "total": total}
    (output / "answer" / "all").mkdir(parents=True)
    pq.write_table(pa.table(columns), output / "answer" / "all" / "part.parquet")


def main() -> None:
    source, output = Path(sys.argv[2]), Path(sys.argv[3])
    if _SHARD in os.environ:
        predicates: list[Predicate] = json.loads(Path(sys.argv[4]).read_text(encoding="utf-8"))
        shard = int(os.environ[_SHARD])
        run_main(dataflow(output / "last", output / "warm-up", predicates, shard))
        run_main(dataflow(source, output, predicates, shard))
        return
    for folder in ("last", "warm-up"):
        (output / folder).mkdir(parents=True)
    shutil.copy(max(source.iterdir()), output / "last")
    command = [sys.executable, "-m", __spec__.name, *sys.argv[1:]]
    workers = [subprocess.Popen(command, env={**os.environ, _SHARD: str(shard)}) for shard in range(SHARDS)]
    codes = [worker.wait() for worker in workers]
    if any(codes):
        sys.exit(f"Expected every Bytewax process to end well, found exit codes {codes}.")
    first = min(float(mark.read_text()) for mark in output.glob("first-*"))
    last = max(path.stat().st_mtime for path in output.glob("part-*.csv"))
    save(output)
    print(json.dumps({"seconds": last - first}), flush=True)


if __name__ == "__main__":
    main()
