"""Questions over a long archive that accept an error of two percent: the rows read, and the time, next to exact scans.

A local hub archives the rows (a time, a key, an amount) in runs of a million, in random blocks: fifty million, or as many as `--rows`
gives beyond that. They take the archive's own way: pushed as Arrow, a million an epoch. The home is made once for each number of rows
and kept with the benchmarks' data; making it continues where it was interrupted. Then in turn: the question WITHIN 2 PERCENT, the
same IN 50 MILLISECONDS, the same WITHIN 0 PERCENT, which reads every row of the columns that it needs, and DuckDB's exact scan of the
same Parquet files, on as many threads as there are cores, with its footers cached; from 200 million rows on Spark's, after
a scan of one file to warm up. All answers are compared. Each way was asked once before it is measured, but where that took
ten seconds, which count. A billion rows on two cores, first made and then measured:

    taskset -c 0,1 python -m benchmarks past --rows 1000000000
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks import folders
from benchmarks.charts import Bar
from benchmarks.environments import java_home, python_of
from benchmarks.expected import WrongAnswer
from benchmarks.protocol import cores
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.invoke.questions import run_sums

RUN: Final = 1 << 20
LARGE: Final = 48
"""Runs, where the number of rows is not given: fifty million rows."""
FEW, SMALL = 5_000_000, 2
"""Fewer rows than usual, and the runs of them."""
_WITH_SPARK: Final = 190
"""Runs from which on Spark takes part: a scan of fewer is mostly its fixed cost."""
_BILLION: Final = 953
_SLOW_SECONDS: Final = 10.0
_LIMIT: Final = "IN 50 MILLISECONDS"
_STREAM: Final = (
    "CREATE STREAM s (at TIMESTAMP, key INT, amount DOUBLE) USING push OPTIONS (blocks '16') TIMESTAMP BY at"
)
QUESTIONS: Final = {
    "count and mean where": "SELECT COUNT(*) AS n, AVG(amount) AS mean FROM {} WHERE key < 3",
    "sum by ten keys": "SELECT key, SUM(amount) AS total FROM {} GROUP BY key",
}
_WITHIN, _EXACT, _DUCKDB, _SPARK = "WITHIN 2 PERCENT", "WITHIN 0 PERCENT", "DuckDB, exact", "Spark, exact"
Rows = list[dict[str, Any]]


def past(rows: int, rounds: int) -> Report:
    """Medians over `rounds`."""
    runs = SMALL if rows < FEW else max(LARGE, -(-rows // RUN))
    home = folders.cache() / f"past-amounts-{runs}"
    with open_hub(home, local=True) as hub:
        made(hub, runs)
        files = [
            str(home / name)
            for name in dict.fromkeys(name for entry in _entries(hub) for name in entry["files"])
        ]
        spark = _of_spark(files) if runs >= _WITH_SPARK else {}
        table = [
            row
            for name, text in QUESTIONS.items()
            for row in _measured(hub, files, name, text, rounds, spark.get(name))
        ]
    return _report(table, runs)


def made(hub: Hub, runs: int) -> None:
    """Archive so many runs, those that are not there yet."""
    hub.execute(_STREAM)
    hub.catch_up()  # what an interrupted run has pushed
    for number in range(sum(entry["rows"] for entry in _entries(hub)) // RUN, runs):
        hub.push("s", _rows(number))
        hub.catch_up()


def _entries(hub: Hub) -> Sequence[Any]:
    return hub.home.entries(hub.home.latest(), "archive:s")


def _rows(number: int) -> pa.Table:
    """A million rows: amounts in whole cents, whose mean grows from run to run."""
    draw = np.random.default_rng(number)
    at = 1_700_000_000_000_000 + (number * RUN + np.arange(RUN)) * 1000
    return pa.table(
        {
            "at": pa.array(at).cast(pa.timestamp("us", tz="UTC")),
            "key": draw.integers(0, 10, RUN, np.int32),
            "amount": np.round(draw.gamma(2.0, 2000.0, RUN) + 10 * number),
        }
    )


def _measured(
    hub: Hub, files: list[str], name: str, text: str, rounds: int, spark: tuple[float, Rows] | None
) -> list[dict[str, Any]]:
    """The ways of one question, in turn."""
    scanned = duckdb.connect(config={"enable_object_cache": True, "threads": cores()})
    ours = text.format("s")
    ways: dict[str, Callable[[], Rows]] = {
        _WITHIN: lambda: _asked(hub, f"{ours} {_WITHIN}"),
        _LIMIT: lambda: _asked(hub, f"{ours} {_LIMIT}"),
        _EXACT: lambda: _asked(hub, f"{ours} {_EXACT}"),
        f"{_EXACT}, again": lambda: _asked_again(hub, f"{ours} {_EXACT}"),
        _DUCKDB: lambda: scanned.sql(text.format(f"read_parquet({files})")).to_arrow_table().to_pylist(),
    }
    answers, seconds = {}, dict[str, list[float]]()
    for way, ask in ways.items():
        answers[way], first = _timed(ask)
        seconds[way] = [first] if first > _SLOW_SECONDS else []
    for _ in range(max(3, rounds)):
        for way, ask in ways.items():
            if sum(seconds[way]) < _SLOW_SECONDS:
                seconds[way].append(_timed(ask)[1])
    if spark is not None:
        seconds[_SPARK], answers[_SPARK] = [spark[0]], spark[1]
    return [
        {
            "question": name,
            "way": way,
            "rows_read": f"{rows[0].get('kept', 1):.3%}",
            "error": f"{_stated(rows):.2%}",
            "off": f"{_off(way, rows, answers[_DUCKDB]):.2%}",
            "ms": round(1000 * statistics.median(seconds[way]), 1),
        }
        for way, rows in answers.items()
    ]


def _timed(ask: Callable[[], Rows]) -> tuple[Rows, float]:
    started = time.perf_counter()
    return ask(), time.perf_counter() - started


def _asked(hub: Hub, text: str) -> Rows:
    """The answer, without sums from earlier questions."""
    run_sums.cached.clear()
    return _asked_again(hub, text)


def _asked_again(hub: Hub, text: str) -> Rows:
    (outcome,) = hub.execute(text)
    assert outcome.table is not None
    rows: Rows = outcome.table.to_pylist()
    return rows


def _of_spark(files: list[str]) -> dict[str, tuple[float, Rows]]:
    """Seconds and answer of each question, by a Spark of its own."""
    asked = folders.fresh("past-spark") / "asked.json"
    texts = {name: text.format("s") for name, text in QUESTIONS.items()}
    asked.write_text(json.dumps({"files": files, "texts": texts}), encoding="utf-8")
    runner = [python_of("spark"), "-m", "benchmarks.peers.spark.past", asked]
    done = subprocess.run(
        runner,
        cwd=folders.CHECKOUT,
        env={**os.environ, "JAVA_HOME": str(java_home())},
        stdout=subprocess.PIPE,
        check=True,
    )
    return {
        name: (of["seconds"], of["rows"]) for name, of in json.loads(done.stdout.splitlines()[-1]).items()
    }


def _stated(rows: Rows) -> float:
    """The greatest error that the answer gives, as a part of its value."""
    return max(
        (
            error / abs(row[name.removesuffix("_error")])
            for row in rows
            for name, error in row.items()
            if name.endswith("_error")
        ),
        default=0.0,
    )


def _off(way: str, rows: Rows, exact: Rows) -> float:
    """How far the answer is from the exact one, as a part of it, at most. Raises `WrongAnswer` where it is farther than it states."""
    row_of, farthest = {row.get("key"): row for row in rows}, 0.0
    for row in exact:
        for value in row.keys() - {"key"}:
            mine, error = row_of[row.get("key")][value], row_of[row.get("key")].get(f"{value}_error", 0)
            if abs(mine - row[value]) > 3 * error + 1e-6 * abs(row[value]):
                raise WrongAnswer(f"{way}: {value} is {mine} ± {error}, and not {row[value]}")
            farthest = max(farthest, abs(mine - row[value]) / abs(row[value]))
    return farthest


def _report(table: list[dict[str, Any]], runs: int) -> Report:
    milliseconds = {(row["question"], row["way"]): row["ms"] for row in table}
    drawn = [
        Bar(
            f"{row['question']}: {row['way']}",
            row["ms"],
            "theirs" if row["way"] in (_DUCKDB, _SPARK) else "ours",
        )
        for row in table
    ]
    bound = {_EXACT: 10, _DUCKDB: 50 if runs >= _BILLION else 2, _SPARK: 50}
    ratios = [
        Ratio(f"{question}: time of {way} to {_WITHIN}", ms / milliseconds[question, _WITHIN], bound[way])
        for (question, way), ms in milliseconds.items()
        if way in bound
    ]
    ratios += [
        Ratio(f"{name}: 50 ms to the time {_LIMIT}", 50 / milliseconds[name, _LIMIT], 0.8)
        for name in QUESTIONS
    ]
    assert __doc__ is not None
    note = f"{runs * RUN:,} rows."
    name = "past" if runs in (SMALL, LARGE) else f"past-{runs * RUN // 10**6}m"
    return Report(name, "Questions over a long past", table, ratios, drawn, "ms", [__doc__.strip(), note])
