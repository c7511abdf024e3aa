"""Spark: its own streaming query over the Parquet files, or the same aggregation as one batch job.

`engine=streaming` reads what is there with `availableNow`, groups by `window` and key under a watermark, appends
closed windows to Parquet. `state=hdfs` (in memory, the default of Spark) or `rocksdb`. `engine=batch` is a yardstick: no
state, no commits, no windows that close, only the aggregation.
"""

from __future__ import annotations

import os
import time
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.protocol import RANGE_SECONDS, Request, answer, request

SCHEMA = "at timestamp, key int, value double"
_STATE_STORES = {
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def session(asked: Request) -> SparkSession:
    scratch = asked.output.parent / "spark-scratch"
    settings = {
        "spark.driver.memory": asked.options.get("heap", "4g"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.shuffle.partitions": asked.options.get("partitions", "2"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,  # the faster one on a local disk
        "spark.sql.streaming.stateStore.providerClass": _STATE_STORES[asked.options.get("state", "hdfs")],
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    builder = SparkSession.builder.master(f"local[{os.cpu_count()}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def windowed(rows: DataFrame, asked: Request) -> DataFrame:
    """count, sum and max by window and key."""
    window = f.window("at", f"{RANGE_SECONDS} seconds", f"{asked.slide_seconds} seconds")
    return (
        rows.groupBy(window.alias("w"), "key")
        .agg(f.count("*").alias("count"), f.sum("value").alias("sum"), f.max("value").alias("max"))
        .select(f.unix_micros("w.end").alias("window_end"), "key", "count", "sum", "max")
    )


def warm_up(spark: SparkSession, asked: Request) -> None:
    """Start the JVM's engine on the one row of the last file."""
    last = max(asked.folder.iterdir())
    windowed(spark.read.schema(SCHEMA).parquet(str(last)), asked).collect()


def run_batch(spark: SparkSession, asked: Request) -> float:
    started = time.time()
    rows = spark.read.schema(SCHEMA).parquet(str(asked.folder))
    windowed(rows, asked).write.mode("overwrite").parquet(str(asked.output))
    return time.time() - started


def run_streaming(spark: SparkSession, asked: Request, checkpoint: Path) -> float:
    """Seconds from the start of the first micro-batch to the end of the query."""
    rows = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", asked.options.get("files", "4"))
        .parquet(str(asked.folder))
        .withWatermark("at", "0 seconds")
    )
    query = (
        windowed(rows, asked)
        .writeStream.outputMode("append")
        .format("parquet")
        .option("path", str(asked.output))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    ended = time.time()
    first = query.recentProgress[0]["timestamp"]
    return ended - datetime.fromisoformat(first).timestamp()


def main() -> None:
    asked = request()
    begun = time.time()
    spark = session(asked)
    warm_up(spark, asked)
    startup = time.time() - begun
    if asked.options.get("engine", "streaming") == "batch":
        seconds = run_batch(spark, asked)
    else:
        seconds = run_streaming(spark, asked, asked.output.parent / "checkpoint")
    answer(asked.rows, seconds, startup)
    spark.stop()


if __name__ == "__main__":
    main()
