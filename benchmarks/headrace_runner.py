"""Headrace: one standing query over the Parquet files, its whole answer exported to Parquet.

The clock runs from `run_once`, which reads the first row, to the end of the export; state, results and manifests are
durable by then. `archive=none` keeps no copy of the rows, `archive=on` archives them all.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import headrace as hr
from benchmarks.protocol import RANGE_SECONDS, Request, answer, one_row, request
from headrace.runtime.spark.session import session

HEAP = "1g"  # small, so that growth outside it is not lost in it
BESIDE = ((10, 10), (20, 10), (30, 15), (60, 10), (60, 20), (90, 45), (100, 30), (120, 40), (300, 60))
"""Ranges and slides, in seconds, of the windows that `windows=ten` asks for besides the measured one."""


def statements(asked: Request, folder: Path) -> str:
    """The stream, the measured query and, with `windows=ten`, nine more of other ranges and slides."""
    archive = ", archive 'none'" if asked.options.get("archive", "none") == "none" else ""
    windows = {"answer": (RANGE_SECONDS, asked.slide_seconds)}
    if asked.options.get("windows") == "ten":
        windows |= {f"beside{index}": window for index, window in enumerate(BESIDE)}
    return f"""
        CREATE STREAM events (at TIMESTAMP, key INT, value DOUBLE)
          USING parquet OPTIONS (path '{folder}'{archive}) TIMESTAMP BY at;
    """ + "".join(
        f"""
        CREATE QUERY {name} AS
          SELECT window_end, key, COUNT(*) AS n, SUM(value) AS total, MAX(value) AS top
          FROM events [RANGE {length} SECONDS SLIDE {slide} SECONDS]
          GROUP BY key;
        """
        for name, (length, slide) in windows.items()
    )


_EXPORTED = pa.schema(
    {
        "window_end": pa.int64(),
        "key": pa.int32(),
        "count": pa.int64(),
        "sum": pa.float64(),
        "max": pa.float64(),
    }
)


def export(parts: Iterable[pa.Table], asked: Request) -> None:
    """The same columns as everyone's. A part is written while the next is read."""
    # words of a dictionary pay where values repeat; of sums and maxima nearly every one is its own
    repeating = ["window_end", "key"]
    file = asked.output / "answer.parquet"
    written: Future[None] | None = None
    with (
        pq.ParquetWriter(file, _EXPORTED, compression="lz4", use_dictionary=repeating) as writer,
        ThreadPoolExecutor(1) as writing,
    ):
        for table in parts:
            ends = table["window_end"].cast(pa.int64())
            columns = [ends, *(table[name] for name in ("key", "n", "total", "top"))]
            if written is not None:
                written.result()
            written = writing.submit(writer.write_table, pa.table(columns, schema=_EXPORTED))
        if written is not None:
            written.result()


def warm_up(spark: SparkSession, asked: Request) -> None:
    """Start the JVM's engine and the Python workers: the same query over the one row of the last file."""
    with hr.open(asked.output.parent / "warm-up", spark=spark) as hub:
        hub.execute(statements(asked, one_row(asked)))
        hub.run_once()


@contextmanager
def opened(asked: Request) -> Iterator[hr.Hub]:
    """The hub on its own session; with `heap=fixed` on one whose heap is all there, and touched, from the start."""
    home = asked.output.parent / "home"
    if asked.options.get("heap") != "fixed":
        with hr.open(home) as hub:
            yield hub
        return
    whole = {"spark.driver.defaultJavaOptions": f"-Xms{HEAP} -XX:+AlwaysPreTouch"}
    scratch = asked.output.parent / "spark"
    with session(scratch=scratch, heap=HEAP, extra=whole) as spark, hr.open(home, spark=spark) as hub:
        yield hub


def main() -> None:
    asked = request()
    begun = time.time()
    with opened(asked) as hub:
        warm_up(hub.session(), asked)
        hub.execute(statements(asked, asked.folder))
        started = time.time()
        hub.run_once()
        export(hub.query("answer").history_in_parts(), asked)
        ended = time.time()
    answer(asked.rows, ended - started, started - begun)


if __name__ == "__main__":
    main()
