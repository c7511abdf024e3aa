"""Headrace: one join of streams over Parquet files, on Spark. Prints one line of JSON; see `benchmarks.suite.stream_joins`.

One row of each stream, an hour before the others, is read before the clock runs: it measures what a running pipeline makes of its input,
until all results are durable. With a third argument the sum is one of doubles, for which the pairs are made.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from benchmarks import stream_joins_data as data

WINDOW = f"[RANGE TUMBLING {data.WINDOW_SECONDS} SECONDS]"


def statements(source: Path, streams: int, *, pairs: bool) -> str:
    """The streams, and the query that joins them."""
    names = [f"s{number}" for number in range(streams)]
    created = "".join(
        f"CREATE STREAM {name} (at TIMESTAMP, key INT, v BIGINT) USING parquet "
        f"OPTIONS (path '{source / name}', archive 'none') TIMESTAMP BY at;"
        for name in names
    )
    joined = " ".join(f"JOIN {name} {WINDOW} ON {name}.key = s0.key" for name in names[1:])
    total = "CAST(s0.v + s1.v AS DOUBLE)" if pairs else "s0.v + s1.v"
    return f"""{created}
        CREATE QUERY answer AS SELECT s0.window_end AS window_end, COUNT(*) AS n, SUM({total}) AS total
        FROM s0 {WINDOW} {joined}"""


def main() -> None:
    source, output, streams = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    folder = output / "streams"
    for of_stream in source.iterdir():
        (folder / of_stream.name).mkdir(parents=True)
        pq.write_table(data.first_row(), folder / of_stream.name / "part-.parquet")
    with hr.open(output / "home") as hub:
        hub.execute(statements(folder, streams, pairs=len(sys.argv) > 4))
        hub.catch_up()
        for of_stream in source.iterdir():
            for path in sorted(of_stream.iterdir()):
                os.link(path, folder / of_stream.name / path.name)
        started = time.perf_counter()
        hub.catch_up()
        seconds = time.perf_counter() - started
        answer = hub.query("answer").history()
    ends = answer["window_end"].cast(pa.int64())
    pq.write_table(answer.set_column(0, "window_end", ends), output / "answer.parquet")
    print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
