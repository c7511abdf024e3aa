"""Questions over a long archive that accept an error of two percent: the rows read, and the time.

A local hub archives the rows in runs of a million, in random blocks: fifty million, or as many as `--rows` gives beyond that (a billion:
`python -m benchmarks past --rows 1000000000`). The home is made once for each number of rows and kept with the benchmarks' data. Then in
turn: the question WITHIN 2 PERCENT, the same IN 50 MILLISECONDS, the same WITHIN 0 PERCENT, which reads every row of the columns that it
needs, and DuckDB's exact scan of the same Parquet files, on as many threads as there are cores, with its footers cached. All answers
are compared. Each way was asked once before it is measured.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks import folders
from benchmarks.charts import Bar
from benchmarks.expected import WrongAnswer
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.invoke.questions import run_sums

RUN = 1 << 20
LARGE = 48
"""Runs, where the number of rows is not given: fifty million rows."""
FEW, SMALL = 5_000_000, 2
"""Fewer rows than usual, and the runs of them."""
_LIMIT = "IN 50 MILLISECONDS"
_STREAM = "CREATE STREAM s (at TIMESTAMP, key INT, a INT, v DOUBLE) USING push OPTIONS (blocks '16') TIMESTAMP BY at"
QUESTIONS = {
    "count and mean where": "SELECT COUNT(*) AS n, AVG(v) AS mean FROM {} WHERE a < 25",
    "sum by ten keys": "SELECT key, SUM(v) AS total FROM {} GROUP BY key",
}


def past(rows: int, rounds: int) -> Report:
    """Medians over `rounds`."""
    runs = SMALL if rows < FEW else max(LARGE, rows // RUN)
    home = folders.cache() / f"past-{runs}"
    with open_hub(home, local=True) as hub:
        hub.execute(_STREAM)
        stream = hub.home.latest().streams.get("s")
        for number in range(0 if stream is None else stream.rows // RUN, runs):
            hub.push("s", _rows(number))
            hub.catch_up()
        table = [row for name, text in QUESTIONS.items() for row in _measured(hub, home, name, text, rounds)]
    return _report(table, runs)


def _rows(number: int) -> pa.Table:
    draw = np.random.default_rng(number)
    at = 1_700_000_000_000_000 + (number * RUN + np.arange(RUN)) * 1000
    return pa.table(
        {
            "at": pa.array(at).cast(pa.timestamp("us", tz="UTC")),
            "key": draw.integers(0, 10, RUN, np.int32),
            "a": draw.integers(0, 100, RUN, np.int32),
            "v": draw.gamma(2.0, 20.0, RUN) + number,
        }
    )


def _measured(hub: Hub, home: Path, name: str, text: str, rounds: int) -> list[dict[str, Any]]:
    """The three ways of one question, in turn."""
    scanned = duckdb.connect(config={"enable_object_cache": True})
    files = f"read_parquet('{home}/archive/s/*.parquet')"
    ways: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "WITHIN 2 PERCENT": lambda: _asked(hub, f"{text.format('s')} WITHIN 2 PERCENT"),
        _LIMIT: lambda: _asked(hub, f"{text.format('s')} {_LIMIT}"),
        "WITHIN 0 PERCENT": lambda: _asked(hub, f"{text.format('s')} WITHIN 0 PERCENT"),
        "WITHIN 0 PERCENT, again": lambda: _asked_again(hub, f"{text.format('s')} WITHIN 0 PERCENT"),
        "DuckDB, exact": lambda: scanned.sql(text.format(files)).to_arrow_table().to_pylist(),
    }
    answers = {way: ask() for way, ask in ways.items()}
    _check(answers)
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(max(3, rounds)):
        for way, ask in ways.items():
            started = time.perf_counter()
            ask()
            seconds[way].append(time.perf_counter() - started)
    return [
        {
            "question": name,
            "way": way,
            "rows_read": f"{answers[way][0].get('kept', 1):.2%}",
            "ms": round(1000 * statistics.median(times), 1),
        }
        for way, times in seconds.items()
    ]


def _asked(hub: Hub, text: str) -> list[dict[str, Any]]:
    """The answer, without sums from earlier questions."""
    run_sums.cached.clear()
    return _asked_again(hub, text)


def _asked_again(hub: Hub, text: str) -> list[dict[str, Any]]:
    (outcome,) = hub.execute(text)
    assert outcome.table is not None
    rows: list[dict[str, Any]] = outcome.table.to_pylist()
    return rows


def _check(answers: dict[str, list[dict[str, Any]]]) -> None:
    """Every answer is near DuckDB's: raises `WrongAnswer`."""
    for way, rows in answers.items():
        row_of = {row.get("key"): row for row in rows}
        for row in answers["DuckDB, exact"]:
            for value in row.keys() - {"key"}:
                mine, error = row_of[row.get("key")][value], row_of[row.get("key")].get(f"{value}_error", 0)
                if abs(mine - row[value]) > 3 * error + 1e-6 * abs(row[value]):
                    raise WrongAnswer(f"{way}: {value} is {mine} ± {error}, and not {row[value]}")


def _report(table: list[dict[str, Any]], runs: int) -> Report:
    milliseconds = {(row["question"], row["way"]): row["ms"] for row in table}
    drawn = [
        Bar(
            f"{row['question']}: {row['way']}",
            row["ms"],
            "theirs" if row["way"].startswith("Duck") else "ours",
        )
        for row in table
    ]
    ratios = [
        Ratio(
            f"{name}: time of {way} to WITHIN 2 PERCENT",
            milliseconds[name, way] / milliseconds[name, "WITHIN 2 PERCENT"],
            least,
        )
        for name in QUESTIONS
        for way, least in (("DuckDB, exact", 2 if runs <= LARGE else 50), ("WITHIN 0 PERCENT", 10))
    ]
    ratios += [
        Ratio(f"{name}: 50 ms to the time {_LIMIT}", 50 / milliseconds[name, _LIMIT], 0.8)
        for name in QUESTIONS
    ]
    assert __doc__ is not None
    note = f"{runs * RUN:,} rows."
    name = "past" if runs in (SMALL, LARGE) else f"past-{runs * RUN // 10**6}m"
    return Report(name, "Questions over a long past", table, ratios, drawn, "ms", [__doc__.strip(), note])
