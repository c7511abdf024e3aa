"""DuckDB: the join of the streams' files as one batch. A yardstick: no state, no commits, no windows that close. Prints one line of JSON."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import duckdb

from benchmarks.protocol import cores

WINDOW_US = 10_000_000


def run(connection: duckdb.DuckDBPyConnection, source: Path, streams: int, output: Path) -> float:
    """Seconds from the statement to the written answer."""
    rows = [
        f"""(SELECT epoch_us("at") // {WINDOW_US} AS w, key, v FROM '{source}/s{number}/*.parquet') s{number}"""
        for number in range(streams)
    ]
    joined = " ".join([rows[0], *(f"JOIN {one} USING (w, key)" for one in rows[1:])])
    started = time.perf_counter()
    connection.execute(f"""
        COPY (
          SELECT (w + 1) * {WINDOW_US} AS window_end, count(*) AS n, sum(s0.v + s1.v)::BIGINT AS total FROM {joined} GROUP BY w
        ) TO '{output}' (FORMAT parquet)""")
    return time.perf_counter() - started


def main() -> None:
    source, output, streams = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    output.mkdir(parents=True)
    connection = duckdb.connect(config={"threads": cores()})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SELECT 1 FROM range(1) a JOIN range(1) b USING (range)")
    print(json.dumps({"seconds": run(connection, source, streams, output / "answer.parquet")}), flush=True)


if __name__ == "__main__":
    main()
