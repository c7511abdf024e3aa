"""From a push to its followed result, durable when it counts: rows on disk before the push returns, results before they are followed.

Every twenty milliseconds a batch is pushed, up to ten milliseconds later by chance, on schedule: a late push waits in its own latency. At
equal distances a push would be as long before a peer's next checkpoint each time. The yardstick in the same process is what durability
alone takes: a file of the same rows written and synced with its name, twice.

Peers get the same rows at the same times, and answer the same queries, as an expert writes them: of Flink (Java) and Kafka Streams the
windows of all queries are aggregated once, as their conditions are on the key. *Flink, transactions* is Flink with a sink that commits with a
checkpoint, at the shortest interval, 10 ms: the next one begins when the one before is complete. Its source is a file that is read again
after a failure, so that arrival costs it nothing. *Kafka Streams, exactly once* has a broker that syncs each append, and commits every 100
ms: every 10 ms it fell ever further behind. It is not measured at 50,000 rows a second. Each is shown without durability too: Flink without checkpoints, Kafka Streams at least once and never synced. *Spark's real-time mode*
answers the followed query between two topics of such a broker; it has no transactions. All answers were compared with numpy's.

Spark and Flink with transactions are measured in turn, since the speed of a machine that others share may double from one minute to the
next: a row has the run with the median, and the ratio is the median of the ratios of rounds.
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
    write_dues,
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
SECONDS = 10
"""Of a run."""


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
    """Ten seconds of each setting, in `rounds` rounds of those that are measured in turn; `rows` has no effect."""
    del rows
    seconds = SECONDS
    runs: dict[Setting, list[dict[str, Any]]] = {}
    absent = dict[str, str]()
    for _ in range(rounds):
        for rate, queries in LOADS:
            _run(runs, absent, ("spark", rate, queries))
            _run(runs, absent, (PEERS[0].name, rate, queries))
    for setting in (*SETTINGS, *((peer.name, *load) for peer in PEERS for load in peer.loads)):
        if setting not in runs:
            _run(runs, absent, setting)
    measured = {setting: _median_of(of_setting) for setting, of_setting in runs.items()}
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
        _ratios(measured, runs),
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


def _run(runs: dict[Setting, list[dict[str, Any]]], absent: dict[str, str], setting: Setting) -> None:
    """Add a run of a setting, or why there is none."""
    name, rate, queries = setting
    peer = next((peer for peer in PEERS if peer.name == name), None)
    try:
        run = _ours(name, rate, queries, SECONDS) if peer is None else _theirs(peer, rate, queries, SECONDS)
    except (NotHere, RunFailed) as reason:
        if peer is None:
            raise
        absent[_label(setting)] = str(reason).splitlines()[-1]
        return
    runs.setdefault(setting, []).append(run)
    _print(setting, run)


def _p50(run: dict[str, Any]) -> float:
    return float(run["latency_ms"]["p50"])


def _median_of(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The run with the median latency; of two the quicker one."""
    return sorted(runs, key=_p50)[(len(runs) - 1) // 2]


def _ratios(
    measured: dict[Setting, dict[str, Any]], runs: dict[Setting, list[dict[str, Any]]]
) -> list[Ratio]:
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
    of_many, local = (measured[engine, 2_000, 100]["latency_ms"] for engine in ("spark", "local"))
    what = "latency on Spark, 2,000 rows/s, 100 queries"
    ratios += [
        Ratio(f"median {what}, in 10 ms", of_many["p50"] / 10, 1, at_most=True),
        Ratio(f"p99 {what}, in 40 ms", of_many["p99"] / 40, 1, at_most=True),
        Ratio(f"median {what}, to the local executor", of_many["p50"] / local["p50"], 1, at_most=True),
    ]
    for rate, queries in LOADS:
        ours = runs["spark", rate, queries]
        for peer in PEERS:
            theirs = runs.get((peer.name, rate, queries))
            if not peer.commit_ms or theirs is None:
                continue
            pairs = (
                zip(ours, theirs, strict=True)
                if len(ours) == len(theirs)
                else [(_median_of(ours), _median_of(theirs))]
            )
            what = f"median latency on Spark to {peer.name}, {rate:,} rows/s, {_of(queries)}"
            ratio = median(_p50(our) / _p50(their) for our, their in pairs)
            ratios.append(Ratio(what, ratio, 1, at_most=True))
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
    write_dues(len(tables), scratch / "dues")
    module = f"benchmarks.peers.{peer.package}.latency"
    arguments = [
        scratch / "rows",
        tables[0].num_rows,
        scratch / "dues",
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
