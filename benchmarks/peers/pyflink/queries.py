"""PyFlink with many standing queries over one stream, query by query. Prints one line of JSON.

Flink SQL: one statement set of an INSERT for each query, over CSV files (see `runner` for why CSV), two parallel tasks.
The files are made before the clock runs; answers are put into Parquet after it has stopped. `seconds` leaves out `idle`: what
the same statements took over the last file alone, before, when the JVM had run them once already. Where that is
most of what was measured, `seconds` says little.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv
from pyflink.table import TableEnvironment

from benchmarks.peers.pyflink.runner import environment

Predicate = list[tuple[str, int, int]]


def as_csv(source: Path, folder: Path) -> None:
    """The rows as Flink reads them: microseconds, key, value, attributes."""
    folder.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        table = pq.read_table(path)
        plain = table.set_column(0, "us", table["at"].cast(pa.int64()))
        csv.write_csv(plain, folder / f"{path.stem}.csv", csv.WriteOptions(include_header=False))


def run(flink: TableEnvironment, name: str, rows: Path, output: Path, predicates: list[Predicate]) -> float:
    """Seconds from submission to the last result."""
    flink.execute_sql(f"""
        CREATE TABLE {name} (
          us BIGINT, k INT, v BIGINT, a INT, b INT, c INT, d INT,
          happened AS TO_TIMESTAMP_LTZ(us / 1000, 3),
          WATERMARK FOR happened AS happened - INTERVAL '1' DAY
        ) WITH ('connector' = 'filesystem', 'path' = '{rows.as_uri()}', 'format' = 'csv')""")
    everything = flink.create_statement_set()
    since_1970 = "CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_end) AS BIGINT)"
    for number, factors in enumerate(predicates):
        flink.execute_sql(f"""
            CREATE TABLE {name}_{number} (window_end BIGINT, k INT, n BIGINT, total BIGINT)
            WITH ('connector' = 'filesystem', 'path' = '{(output / str(number)).as_uri()}', 'format' = 'csv')""")
        where = " AND ".join(f"{column} BETWEEN {low} AND {high}" for column, low, high in factors)
        flink.execute_sql(f"CREATE TEMPORARY VIEW {name}_of_{number} AS SELECT * FROM {name} WHERE {where}")
        windows = (
            f"HOP(TABLE {name}_of_{number}, DESCRIPTOR(happened), INTERVAL '10' SECOND, INTERVAL '60' SECOND)"
        )
        everything.add_insert_sql(f"""
            INSERT INTO {name}_{number} SELECT 1000000 * {since_1970}, k, COUNT(*), SUM(v)
            FROM {windows} GROUP BY window_start, window_end, k""")
    started = time.time()
    everything.execute().wait()
    return time.time() - started


def save(output: Path, queries: int) -> None:
    """The answers as the suite reads them."""
    names = ["window_end", "key", "n", "total"]
    for number in range(queries):
        parts = [
            path
            for path in (output / "real" / str(number)).rglob("*")
            if path.is_file() and path.stat().st_size
        ]
        tables = [csv.read_csv(path, csv.ReadOptions(column_names=names)) for path in parts]
        table = (
            pa.concat_tables(tables)
            if tables
            else pa.table({name: pa.array([], pa.int64()) for name in names})
        )
        table = table.append_column("q", pa.array([number] * table.num_rows, pa.int64()))
        (output / "answer" / str(number)).mkdir(parents=True)
        pq.write_table(table, output / "answer" / str(number) / "part.parquet")


def main() -> None:
    source, output = Path(sys.argv[1]), Path(sys.argv[2])
    predicates: list[Predicate] = json.loads(Path(sys.argv[3]).read_text(encoding="utf-8"))
    rows, last = output / "rows", output / "last"
    as_csv(source, rows)
    last.mkdir()
    shutil.copy(max(rows.iterdir()), last)
    flink = environment()
    run(flink, "cold_rows", last, output / "cold", predicates)
    idle = run(flink, "idle_rows", last, output / "idle", predicates)
    total = run(flink, "real_rows", rows, output / "real", predicates)
    save(output, len(predicates))
    print(json.dumps({"seconds": total - idle, "idle": idle}), flush=True)


if __name__ == "__main__":
    main()
