"""Live epochs at half of their capacity while a new query reads a large archive.

In one run, on Spark: the archive is filled; the capacity for live rows is measured, batch after batch without a pause; then rows
come at half that rate, first alone, then while a query registered at that moment reads the whole archive. Measured are the times of
live epochs, and from a batch's punctuation (pushed with it) to the publication of its results. Then, in a process of its own,
Spark's streaming query of the same windows over the same batches at the same pace, with no other work: from the batch
that ends a window to the write of the window's rows.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from benchmarks import queries_data as data
from benchmarks.charts import Bar
from benchmarks.expected import WrongAnswer
from benchmarks.folders import CHECKOUT
from benchmarks.report import Report
from benchmarks.suite.invoke import COLUMNS, rows_of
from benchmarks.thresholds import Ratio
from headrace.observation import EpochObservation
from headrace.runtime.hub.hub import Hub

LARGE, SMALL = 50_000_000, 2_000_000
FEW = 5_000_000
"""A run of fewer rows than this is one to try it out, over an archive of so many."""
FILLING = 200_000
"""Rows of an epoch while the archive is filled: a chunk of the archive is whole epochs, and so as long as one of these at least."""
LIVE = 50_000
SPARKS = 200
"""Batches for Spark's query: one in four ends a window."""
ALONE = 40
"""Live batches before the new query; while it reads there are as many as it takes, and at least these."""
_QUERY = (
    "SELECT key, COUNT(*) AS n, SUM(v) AS total FROM s [RANGE 1 SECOND SLIDE 1 SECOND] WHERE {} GROUP BY key"
)


@dataclass(slots=True)
class _Watch:
    """Live epochs as they are published: how long each took, and when how many rows were in."""

    taken: list[float] = field(default_factory=list)
    published: list[tuple[int, float]] = field(default_factory=list)
    replays: int = 0
    rows: int = 0
    looks: bool = True

    def see(self, seen: EpochObservation) -> None:
        if not self.looks:
            return
        if seen.kind == "replay":
            self.replays += 1
        elif seen.rows:
            self.rows += seen.rows
            self.taken.append(seen.seconds["execute"] + seen.seconds["publish"])
            self.published.append((self.rows, time.perf_counter()))


@dataclass(frozen=True, slots=True)
class _Phase:
    """An interval of live batches: the times of their epochs, and how long each batch waited for its results."""

    watch: _Watch
    waits: list[float]

    @property
    def p95(self) -> float:
        """Milliseconds of a live epoch."""
        return _ms(self.watch.taken, 0.95)

    @property
    def p99(self) -> float:
        """Milliseconds from punctuation to result."""
        return _ms(self.waits, 0.99)


@dataclass(frozen=True, slots=True)
class _Run:
    """What one run of Headrace measured."""

    archived: int
    capacity: float
    """Rows a second, batch after batch without a pause."""
    cap: float
    """Seconds from batch to batch at half of it."""
    before: _Phase
    during: _Phase
    took: float
    """Seconds in which the archive was read."""


def backfill(rows: int, rounds: int) -> Report:
    """One run, whatever `rounds` is: 50 million archived rows; with `rows` below five million that many, and at least two."""
    del rounds
    run = _run(max(rows, SMALL) if rows < FEW else LARGE)
    theirs = _of_spark(run.cap)
    table = _table(run, theirs)
    note = (
        f"{run.archived:,} archived rows were read in {run.took:.1f} s, with live rows at {run.capacity / 2:,.0f} a second,"
        f" half of the {run.capacity:,.0f} measured before; batches of {LIVE:,} rows."
    )
    drawn = [
        Bar(
            row["phase"],
            row["p99_from_punctuation_to_result_ms"],
            "theirs" if "Spark" in row["phase"] else "ours",
        )
        for row in table
    ]
    assert __doc__ is not None
    return Report(
        "backfill",
        "Live rows during a backfill",
        table,
        _ratios(run, theirs),
        drawn,
        "ms",
        [__doc__.strip(), note],
    )


def _run(archived: int) -> _Run:
    """Fill the archive, measure the capacity, then live rows alone and with the new query; its answer is checked."""
    with tempfile.TemporaryDirectory(prefix="headrace-backfill-") as folder, hr.open(Path(folder)) as hub:
        hub.execute(
            f"CREATE STREAM s (at TIMESTAMP, key INT, v BIGINT, {COLUMNS}) USING push TIMESTAMP BY at"
        )
        hub.register(_QUERY.format("a < 128"), "standing")
        next_row = _filled(hub, archived)
        capacity, next_row = _capacity(hub, next_row)
        cap = LIVE / (capacity / 2)
        before, next_row = _paced(hub, next_row, cap, ALONE)
        started = time.perf_counter()
        hub.register(_QUERY.format("b >= 64 AND c < 200"), "new")
        during, next_row = _paced(hub, next_row, cap, ALONE, until_caught_up=True)
        took = time.perf_counter() - started
        hub.catch_up()
        _check(hub, archived, next_row)
    return _Run(archived, capacity, cap, before, during, took)


def _table(run: _Run, theirs: list[float]) -> list[dict[str, Any]]:
    """A row for each phase of Headrace, and one for Spark's query."""
    ours = [
        {
            "phase": name,
            "live_epochs": len(phase.watch.taken),
            "epochs_of_the_past": phase.watch.replays,
            "p95_epoch_ms": round(phase.p95, 1),
            "p99_from_punctuation_to_result_ms": round(phase.p99, 1),
        }
        for name, phase in (("alone", run.before), ("during the backfill", run.during))
    ]
    spark = {
        "phase": "Spark's streaming query, alone",
        "live_epochs": len(theirs),
        "epochs_of_the_past": 0,
        "p95_epoch_ms": None,
        "p99_from_punctuation_to_result_ms": round(_ms(theirs, 0.99), 1),
    }
    return [*ours, spark]


def _ratios(run: _Run, theirs: list[float]) -> list[Ratio]:
    return [
        Ratio(
            "p95 of live epochs during the backfill to alone",
            run.during.p95 / run.before.p95,
            1.5,
            at_most=True,
        ),
        Ratio(
            "p99 from punctuation to result during the backfill, to Spark's with no other work",
            run.during.p99 / _ms(theirs, 0.99),
            1,
            at_most=True,
        ),
    ]


def _ms(seconds: list[float], share: float) -> float:
    """The quantile, in milliseconds."""
    return 1000 * float(np.quantile(seconds, share))


def _of_spark(cap: float) -> list[float]:
    """Its waits, of batches that end a window, at the same pace as ours."""
    with tempfile.TemporaryDirectory(prefix="headrace-latency-") as name:
        batches = Path(name) / "made"
        batches.mkdir()
        for number in range(SPARKS):
            first = number * LIVE
            last = data.ORIGIN_US + (first + LIVE - 1) * data.STEP_US
            pq.write_table(_batch(first, LIVE), batches / f"{number:05}-{last}.parquet")
        command = [sys.executable, "-m", "benchmarks.peers.spark.latency", name, str(cap), "1"]
        done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"Expected {' '.join(command)} to end well, found:\n{done.stderr[-3000:]}")
    waits: list[float] = json.loads(done.stdout.strip().splitlines()[-1])["waits"]
    return waits


def _batch(first: int, count: int) -> pa.Table:
    rows = rows_of(0, count)
    at = data.ORIGIN_US + (first + np.arange(count, dtype=np.int64)) * data.STEP_US
    return rows.set_column(0, "at", pa.array(at).cast(pa.timestamp("us", tz="UTC")))


def _filled(hub: Hub, count: int) -> int:
    for first in range(0, count, FILLING):
        hub.push("s", _batch(first, min(FILLING, count - first)))
        hub.catch_up()
    return count


def _capacity(hub: Hub, first: int) -> tuple[float, int]:
    """Rows a second, batches following each other at once; the first few warm up."""
    spent = []
    for number in range(20):
        hub.push("s", _batch(first, LIVE))
        started = time.perf_counter()
        hub.catch_up()
        if number >= 5:
            spent.append(time.perf_counter() - started)
        first += LIVE
    return LIVE / float(np.median(spent)), first


def _paced(
    hub: Hub, first: int, cap: float, batches: int, *, until_caught_up: bool = False
) -> tuple[_Phase, int]:
    """Pass a batch every `pace` seconds while the hub runs; its measurements, and the next row."""
    watch, handed = _Watch(), list[tuple[int, float]]()
    hub.on_epoch(watch.see)
    with hub.running():
        due, rows = time.perf_counter(), 0
        while len(handed) < batches or (until_caught_up and _backfilling(hub)):
            batch = _batch(first, LIVE)
            time.sleep(max(0.0, due - time.perf_counter()))
            hub.push("s", batch)
            rows += LIVE
            handed.append((rows, time.perf_counter()))
            first, due = first + LIVE, due + cap
        while watch.rows < rows:
            time.sleep(0.01)
    hub.catch_up()
    published = iter(watch.published)
    counted, at = next(published)
    waits = []
    for rows_in, since in handed:
        while counted < rows_in:
            counted, at = next(published)
        waits.append(at - since)
    watch.looks = False
    return _Phase(watch, waits), first


def _backfilling(hub: Hub) -> bool:
    return hub.loop.engine.is_catching_up()


def _check(hub: Hub, archived: int, rows: int) -> None:
    """The new query has answered over the archive and the rows since, every row once. Raises `WrongAnswer`."""
    last = data.ORIGIN_US + (rows - 1) * data.STEP_US
    closed = last - last % 1_000_000
    meant, first = 0, 0
    while first < rows:
        size = min(FILLING, archived - first) if first < archived else LIVE
        batch = _batch(first, size)
        b, c, at = (batch[name].cast(pa.int64()).to_numpy() for name in ("b", "c", "at"))
        meant += int(((b >= 64) & (c < 200) & (at < closed)).sum())
        first += size
    counted = int(hub.query("new").history()["n"].to_numpy().sum())
    if counted != meant:
        raise WrongAnswer(f"the new query counted {counted:,} rows, and not {meant:,}")
