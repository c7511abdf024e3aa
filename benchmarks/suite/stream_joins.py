"""Joins of streams against the peers: two, three and four streams by one key under windows of ten seconds, count and sum.

Each stream has as many rows, drawn from 200,000 keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from subprocess import TimeoutExpired
from typing import Any

import pyarrow.dataset as ds

from benchmarks import folders
from benchmarks import stream_joins_data as data
from benchmarks.charts import Bar
from benchmarks.environments import NotHere, python_of, settings_of, versions_of
from benchmarks.expected import WrongAnswer
from benchmarks.report import Report
from benchmarks.runs import RunFailed, run_watched
from benchmarks.thresholds import Ratio

ROWS = 2_000_000
"""Of each stream, at most."""
LONGEST_SECONDS = 300.0
"""Until a contender's process is stopped without an answer."""
COUNTED_SECONDS = 240.0
"""The time that counts for it then, a minute less for its start: what is compared with it is at least as printed."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A contender joining so many streams."""

    peer: str | None
    streams: int
    state: str = ""

    @property
    def name(self) -> str:
        """What the page calls it."""
        return ", ".join(filter(None, (self.peer or "headrace", self.state)))

    @property
    def kind(self) -> str:
        return "ours" if self.peer is None else "yardstick" if self.peer == "duckdb" else "theirs"


ENTRIES = tuple(
    entry
    for streams in (2, 3, 4)
    for entry in (
        Entry(None, streams),
        Entry("flink", streams),
        Entry("spark", streams, "hdfs"),
        Entry("spark", streams, "rocksdb"),
        Entry("duckdb", streams),
    )
)


def stream_joins(rows: int, rounds: int) -> Report:
    """All in turn, `rounds` times; medians count."""
    wanted = min(rows, ROWS)
    here, absent = _present()
    measured: dict[Entry, list[dict[str, Any]]] = {entry: [] for entry in here}
    failed: dict[Entry, str] = {}
    stopped: dict[Entry, str] = {}
    for number in range(1, rounds + 1):
        for entry in here:
            if entry in failed or entry in stopped:
                continue
            try:
                done = _run(entry, wanted)
            except (WrongAnswer, RunFailed) as error:
                if entry.peer is None:
                    raise
                failed[entry] = f"{entry.name} of {entry.streams} streams is left out: {_last_line(error)}"
                print(f"  {failed[entry]}", flush=True)
                continue
            except TimeoutExpired:
                if entry.peer is None:
                    raise
                stopped[entry] = (
                    f"{entry.name} of {entry.streams} streams was stopped after {LONGEST_SECONDS:g} s "
                    f"without an answer, and counts {COUNTED_SECONDS:g} s: our ratio to it is at least as printed."
                )
                print(f"  {stopped[entry]}", flush=True)
                continue
            measured[entry].append(done)
            print(
                f"  round {number}: {entry.name}, {entry.streams} streams: {done['seconds']:.2f} s, "
                f"{entry.streams * wanted / done['seconds'] / 1e6:.3f} M rows/s",
                flush=True,
            )
    seconds = {
        entry: median(one["seconds"] for one in runs)
        for entry, runs in measured.items()
        if entry not in failed and entry not in stopped
    }
    return Report(
        "stream-joins",
        "Joins of streams by key, windows of ten seconds: count and sum",
        [_row(entry, measured[entry], wanted) for entry in seconds],
        _ratios({**seconds, **dict.fromkeys(stopped, COUNTED_SECONDS)}, wanted),
        [
            Bar(
                f"{entry.name}, {entry.streams} streams",
                entry.streams * wanted / seconds[entry] / 1e6,
                entry.kind,
            )
            for entry in seconds
        ],
        "M rows/s",
        [_NOTE, *absent, *failed.values(), *stopped.values()],
        {peer: versions_of(peer) for peer in sorted({entry.peer for entry in here if entry.peer})},
    )


_NOTE = (
    "50,000 rows of each stream an event-second; a window holds 2.5 rows of a key and stream, so two streams have 1.25 million pairs a "
    "window, four have 7.8 million combinations. Every answer was compared with numpy's. Everyone ran the same join over the last row of "
    "each stream before the clock ran. Rows a second count the rows of all streams. Flink joins windows (TUMBLE on both sides); Spark joins "
    "on key and window, so that its watermark bounds its state. JVM heaps: 2 GB for Headrace, 4 GB for Spark and Flink. The rows of "
    "DuckDB are a batch: it is a yardstick. Results of Headrace are durable when its clock stops."
)


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
        "rows_of_each": wanted,
        "seconds": [round(one["seconds"], 2) for one in runs],
        "median_rows_per_second": round(entry.streams * wanted / took),
        "peak_pss_mb": round(max(one["peak_pss_mb"] for one in runs)),
    }


def _run(entry: Entry, rows: int) -> dict[str, Any]:
    """One run in processes of its own, its answer compared. Raises `WrongAnswer`."""
    scratch = folders.fresh("stream-joins-run")
    output = scratch / "output"
    module = (
        "benchmarks.stream_joins_runner"
        if entry.peer is None
        else f"benchmarks.peers.{entry.peer}.stream_joins"
    )
    command = [str(python_of(entry.peer)), "-m", module, str(data.folder(rows)), str(output)]
    command += [str(entry.streams), *filter(None, [entry.state])]
    said, memory = run_watched(
        command, scratch, environment=settings_of(entry.peer), longest_seconds=LONGEST_SECONDS
    )
    _compare(entry, rows, output)
    return {**said, "peak_pss_mb": memory.peak_kb / 1024}


def _compare(entry: Entry, rows: int, output: Path) -> None:
    files = (
        [output / "answer.parquet"]
        if (output / "answer.parquet").exists()
        else sorted(output.glob("answer/**/*.parquet"))
    )
    answer = ds.dataset([str(file) for file in files]).to_table()
    columns = [answer[name].to_pylist() for name in ("window_end", "n", "total")]
    totals = {end: (n, total) for end, n, total in zip(*columns, strict=True)}
    wanted = data.expected(rows, entry.streams)
    if {end: totals.get(end) for end in wanted} != wanted:
        raise WrongAnswer(f"its answer differs: {len(wanted)} windows expected, {len(totals)} found.")
