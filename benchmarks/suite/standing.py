"""Standing queries that wait: what an epoch costs by their number, without rows for them and with ten new rows.

All in one process without Spark, so that what is measured is the engine's own work. An idle epoch has one row of a stream
that no query reads. A busy one has ten rows of the streams that the queries read, and runs until every level has answered.
The last part mixes all kinds: ten queries of another stream get ten rows, alone and among thousands that get none.

Peers get the same rows, as soon as all of their queries are done with those before, and answer the kinds that they have, query by query, in one
session: *Flink SQL* (Java) with its OVER windows where ours have no SLIDE, which answer each row when it comes and never when one expires, on the heap and without checkpoints, while our rows and
answers are durable; *Spark* with rows from memory, state and answers in files as always. Flink has a hundred queries at most, Spark ten: more take minutes to start, or seconds an epoch. Idle queries cost them nothing, as they
read nothing but their own stream. Their answers are counted. Sliding windows of Flink SQL are multiples of the slide.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

import pyarrow as pa

from benchmarks import folders
from benchmarks.charts import Curve, Curves
from benchmarks.environments import NotHere, versions_of
from benchmarks.fresh_processes import in_each
from benchmarks.report import Report
from benchmarks.runs import RunFailed
from benchmarks.standing_peers import PEERS, Peer, milliseconds
from benchmarks.thresholds import Ratio
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND

KINDS: Final = {
    "tumbling": "SELECT k, COUNT(*) AS n FROM s [RANGE TUMBLING 10 SECONDS] WHERE x > {i} GROUP BY k",
    "sliding": "SELECT k, SUM(x) AS n FROM s [RANGE {r} SECONDS SLIDE 5 SECONDS] WHERE x > {i} GROUP BY k",
    "range": "SELECT k, COUNT(*) AS n FROM s [RANGE {r} SECONDS] WHERE x > {i} GROUP BY k",
    "rows": "SELECT SUM(x) AS n FROM s [ROWS {r}] WHERE x > {i}",
    "partitions": "SELECT k, MAX(x) AS n FROM s [PARTITION BY k ROWS {r}] WHERE x > {i} GROUP BY k",
    "distinct": "SELECT DISTINCT k FROM s [RANGE {r} SECONDS] WHERE x > {i}",
    "percentile": "SELECT PERCENTILE(x, 0.5) AS n FROM s [RANGE {r} SECONDS SLIDE 5 SECONDS] WHERE x > {i}",
    "joins": "SELECT s.k, s.x, u.x AS y FROM s [RANGE {r} SECONDS], u [RANGE {r} SECONDS]"
    " WHERE s.k = u.k AND s.x > {i}",
    "nested": "SELECT MAX(c.n) AS n FROM (SELECT k, COUNT(*) AS n FROM s [RANGE {r} SECONDS] WHERE x > {i}"
    " GROUP BY k) AS c",
    "semijoins": "SELECT k, COUNT(*) AS n FROM s [RANGE {r} SECONDS] WHERE x > {i} AND k IN"
    " (SELECT k FROM u [RANGE {r} SECONDS]) GROUP BY k",
}
"""A query of each kind; no two are equal."""
NUMBERS: Final = (1, 10, 100, 1000)
MIXED: Final = (10, 1000, 10_000)
_STREAMS: Final = ("s", "u", "busy", "quiet")
_LEAST_WITH_BAR: Final = 100
"""Queries from which on ten rows should cost a millisecond for each: the epoch of a few is mostly what any epoch costs."""
_LEAST_IDLE: Final = 1000
"""Idle queries from which on each should cost a hundredth of a millisecond."""
_WARM_UP: Final = 3
_EPOCHS: Final = 9


@dataclass(frozen=True, slots=True)
class Cost:
    """Median milliseconds of an epoch without rows for the queries (None where there are no such epochs), and from ten rows to the last answer."""

    idle: float | None
    busy: float


def script(texts: Sequence[str]) -> str:
    """The statements of a home with four streams and these queries."""
    streams = [
        f"CREATE STREAM {name} (k BIGINT, x BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at"
        for name in _STREAMS
    ]
    queries = [f"CREATE QUERY q{number} AS {text}" for number, text in enumerate(texts)]
    return ";\n".join([*streams, *queries]) + ";"


def queries_of(kind: str, count: int) -> list[str]:
    """So many queries of one kind, or of all kinds in turn."""
    templates = list(KINDS.values()) if kind == "mixed" else [KINDS[kind]]
    return [
        templates[number % len(templates)].format(i=-1 - number, r=10 + number % 50)
        for number in range(count)
    ]


def watchers(count: int) -> list[str]:
    """Queries of the busy stream."""
    return [
        f"SELECT k, COUNT(*) AS n FROM busy [RANGE TUMBLING 10 SECONDS] WHERE x > {-1 - number} GROUP BY k"
        for number in range(count)
    ]


@dataclass(slots=True)
class Clocked:
    """A hub without Spark whose streams get rows second by second."""

    hub: Hub
    second: int = 0

    def push(self, rows: int, *streams: str) -> None:
        """So many rows of the next second for each of the streams."""
        self.second += 1
        for stream in streams:
            self.hub.push(stream, _rows(self.second, rows))

    def settle(self) -> float:
        """Milliseconds until nothing is left to do."""
        started = time.perf_counter()
        self.hub.loop.drain()
        return (time.perf_counter() - started) * 1000

    def median_of(self, rows: int, *streams: str) -> float:
        """Median milliseconds from pushes to the last answer."""
        times = []
        for _ in range(_WARM_UP + _EPOCHS):
            self.push(rows, *streams)
            times.append(self.settle())
        return median(times[_WARM_UP:])


def _rows(second: int, count: int) -> pa.Table:
    at = [second * SECOND + number * SECOND // count for number in range(count)]
    numbers = list(range(count))
    return pa.table(
        {
            "k": pa.array([number % 5 for number in numbers], pa.int64()),
            "x": pa.array(numbers, pa.int64()),
            "at": pa.array(at, pa.timestamp("us", tz="UTC")),
        }
    )


def _measured(texts: Sequence[str], measure: Callable[[Clocked], Any]) -> Any:
    folder: Path = folders.fresh("standing")
    with Hub(folder / "home", LocalExecutor(), tasks=1) as hub:
        hub.execute(script(texts))
        clocked = Clocked(hub)
        clocked.push(10, *_STREAMS)
        clocked.settle()
        return measure(clocked)


def of_kind(kind: str, count: int) -> Cost:
    """The costs of so many queries of one kind."""
    return _measured(
        queries_of(kind, count),
        lambda clocked: Cost(busy=clocked.median_of(10, "s", "u"), idle=clocked.median_of(1, "quiet")),
    )


def resting(count: int) -> float:
    """Median milliseconds of an epoch without rows for so many queries of all kinds, once the log of epochs has all of them."""
    return float(
        _measured(
            queries_of("mixed", count), lambda clocked: [clocked.median_of(1, "quiet") for _ in range(4)][-1]
        )
    )


def with_others(count: int) -> float:
    """Median milliseconds of an epoch with ten rows for ten queries, `count` queries in all."""
    texts = watchers(10) + queries_of("mixed", count - 10)
    return float(_measured(texts, lambda clocked: clocked.median_of(10, "busy")))


@dataclass(slots=True)
class Measured:
    """What is on the page so far."""

    numbers: Sequence[int]
    rounds: int
    table: list[dict[str, Any]] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)

    def add_kind(self, kind: str) -> None:
        """A kind at each number of queries, ours and then that of each peer that has it."""
        busy = {}
        for number in self.numbers:
            measured = in_each(self.rounds, of_kind, kind, number)
            cost = Cost(median(cost.idle for cost in measured), median(cost.busy for cost in measured))
            busy[number] = cost
            self._show(_row("headrace", kind, number, cost))
        self._bound(kind, busy)
        a_query = [busy[number].busy / number for number in self.numbers]
        self.curves.append(Curve(kind, self.numbers, a_query, "ours"))
        for peer in PEERS:
            if kind in peer.kinds:
                self._add_peer(peer, kind, busy)

    def _add_peer(self, peer: Peer, kind: str, ours: Mapping[int, Cost]) -> None:
        theirs = {}
        for number in (number for number in self.numbers if number in peer.numbers):
            try:
                theirs[number] = milliseconds(peer, kind, number)
            except (NotHere, RunFailed) as reason:
                self.absent[f"{peer.name}, {number:,} queries, {kind}"] = str(reason).splitlines()[-1]
                continue
            self._show(_row(peer.name, kind, number, Cost(None, theirs[number])))
        if theirs:
            a_query = [spent / number for number, spent in theirs.items()]
            self.curves.append(Curve(f"{peer.name}, {kind}", [*theirs], a_query, "theirs"))
            most = max(theirs)
            ratio = ours[most].busy / theirs[most]
            self.ratios.append(Ratio(f"{kind}: ten rows, {most:,} queries, to {peer.name}", ratio, 1, True))

    def _bound(self, kind: str, costs: Mapping[int, Cost]) -> None:
        self.ratios += [
            Ratio(f"{kind}: ms a query, ten rows, {number:,} queries", costs[number].busy / number, 1, True)
            for number in self.numbers
            if number >= _LEAST_WITH_BAR
        ]
        most = self.numbers[-1]
        idle, of_one = costs[most].idle, costs[1].idle
        assert idle is not None
        assert of_one is not None
        self.ratios.append(Ratio(f"{kind}: idle epoch, {most:,} queries to 1", idle / of_one, 2, True))
        if most >= _LEAST_IDLE:
            what = f"{kind}: ms a query, idle, {most:,} queries, to 0.01"
            self.ratios.append(Ratio(what, idle / most / 0.01, 1, True))

    def add_mixed(self, mixed: Sequence[int]) -> None:
        """All kinds together, idle, and ten busy ones among them."""
        most = mixed[-1]
        idle = {number: median(in_each(self.rounds, resting, number)) for number in mixed}
        for number, spent in idle.items():
            self._show(_row("headrace", "all kinds, idle", number, Cost(spent, 0.0)))
        ratio = idle[most] / idle[10]
        self.ratios.append(Ratio(f"idle epoch, {most:,} of all kinds to 10", ratio, 2, True))
        ten = {number: median(in_each(self.rounds, with_others, number)) for number in mixed}
        for number, spent in ten.items():
            self._show(_row("headrace", "ten of them busy", number, Cost(spent, spent)))
        what = f"ten rows for ten queries: among {most:,} of all kinds to alone"
        self.ratios.append(Ratio(what, ten[most] / ten[10], 2, True))
        a_query = [ten[number] / number for number in mixed]
        self.curves.append(Curve("ten busy, others idle", mixed, a_query, "ours"))

    def _show(self, row: dict[str, Any]) -> None:
        self.table.append(row)
        print(f"  {row}", flush=True)


def standing(rows: int, rounds: int) -> Report:
    """Each kind at each number of queries, then ten among all kinds; `rows` bounds the numbers of a quick run."""
    is_whole = rows >= 1_000_000
    measured = Measured([number for number in NUMBERS if is_whole or number <= _LEAST_WITH_BAR], rounds)
    for kind in KINDS:
        measured.add_kind(kind)
    measured.add_mixed([number for number in MIXED if is_whole or number <= _LEAST_IDLE])
    axes = ("standing queries", "ms an epoch a query")
    picture = Curves("Standing queries with ten new rows", axes, measured.curves, logarithmic=(True, True))
    assert __doc__ is not None
    return Report(
        "standing",
        "Queries that wait",
        measured.table,
        measured.ratios,
        (),
        "ms",
        [__doc__.strip(), *(f"Not measured: {what}: {reason}" for what, reason in measured.absent.items())],
        {
            peer.package: versions_of(peer.package)
            for peer in PEERS
            if any(row["way"] == peer.name for row in measured.table)
        },
        picture,
    )


def _row(way: str, kind: str, number: int, cost: Cost) -> dict[str, Any]:
    return {
        "way": way,
        "kind": kind,
        "queries": number,
        "idle_epoch_ms": "" if cost.idle is None else round(cost.idle, 2),
        "idle_ms_a_query": "" if cost.idle is None else round(cost.idle / number, 4),
        "ten_rows_ms": round(cost.busy, 2),
        "ten_rows_ms_a_query": round(cost.busy / number, 4),
    }
