"""PyFlink: Flink SQL with TUMBLE or HOP over CSV files, two parallel tasks, results to CSV.

CSV is the fastest format that the package reads: its Arrow source (`from_pandas`) scans slower, Parquet needs a jar that
does not come with it. Two readers take files in any order, so the watermark waits an hour and windows close at the end
of the input. No checkpoints are taken. `seconds` leaves out what the same statement takes over one row.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment

from benchmarks.protocol import RANGE_SECONDS, Request, answer, request

_SETTINGS = {
    "parallelism.default": "2",
    "pipeline.object-reuse": "true",
    "table.local-time-zone": "UTC",
}


def environment() -> TableEnvironment:
    table_environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in _SETTINGS.items():
        table_environment.get_config().set(name, value)
    return table_environment


def declare(flink: TableEnvironment, name: str, source: Path, sink: Path) -> None:
    flink.execute_sql(f"""
        CREATE TABLE {name}_in (
          us BIGINT, k INT, v DOUBLE, happened AS TO_TIMESTAMP_LTZ(us / 1000, 3),
          WATERMARK FOR happened AS happened - INTERVAL '1' HOUR
        ) WITH ('connector' = 'filesystem', 'path' = '{source.as_uri()}', 'format' = 'csv')""")
    flink.execute_sql(f"""
        CREATE TABLE {name}_out (window_end BIGINT, k INT, n BIGINT, total DOUBLE, top DOUBLE)
        WITH ('connector' = 'filesystem', 'path' = '{sink.as_uri()}', 'format' = 'csv')""")


def run(flink: TableEnvironment, name: str, asked: Request) -> float:
    """Seconds from submission to the last result."""
    length, slide = (f"INTERVAL '{seconds}' SECOND" for seconds in (RANGE_SECONDS, asked.slide_seconds))
    windows = (
        f"TUMBLE(TABLE {name}_in, DESCRIPTOR(happened), {length})"
        if asked.slide_seconds == RANGE_SECONDS
        else f"HOP(TABLE {name}_in, DESCRIPTOR(happened), {slide}, {length})"
    )
    since_1970 = "CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_end) AS BIGINT)"
    started = time.time()
    flink.execute_sql(f"""
        INSERT INTO {name}_out SELECT 1000000 * {since_1970}, k, COUNT(*), SUM(v), MAX(v)
        FROM {windows} GROUP BY window_start, window_end, k""").wait()
    return time.time() - started


def main() -> None:
    asked = request()
    begun = time.time()
    flink = environment()
    one_row = asked.output.parent / "one-row"
    one_row.mkdir()
    shutil.copy(max(asked.folder.iterdir()), one_row)
    declare(flink, "first", one_row, asked.output.parent / "first")
    declare(flink, "second", one_row, asked.output.parent / "second")
    declare(flink, "real", asked.folder, asked.output)
    run(flink, "first", asked)
    idle = run(flink, "second", asked)
    startup = time.time() - begun
    total = run(flink, "real", asked)
    answer(asked.rows, total - idle, startup, of_which_idle=idle)


if __name__ == "__main__":
    main()
