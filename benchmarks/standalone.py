"""One operator of Headrace alone in this process: no JVM, no store, no manifest; what it answers, when, and what it keeps."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import Advance, Operator, Sections
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.tasks.state.compaction import FAN_IN
from headrace.time import BEGINNING, FOREVER, Instant

COLUMNS = "k INT, v DOUBLE, at TIMESTAMP"


@cache
def operator_of(select: str) -> Operator:
    """The operator of a query over the stream `s` of `COLUMNS`."""
    with tempfile.TemporaryDirectory() as folder, Hub(Path(folder), LocalExecutor(), tasks=1) as hub:
        hub.execute(f"CREATE STREAM s ({COLUMNS}) USING push TIMESTAMP BY at;")
        hub.register(select, "q")
        return hub.operator_and_query("q")[0]


def batches(at: np.ndarray, value: np.ndarray, key: np.ndarray, size: int) -> list[Batch]:
    """Rows in batches of `size`; `at` in microseconds."""
    return cut(at, value, key, np.minimum(np.arange(size, len(at) + size, size), len(at)))


def cut(at: np.ndarray, value: np.ndarray, key: np.ndarray, stops: np.ndarray) -> list[Batch]:
    """Rows in batches that end before the rows `stops`; `at` in microseconds."""
    stamps = pa.array(at).cast(pa.timestamp("us", "UTC"))
    columns = {"k": pa.array(key, pa.int32()), "v": pa.array(value), "at": stamps}
    whole = Batch(columns, at.astype(np.int64), np.arange(len(at)))
    return [whole.take(np.arange(start, stop)) for start, stop in pairwise([0, *stops.tolist()])]


@dataclass(frozen=True, slots=True)
class Emission:
    """What one epoch answered (None: nothing), and the rows of state after it."""

    results: pa.Table | None
    state_rows: int


def drive(operator: Operator, rows: Sequence[Batch], punctuations: Sequence[Instant]) -> list[Emission]:
    """An epoch for each batch, runs merged when `FAN_IN` of them wait, as the runtime does; a last one ends the stream."""
    runs: list[Sections] = []
    emissions: list[Emission] = []
    closed = greatest = BEGINNING
    for batch, punctuation in zip(rows, punctuations, strict=True):
        scanner = operator.scanner({})
        scanner.add(batch.only(operator.columns))
        greatest = max(greatest, int(batch.at.max()))
        step = operator.advance(runs, [scanner.finish().deltas], Advance(closed, punctuation, greatest))
        closed = punctuation
        if step.state:  # one chunk a column, as from a file
            runs = [*runs, {name: table.combine_chunks() for name, table in step.state.items()}]
        if len(runs) >= FAN_IN:
            runs = _merged(operator, runs, Advance(closed, closed, greatest))
        emissions.append(Emission(step.results, sum(t.num_rows for run in runs for t in run.values())))
    step = operator.advance(runs, [], Advance(closed, FOREVER, greatest, final=True))
    return [*emissions, Emission(step.results, 0)]


def _merged(operator: Operator, runs: list[Sections], advance: Advance) -> list[Sections]:
    names = sorted({name for run in runs for name in run})
    return [
        {name: operator.compact(name, [run[name] for run in runs if name in run], advance) for name in names}
    ]


def results(emissions: Sequence[Emission]) -> pa.Table:
    """All answers."""
    return pa.concat_tables([emission.results for emission in emissions if emission.results is not None])


def best_of(rounds: int, *actions: Callable[[], object]) -> list[float]:
    """The least seconds of each action, run in turn."""
    took = [float("inf")] * len(actions)
    for _ in range(rounds):
        for index, action in enumerate(actions):
            started = time.perf_counter()
            action()
            took[index] = min(took[index], time.perf_counter() - started)
    return took
