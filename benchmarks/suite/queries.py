"""Many standing queries over one stream: what the second, the hundredth, the ten thousandth costs.

Windows of 60 s every 10 s by 100 keys, count and sum, each query under its own condition on up to four attributes.
"""

from __future__ import annotations

import json
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
from benchmarks.charts import Bar
from benchmarks.environments import python_of, versions_of
from benchmarks.expected import WrongAnswer
from benchmarks.report import Report
from benchmarks.runs import run_watched
from benchmarks.thresholds import Ratio

_CHECKED = 50
_MEMORY_QUERIES, _MEMORY_EPOCHS = 10_000, 24
_COLUMNS = ("window_end", "key", "n", "total")


@dataclass(frozen=True, slots=True)
class Entry:
    """A way to run so many queries, over at most so many rows."""

    way: str
    queries: int
    most_rows: int
    peer: str = "spark"

    @property
    def is_ours(self) -> bool:
        return self.way == "headrace"

    @property
    def checked(self) -> list[int]:
        """The numbers of the queries whose answers are compared, row by row."""
        return sorted({int(each) for each in np.linspace(0, self.queries - 1, _CHECKED)})


OURS = tuple(
    Entry("headrace", queries, rows)
    for queries, rows in (
        (1, 8_000_000),
        (10, 8_000_000),
        (100, 8_000_000),
        (1000, 8_000_000),
        (10_000, 8_000_000),
    )
)
NATIVE = Entry("one by one", 1, 8_000_000)
MANY_NATIVE = Entry("one by one", 10, 1_000_000)
JOIN = Entry("join", 1000, 100_000)
NUMPY = Entry("numpy", 1000, 2_000_000)
BYTEWAX = Entry("one by one", 10, 100_000, "bytewax")
PYFLINK = Entry("one by one", 4, 1_000_000, "pyflink")
PATHWAY = Entry("one by one", 10, 100_000, "pathway")
RIVALS = (NATIVE, MANY_NATIVE, JOIN, NUMPY, BYTEWAX, PYFLINK, PATHWAY)
QUERY_BY_QUERY = (MANY_NATIVE, BYTEWAX, PYFLINK, PATHWAY)


def queries(rows: int, rounds: int) -> Report:
    """All in turn, `rounds` times; medians count."""
    entries = (*OURS, *RIVALS)
    found: dict[Entry, list[dict[str, Any]]] = {entry: [] for entry in entries}
    for number in range(1, rounds + 1):
        for entry in entries:
            done = _run(entry, min(rows, entry.most_rows))
            found[entry].append(done)
            rate = f"{done['rate'] / 1e6:.4f} M rows/s" if tells(done) else "too few rows to tell its rate"
            print(
                f"  round {number}: {_label(entry)} queries: {rate}, {done['result_rows']:,} result rows",
                flush=True,
            )
    grown = _memory(min(rows, OURS[-1].most_rows))
    rate = _rates(found)
    table = [_row(entry, runs, rate.get(entry)) for entry, runs in found.items()]
    untold = [
        f"{_label(entry)} queries: what it took beyond an empty run is too little to tell a rate."
        for entry in entries
        if entry not in rate
    ]
    return Report(
        "queries",
        "Many standing queries: rows a second by their number",
        table,
        [*_ratios(rate, found), grown.ratio],
        [
            Bar(_label(entry), rate[entry] / 1e6, "ours" if entry.is_ours else "theirs")
            for entry in entries
            if entry in rate
        ],
        "M rows/s",
        [_NOTE, *untold, grown.told],
        {peer: versions_of(peer) for peer in ("spark", "bytewax", "pyflink", "pathway")},
    )


_NOTE = (
    "200,000 rows an event-second. Every result row of up to 50 queries of each run was compared with numpy's. 'One by one' is "
    "a streaming query for each, all running at once; 'join' a broadcast table of predicates joined with the rows; "
    "'numpy' all predicates in mapInArrow, on whole partitions, before one aggregation. Slow ones had fewer of the same rows: "
    "rates are what is compared, and per query where the numbers of queries differ. Ours had read one row before the clock "
    "ran, so plans were loaded; results are durable when it stops."
)


def tells(run: dict[str, Any]) -> bool:
    """Whether a run took long enough for a rate: beyond what it takes without rows, which is subtracted, at least half of that.

    A difference of two times that are nearly the same is mostly the noise of both, and may even be negative.
    """
    return bool(run["seconds"] > run.get("idle", 0.0) / 2)


def _rates(found: dict[Entry, list[dict[str, Any]]]) -> dict[Entry, float]:
    """The median rows a second of each entry of which a run tells."""
    told = {entry: [one["rate"] for one in runs if tells(one)] for entry, runs in found.items()}
    return {entry: median(each) for entry, each in told.items() if each}


def _ratios(rate: dict[Entry, float], found: dict[Entry, list[dict[str, Any]]]) -> list[Ratio]:
    ours = {entry.queries: rate[entry] for entry in OURS}
    more = {entry.queries: median(one["one_more_ms"] for one in found[entry]) for entry in OURS}
    registered = median(one["register_seconds"] for one in found[OURS[-1]])
    return [
        Ratio("1 query to Spark native", ours[1] / rate[NATIVE], 2),
        Ratio("1000 queries to 1", ours[1000] / ours[1], 0.25),
        Ratio("10,000 queries to 1000", ours[10_000] / ours[1000], 0.1),
        Ratio(
            "1000 queries to the better of Spark's shared ways", ours[1000] / max(rate[JOIN], rate[NUMPY]), 5
        ),
        *(
            Ratio(
                f"1000 queries to {entry.peer} query by query (its rate at {entry.queries}, taken in proportion)",
                ours[1000] * 1000 / (rate[entry] * entry.queries),
                200,
            )
            for entry in QUERY_BY_QUERY
            if entry in rate
        ),
        Ratio("registering one among 10,000 to one among ten", more[10_000] / more[10], 2, at_most=True),
        Ratio("registrations a second, 10,000 in one script", 10_000 / registered, 1000),
    ]


@dataclass(frozen=True, slots=True)
class _Growth:
    ratio: Ratio
    told: str


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


def _row(entry: Entry, runs: list[dict[str, Any]], rate: float | None) -> dict[str, Any]:
    ours = entry.is_ours
    return {
        "way": entry.way if ours else f"{entry.peer}, {entry.way}",
        "queries": entry.queries,
        "rows": runs[0]["rows"],
        "result_rows": runs[0]["result_rows"],
        "median_rows_per_second": "too few rows to tell" if rate is None else round(rate),
        "seconds": [round(one["seconds"], 2) for one in runs],
        "ms_to_register_one_more": round(median(one["one_more_ms"] for one in runs), 2) if ours else "",
        "s_to_register_all": round(median(one["register_seconds"] for one in runs), 2) if ours else "",
        "peak_pss_mb": round(max(one["peak_pss_mb"] for one in runs)),
    }


def _run(entry: Entry, rows: int) -> dict[str, Any]:
    """One run in processes of its own, its answers compared. Raises `WrongAnswer`."""
    source, scratch = data.folder(rows), folders.fresh("queries-run")
    output = scratch / "output"
    if entry.is_ours:
        command = [str(python_of(None)), "-m", "benchmarks.queries_runner", str(source), str(output)]
        command += [str(entry.queries), json.dumps(entry.checked)]
    else:
        asked = scratch / "predicates.json"
        data.save_predicates(entry.queries, asked)
        command = [str(python_of(entry.peer)), "-m", f"benchmarks.peers.{entry.peer}.queries"]
        command += [entry.way] if entry.peer == "spark" else []
        command += [str(source), str(output), str(asked)]
    said, memory = run_watched(command, scratch)
    if entry.is_ours:
        answers, total = _ours(output, entry), said["result_rows"]
    else:
        answers, total = _theirs(output, entry, rows)
    _compare(entry, rows, answers)
    return {
        **said,
        "rows": rows,
        "result_rows": total,
        "rate": rows / said["seconds"],
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
        found = inside.sort_by([("window_end", "ascending"), ("key", "ascending")])
        for name in _COLUMNS:
            mine, theirs = (np.asarray(side[name], np.int64) for side in (wanted[number], found))
            if not np.array_equal(mine, theirs):
                raise WrongAnswer(
                    f"{entry.way}, {entry.queries} queries: query {number}'s column {name} differs "
                    f"({len(mine)} rows expected, {len(theirs)} found)."
                )


def _label(entry: Entry) -> str:
    return f"{'' if entry.is_ours else f'{entry.peer}, '}{entry.way}: {entry.queries:,}"
