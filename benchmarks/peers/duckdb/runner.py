"""DuckDB over the Parquet files as one batch: rows into panes of one slide in one pass, panes into windows.

A yardstick: no state, no commits, no windows that close. `warm=no` leaves the warm-up out.
"""

from __future__ import annotations

import time
from pathlib import Path

import duckdb

from benchmarks.protocol import RANGE_SECONDS, Request, answer, cores, one_row, request


def run(connection: duckdb.DuckDBPyConnection, folder: Path, slide: int, output: Path) -> float:
    """Seconds from the statement to the written answer."""
    output.mkdir(exist_ok=True)
    width = slide * 1_000_000
    started = time.time()
    connection.execute(f"""
        COPY (
          WITH panes AS (
            SELECT epoch_us("at") // {width} AS pane, key,
                   count(*) AS count, sum(value) AS sum, max(value) AS max
            FROM read_parquet('{folder}/*.parquet') GROUP BY ALL)
          SELECT (pane + later) * {width} AS window_end, key,
                 sum(count)::BIGINT AS count, sum(sum) AS sum, max(max) AS max
          FROM panes, range(1, {RANGE_SECONDS // slide + 1}) AS held(later) GROUP BY ALL
        ) TO '{output}/answer.parquet' (FORMAT parquet, COMPRESSION lz4)""")
    return time.time() - started


def connected(asked: Request) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": cores()})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"SET temp_directory = '{asked.output.parent / 'spilled'}'")
    return connection


def main() -> None:
    asked = request()
    begun = time.time()
    connection = connected(asked)
    if asked.options.get("warm") != "no":
        run(connection, one_row(asked), asked.slide_seconds, asked.output.parent / "warm-up")
    startup = time.time() - begun
    answer(asked.rows, run(connection, asked.folder, asked.slide_seconds, asked.output), startup)


if __name__ == "__main__":
    main()
