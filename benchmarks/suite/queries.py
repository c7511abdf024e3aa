"""Many standing queries over one stream: what the second, the hundredth, the ten thousandth costs.

Windows of 60 s every 10 s by 100 keys, count and sum, each query under its own condition on up to four attributes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from benchmarks import folders
from benchmarks import queries_data as data
from benchmarks.charts import Curve, Curves
from benchmarks.contenders import check_parts, sizes
from benchmarks.costs import costs
from benchmarks.environments import NotHere, python_of, settings_of, versions_of
from benchmarks.expected import WrongAnswer
from benchmarks.report import Report
from benchmarks.runs import run_watched
from benchmarks.thresholds import Ratio

ROWS = 8_000_000
"""At most."""
_CHECKED = 50
_TURNS = 5
"""Runs of Headrace in a round: they take half a second, and the ratio of two such runs varied by a quarter."""
_MEMORY_QUERIES, _MEMORY_EPOCHS = 10_000, 24
_COLUMNS = ("window_end", "key", "n", "total")
_ALL, _PARTS, _LEAST_PARTS = (1.0,), (0.1, 0.2), (0.025, 0.05, 0.1)


@dataclass(frozen=True, slots=True)
class Entry:
    """A way to run so many queries, over all rows or, where it is slow, over `parts` of them."""

    peer: str | None
    way: str
    queries: int
    parts: tuple[float, ...] = _ALL

    def __post_init__(self) -> None:
        check_parts(self.label, self.parts)

    @property
    def line(self) -> str:
        """What the picture calls the way."""
        return "headrace" if self.peer is None else f"{self.peer}, {self.way}"

    @property
    def label(self) -> str:
        return f"{self.line}: {self.queries:,}"

    @property
    def kind(self) -> str:
        return "ours" if self.peer is None else "yardstick" if self.peer in _BATCH else "theirs"

    @property
    def checked(self) -> list[int]:
        """The numbers of the queries whose answers are compared, row by row."""
        return sorted({int(number) for number in np.linspace(0, self.queries - 1, _CHECKED)})


_BATCH = ("duckdb", "polars")
_EACH, _CONDITIONAL, _JOIN, _SHARED, _NUMPY = "one by one", "conditional", "join", "shared", "numpy"
OURS = tuple(Entry(None, "", queries) for queries in (1, 10, 100, 1000, 10_000))
NATIVE = Entry("spark", _EACH, 1)
QUERY_BY_QUERY = (
    Entry("spark", _EACH, 10, _PARTS),
    Entry("flink", _EACH, 10, _PARTS),
    Entry("bytewax", _EACH, 10, _PARTS),
    Entry("pathway", _EACH, 10, _PARTS),
)
SHARED = (
    Entry("spark", _JOIN, 1000, _LEAST_PARTS),
    Entry("spark", _NUMPY, 1000, _PARTS),
    Entry("flink", _SHARED, 1000, _LEAST_PARTS),
)
"""One plan for all queries, as an expert of the engine writes it."""
RIVALS = (
    NATIVE,
    Entry("flink", _EACH, 1),
    Entry("bytewax", _EACH, 1, _PARTS),
    Entry("pathway", _EACH, 1, _PARTS),
    *QUERY_BY_QUERY,
    Entry("spark", _CONDITIONAL, 10),
    Entry("spark", _CONDITIONAL, 100, _PARTS),
    Entry("spark", _JOIN, 100, _PARTS),
    Entry("spark", _NUMPY, 100, _PARTS),
    Entry("flink", _SHARED, 10),
    Entry("flink", _SHARED, 100, _PARTS),
    *SHARED,
    *(Entry("duckdb", _CONDITIONAL, queries) for queries in (1, 10, 100)),
    *(Entry("duckdb", _JOIN, queries, _PARTS if queries > 100 else _ALL) for queries in (10, 100, 1000)),
    *(Entry("polars", _CONDITIONAL, queries) for queries in (1, 10, 100, 1000)),
)


def queries(rows: int, rounds: int) -> Report:
    """All in turn, `rounds` times, Headrace several times in each; medians count."""
    wanted = min(rows, ROWS)
    here, absent = _present((*OURS, *RIVALS))
    measured: dict[Entry, list[dict[str, Any]]] = {entry: [] for entry in here}
    for number in range(1, rounds + 1):
        for entry in (*OURS * (_TURNS - 1), *here):
            for size in sizes(entry.parts, wanted):
                done = _run(entry, size)
                measured[entry].append(done)
                print(
                    f"  round {number}: {entry.label} queries: {size / done['seconds'] / 1e6:.4f} M rows/s of {size:,}, "
                    f"{done['result_rows']:,} result rows",
                    flush=True,
                )
    grown = _memory(wanted)
    rate = {entry: wanted / _seconds(runs, wanted) for entry, runs in measured.items()}
    return Report(
        "queries",
        "Many standing queries: rows a second by their number",
        [_row(entry, runs, rate[entry], wanted) for entry, runs in measured.items()],
        [*_ratios(rate, measured), grown.ratio],
        (),
        "M rows/s",
        [_NOTE, *absent, grown.note],
        {peer: versions_of(peer) for peer in sorted({entry.peer for entry in here if entry.peer})},
        picture=lines(rate),
    )


_NOTE = (
    "200,000 rows an event-second. Every result row of up to 50 queries of each run was compared with numpy's. 'One by one' is "
    "a streaming query, or a branch of one graph, for each, all running at once; 'conditional' one pass with a filtered count and sum for "
    "each query; 'join' a table of predicates joined with the rows; 'shared' Flink's table function that gives the numbers of the queries "
    "that want a row; 'numpy' all predicates in mapInArrow, on whole partitions, before one aggregation. Spark and the batch engines "
    "aggregate panes before windows. Everyone ran the same queries over the last file before the clock ran. Where several numbers of rows "
    "are listed, the rate is that of all rows by the fixed cost and the cost per row, extrapolated over at most ten times the rows. "
    f"Headrace ran {_TURNS} times in each round, in turn with itself. "
    "JVM heaps: 2 GB for Headrace, 4 GB for Spark and Flink; DuckDB at most 80 % of the machine's memory; the others without a limit. "
    "Ratios to peers are at the same number of queries; results of Headrace are durable when its clock stops."
)


def _present(entries: Sequence[Entry]) -> tuple[list[Entry], list[str]]:
    """The entries whose peer this machine can run, and why others are left out."""
    missing: dict[str, str] = {}
    for peer in {entry.peer for entry in entries}:
        try:
            python_of(peer), settings_of(peer)
        except NotHere as reason:
            missing[str(peer)] = f"{peer} is left out: {reason}"
    return [entry for entry in entries if entry.peer not in missing], list(missing.values())


def _seconds(runs: Sequence[dict[str, Any]], wanted: int) -> float:
    """Median seconds for all rows, or what follows from the costs of fewer."""
    if {one["rows"] for one in runs} == {wanted}:
        return median(one["seconds"] for one in runs)
    return costs([(one["rows"], one["seconds"]) for one in runs]).seconds(wanted)


def lines(rate: Mapping[Entry, float]) -> Curves:
    """Rows a second over the number of queries, a line for each way."""
    ways: dict[str, list[Entry]] = {}
    for entry in sorted(rate, key=lambda entry: entry.queries):
        ways.setdefault(entry.line, []).append(entry)
    drawn = [
        Curve(line, [point.queries for point in of], [rate[point] for point in of], of[0].kind)
        for line, of in ways.items()
    ]
    return Curves(
        "Many standing queries", ("standing queries", "rows per second"), drawn, logarithmic=(True, True)
    )


def _ratios(rate: dict[Entry, float], measured: dict[Entry, list[dict[str, Any]]]) -> list[Ratio]:
    ours = {entry.queries: rate[entry] for entry in OURS}
    more = {entry.queries: median(one["one_more_ms"] for one in measured[entry]) for entry in OURS}
    registered = median(one["register_seconds"] for one in measured[OURS[-1]])
    return [
        Ratio("1 query to Spark native", ours[1] / rate[NATIVE], 2),
        Ratio("1000 queries to 1", ours[1000] / ours[1], 0.5),
        Ratio("10,000 queries to 1000", ours[10_000] / ours[1000], 0.3),
        Ratio(
            "1000 queries to the best shared plan of Spark and Flink",
            ours[1000] / max(rate[entry] for entry in SHARED if entry in rate),
            5,
        ),
        *(
            Ratio(f"10 queries to {entry.peer} query by query", ours[10] / rate[entry], 10)
            for entry in QUERY_BY_QUERY
            if entry in rate
        ),
        Ratio("registering one among 10,000 to one among ten", more[10_000] / more[10], 2, at_most=True),
        Ratio("registrations a second, 10,000 in one script", 10_000 / registered, 1000),
    ]


@dataclass(frozen=True, slots=True)
class _Growth:
    ratio: Ratio
    note: str


def _memory(rows: int) -> _Growth:
    """Memory after each of many epochs: that of the last quarter to that of the second, when windows had become full.

    `rows` bounds the number of queries of a quick run.
    """
    queries = _MEMORY_QUERIES if rows >= 1_000_000 else 1000
    scratch = folders.fresh("queries-run")
    command = [str(python_of(None)), "-m", "benchmarks.queries_memory_runner", str(scratch / "output")]
    said, _ = run_watched([*command, str(queries), str(_MEMORY_EPOCHS)], scratch)
    mb, quarter = said["mb"], _MEMORY_EPOCHS // 4
    full, end = median(mb[quarter : 2 * quarter]), median(mb[-quarter:])
    print(f"  memory at {queries:,} queries, MB by epoch: {mb}", flush=True)
    return _Growth(
        Ratio(
            f"memory at {queries:,} queries, end of {_MEMORY_EPOCHS} epochs to their second quarter",
            end / full,
            1.1,
            at_most=True,
        ),
        f"Memory of driver, JVM and workers at {queries:,} queries after each of {_MEMORY_EPOCHS} epochs of one slide, "
        f"{said['result_rows']:,} result rows in all, MB: {', '.join(map(str, mb))}.",
    )


def _row(entry: Entry, runs: list[dict[str, Any]], rate: float, wanted: int) -> dict[str, Any]:
    ours, measured = entry.peer is None, sorted({one["rows"] for one in runs})
    return {
        "way": entry.line,
        "queries": entry.queries,
        "rows": measured if len(measured) > 1 else measured[0],
        "extrapolated": "" if measured == [wanted] else f"{wanted / measured[-1]:.3g}x",
        "result_rows": max(one["result_rows"] for one in runs),
        "median_rows_per_second": round(rate),
        "seconds": [round(one["seconds"], 2) for one in runs],
        "ms_to_register_one_more": round(median(one["one_more_ms"] for one in runs), 2) if ours else "",
        "s_to_register_all": round(median(one["register_seconds"] for one in runs), 2) if ours else "",
        "peak_pss_mb": round(max(one["peak_pss_mb"] for one in runs)),
    }


def _run(entry: Entry, rows: int) -> dict[str, Any]:
    """One run in processes of its own, its answers compared. Raises `WrongAnswer`."""
    source, scratch = data.folder(rows), folders.fresh("queries-run")
    output = scratch / "output"
    if entry.peer is None:
        command = [str(python_of(None)), "-m", "benchmarks.queries_runner", str(source), str(output)]
        command += [str(entry.queries), json.dumps(entry.checked)]
    else:
        asked = scratch / "predicates.json"
        data.save_predicates(entry.queries, asked)
        command = [str(python_of(entry.peer)), "-m", f"benchmarks.peers.{entry.peer}.queries"]
        command += [entry.way, str(source), str(output), str(asked)]
    said, memory = run_watched(command, scratch, environment=settings_of(entry.peer))
    if entry.peer is None:
        answers, total = _ours(output, entry), said["result_rows"]
    else:
        answers, total = _theirs(output, entry, rows)
    _compare(entry, rows, answers)
    return {
        **said,
        "rows": rows,
        "result_rows": total,
        "peak_pss_mb": memory.peak_kb / 1024,
    }


def _ours(output: Path, entry: Entry) -> dict[int, pa.Table]:
    return {number: pq.read_table(output / f"q{number}.parquet") for number in entry.checked}


def _theirs(output: Path, entry: Entry, rows: int) -> tuple[dict[int, pa.Table], int]:
    files = [str(path) for path in sorted(output.glob("answer/*/*.parquet"))]
    table = ds.dataset(files).to_table()
    table = table.filter(pc.less(table["window_end"], data.last_window_end_us(rows)))
    return {number: table.filter(pc.equal(table["q"], number)) for number in entry.checked}, table.num_rows


def _compare(entry: Entry, rows: int, answers: dict[int, pa.Table]) -> None:
    predicates = data.predicates(entry.queries)
    wanted = data.expected(rows, {number: predicates[number] for number in entry.checked})
    for number, table in answers.items():
        inside = table.filter(pc.less(table["window_end"], data.last_window_end_us(rows)))
        answer = inside.sort_by([("window_end", "ascending"), ("key", "ascending")])
        for name in _COLUMNS:
            mine, theirs = (np.asarray(side[name], np.int64) for side in (wanted[number], answer))
            if not np.array_equal(mine, theirs):
                raise WrongAnswer(
                    f"{entry.label} queries: query {number}'s column {name} differs "
                    f"({len(mine)} rows expected, {len(theirs)} found)."
                )
