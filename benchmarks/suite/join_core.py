"""Joins of streams: compared with DuckDB's batch join of the same files, of three and four streams, and of a thousand queries.

All in one process without a JVM, in turn: a driver and its tasks one after the other, DuckDB with one thread. Keys are drawn
from a tenth as many values as a stream has rows; windows of a minute that do not overlap hold a tenth of them. Sums over one
stream's column, and of products of two streams' columns, make no pairs; the greatest product makes them all, and has no bar.
*Queries*: the first has a join of its own, all others share one; each has a range and bounds of its own, and answers with the pairs within. All select
rows of one stream above 900 to 999, of 0 to 999, so the shared join requires that; those *with nothing in common* have no such condition, and answer with
ten times as many pairs. *Ten rows*: the time of an epoch with five new rows of each stream, by query; *idle* with five of which no query wants a pair, when
all earlier rows have left their windows. *State*: the rows that ten new ones of one stream
are compared with, and the time, where the other stream holds a thousand to a million: counted in the operator alone. *Hot key*: one key has a tenth of
the rows of both streams, in four state tasks, which run one after the other here: its rows are divided between them, or in one of them; of three streams
it has so few that as many combinations are compared.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.charts import Bar
from benchmarks.expected import WrongAnswer
from benchmarks.hot_key_runs import hot_keys_of_joins
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from headrace.algebra.expressions.expression import Column
from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import Advance, Sections
from headrace.operators.base.union_positions import placed
from headrace.operators.joins.join_side import JoinSpec, Side
from headrace.operators.joins.window_join import UNTIL, WindowJoin
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.schema import BIGINT, Field, Schema
from headrace.time import BEGINNING

QUERIES = (1, 10, 100, 1000)
_MOST_ROWS = 2_000_000
STATES = (1_000, 10_000, 100_000, 1_000_000)
_START, _MINUTE, _MINUTES = 1_700_000_040_000_000, 60_000_000, 10
_TUMBLING = "[RANGE TUMBLING 1 MINUTE]"
_WINDOWS = 200_000
"""Positions after which all rows have left their windows."""
_OF_ONE, _OF_TWO, _OF_PAIRS = "SUM(s1.v)", "SUM(s0.v * s1.v)", "MAX(s0.v * s1.v)"


def join_core(rows: int, rounds: int) -> Report:
    """`rows` of each stream, at most two million."""
    rows = min(rows, _MOST_ROWS)
    with tempfile.TemporaryDirectory(prefix="headrace-joins-") as folder:
        files = _files(Path(folder), rows)
        table, ratios = _beside_duckdb(Path(folder), files, rounds)
        more, of_queries = _many_queries(Path(folder), max(rows // 20, 2_000), rounds)
        uneven, of_hot_key = hot_keys_of_joins(Path(folder), max(rows // 100, 2_000), rounds)
    counted, independent = _by_state()
    drawn = [
        Bar(str(row["what"]), 1000 * row["seconds"], "ours" if "duckdb" not in str(row["what"]) else "theirs")
        for row in table
    ]
    return Report(
        "join-core",
        "Joins of streams",
        [*table, *more, *counted, *uneven],
        [*ratios, *of_queries, *independent, *of_hot_key],
        drawn,
        "ms",
        [__doc__.strip()],
    )


def _files(folder: Path, rows: int) -> list[Path]:
    files = []
    for number in range(4):
        rng = np.random.default_rng(number)
        at = _START + np.sort(rng.integers(0, _MINUTES * _MINUTE, rows))
        columns = {
            "at": pa.array(at).cast(pa.timestamp("us", tz="UTC")),
            "k": rng.integers(0, max(rows // 10, 1), rows),
            "v": rng.integers(0, 1000, rows),
        }
        files.append(folder / f"s{number}.parquet")
        pq.write_table(pa.table(columns), files[-1], row_group_size=max(rows // 8, 1000))
    return files


def _query(streams: int, total: str = _OF_ONE) -> str:
    joined = " ".join(
        f"JOIN s{number} {_TUMBLING} ON s{number}.k = s0.k" if number else f"s0 {_TUMBLING}"
        for number in range(streams)
    )
    return f"SELECT s0.window_end AS e, COUNT(*) AS n, {total} AS total FROM {joined}"


def _in_batch(files: Sequence[Path], total: str = _OF_ONE) -> str:
    minute = f'epoch_us("at") - epoch_us("at") % {_MINUTE}'
    sources = [f"(SELECT {minute} AS e, k, v FROM '{file}') s{number}" for number, file in enumerate(files)]
    joined = " ".join(
        f"JOIN {source} ON s{number}.k = s0.k AND s{number}.e = s0.e"
        for number, source in enumerate(sources)
        if number
    )
    return f"SELECT s0.e, COUNT(*), {total} FROM {sources[0]} {joined} GROUP BY 1 ORDER BY 1"


def _beside_duckdb(
    folder: Path, files: Sequence[Path], rounds: int
) -> tuple[list[dict[str, Any]], list[Ratio]]:
    batch = duckdb.connect()
    batch.execute("SET threads = 1")
    table, ratios = list[dict[str, Any]](), list[Ratio]()
    rows = pq.read_metadata(files[0]).num_rows
    for streams, total in ((2, _OF_ONE), (2, _OF_TWO), (2, _OF_PAIRS), (3, _OF_ONE), (4, _OF_ONE)):
        asked = f"{streams} streams, {total}"
        ours, theirs = list[float](), list[float]()
        for number in range(rounds):
            started = time.perf_counter()
            expected = batch.execute(_in_batch(files[:streams], total)).fetchall()
            theirs.append(time.perf_counter() - started)
            home = folder / f"home{len(table)}-{number}"
            seconds, answer = _run(home, files[:streams], _query(streams, total))
            ours.append(seconds)
            if answer != [row[1:] for row in expected]:
                raise WrongAnswer(f"Expected {expected[:2]} of {asked}, found {answer[:2]}.")
        for what, seconds in (("headrace", median(ours)), ("duckdb, batch", median(theirs))):
            table.append(
                {
                    "what": f"{what}, {asked}",
                    "seconds": round(seconds, 3),
                    "rows_a_second": round(streams * rows / seconds),
                }
            )
        if total != _OF_PAIRS:
            ratios.append(Ratio(f"{asked}, headrace to DuckDB", median(ours) / median(theirs), 3, True))
    return table, ratios


def _run(path: Path, files: Sequence[Path], query: str) -> tuple[float, list[tuple[int, int]]]:
    with open_hub(path, local=True) as hub:
        for number, file in enumerate(files):
            hub.execute(
                f"CREATE STREAM s{number} (at TIMESTAMP, k BIGINT, v BIGINT) USING parquet OPTIONS (path '{file}',"
                " archive 'none') TIMESTAMP BY at"
            )
        hub.execute(f"CREATE QUERY q AS {query}")
        started = time.perf_counter()
        hub.run_once()
        hub.finish(seal=True)
        seconds = time.perf_counter() - started
        answer = hub.query("q").history().sort_by("e")
    return seconds, list(zip(answer.column("n").to_pylist(), answer.column("total").to_pylist(), strict=True))


def _many_queries(folder: Path, rows: int, rounds: int) -> tuple[list[dict[str, Any]], list[Ratio]]:
    kinds = [(count, True) for count in QUERIES] + [(count, False) for count in (*QUERIES[:2], QUERIES[-1])]
    times: dict[tuple[int, bool], tuple[list[float], ...]] = {kind: ([], [], []) for kind in kinds}
    for number in range(rounds):
        for (count, in_common), (whole, small, idle) in times.items():
            with open_hub(folder / f"many{count}-{in_common}-{number}", local=True) as hub:
                _register(hub, count, in_common=in_common)
                _pushed(hub, 0, rows)
                whole += [_pushed(hub, rows * turn, rows) for turn in (1, 2)]
                small += [_pushed(hub, rows * 3 + 5 * turn, 5) for turn in range(5)]
                later = [_pushed(hub, rows * 3 + _WINDOWS + 5 * turn, 5, wanted=False) for turn in range(12)]
                idle.extend(later[3:])
    table = [
        {
            "what": f"{count} queries" + ("" if in_common else " with nothing in common"),
            "seconds": round(median(whole), 3),
            "rows_a_second": round(2 * rows / median(whole)),
            "ten_rows_ms_a_query": round(1000 * median(small) / count, 3),
            "idle_epoch_ms": round(1000 * median(idle), 2),
        }
        for (count, in_common), (whole, small, idle) in times.items()
    ]
    one, all_ = times[QUERIES[0], True], times[QUERIES[-1], True]
    one_apart, ten_apart, all_apart = (times[count, False] for count in (*QUERIES[:2], QUERIES[-1]))
    return table, [
        Ratio("a thousand join queries to one, same rows", median(all_[0]) / median(one[0]), 5, True),
        Ratio("the same with nothing in common", median(all_apart[0]) / median(one_apart[0]), 5, True),
        Ratio("ten new rows, milliseconds a query of a thousand", median(all_[1]), 1, True),
        Ratio("idle epoch, a thousand to ten", median(all_apart[2]) / median(ten_apart[2]), 2, True),
    ]


def _register(hub: Hub, count: int, *, in_common: bool = True) -> None:
    for name in "ab":
        hub.execute(f"CREATE STREAM {name} (at TIMESTAMP, k BIGINT, v BIGINT) USING push TIMESTAMP BY at")
    rng = np.random.default_rng(7)
    hub.register_many(
        {
            f"q{number}": f"SELECT x.k, x.v, y.v AS w FROM a x [RANGE {36 + number % 29} SECONDS],"
            f" b y [RANGE {36 + number % 31} SECONDS] WHERE x.k = y.k AND y.v - x.v BETWEEN {least} AND {least + 2}"
            + (f" AND y.v > {900 + number % 100}" if in_common else "")
            for number, least in enumerate(rng.integers(0, 900, count).tolist())
        }
    )


def _pushed(hub: Hub, first: int, rows: int, *, wanted: bool = True) -> float:
    for number, name in enumerate("ab"):
        position = np.arange(first, first + rows)
        at = pa.array(_START + position * 1_000 + number).cast(pa.timestamp("us", tz="UTC"))
        keys = position * 2_654_435_761 % 1_000_003 % 50_000
        values = np.random.default_rng((first, number)).integers(0, 1_000, rows)
        if not wanted:
            values[:] = 0 if number else 999
        hub.push(name, pa.table({"at": at, "k": keys, "v": values}))
    started = time.perf_counter()
    hub.loop.drain()
    return time.perf_counter() - started


def _by_state() -> tuple[list[dict[str, Any]], list[Ratio]]:
    """Ten new rows of one side against the other side's rows, of which each key has one."""
    table = []
    for rows in STATES:
        join, runs = _two_sides(), list[Sections]()
        for part in np.array_split(np.arange(rows), 4):
            runs.append(_step(join, runs, part, 1)[0])
        took = list[float]()
        for _ in range(20):
            started = time.perf_counter()
            _, candidates = _step(join, runs, np.arange(0, rows, rows // 10), 0)
            took.append(time.perf_counter() - started)
        table.append(
            {
                "what": f"ten rows against {rows:,}",
                "seconds": round(median(took), 5),
                "compared_with": candidates,
            }
        )
    compared = [row["compared_with"] for row in table]
    return table, [
        Ratio("rows compared at a million rows held to a thousand", compared[-1] / compared[0], 1, True),
        Ratio(
            "time at a million rows held to a thousand", table[-1]["seconds"] / table[0]["seconds"], 2, True
        ),
    ]


def _two_sides() -> WindowJoin:
    sides = tuple(
        Side((number,), Schema((Field(f"s{number}.k", BIGINT),)), (), (Column(f"s{number}.k", BIGINT),), None)
        for number in range(2)
    )
    shown = Schema((Field("s0.k", BIGINT), Field(UNTIL, BIGINT)))
    return WindowJoin(JoinSpec("join", "q", "@joined", sides, None, shown, 0))


def _step(join: WindowJoin, runs: Sequence[Sections], keys: np.ndarray, side: int) -> tuple[Sections, int]:
    scanner = join.scanner({})
    scanner.add(Batch({f"s{side}.k": pa.array(keys)}, keys, placed(keys, side)))
    step = join.advance(
        runs,
        [scanner.finish().deltas],
        Advance(BEGINNING, BEGINNING, 0, input_punctuations=(BEGINNING, BEGINNING)),
    )
    return step.state, step.probe_counts.candidates
