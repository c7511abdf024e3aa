"""Spark's own join of streams over the Parquet files, on key and window, and one aggregation above it. Prints one line of JSON.

Windows are columns of both sides and among the keys of the join, so that Spark drops rows by the watermark of the window, the least state
that it can have. `hdfs` keeps state in memory, `rocksdb` in RocksDB.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from datetime import datetime
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.peers.spark.runner import SCHEMA as WINDOWS_SCHEMA
from benchmarks.peers.spark.runner import session
from benchmarks.protocol import Request

SCHEMA = WINDOWS_SCHEMA.replace("value double", "v bigint")


def joined(spark: SparkSession, source: Path, streams: int) -> DataFrame:
    """The answer: count and sum by window."""
    sides = [
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", "4")
        .parquet(str(source / f"s{number}"))
        .withWatermark("at", "0 seconds")
        .select(f.window("at", "10 seconds").alias("w"), "key", f.col("v").alias(f"v{number}"))
        for number in range(streams)
    ]
    pairs = reduce(lambda left, right: left.join(right, ["key", "w"]), sides)
    answer = pairs.groupBy("w").agg(f.count("*").alias("n"), f.sum(f.col("v0") + f.col("v1")).alias("total"))
    return answer.select(f.unix_micros("w.end").alias("window_end"), "n", "total")


def run(spark: SparkSession, source: Path, streams: int, output: Path) -> float:
    """Seconds from the start of the first micro-batch to the end of the query."""
    query = (
        joined(spark, source, streams)
        .writeStream.outputMode("append")
        .format("parquet")
        .option("path", str(output))
        .option("checkpointLocation", str(output.with_name(f"checkpoint-{output.name}")))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    ended = time.time()
    return ended - datetime.fromisoformat(query.recentProgress[0]["timestamp"]).timestamp()


def main() -> None:
    source, output, streams = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    last = output / "last"
    for of_stream in source.iterdir():
        (last / of_stream.name).mkdir(parents=True)
        shutil.copy(max(of_stream.iterdir()), last / of_stream.name)
    spark = session(
        Request("tumbling", source, 0, output / "answer", {"state": sys.argv[4], "heap": sys.argv[5]})
    )
    run(spark, last, streams, output / "warm-up")
    print(json.dumps({"seconds": run(spark, source, streams, output / "answer")}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
