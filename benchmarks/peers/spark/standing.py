"""Spark with standing queries that get ten rows at a time, query by query: a streaming query for each, all in one session.

`python -m benchmarks.peers.spark.standing KIND QUERIES WARM_UP EPOCHS FOLDER` prints one line of JSON. Rows come from memory, which costs no
reading; answers are Parquet files, and offsets and state are written as Spark always does. One partition: ten rows gain nothing by more.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from benchmarks.peers.spark.runner import session
from benchmarks.protocol import Request

ROWS, KEYS = 10, 5
_FIRST = 3_600_000_000
"""Microseconds: rows at 0 are late from the start."""
KINDS = ("tumbling", "sliding", "percentile", "joins")
"""The kinds that Spark's streaming queries have: it has no frames of rows or of time before a row."""


class Memory:
    """A stream of one query whose rows are added by hand: the numbers of rows as texts (py4j has no small longs), of which columns are made.

    What one query has read is gone for others.
    """

    def __init__(self, spark: SparkSession, identity: int) -> None:
        self._jvm: Any = spark._jvm  # noqa: SLF001 - Python has no stream in memory
        streaming = self._jvm.org.apache.spark.sql.execution.streaming.runtime
        none = getattr(self._jvm, "scala.None$").__getattr__("MODULE$")
        session, encoder = spark._jsparkSession, self._jvm.org.apache.spark.sql.Encoders.STRING()  # noqa: SLF001
        self._stream = streaming.MemoryStream(identity, session, none, encoder)
        numbers = DataFrame(self._stream.toDF(), spark).select(f.col("value").cast("long"))
        second, row = f.floor(f.col("value") / ROWS), f.col("value") % ROWS
        self.rows = numbers.select(
            (row % KEYS).alias("k"),
            row.alias("x"),
            f.timestamp_micros(_FIRST + second * 1_000_000 + row * (1_000_000 // ROWS)).alias("at"),
        ).withWatermark("at", "0 seconds")

    def add(self, second: int) -> None:
        """Ten rows of a second."""
        numbers = self._jvm.java.util.ArrayList()
        for row in range(ROWS):
            numbers.add(str(second * ROWS + row))
        self._stream.addData(self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(numbers))


def asked(kind: str, number: int, s: DataFrame, u: DataFrame) -> DataFrame:
    """The query of this number, with the condition and the range that ours has."""
    seconds = f"{10 + number % 50} seconds"
    kept = s.where(f.col("x") > -1 - number)
    if kind == "joins":
        left, right = kept.alias("s"), u.alias("u")
        near = f"s.k = u.k AND s.at BETWEEN u.at - INTERVAL {seconds} AND u.at + INTERVAL {seconds}"
        return left.join(right, f.expr(near)).select("s.k", "s.x", f.col("u.x").alias("y"))
    if kind == "tumbling":
        return kept.groupBy(f.window("at", "10 seconds"), "k").agg(f.count("*").alias("n")).select("k", "n")
    sliding = f.window("at", seconds, "5 seconds")
    if kind == "percentile":
        return kept.groupBy(sliding).agg(f.percentile("x", 0.5).alias("n")).select("n")
    return kept.groupBy(sliding, "k").agg(f.sum("x").alias("n")).select("k", "n")


def started(query: DataFrame, folder: Path) -> StreamingQuery:
    return (
        query.writeStream.outputMode("append")
        .format("parquet")
        .option("path", str(folder / "answers"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )


def main() -> None:
    kind, count, warm_up, epochs, name = sys.argv[1:]
    folder = Path(name)
    spark = session(Request("tumbling", folder, 0, folder / "answer", {"partitions": "1"}))
    of_queries = [(Memory(spark, 2 * number), Memory(spark, 2 * number + 1)) for number in range(int(count))]
    running = [
        started(asked(kind, number, s.rows, u.rows), folder / f"of-{number}")
        for number, (s, u) in enumerate(of_queries)
    ]
    waits = []
    for second in range(int(warm_up) + int(epochs)):
        begun = time.perf_counter()
        for s, u in of_queries:
            s.add(second)
            if kind == "joins":
                u.add(second)
        for query in running:
            query.processAllAvailable()
        waits.append((time.perf_counter() - begun) * 1000)
    for query in running:
        query.stop()
    answers = ds.dataset([str(path) for path in folder.rglob("answers/*.parquet")]).count_rows()
    print(json.dumps({"waits_ms": waits[int(warm_up) :], "answers": answers}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
