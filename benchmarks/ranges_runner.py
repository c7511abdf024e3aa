"""Times the steady state of one windowed query at several ranges and slides, in turn, in one Spark session; prints JSON.

A window of an hour takes an hour of event time to fill. So that every timed window is full, a first file gives each key one
row a second from before the earliest timed window on; it is read before the clock starts. The clock covers the dense rows: from
the first of them read until the results of every window that ends among them are durable.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import headrace as hr
from benchmarks import data, expected, folders
from headrace.runtime.spark.session import session

_SECOND = 1_000_000
_WARM_UP_ROWS = 200_000


def main() -> None:
    asked = json.loads(sys.argv[1])
    scratch = folders.fresh("ranges")
    with session(scratch=scratch / "spark", heap="2g") as spark:
        took = []
        timed(spark, scratch / "warm-up", 60, 1, _WARM_UP_ROWS)
        for advance in range(asked["rounds"]):
            for length, slide in asked["windows"]:
                seconds, answer = timed(
                    spark, scratch / f"{advance}-{length}-{slide}", length, slide, asked["rows"]
                )
                check(answer, length, slide, asked["rows"])
                took.append({"range_s": length, "slide_s": slide, "seconds": seconds})
    print(json.dumps(took))


def timed(spark: SparkSession, folder: Path, length: int, slide: int, rows: int) -> tuple[float, pa.Table]:
    """Seconds of the dense rows, and the whole answer."""
    source = folder / "rows"
    source.mkdir(parents=True)
    _write(sparse(length), source / "0-sparse.parquet")
    with hr.open(folder / "home", spark=spark) as hub:
        hub.execute(f"""
            CREATE STREAM events (at TIMESTAMP, key INT, value DOUBLE)
              USING parquet OPTIONS (path '{source}', archive 'none') TIMESTAMP BY at SLACK 0 SECONDS;
            CREATE QUERY answer AS SELECT window_end, key, COUNT(*) AS n, SUM(value) AS total, MAX(value) AS top
              FROM events [RANGE {length} SECONDS SLIDE {slide} SECONDS] GROUP BY key;
        """)
        hub.catch_up()
        for path in sorted(data.rows(rows).folder.glob("part-*.parquet"))[:-1]:
            (source / f"1-{path.name}").hardlink_to(path)
        _write(_row_at(end_us(rows)), source / "2-end.parquet")
        started = time.perf_counter()
        hub.catch_up()
        seconds = time.perf_counter() - started
        return seconds, hub.query("answer").history()


def sparse(length: int) -> pa.Table:
    """A row a second and key, of value 0, for the `length` seconds before the dense rows and one more."""
    second = np.repeat(np.arange(-length - 1, 0), data.KEYS)
    key = np.tile(np.arange(data.KEYS, dtype=np.int32), length + 1)
    return _table(data.ORIGIN_US + second * _SECOND, key)


def end_us(rows: int) -> int:
    """Where the last whole second of the dense rows ends."""
    return data.ORIGIN_US + rows // data.ROWS_PER_SECOND * _SECOND


def check(answer: pa.Table, length: int, slide: int, rows: int) -> None:
    """Compare the windows that end at some of the dense seconds with what numpy finds. Raises `WrongAnswer`."""
    counts, sums, tops = expected.seconds(rows)
    last = rows // data.ROWS_PER_SECOND
    first = -(-data.ORIGIN_US // _SECOND // slide) * slide - data.ORIGIN_US // _SECOND
    ends = range(first, last + 1, slide)
    found_end = answer["window_end"].cast(pa.int64()).to_numpy()
    for end in sorted({ends[0], ends[len(ends) // 3], ends[len(ends) // 2], ends[-1]}):
        mine = answer.filter(pa.array(found_end == data.ORIGIN_US + end * _SECOND)).sort_by("key")
        held = slice(max(0, end - length), end)
        before = max(0, length - end)
        total = sums[held].sum(axis=0)
        top = tops[held].max(axis=0, initial=0.0 if before else -np.inf)
        right = (
            mine["key"].to_pylist() == list(range(data.KEYS))
            and np.array_equal(mine["n"].to_numpy(), counts[held].sum(axis=0) + before)
            and np.array_equal(mine["top"].to_numpy(), top)
            and np.allclose(mine["total"].to_numpy(), total, rtol=expected.SUM_TOLERANCE, atol=0)
        )
        if not right:
            raise expected.WrongAnswer(
                f"The windows of {length} s by {slide} s that end at second {end} are wrong."
            )


def _row_at(at: int) -> pa.Table:
    return _table(np.array([at]), np.zeros(1, np.int32))


def _table(at: np.ndarray, key: np.ndarray) -> pa.Table:
    stamps = pa.array(at).cast(data.SCHEMA.field("at").type)
    return pa.table([stamps, pa.array(key), pa.array(np.zeros(len(at)))], schema=data.SCHEMA)


def _write(rows: pa.Table, path: Path) -> None:
    pq.write_table(rows, path, compression="lz4")


if __name__ == "__main__":
    main()
