"""A thousand alerts that select rows, or join them with a relation first, and the cost of one more.

*Rows*: `SELECT … WHERE customer = … AND v >= …`, of which few rows concern any. *Joined*: windows of 60 s every 10 s over the stream
joined with a relation, grouped by a column of that, with conditions on both. Epochs of 200,000 rows without a JVM, each number of
queries in a home of its own, in turn in one process. The yardstick is the same engine where each query filters, and joins, by
itself.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.charts import Bar
from benchmarks.expected import WrongAnswer
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from headrace.operators.sharing import scan_sharing
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub

ROWS, CUSTOMERS, KEYS, WARM = 200_000, 1_000_000, 100, 2
COUNTS = (1, 100, 1000)
MOST = max(COUNTS)
_STREAM = "CREATE STREAM s (at TIMESTAMP, customer INT, key INT, a INT, v INT) USING push OPTIONS (archive 'none') TIMESTAMP BY at"


def _rows_alert(number: int) -> str:
    return f"SELECT at, v FROM s WHERE customer = {number} AND v >= {number % 256}"


def _joined_alert(number: int) -> str:
    low = number * 37 % 256
    return (
        "SELECT names.name, COUNT(*) AS n, SUM(v) AS total FROM s [RANGE 60 SECONDS SLIDE 10 SECONDS] JOIN names ON"
        f" s.key = names.id WHERE s.a BETWEEN {low} AND {low + number % 101} AND names.region < {1 + number % 7} GROUP BY names.name"
    )


KINDS: dict[str, Callable[[int], str]] = {"rows": _rows_alert, "joined": _joined_alert}


def alerts(rows: int, rounds: int) -> Report:
    """Medians over `2 * rounds` epochs; `rows` has no effect."""
    del rows
    table, ratios, drawn = [], list[Ratio](), list[Bar]()
    for kind in KINDS:
        spent = _measured(kind, 2 * rounds)
        for (count, way), seconds in spent.items():
            rate = ROWS / seconds / 1e6
            table.append(
                {"alerts": kind, "queries": count, "way": way, "million_rows_per_s": float(f"{rate:.3g}")}
            )
            drawn.append(Bar(f"{kind} · {count:,}, {way}", rate, "ours" if way == "shared" else "yardstick"))
        shared = spent[MOST, "shared"]
        ratios += [
            Ratio(
                f"{kind}: {MOST:,} queries to each by itself",
                spent[MOST, "alone"] / shared,
                3 if kind == "rows" else 10,
            ),
            Ratio(f"{kind}: rate at {MOST:,} to that at one", spent[1, "shared"] / shared, 0.05),
        ]
    assert __doc__ is not None
    return Report(
        "alerts", "Alerts that select rows, or join", table, ratios, drawn, "M rows/s", [__doc__.strip()]
    )


def _measured(kind: str, epochs: int) -> dict[tuple[int, str], float]:
    """Median seconds of an epoch by number of queries and way. Raises `WrongAnswer` when two ways emit different rows."""
    cases = [(count, "shared") for count in COUNTS] + [(MOST, "alone")]
    spent: dict[tuple[int, str], list[float]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory(prefix="headrace-alerts-") as name, ExitStack() as opened:
        folder = Path(name)
        _write_names(folder)
        hubs = {case: opened.enter_context(_operator_progress(folder, kind, *case)) for case in cases}
        for advance in range(epochs + WARM):
            batch = _batch(advance)
            for case, hub in hubs.items():
                hub.push("s", batch)
                with _apart(case[1] == "alone"):
                    started = time.perf_counter()
                    hub.catch_up()
                    spent[case].append(time.perf_counter() - started)
        emitted = {way: _emitted_rows(hubs[MOST, way]) for way in ("shared", "alone")}
    if emitted["shared"] != emitted["alone"]:
        raise WrongAnswer(f"{kind}: {emitted['shared']} rows by the index, {emitted['alone']} without")
    return {case: statistics.median(seconds[WARM:]) for case, seconds in spent.items()}


@contextmanager
def _operator_progress(folder: Path, kind: str, count: int, way: str) -> Iterator[Hub]:
    with open_hub(folder / f"{kind}-{count}-{way}", local=True) as hub:
        hub.execute(
            "CREATE RELATION names (id INT, name STRING, region INT) USING parquet"
            f" OPTIONS (path '{folder}/names.parquet'); {_STREAM}"
        )
        hub.register_many({f"q{number}": KINDS[kind](number) for number in range(count)})
        yield hub


@contextmanager
def _apart(apart: bool) -> Iterator[None]:
    """While this lasts no query shares an index with another one."""
    few = scan_sharing.MOST_SEPARATE_FILTERS
    try:
        scan_sharing.MOST_SEPARATE_FILTERS = 1 << 40 if apart else few
        yield
    finally:
        scan_sharing.MOST_SEPARATE_FILTERS = few


def _emitted_rows(hub: Hub) -> int:
    return sum(hub.query(name).history().num_rows for name in hub.catalog.queries)


def _write_names(folder: Path) -> None:
    ids = np.arange(KEYS, dtype=np.int32)
    names = pa.table({"id": ids, "name": [f"name {number % 20}" for number in ids], "region": ids % 7})
    pq.write_table(names, folder / "names.parquet")


def _batch(advance: int) -> pa.Table:
    rng = np.random.default_rng(advance)
    at = 1_700_000_040_000_000 + (advance * ROWS + np.arange(ROWS)) * 50
    drawn = {"customer": CUSTOMERS, "key": KEYS, "a": 256, "v": 256}
    columns = {name: rng.integers(0, below, ROWS, np.int32) for name, below in drawn.items()}
    return pa.table({"at": pa.array(at).cast(pa.timestamp("us", tz="UTC")), **columns})
