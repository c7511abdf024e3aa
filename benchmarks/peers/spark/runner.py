"""Spark: its own streaming query over the Parquet files, or the same aggregation as one batch job.

`engine=streaming` reads what is there with `availableNow`, groups by `window` and key under a watermark, appends
closed windows to Parquet. `state=hdfs` (in memory, the default of Spark) or `rocksdb`. `plan=panes` first aggregates panes of one slide
and then, over `window_time`, the panes of each window: a row is no longer copied into every window that holds it. `engine=batch` is a
yardstick: no state, no commits, no windows that close, only the aggregation.
"""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.protocol import RANGE_SECONDS, Request, answer, cores, one_row, request

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
        "spark.sql.shuffle.partitions": asked.options.get("partitions", str(cores())),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,  # the faster one on a local disk
        "spark.sql.streaming.stateStore.providerClass": _STATE_STORES[asked.options.get("state", "hdfs")],
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    builder = SparkSession.builder.master(f"local[{cores()}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def windowed(rows: DataFrame, asked: Request) -> DataFrame:
    """count, sum and max by window and key."""
    length, slide = f"{RANGE_SECONDS} seconds", f"{asked.slide_seconds} seconds"
    of_rows = {"count": f.count("*"), "sum": f.sum("value"), "max": f.max("value")}
    of_panes = {"count": f.sum("count"), "sum": f.sum("sum"), "max": f.max("max")}
    if asked.options.get("plan") == "panes" and length != slide:
        panes = _by_window(rows, f.window("at", slide), of_rows)
        windows = _by_window(panes, f.window(f.window_time("w"), length, slide), of_panes)
    else:
        windows = _by_window(rows, f.window("at", length, slide), of_rows)
    return windows.select(f.unix_micros("w.end").alias("window_end"), "key", *of_rows)


def _by_window(rows: DataFrame, window: Column, aggregates: dict[str, Column]) -> DataFrame:
    named = [aggregate.alias(name) for name, aggregate in aggregates.items()]
    return rows.groupBy(window.alias("w"), "key").agg(*named)


def run_batch(spark: SparkSession, asked: Request, folder: Path, output: Path) -> float:
    started = time.time()
    rows = spark.read.schema(SCHEMA).parquet(str(folder))
    windowed(rows, asked).write.mode("overwrite").parquet(str(output))
    return time.time() - started


def run_streaming(spark: SparkSession, asked: Request, folder: Path, output: Path) -> float:
    """Seconds from the start of the first micro-batch to the end of the query."""
    rows = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", asked.options.get("files", "4"))
        .parquet(str(folder))
        .withWatermark("at", "0 seconds")
    )
    query = (
        windowed(rows, asked)
        .writeStream.outputMode("append")
        .format("parquet")
        .option("path", str(output))
        .option("checkpointLocation", str(asked.output.parent / f"checkpoint-{output.name}"))
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
    run = run_batch if asked.options.get("engine", "streaming") == "batch" else run_streaming
    run(spark, asked, one_row(asked), asked.output.parent / "warm-up")
    startup = time.time() - begun
    answer(asked.rows, run(spark, asked, asked.folder, asked.output), startup)
    spark.stop()


if __name__ == "__main__":
    main()
