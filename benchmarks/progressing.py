"""One standing query over a stream in any order, epoch by epoch in this process: what was emitted when, with what error and state.

No clock and no JVM but for `cpu`: latency is the greatest event time at the emission of a window less the window's end,
memory is rows of state. Both are the same on every machine.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.disorder import Arrivals, low_watermarks
from headrace.operators.base.group_codes import flat
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.results import result_log
from headrace.time import SECOND

KEYS, RANGE, SLIDE = 10, 60, 10
QUERY = f"SELECT k, COUNT(*) AS n FROM s [RANGE {RANGE} SECONDS SLIDE {SLIDE} SECONDS] GROUP BY k"
_BASE = 1_700_000_000 // SLIDE * SLIDE


@dataclass(frozen=True, slots=True)
class Run:
    """What a run came to. `latency` is the mean in seconds of event time, over (window, group) pairs; `state` is rows of state
    by epoch; `wrong` the share of windows that miss rows; `lost` the share of rows that came late; `cpu` the seconds that processors
    worked, without the waits for the disk."""

    latency: float
    state: tuple[int, ...]
    wrong: float
    lost: float
    cpu: float

    @property
    def peak(self) -> int:
        return max(self.state)


def run(
    arrivals: Arrivals, clauses: str, *, epoch_rows: int, punctuate: bool = False, marks: float = 0.0
) -> Run:
    """Feed the arrivals in epochs of `epoch_rows`; `punctuate`: after each its true low watermark is promised.

    `marks`: every so many rows one that promises is put in, as that share of the stream (PUNCTUATED BY done).
    """
    table = _table(arrivals, marks)
    low = low_watermarks(arrivals.at)
    emitted: list[tuple[int, int]] = []
    state: list[int] = []
    with tempfile.TemporaryDirectory() as folder, Hub(Path(folder), LocalExecutor(), tasks=1) as hub:
        hub.execute(
            f"CREATE STREAM s (k INT, done BOOLEAN, at TIMESTAMP) USING push TIMESTAMP BY at {clauses};"
        )
        hub.register(QUERY, "q")
        operator = hub.operator_and_query("q")[0].id
        seen = 0
        hub.on_epoch(
            lambda receipts: state.append(
                receipts.operators[operator].state_rows if operator in receipts.operators else 0
            )
        )
        started = time.process_time()
        for start in range(0, table.num_rows, epoch_rows):
            part = table.slice(start, epoch_rows)
            hub.push("s", part)
            if punctuate:
                hub.punctuate("s", (int(low[start + part.num_rows - 1]) + _BASE) * SECOND)
            hub.loop.drain()
            reached = int(arrivals.at[: start + part.num_rows].max())
            manifest = hub.home.latest()
            for epoch in result_log.epochs_of(hub.home, manifest, operator, seen):
                ends = flat(epoch.table.column("__at")).to_numpy() // SECOND - _BASE
                emitted += [(int(end), reached) for end in ends.tolist()]
            seen = hub.home.list_of(manifest, "results").length
        cpu = time.process_time() - started
        known = hub.home.latest().streams["s"]
        answers = [part.table for part in result_log.epochs_of(hub.home, hub.home.latest(), operator)]
    wrong = _wrong(answers, arrivals)
    latency = float(np.mean([reached - end for end, reached in emitted])) if emitted else float("nan")
    return Run(latency, tuple(state), wrong, known.late / max(1, known.rows), cpu)


def _key(arrivals: Arrivals) -> np.ndarray:
    return np.arange(len(arrivals.at)) * 7919 % KEYS


def _table(arrivals: Arrivals, marks: float) -> pa.Table:
    done = np.zeros(len(arrivals.at), bool)
    if marks:
        done[:: max(1, round(1 / marks))] = True
        done &= low_watermarks(arrivals.at) >= arrivals.at
    at = pa.array((arrivals.at + _BASE) * SECOND).cast(pa.timestamp("us", "UTC"))
    return pa.table({"k": pa.array(_key(arrivals), pa.int32()), "done": pa.array(done), "at": at})


def _wrong(answers: list[pa.Table], arrivals: Arrivals) -> float:
    """The share of emitted (window, group) pairs whose count is not that of the whole stream."""
    at, key = arrivals.at, _key(arrivals)
    span = int(at.max()) + 2
    below = np.zeros((KEYS, span + 1), np.int64)
    np.add.at(below, (key, at + 1), 1)
    below = np.cumsum(below, axis=1)
    bad = pairs = 0
    for table in answers:
        end = flat(table.column("__at")).to_numpy() // SECOND - _BASE
        k, n = flat(table.column("k")).to_numpy(), flat(table.column("n")).to_numpy()
        true = below[k, np.clip(end, 0, span)] - below[k, np.clip(end - RANGE, 0, span)]
        bad, pairs = bad + int((true != n).sum()), pairs + len(n)
    return bad / max(1, pairs)
