"""Bytewax: rows from Arrow files, `fold_window` on the event clock, results to CSV.

Two variants. `rows` is Bytewax as its guide shows it: every row is an item, every window an accumulator that the
engine keeps. `combined` adds by hand what the engine does not do: each batch read is first reduced by Arrow to one
item per key and second, so the engine folds partial sums; it shows what a user who knows the trick can get.

One process a core runs the dataflow over its share of the keys, picked by Arrow as the batch is read: one flow over two
processes was three times slower than one process, for it sends every other row through a socket. Each first runs over one row.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import bytewax.operators as op
import numpy as np
import pyarrow as pa
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import windowing
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

from benchmarks.protocol import RANGE_SECONDS, Request, answer, cores, one_row, request

BATCH = 25_000
# The event clock runs on by itself while no row arrives: with a shorter wait than the run takes, a flow that is slower
# than the events' own time drops rows as late. Windows then close at the end of the input.
WAIT = timedelta(hours=1)
_SHARD = "HEADRACE_BENCH_SHARD"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ArrowBatches(FixedPartitionedSource[pa.RecordBatch, int]):
    """The record batches of a folder in time order, reduced to the keys of one shard."""

    def __init__(self, asked: Request, shard: int) -> None:
        self._asked, self._shard = asked, shard

    def list_parts(self) -> list[str]:
        return ["rows"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> _Part:  # noqa: ARG002 - Bytewax's names
        return _Part(self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        shards, size = shards_of(self._asked), int(self._asked.options.get("batch", BATCH))
        (self._asked.output / f"first-{self._shard}").write_text(repr(time.time()))
        for path in sorted(self._asked.folder.iterdir()):
            for batch in pa.ipc.open_file(pa.memory_map(str(path))).read_all().to_batches(size):
                mine = batch["key"].to_numpy() % shards == self._shard
                yield batch.filter(pa.array(mine)) if shards > 1 else batch


class _Part(StatefulSourcePartition[pa.RecordBatch, int]):
    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches

    def next_batch(self) -> Iterable[pa.RecordBatch]:
        return [next(self._batches)]

    def snapshot(self) -> int:
        return 0


class CsvSink(DynamicSink[tuple[str, tuple[int, Any]]]):
    """One CSV file per shard."""

    def __init__(self, folder: Path, shard: int, slide: timedelta) -> None:
        self._path, self._slide_us = folder / f"part-{shard}.csv", int(slide.total_seconds()) * 1_000_000

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _CsvPart:  # noqa: ARG002 - Bytewax's names
        return _CsvPart(self._path, self._slide_us)


class _CsvPart(StatelessSinkPartition[tuple[str, tuple[int, Any]]]):
    def __init__(self, path: Path, slide_us: int) -> None:
        self._file, self._slide_us = path.open("w", encoding="utf-8"), slide_us

    def write_batch(self, items: list[tuple[str, tuple[int, Any]]]) -> None:
        first, slide = RANGE_SECONDS * 1_000_000, self._slide_us  # window 0 starts with 1970
        self._file.writelines(
            f"{first + slide * window},{key},{state[0]},{state[1]!r},{state[2]!r}\n"
            for key, (window, state) in items
        )

    def close(self) -> None:
        self._file.close()


def row_items(batches: list[pa.RecordBatch]) -> Iterator[tuple[str, tuple[datetime, float]]]:
    """Every row as (key, (time, value))."""
    for batch in batches:
        seconds = batch["at"].cast(pa.int64()).to_numpy() / 1e6
        times = [datetime.fromtimestamp(second, UTC) for second in seconds.tolist()]
        keys = [_NAMES[key] for key in batch["key"].to_pylist()]
        yield from zip(keys, zip(times, batch["value"].to_pylist(), strict=True), strict=True)


def combined_items(batches: list[pa.RecordBatch]) -> Iterator[tuple[str, tuple[datetime, tuple]]]:
    """One item per key and second of each batch: (key, (second, (count, sum, max)))."""
    for batch in batches:
        second = np.asarray(batch["at"].cast(pa.int64())) // 1_000_000
        partial = (
            pa.table({"second": second, "key": batch["key"], "value": batch["value"]})
            .group_by(["second", "key"], use_threads=False)
            .aggregate([("value", "count"), ("value", "sum"), ("value", "max")])
        )
        columns = [
            partial[name].to_pylist() for name in ("key", "second", "value_count", "value_sum", "value_max")
        ]
        for key, at, count, total, top in zip(*columns, strict=True):
            yield _NAMES[key], (datetime.fromtimestamp(at, UTC), (count, total, top))


def fold_row(state: list, item: tuple[datetime, float]) -> list:
    value = item[1]
    state[0] += 1
    state[1] += value
    state[2] = max(state[2], value)
    return state


def fold_combined(state: list, item: tuple[datetime, tuple]) -> list:
    count, total, top = item[1]
    state[0] += count
    state[1] += total
    state[2] = max(state[2], top)
    return state


def merge(left: list, right: list) -> list:
    return [left[0] + right[0], left[1] + right[1], max(left[2], right[2])]


_NAMES = [str(key) for key in range(1000)]
_VARIANTS = {"rows": (row_items, fold_row), "combined": (combined_items, fold_combined)}


def shards_of(asked: Request) -> int:
    return int(asked.options.get("shards", cores()))


def dataflow(asked: Request, shard: int) -> Dataflow:
    items, fold = _VARIANTS[asked.options.get("variant", "rows")]
    length, slide = timedelta(seconds=RANGE_SECONDS), timedelta(seconds=asked.slide_seconds)
    windower: windowing.Windower = (
        windowing.TumblingWindower(length=length, align_to=EPOCH)
        if slide == length
        else windowing.SlidingWindower(length=length, offset=slide, align_to=EPOCH)
    )
    clock = windowing.EventClock(ts_getter=itemgetter(0), wait_for_system_duration=WAIT)
    flow = Dataflow("windows")
    batches = op.input("read", flow, ArrowBatches(asked, shard))
    keyed = op.flat_map_batch("items", batches, items)
    windows = windowing.fold_window(
        "windows", keyed, clock, windower, lambda: [0, 0.0, float("-inf")], fold, merge, ordered=False
    )
    op.output("write", windows.down, CsvSink(asked.output, shard, slide))
    return flow


def main() -> None:
    asked = request()
    started = time.time()
    one_row(asked)
    command = [sys.executable, "-m", __spec__.name, *sys.argv[1:]]
    workers = [
        subprocess.Popen(command, env={**os.environ, _SHARD: str(shard)}) for shard in range(shards_of(asked))
    ]
    codes = [worker.wait() for worker in workers]
    if any(codes):
        sys.exit(f"Expected every Bytewax process to end well, found exit codes {codes}.")
    marks = sorted(asked.output.glob("first-*"))
    first = min(float(mark.read_text()) for mark in marks)
    last = max(path.stat().st_mtime for path in asked.output.glob("*.csv"))
    for mark in marks:
        mark.unlink()
    answer(asked.rows, last - first, first - started)


def work(asked: Request, shard: int) -> None:
    """One process: the one row of the last file, then all."""
    warm_up = asked.output.parent / f"warm-up-{shard}"
    warm_up.mkdir()
    run_main(dataflow(replace(asked, folder=asked.output.parent / "one-row", output=warm_up), shard))
    run_main(dataflow(asked, shard))


if __name__ == "__main__":
    if _SHARD in os.environ:
        work(request(), int(os.environ[_SHARD]))
    else:
        main()
