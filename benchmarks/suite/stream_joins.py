"""Joins of streams against the peers: two, three and four streams by one key under windows of ten seconds, count and sum.

Each stream has as many rows, drawn from 200,000 keys; everyone has two cores. A round takes at most twelve minutes: a peer that
fails, or takes too long, is named with the reason, and the others continue.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from subprocess import TimeoutExpired
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds

from benchmarks import folders
from benchmarks import stream_joins_data as data
from benchmarks.charts import Bar
from benchmarks.environments import NotHere, classes_are_shared, python_of, settings_of, versions_of
from benchmarks.expected import WrongAnswer
from benchmarks.report import Report
from benchmarks.runs import RunFailed, run_watched
from benchmarks.thresholds import Ratio

ROWS: Final = 2_000_000
"""Of each stream, at most."""
CORES: Final = 2
LONGEST_SECONDS: Final = 150.0
"""Until a contender's process is stopped without an answer."""
START_SECONDS: Final = 60.0
"""What of it counts as its start, so that what is compared with a peer that was stopped is at least as printed."""
ROUND_SECONDS: Final = 10.5 * 60.0
"""Until the last process of a round is stopped."""
_FIRST_ROWS: Final = 10_000
_ARCHIVE_SECONDS: Final = 120.0
PAIRS: Final = "pairs made"
HDFS, ROCKSDB = "hdfs", "rocksdb"


@dataclass(frozen=True, slots=True)
class Entry:
    """A contender joining so many streams; `heap`: of the JVM of Spark's own join."""

    peer: str | None
    streams: int
    state: str = ""
    heap: str = ""

    @property
    def name(self) -> str:
        """What the page calls it."""
        return ", ".join(filter(None, (self.peer or "headrace", self.state)))

    @property
    def kind(self) -> str:
        return "ours" if self.peer is None else "yardstick" if self.peer == "duckdb" else "theirs"

    @property
    def what(self) -> str:
        """What the page calls it, with the number of streams."""
        heap = f" with a heap of {self.heap[:-1]} GB" if self.heap else ""
        return f"{self.name}, {self.streams} streams{heap}"


ENTRIES: Final = (
    *(
        entry
        for streams in (2, 3, 4)
        for entry in (
            Entry(None, streams),
            *([Entry(None, streams, PAIRS)] if streams == 2 else []),
            Entry("flink", streams),
            Entry("spark", streams, HDFS, "4g" if streams == 2 else "10g"),
            Entry("duckdb", streams),
        )
    ),
    *(Entry("spark", streams, ROCKSDB, "4g") for streams in (2, 3, 4)),
)
"""The slowest last, which has what is left of a round's time."""


@dataclass(slots=True)
class Turns:
    """Rounds of all entries in turn. A peer that fails or is stopped has no further turn, and a reason; an error of Headrace ends the page."""

    run: Callable[[Entry, float], dict[str, Any]]
    """A run of at most so many seconds, beyond which it raises `TimeoutExpired`."""
    clock: Callable[[], float] = time.monotonic
    measured: dict[Entry, list[dict[str, Any]]] = field(default_factory=dict)
    reasons: dict[Entry, str] = field(default_factory=dict)
    """Why a peer has no further turn."""
    stopped: dict[Entry, float] = field(default_factory=dict)
    """The seconds that count for a peer that was stopped."""

    def round(self, entries: Sequence[Entry], number: int, rows: int) -> None:
        """A turn of each entry that has not been left out; `rows` of each stream."""
        ends = self.clock() + ROUND_SECONDS
        for entry in entries:
            if entry in self.reasons:
                continue
            longest = min(LONGEST_SECONDS, ends - self.clock())
            if entry.peer is not None and longest <= START_SECONDS:
                self._leave_out(entry, "no time of the round was left")
                continue
            try:
                done = self.run(entry, LONGEST_SECONDS if entry.peer is None else longest)
            except (WrongAnswer, RunFailed) as error:
                if entry.peer is None:
                    raise
                self._leave_out(entry, _last_line(error))
                continue
            except TimeoutExpired:
                if entry.peer is None:
                    raise
                counted = longest - START_SECONDS
                self._leave_out(
                    entry,
                    f"stopped after {longest:.0f} s without an answer, it counts {counted:.0f} s: our ratio to it is at least as printed",
                )
                self.stopped[entry] = counted
                continue
            self.measured.setdefault(entry, []).append(done)
            rate = entry.streams * rows / done["seconds"] / 1e6
            print(f"  round {number}: {entry.what}: {done['seconds']:.2f} s, {rate:.3f} M rows/s", flush=True)

    def _leave_out(self, entry: Entry, reason: str) -> None:
        self.measured.pop(entry, None)
        self.reasons[entry] = f"{entry.what}, is left out: {reason.rstrip('.')}."
        print(f"  {self.reasons[entry]}", flush=True)

    @property
    def seconds(self) -> dict[Entry, float]:
        """The median of each entry that answered."""
        return {entry: median(one["seconds"] for one in runs) for entry, runs in self.measured.items()}


def stream_joins(rows: int, rounds: int) -> Report:
    """All in turn, `rounds` times; medians count."""
    wanted = min(rows, ROWS)
    here, absent = _present()
    for streams in (2, 3, 4):
        data.expected(wanted, streams)  # rows and answers are made before the first turn
    turns = Turns(lambda entry, longest: _run(entry, wanted, longest))
    _begin_as_installed()
    with _on(CORES):
        for number in range(1, rounds + 1):
            turns.round(here, number, wanted)
    versions = {peer: versions_of(peer) for peer in sorted({entry.peer for entry in here if entry.peer})}
    return page(turns, wanted, absent, versions)


def page(
    turns: Turns, wanted: int, absent: Sequence[str] = (), versions: dict[str, dict[str, str]] | None = None
) -> Report:
    """The page about what was measured with so many rows of each stream."""
    seconds = turns.seconds
    return Report(
        "stream-joins",
        "Joins of streams by key, windows of ten seconds: count and sum",
        [_row(entry, turns.measured[entry], wanted) for entry in seconds],
        _ratios({**seconds, **turns.stopped}, wanted),
        [Bar(entry.what, entry.streams * wanted / seconds[entry] / 1e6, entry.kind) for entry in seconds],
        "M rows/s",
        [_NOTE, *absent, *turns.reasons.values()],
        versions or {},
    )


_NOTE = (
    "50,000 rows of each stream an event-second; a window holds 2.5 rows of a key and stream, so two streams have 1.25 million pairs a "
    "window, four have 7.8 million combinations. Every answer was compared with numpy's. Everyone ran the same join over the last row of "
    "each stream before the clock ran, on two cores. Rows a second count the rows of all streams. Flink joins windows (TUMBLE on both sides); "
    "Spark joins on key and window, so that its watermark bounds its state. Headrace counts and sums by key and stream, and multiplies "
    "(EXPLAIN: products of sides): it makes pairs of keys for which a sum could fail, here none. *Pairs made* is the same query with the sum "
    "cast to DOUBLE, which needs them. JVM heaps: 2 GB for Headrace, 4 GB for Flink, those of Spark are in the table. The rows of "
    "DuckDB are a batch: it is a yardstick. Results of Headrace are durable when its clock stops; it had a session before, on few rows."
)


@contextmanager
def _on(cores: int) -> Iterator[None]:
    """Processes that are started meanwhile run on so many cores."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _begin_as_installed() -> None:
    """A session of Headrace on few rows, after which its JVM's classes are in an archive; it is made in the background."""
    _run(Entry(None, 2), _FIRST_ROWS, LONGEST_SECONDS)
    began = time.monotonic()
    while not classes_are_shared() and time.monotonic() - began < _ARCHIVE_SECONDS:
        time.sleep(1)


def _last_line(error: Exception) -> str:
    """The error of another process, without its traceback."""
    return str(error).strip().splitlines()[-1].strip()


def _present() -> tuple[list[Entry], list[str]]:
    """The entries whose peer this machine can run, and why others are left out."""
    missing: dict[str, str] = {}
    for peer in {entry.peer for entry in ENTRIES}:
        try:
            python_of(peer), settings_of(peer)
        except NotHere as reason:
            missing[str(peer)] = f"{peer} is left out: {reason}"
    return [entry for entry in ENTRIES if entry.peer not in missing], list(missing.values())


def _ratios(seconds: Mapping[Entry, float], wanted: int) -> list[Ratio]:
    ratios = [Ratio("million rows a second of two streams", 2 * wanted / seconds[Entry(None, 2)] / 1e6, 2)]
    for streams in (2, 3, 4):
        ours = seconds[Entry(None, streams)]
        limits = {"flink": 3.0, "spark": 10.0}
        for peer, bar in limits.items():
            theirs = [
                took for entry, took in seconds.items() if (entry.peer, entry.streams) == (peer, streams)
            ]
            if theirs:
                ratios.append(
                    Ratio(f"{streams} streams, ours to {peer.capitalize()}'s best", min(theirs) / ours, bar)
                )
        if (batch := seconds.get(Entry("duckdb", streams))) is not None:
            ratios.append(
                Ratio(f"{streams} streams, our time to DuckDB's batch join", ours / batch, 3, at_most=True)
            )
    return ratios


def _row(entry: Entry, runs: Sequence[dict[str, Any]], wanted: int) -> dict[str, Any]:
    took = median(one["seconds"] for one in runs)
    return {
        "contender": entry.name,
        "yardstick": entry.kind == "yardstick",
        "streams": entry.streams,
        "heap": entry.heap,
        "rows_of_each": wanted,
        "seconds": [round(one["seconds"], 2) for one in runs],
        "median_rows_per_second": round(entry.streams * wanted / took),
        "peak_pss_mb": round(max(one["peak_pss_mb"] for one in runs)),
    }


def _run(entry: Entry, rows: int, longest: float) -> dict[str, Any]:
    """One run in processes of its own, its answer compared. Raises `WrongAnswer`, `RunFailed`, `TimeoutExpired`."""
    scratch = folders.fresh("stream-joins-run")
    output = scratch / "output"
    module = (
        "benchmarks.stream_joins_runner"
        if entry.peer is None
        else f"benchmarks.peers.{entry.peer}.stream_joins"
    )
    command = [str(python_of(entry.peer)), "-m", module, str(data.folder(rows)), str(output)]
    command += [str(entry.streams), *filter(None, [entry.state, entry.heap])]
    try:
        printed, memory = run_watched(
            command, scratch, environment=settings_of(entry.peer), longest_seconds=longest
        )
    except RunFailed as error:
        raise RunFailed(why((scratch / "stderr").read_text(errors="replace")) or str(error)) from error
    _compare(entry, rows, output)
    return {**printed, "peak_pss_mb": memory.peak_kb / 1024}


def why(log: str) -> str:
    """The reason for which a process in Java has ended, by its log; empty where it has none of these."""
    if "java.lang.OutOfMemoryError" in log:
        return "its JVM had no memory left"
    return "its JVM has ended, or was killed" if "Connection refused" in log else ""


def _compare(entry: Entry, rows: int, output: Path) -> None:
    files = (
        [output / "answer.parquet"]
        if (output / "answer.parquet").exists()
        else sorted(output.glob("answer/**/*.parquet"))
    )
    answer = ds.dataset([str(file) for file in files]).to_table()
    columns = [answer[name].cast(pa.int64()).to_pylist() for name in ("window_end", "n", "total")]
    totals = {end: (n, total) for end, n, total in zip(*columns, strict=True)}
    wanted = data.expected(rows, entry.streams)
    if {end: totals.get(end) for end in wanted} != wanted:
        raise WrongAnswer(f"its answer differs: {len(wanted)} windows expected, {len(totals)} found.")
