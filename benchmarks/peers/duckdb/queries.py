"""DuckDB with many queries over the same Parquet files in one batch statement, a yardstick. Prints one line of JSON.

`conditional`: one pass with a filtered count and sum for each query. `join`: the rows joined with a table of the predicates, at 1000 queries
sixty times faster. Both aggregate panes of 10 s first and add those of a window up.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

import duckdb

from benchmarks.protocol import cores

SLIDE_US, PANES = 10_000_000, 6
NAMES = ("a", "b", "c", "d")
WIDEST = (-(1 << 30), 1 << 30)
Predicate = list[tuple[str, int, int]]


def conditional(source: Path, predicates: list[Predicate]) -> str:
    """(pane, key, q, n, total) by arrays with an entry for each query."""
    holds = [
        " AND ".join(f"{name} BETWEEN {low} AND {high}" for name, low, high in factors)
        for factors in predicates
    ]
    counts = ", ".join(f"count(*) FILTER (WHERE {factors})" for factors in holds)
    totals = ", ".join(f"sum(v) FILTER (WHERE {factors})" for factors in holds)
    return f"""
        SELECT pane, key, unnest(range({len(holds)})) AS q, unnest(n) AS n, unnest(total) AS total
        FROM (SELECT epoch_us("at") // {SLIDE_US} AS pane, key, [{counts}] AS n, [{totals}] AS total
              FROM read_parquet('{source}/*.parquet') GROUP BY ALL)"""


def joined(source: Path) -> str:
    """The same from a join with the table `rules`."""
    holds = " AND ".join(f"{name} BETWEEN low_{name} AND high_{name}" for name in NAMES)
    return f"""
        SELECT epoch_us("at") // {SLIDE_US} AS pane, key, q, count(*) AS n, sum(v) AS total
        FROM read_parquet('{source}/*.parquet') JOIN rules ON {holds} GROUP BY ALL"""


def declare_rules(connection: duckdb.DuckDBPyConnection, predicates: list[Predicate]) -> None:
    ends = ", ".join(f"low_{name} INTEGER, high_{name} INTEGER" for name in NAMES)
    connection.execute(f"CREATE TABLE rules (q INTEGER, {ends})")
    for number, factors in enumerate(predicates):
        known = {name: (low, high) for name, low, high in factors}
        bounds = [end for name in NAMES for end in known.get(name, WIDEST)]
        connection.execute(f"INSERT INTO rules VALUES ({', '.join('?' * 9)})", [number, *bounds])


def run(connection: duckdb.DuckDBPyConnection, panes: str, output: Path) -> float:
    """Seconds from the statement to the written answer."""
    output.mkdir(parents=True)
    started = time.time()
    connection.execute(f"""
        COPY (
          SELECT q, (pane + later) * {SLIDE_US} AS window_end, key, sum(n)::BIGINT AS n, sum(total)::BIGINT AS total
          FROM ({panes}), range(1, {PANES + 1}) AS held(later) WHERE n > 0 GROUP BY ALL
        ) TO '{output}/part.parquet' (FORMAT parquet, COMPRESSION lz4)""")
    return time.time() - started


def main() -> None:
    way, source, output = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    predicates: list[Predicate] = json.loads(Path(sys.argv[4]).read_text(encoding="utf-8"))
    last = output / "last"
    last.mkdir(parents=True)
    shutil.copy(max(source.iterdir()), last)
    connection = duckdb.connect(config={"threads": cores()})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET max_expression_depth = 100000")
    connection.execute(f"SET temp_directory = '{output / 'spilled'}'")
    declare_rules(connection, predicates)
    warm_up, all_rows = (
        joined(folder) if way == "join" else conditional(folder, predicates) for folder in (last, source)
    )
    run(connection, warm_up, output / "warm-up")
    print(json.dumps({"seconds": run(connection, all_rows, output / "answer" / "all")}), flush=True)


if __name__ == "__main__":
    main()
