"""Times one window of a minute over panes, and Spark's own `window()` of the same rows, in turn in one session; prints JSON.

Headrace does all of it: rows read, panes folded, state stored, every window emitted, results durable. Spark's is its batch engine, which keeps no
state and closes nothing, writing the same answer to Parquet. Each pair of answers is compared before its times count.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import headrace as hr
from benchmarks import data, folders
from benchmarks.expected import WrongAnswer
from headrace.runtime.spark.session import session

RANGE_SECONDS, KEYS, ROWS_PER_SECOND = 60, 10, 1000
_SECOND = 1_000_000
_WARM_UP_ROWS, _FILE = 50_000, 1_000_000


def main() -> None:
    asked = json.loads(sys.argv[1])
    scratch = folders.fresh("panes")
    with session(scratch=scratch / "spark", heap="2g") as spark:
        spark.conf.set("spark.sql.shuffle.partitions", 2)  # its best on few cores and few groups
        few = write(scratch / "few", _WARM_UP_ROWS)
        timed(spark, scratch / "warm-up", few, 5)
        rows = write(scratch / "rows", asked["rows"])
        took = []
        for advance in range(asked["rounds"]):
            for panes in asked["panes"]:
                ours, theirs = timed(spark, scratch / f"{advance}-{panes}", rows, panes)
                took.append({"panes": panes, "ours": ours, "theirs": theirs})
    shutil.rmtree(scratch)
    print(json.dumps(took))


def write(folder: Path, count: int) -> Path:
    """So many rows in time order, a thousand a second and a hundred of each key, in files of a million."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(data.SEED)
    at = data.ORIGIN_US + np.arange(count) * (_SECOND // ROWS_PER_SECOND)
    key, value = random.permutation(np.arange(count, dtype=np.int32) % KEYS), random.random(count)
    stamps = pa.array(at).cast(data.SCHEMA.field("at").type)
    rows = pa.table([stamps, pa.array(key), pa.array(value)], schema=data.SCHEMA)
    for index, start in enumerate(range(0, count, _FILE)):
        pq.write_table(rows.slice(start, _FILE), folder / f"{index:03}.parquet", compression="lz4")
    return folder


def timed(spark: SparkSession, folder: Path, rows: Path, panes: int) -> tuple[float, float]:
    """Seconds of Headrace and of Spark for windows of so many panes. Raises `WrongAnswer` where they differ."""
    slide = RANGE_SECONDS // panes
    started = time.perf_counter()
    grouped = spark.read.parquet(str(rows)).groupBy(
        f.window("at", f"{RANGE_SECONDS} seconds", f"{slide} seconds").alias("w"), "key"
    )
    answer = grouped.agg(f.max("value").alias("top")).select(
        f.unix_micros("w.end").alias("end"), "key", "top"
    )
    answer.write.parquet(str(folder / "theirs"))
    theirs = time.perf_counter() - started
    with hr.open(folder / "home", spark=spark) as hub:
        hub.execute(f"""
            CREATE STREAM events (at TIMESTAMP, key INT, value DOUBLE)
              USING parquet OPTIONS (path '{rows}', archive 'none') TIMESTAMP BY at;
            CREATE QUERY answer AS SELECT window_end, key, MAX(value) AS top
              FROM events [RANGE {RANGE_SECONDS} SECONDS SLIDE {slide} SECONDS] GROUP BY key;
        """)
        started = time.perf_counter()
        hub.catch_up()
        ours = time.perf_counter() - started
        mine = hub.query("answer").history()
    _same(mine, pq.read_table(folder / "theirs"))
    shutil.rmtree(folder)
    return ours, theirs


def _same(mine: pa.Table, theirs: pa.Table) -> None:
    """Windows that have ended when the last row came; Spark's batch has those beyond it too."""
    mine = pa.table([mine["window_end"].cast(pa.int64()), mine["key"], mine["top"]], ["end", "key", "top"])
    last = max(mine["end"].to_pylist(), default=0)
    theirs = theirs.filter(pa.array(theirs["end"].to_numpy() <= last))
    order = [("end", "ascending"), ("key", "ascending")]
    one, other = mine.sort_by(order).combine_chunks(), theirs.sort_by(order).combine_chunks()
    if not mine.num_rows or one.to_pydict() != other.to_pydict():
        raise WrongAnswer(
            f"Expected the same windows of both, found {one.num_rows} rows, and {other.num_rows} of Spark's window()."
        )


if __name__ == "__main__":
    main()
