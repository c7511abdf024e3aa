"""From a push to its followed result, durable when it counts: rows on disk before the push returns, results before they are followed.

Every twenty milliseconds a batch is pushed, on schedule: a late push waits in its own latency. The yardstick in the same process is
what durability alone takes: a file of the same rows written and synced with its name, twice.

Peers get the same rows at the same times, and answer the same queries, as an expert writes them: of Flink (Java) and Kafka Streams the
windows of all queries are aggregated once, as their conditions are on the key. *Flink, transactions* is Flink with a sink that commits with a
checkpoint, at the shortest interval, 10 ms: the next one begins when the one before is complete. Its source is a file that is read again
after a failure, so that arrival costs it nothing. *Kafka Streams, exactly once* has a broker that syncs each append, and commits every 100
ms: every 10 ms it fell ever further behind. It is not measured at 50,000 rows a second. Each is shown without durability too: Flink without checkpoints, Kafka Streams at least once and never synced. *Spark's real-time mode*
answers the followed query between two topics of such a broker; it has no transactions. All answers were compared with numpy's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import folders
from benchmarks.charts import Bar, Curve, Curves
from benchmarks.environments import NotHere, settings_of, versions_of
from benchmarks.latency_rows import (
    EVERY_US,
    WARM_UP,
    Answers,
    batches,
    expected,
    percentiles,
    timeline_of,
    until_ms,
    write_bytes,
)
from benchmarks.report import Report
from benchmarks.runs import RunFailed, run_watched
from benchmarks.thresholds import Ratio

SETTINGS = (
    ("local", 2_000, 1),
    ("local", 50_000, 1),
    ("local", 2_000, 100),
    ("local", 50_000, 100),
    ("spark", 2_000, 1),
    ("spark", 2_000, 100),
    ("spark", 50_000, 100),
)
"""Executor, rows a second, standing queries."""
LOADS = ((2_000, 1), (2_000, 100), (50_000, 100))
"""Of the peers: rows a second, standing queries."""
_COMMIT_MS, _KAFKA_COMMIT_MS = 10, 100


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer in one variant; `commit_ms` is 0 where nothing is durable."""

    name: str
    package: str
    commit_ms: int
    loads: tuple[tuple[int, int], ...] = LOADS
    """Rows a second and standing queries."""

    @property
    def kind(self) -> str:
        """Of its bar."""
        return "theirs" if self.commit_ms else "yardstick"


PEERS = (
    Peer("Flink, transactions", "flink", _COMMIT_MS),
    Peer("Flink, nothing durable", "flink", 0, LOADS[:2]),
    Peer("Kafka Streams, exactly once", "kafka", _KAFKA_COMMIT_MS, LOADS[:2]),
    Peer("Kafka Streams, at least once", "kafka", 0, LOADS[:2]),
    Peer("Spark's real-time mode", "spark_realtime", _COMMIT_MS, LOADS[:1]),
)
Setting = tuple[str, int, int]


def latency(rows: int, rounds: int) -> Report:
    """`10 * rounds` seconds of each setting, at most 15, so that all take less than ten minutes; `rows` has no effect."""
    del rows
    seconds = min(10 * rounds, 15)
    measured: dict[Setting, dict[str, Any]] = {}
    absent = dict[str, str]()
    for setting in SETTINGS:
        measured[setting] = _ours(*setting, seconds)
        _print(setting, measured[setting])
    for peer in PEERS:
        for rate, queries in peer.loads:
            try:
                measured[peer.name, rate, queries] = _theirs(peer, rate, queries, seconds)
            except (NotHere, RunFailed) as reason:
                absent[f"{peer.name}, {rate:,} rows/s, {queries} queries"] = str(reason).splitlines()[-1]
            else:
                _print((peer.name, rate, queries), measured[peer.name, rate, queries])
    picture = Curves(
        "p99 from push to followed result",
        ("seconds", "ms"),
        [
            Curve(_label(setting), *_over(one["timeline"], seconds), _kind(setting[0]))
            for setting, one in measured.items()
        ],
        (False, True),
    )
    assert __doc__ is not None
    return Report(
        "latency",
        "From push to result",
        [_row(*setting, one) for setting, one in measured.items()],
        _ratios(measured),
        [
            Bar(_label(setting), one["latency_ms"]["p99"], _kind(setting[0]))
            for setting, one in measured.items()
        ],
        "ms",
        [__doc__.strip(), *(f"Not measured: {name}: {reason}" for name, reason in absent.items())],
        {
            package: versions_of(package)
            for package in sorted({peer.package for peer in PEERS if _was_measured(peer, measured)})
        },
        picture,
    )


def _was_measured(peer: Peer, measured: dict[Setting, dict[str, Any]]) -> bool:
    return any(name == peer.name for name, _, _ in measured)


def _ratios(measured: dict[Setting, dict[str, Any]]) -> list[Ratio]:
    first = measured[SETTINGS[0]]
    timeline = first["timeline"]
    quarter = len(timeline) // 4
    ratios = [
        Ratio(
            "median latency at 2,000 rows/s and one query to two synced files",
            first["latency_ms"]["p50"] / first["yardstick_ms"]["p50"],
            15,
            at_most=True,
        ),
        Ratio(
            "p99 latency of the last quarter of the time to that of the first",
            median(timeline[-quarter:]) / median(timeline[:quarter]),
            1.5,
            at_most=True,
        ),
    ]
    for rate, queries in LOADS:
        spark = measured["spark", rate, queries]["latency_ms"]
        for peer in PEERS:
            if peer.commit_ms and (theirs := measured.get((peer.name, rate, queries))) is not None:
                what = f"median latency on Spark to {peer.name}, {rate:,} rows/s, {_of(queries)}"
                ratios.append(Ratio(what, spark["p50"] / theirs["latency_ms"]["p50"], 1, at_most=True))
    return ratios


def _ours(engine: str, rate: int, queries: int, seconds: int) -> dict[str, Any]:
    scratch = folders.fresh("latency-run")
    command = [
        sys.executable,
        "-m",
        "benchmarks.latency_runner",
        engine,
        str(rate),
        str(queries),
        str(seconds),
    ]
    measured, _ = run_watched(command, scratch)
    tables = _tables(rate, seconds)
    Answers.from_json(measured).require(expected(tables, queries), _label((engine, rate, queries)))
    return measured


def _theirs(peer: Peer, rate: int, queries: int, seconds: int) -> dict[str, Any]:
    environment = {**settings_of(peer.package), "KAFKA_CLASSPATH": settings_of("kafka")["CLASSPATH"]}
    scratch = folders.fresh("latency-run")
    tables = _tables(rate, seconds)
    write_bytes(tables, scratch / "rows")
    module = f"benchmarks.peers.{peer.package}.latency"
    arguments = [
        scratch / "rows",
        tables[0].num_rows,
        EVERY_US,
        queries,
        peer.commit_ms,
        until_ms(len(tables)),
        scratch / "made",
    ]
    measured, _ = run_watched(
        [sys.executable, "-m", module, *map(str, arguments)], scratch, environment=environment
    )
    Answers.from_json(measured).require(expected(tables, queries), _label((peer.name, rate, queries)))
    waits = np.array(measured["waits_ms"])[WARM_UP:]
    return {"latency_ms": percentiles(waits), "timeline": timeline_of(waits)}


def _tables(rate: int, seconds: int) -> list[pa.Table]:
    """The same rows for all at this rate."""
    count = WARM_UP + seconds * 1_000_000 // EVERY_US
    return batches(max(1, rate * EVERY_US // 1_000_000), count)


def _print(setting: Setting, measured: dict[str, Any]) -> None:
    cuts = measured["latency_ms"]
    print(f"  {_label(setting)}: p50 {cuts['p50']} ms, p99 {cuts['p99']} ms", flush=True)


def _label(setting: Setting) -> str:
    name, rate, queries = setting
    return f"{name}, {rate:,} rows/s, {_of(queries)}"


def _of(queries: int) -> str:
    return "1 query" if queries == 1 else f"{queries} queries"


def _kind(name: str) -> str:
    return next((peer.kind for peer in PEERS if peer.name == name), "ours")


def _row(name: str, rate: int, queries: int, measured: dict[str, Any]) -> dict[str, Any]:
    cuts = {f"{cut}_ms": measured["latency_ms"][cut] for cut in ("p50", "p99", "p99.9")}
    parts = {
        f"{part}_p50_ms": measured.get(f"{part}_ms", {}).get("p50", "")
        for part in ("push", "epoch", "yardstick")
    }
    setting = {"way": name, "rows_a_second": rate, "queries": queries}
    return {**setting, **cuts, **parts, "batches_an_epoch": measured.get("batches_an_epoch", "")}


def _over(timeline: Sequence[float], seconds: int) -> tuple[list[float], list[float]]:
    """The middle of each part of the time, and its value."""
    return [(part + 0.5) * seconds / len(timeline) for part in range(len(timeline))], list(timeline)
