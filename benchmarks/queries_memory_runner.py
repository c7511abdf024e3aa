"""Headrace: what many standing queries take of memory, epoch after epoch. Prints one line of JSON.

Each epoch brings one slide of rows and answers one window of every query. Old panes expire with the windows that
held them, results stay on disk; so once a window is full of panes, memory must not grow. It is the proportional set size of
the driver, the JVM and the workers after each epoch.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from benchmarks import queries_data as data
from benchmarks.memory import tree_pss_kb
from benchmarks.queries_runner import create

ROWS = 20_000
KEYS = 10


def slide(number: int) -> pa.Table:
    """The rows of one slide: values of some rows of the benchmark, times spread over the slide, few keys."""
    table = data.table(number, ROWS)
    at = data.ORIGIN_US + (number * ROWS + np.arange(ROWS)) * (data.SLIDE_SECONDS * 1_000_000 // ROWS)
    few = pa.array(table["key"].to_numpy() % KEYS)
    times = pa.array(at).cast(table.schema.field("at").type)
    return table.set_column(0, "at", times).set_column(1, "key", few)


def main() -> None:
    output, queries, epochs = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    folder = output / "stream"
    folder.mkdir(parents=True)
    columns = ", ".join(f"{name} INT" for name in data.ATTRIBUTES)
    megabytes, answered = [], []
    with hr.open(output / "home") as hub:
        hub.execute(f"""CREATE STREAM s (at TIMESTAMP, key INT, v BIGINT, {columns})
            USING parquet OPTIONS (path '{folder}', archive 'none', order 'name') TIMESTAMP BY at;""")
        hub.execute(
            "".join(create(number, factors) for number, factors in enumerate(data.predicates(queries)))
        )
        hub.on_epoch(
            lambda seen: answered.append(sum(operator.results for operator in seen.operators.values()))
        )
        for number in range(epochs):
            pq.write_table(slide(number), output / "next")
            (output / "next").rename(folder / f"part-{number:05d}.parquet")
            hub.catch_up()
            megabytes.append(round(tree_pss_kb(os.getpid()) / 1024))
    print(json.dumps({"mb": megabytes, "result_rows": sum(answered)}))


if __name__ == "__main__":
    main()
