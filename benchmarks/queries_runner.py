"""Headrace: many standing queries over one stream. Prints one line of JSON; see `benchmarks.suite.queries`.

All queries are registered as one script, and one row is read, before the clock runs: it measures what a running
pipeline makes of its input, until all results are durable. What one more registration costs is measured after it.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from benchmarks import queries_data as data
from headrace.runtime.messages.result_entry import answered

ONE_MORE = 9


def create(number: int, factors: data.Predicate) -> str:
    """The statement that registers a query."""
    where = " AND ".join(f"{name} >= {low} AND {name} <= {high}" for name, low, high in factors)
    return f"""CREATE QUERY q{number} AS
        SELECT window_end, key, COUNT(*) AS n, SUM(v) AS total
        FROM s [RANGE {data.RANGE_SECONDS} SECONDS SLIDE {data.SLIDE_SECONDS} SECONDS]
        WHERE {where} GROUP BY key;"""


def feed(source: Path, folder: Path) -> None:
    """Let the stream's folder have the files."""
    for path in sorted(source.iterdir()):
        os.link(path, folder / path.name)


def one_more(hub: hr.Hub, first: int) -> list[float]:
    """Milliseconds of single registrations, one after the other."""
    spent = []
    for number, factors in enumerate(data.predicates(first + ONE_MORE)[first:], first):
        statement = create(number, factors)
        started = time.perf_counter()
        hub.execute(statement)
        spent.append((time.perf_counter() - started) * 1000)
    return spent


def main() -> None:
    source, output, queries = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    checked = json.loads(sys.argv[4])
    folder = output / "stream"
    folder.mkdir(parents=True)
    pq.write_table(data.first_rows(), folder / "part-.parquet")
    columns = ", ".join(f"{name} INT" for name in data.ATTRIBUTES)
    with hr.open(output / "home") as hub:
        hub.execute(f"""CREATE STREAM s (at TIMESTAMP, key INT, v BIGINT, {columns})
            USING parquet OPTIONS (path '{folder}', archive 'none') TIMESTAMP BY at;""")
        script = "".join(create(number, factors) for number, factors in enumerate(data.predicates(queries)))
        started = time.perf_counter()
        hub.execute(script)
        registered = time.perf_counter() - started
        hub.catch_up()
        feed(source, folder)
        started = time.perf_counter()
        hub.catch_up()
        seconds = time.perf_counter() - started
        entries = hub.home.entries(hub.home.latest(), "results")
        rows = sum(facts[0] for entry in entries for facts in answered(entry, hub.home.store).values())
        tables = {number: hub.query(f"q{number}").history() for number in checked}
        more = one_more(hub, queries)
        hub.catch_up()
    for number, table in tables.items():
        ends = table["window_end"].cast(pa.int64())
        pq.write_table(table.set_column(0, "window_end", ends), output / f"q{number}.parquet")
    print(
        json.dumps(
            {
                "seconds": seconds,
                "result_rows": rows,
                "register_seconds": registered,
                "one_more_ms": sorted(more)[len(more) // 2],
                "driver_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }
        )
    )


if __name__ == "__main__":
    main()
