"""INVOKE with a thousand queries standing: a window of 2^16 rows, compared with DuckDB scanning the same window for one query.

The predicates are PSoup's: one to four of four attributes in 0..255, each within an interval. Both give the rows as Arrow;
ours are in the order of the contract, DuckDB's as they come. DuckDB is asked twice: over the files of our own archive, and over
the same rows loaded into a table of its own and sorted by time. In turns, so that both see the same machine.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import queries_data as data
from benchmarks.charts import Bar
from benchmarks.environments import PEERS, python_of, versions_of
from benchmarks.expected import WrongAnswer
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from headrace.operators.on_demand.selection import Selection
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.invoke.deferred_window import Effort, Invocation

WINDOW = 1 << 16
QUERIES = 1000
EPOCHS = 4
ASKED = 40
TIMES = 3
OURS, THEIR_TABLE, OUR_FILES = "headrace", "duckdb, its table", "duckdb, our files"
_SECONDS = WINDOW * data.STEP_US / 1_000_000
COLUMNS = ", ".join(f"{name} INT" for name in data.ATTRIBUTES)
STREAM = f"CREATE STREAM s (at TIMESTAMP, key INT, v BIGINT, {COLUMNS}) USING push TIMESTAMP BY at"


def where(factors: data.Predicate) -> str:
    """The predicate as SQL."""
    return " AND ".join(f"{name} >= {low} AND {name} <= {high}" for name, low, high in factors)


def window(rows: int = WINDOW) -> str:
    """The last `rows` rows, both ends included."""
    return f"BEGIN NOW - INTERVAL {(rows - 1) * data.STEP_US / 1_000_000:.6f} SECONDS END NOW"


@dataclass(slots=True)
class _Asked:
    """What asking all three the same came to: milliseconds by way, rows of answers, and what ours took of work."""

    spent: dict[str, list[float]] = field(default_factory=lambda: {OURS: [], THEIR_TABLE: [], OUR_FILES: []})
    answers: list[int] = field(default_factory=list)
    effort: list[Effort] = field(default_factory=list)
    kept: float = 0.0
    """Seconds in which the selections of all rows were kept."""

    def median(self, way: str) -> float:
        """Milliseconds."""
        return statistics.median(self.spent[way])


def invoke(rows: int, rounds: int) -> Report:
    """Medians over 40 of the queries, `rounds` times; `rows` has no effect."""
    del rows
    asked = _ask_all(rounds)
    table = [
        {
            "way": way,
            "median_ms": round(asked.median(way), 3),
            "p90_ms": round(float(np.quantile(times, 0.9)), 3),
            "mean_result_rows": round(statistics.mean(asked.answers)),
        }
        for way, times in asked.spent.items()
    ]
    drawn = [Bar(way, asked.median(way), "ours" if way == OURS else "theirs") for way in asked.spent]
    note = f"Keeping the selections of {QUERIES:,} queries of {EPOCHS * WINDOW:,} rows as they came took {asked.kept:.1f} s in one process."
    return Report(
        "invoke",
        "INVOKE over a window of 65,536 rows",
        table,
        _ratios(asked),
        drawn,
        "ms",
        [_doc(), note],
        {"duckdb": versions_of("duckdb")},
    )


def _ask_all(rounds: int) -> _Asked:
    """Register a thousand queries, take all rows in, then ask 40 of them in turns with DuckDB."""
    predicates = data.predicates(QUERIES)
    numbers = sorted({int(number) for number in np.linspace(0, QUERIES - 1, ASKED)})
    asked = _Asked()
    with (
        tempfile.TemporaryDirectory(prefix="headrace-invoke-") as folder,
        open_hub(Path(folder), local=True) as hub,
    ):
        hub.execute(STREAM)
        hub.register_many(
            {
                f"q{n}": f"SELECT key, v FROM s WHERE {where(factors)} {window()}"
                for n, factors in enumerate(predicates)
            }
        )
        started = time.perf_counter()
        for index in range(EPOCHS):
            hub.push("s", rows_of(index))
            hub.catch_up()
        asked.kept = time.perf_counter() - started
        with duck(hub) as ask:
            for _ in range(rounds):
                for number in numbers:
                    asked.answers.append(_one(hub, ask, number, predicates[number], asked.spent))
        asked.effort = [_effort(hub, f"q{number}") for number in numbers]
    return asked


def _ratios(asked: _Asked) -> list[Ratio]:
    ours, over_files = asked.median(OURS), asked.median(OUR_FILES)
    factors = sum(effort.factors for effort in asked.effort)
    return [
        Ratio(
            "invoke, 1000 standing, to DuckDB scanning our archive for one",
            ours / over_files,
            1,
            at_most=True,
        ),
        Ratio(
            "invoke, 1000 standing, to the quicker of DuckDB's ways",
            ours / min(asked.median(THEIR_TABLE), over_files),
            1,
            at_most=True,
        ),
        Ratio("factors evaluated by an INVOKE", factors, 0, at_most=True),
    ]


def _doc() -> str:
    assert __doc__ is not None
    return __doc__.strip()


def _one(hub: Hub, ask: Any, number: int, factors: data.Predicate, spent: dict[str, list[float]]) -> int:
    """Ask all three the same. Raises `WrongAnswer` where they differ."""
    query, mine = hub.query(f"q{number}"), []
    for _ in range(TIMES):
        started = time.perf_counter()
        table = query.invoke()
        mine.append((time.perf_counter() - started) * 1000)
    spent[OURS].append(min(mine))
    last = data.ORIGIN_US + (EPOCHS * WINDOW - 1) * data.STEP_US
    first = last - (WINDOW - 1) * data.STEP_US
    within = f'"at" >= make_timestamptz({first}) AND "at" <= make_timestamptz({last}) AND {where(factors)}'
    for name, source in ((THEIR_TABLE, "held"), (OUR_FILES, "files")):
        answer = ask(f"SELECT key, v FROM {source} WHERE {within}")
        if answer["rows"] != table.num_rows:
            raise WrongAnswer(f"query {number}: {table.num_rows} rows, {name} {answer['rows']}")
        spent[name].append(min(answer["ms"]))
    return table.num_rows


def _effort(hub: Hub, name: str) -> Effort:
    operator, _ = hub.operator_and_query(name)
    assert isinstance(operator, Selection)
    call = Invocation(hub.home, hub.home.latest(), operator)
    call.answer()
    return call.effort


def rows_of(index: int, size: int = WINDOW) -> pa.Table:
    """Epoch number `index`."""
    rng = np.random.default_rng([data.SEED, 16, index])
    at = data.ORIGIN_US + (index * size + np.arange(size, dtype=np.int64)) * data.STEP_US
    return pa.table(
        {
            "at": pa.array(at).cast(pa.timestamp("us", tz="UTC")),
            "key": rng.integers(0, data.KEYS, size, dtype=np.int32),
            "v": rng.integers(0, data.VALUES, size, dtype=np.int64),
            **{name: rng.integers(0, data.VALUES, size, dtype=np.int32) for name in data.ATTRIBUTES},
        }
    )


@dataclass(slots=True)
class _Duck:
    process: subprocess.Popen[str]

    def __call__(self, sql: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"sql": sql, "times": TIMES}) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer


@contextmanager
def duck(hub: Hub) -> Iterator[_Duck]:
    """DuckDB in a process of its own, over the archive of the hub's stream."""
    entries = hub.home.entries(hub.home.latest(), "archive:s")
    names = dict.fromkeys(name for entry in entries for name in entry["files"])
    files = [str(Path(hub.home.store.root) / name) for name in names]
    command = [str(python_of("duckdb")), str(PEERS / "duckdb" / "window.py"), *files]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        try:
            yield _Duck(process)
        finally:
            process.kill()
