"""Pathway with many standing queries over one stream, query by query. Prints one line of JSON.

Each query is a filter, a sliding window by key and a reduction of one graph, over CSV files (the fastest format its engine
reads by itself), on a thread per core. The input is read as finite, so the engine may take it in few large steps and emits every
window once: rather too fast than too slow. The files are made before the clock runs; answers are put into Parquet after
it has stopped. `seconds` is the run of the graph.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path

os.environ.setdefault("PATHWAY_THREADS", str(len(os.sched_getaffinity(0))))

import pathway as pw
import pyarrow as pa
import pyarrow.parquet as pq
from pathway.internals.parse_graph import G
from pyarrow import csv

RANGE_US, SLIDE_US = 60_000_000, 10_000_000
Predicate = list[tuple[str, int, int]]


class Row(pw.Schema):
    """A row: microseconds, key, value, attributes."""

    at: int
    key: int
    v: int
    a: int
    b: int
    c: int
    d: int


def as_csv(source: Path, folder: Path) -> None:
    """The rows as Pathway reads them."""
    folder.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        table = pq.read_table(path)
        plain = table.set_column(0, "at", table["at"].cast(pa.int64()))
        csv.write_csv(plain, folder / f"{path.stem}.csv")


def ask(rows: pw.Table, factors: Predicate, answer: Path) -> None:
    """One query, its answer into a CSV file."""
    selected = rows
    for name, low, high in factors:
        selected = selected.filter((selected[name] >= low) & (selected[name] <= high))
    windows = selected.windowby(
        selected.at, window=pw.temporal.sliding(hop=SLIDE_US, duration=RANGE_US), instance=selected.key
    )
    reduced = windows.reduce(
        window_end=pw.this["_pw_window_end"],
        key=pw.this["_pw_instance"],
        n=pw.reducers.count(),
        total=pw.reducers.sum(pw.this.v),
    )
    pw.io.csv.write(reduced, str(answer))


def run(folder: Path, output: Path, predicates: list[Predicate]) -> float:
    """Seconds of the graph of all queries."""
    rows = pw.io.csv.read(str(folder / "part-*.csv"), schema=Row, mode="static")
    for number, factors in enumerate(predicates):
        ask(rows, factors, output / f"{number}.csv")
    started = time.time()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    return time.time() - started


def save(output: Path, queries: int) -> None:
    """The answers as the suite reads them."""
    for number in range(queries):
        changes = csv.read_csv(output / f"{number}.csv")
        if changes["diff"].to_pylist().count(1) != changes.num_rows:
            sys.exit(f"Expected query {number} to emit each window once, found revisions.")
        table = changes.select(["window_end", "key", "n", "total"])
        table = table.append_column("q", pa.array([number] * table.num_rows, pa.int64()))
        (output / "answer" / str(number)).mkdir(parents=True)
        pq.write_table(table, output / "answer" / str(number) / "part.parquet")


def main() -> None:
    source, output = Path(sys.argv[2]), Path(sys.argv[3])
    predicates: list[Predicate] = json.loads(Path(sys.argv[4]).read_text(encoding="utf-8"))
    as_csv(source, output / "rows")
    last = output / "last"
    last.mkdir()
    shutil.copy(max((output / "rows").iterdir()), last)
    run(last, last, predicates)
    G.clear()
    seconds = run(output / "rows", output, predicates)
    save(output, len(predicates))
    print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
