"""DuckDB asked about one window: `python window.py FILE…` answers a line of JSON for each line of JSON it is given.

A question is `{"sql": …, "times": n}` over the view `files` (the Parquet files as they are) or the table `held` (the same, loaded
and in order of time); the answer has the number of rows and the milliseconds of each time, rows fetched as Arrow.
"""

import json
import sys
import time

import duckdb


def main() -> None:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"CREATE VIEW files AS SELECT * FROM read_parquet({sys.argv[1:]!r})")
    connection.execute('CREATE TABLE held AS SELECT * FROM files ORDER BY "at"')
    print("ready", flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        spent, table = [], None
        for _ in range(question["times"]):
            started = time.perf_counter()
            table = connection.sql(question["sql"]).to_arrow_table()
            spent.append((time.perf_counter() - started) * 1000)
        print(json.dumps({"rows": table.num_rows, "ms": spent}), flush=True)


if __name__ == "__main__":
    main()
