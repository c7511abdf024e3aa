"""Spark with many standing queries over one stream, in the ways people write it. Prints one line of JSON.

`one by one`: a streaming query for each, all at once in one session. `conditional`: one streaming aggregation with a conditional count and sum
for each query. `join`: the predicates as a broadcast table joined with the rows, one streaming aggregation. `numpy`: `mapInArrow`
evaluates all predicates with numpy on a partition at a time and hands partial aggregates of 10 s to one streaming aggregation.
All aggregate panes of 10 s first and chain them into windows by `window_time`. It imports nothing of Headrace's own.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import reduce
from operator import and_
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.peers.spark.runner import session
from benchmarks.protocol import Request

SCHEMA = "at timestamp, key int, v bigint, a int, b int, c int, d int"
NAMES = ("a", "b", "c", "d")
KEYS, SLIDE_US = 100, 10_000_000
Predicate = list[tuple[str, int, int]]


def answered(rows: DataFrame, *keys: str) -> DataFrame:
    """count and sum by window and keys."""
    sums = f.sum("n").alias("n"), f.sum("v").alias("v")
    panes = rows.groupBy(f.window("at", "10 seconds").alias("w"), *keys).agg(*sums)
    return (
        panes.groupBy(f.window(f.window_time("w"), "60 seconds", "10 seconds").alias("w"), *keys)
        .agg(*sums)
        .select(*keys, f.unix_micros("w.end").alias("window_end"), "n", f.col("v").alias("total"))
    )


def one_by_one(rows: DataFrame, number: int, factors: Predicate) -> DataFrame:
    selected = rows.withWatermark("at", "0 seconds")
    for name, low, high in factors:
        selected = selected.where(f.col(name).between(low, high))
    return answered(selected.withColumn("n", f.lit(1)), "key").withColumn("q", f.lit(number))


def conditional(rows: DataFrame, predicates: list[Predicate]) -> DataFrame:
    """One aggregation for all: its result has an array with an entry for each query, separated at the end."""
    holds = [
        reduce(and_, (f.col(name).between(low, high) for name, low, high in factors))
        for factors in predicates
    ]
    of_rows = [
        entries
        for number, condition in enumerate(holds)
        for entries in (
            f.count_if(condition).alias(f"n{number}"),
            f.sum(f.when(condition, f.col("v"))).alias(f"v{number}"),
        )
    ]
    of_panes = [
        f.sum(f"{name}{number}").alias(f"{name}{number}") for number in range(len(holds)) for name in "nv"
    ]
    panes = rows.withWatermark("at", "0 seconds").groupBy(f.window("at", "10 seconds").alias("w"), "key")
    windows = (
        panes.agg(*of_rows)
        .groupBy(f.window(f.window_time("w"), "60 seconds", "10 seconds").alias("w"), "key")
        .agg(*of_panes)
    )
    entries = f.array(
        *(
            f.struct(
                f.lit(number).alias("q"), f.col(f"n{number}").alias("n"), f.col(f"v{number}").alias("total")
            )
            for number in range(len(holds))
        )
    )
    answers = windows.select("key", f.unix_micros("w.end").alias("window_end"), f.explode(entries).alias("e"))
    return answers.select("key", "window_end", "e.*").where("n > 0")


def joined(spark: SparkSession, rows: DataFrame, predicates: list[Predicate]) -> DataFrame:
    bounds = []
    for number, factors in enumerate(predicates):
        known = {name: (low, high) for name, low, high in factors}
        bounds.append((number, *(end for name in NAMES for end in known.get(name, (-(1 << 30), 1 << 30)))))
    columns = ["q int", *(f"{end}_{name} int" for name in NAMES for end in ("low", "high"))]
    table = f.broadcast(spark.createDataFrame(bounds, ", ".join(columns)))
    holds = f.lit(True)
    for name in NAMES:
        holds = holds & (f.col(name) >= f.col(f"low_{name}")) & (f.col(name) <= f.col(f"high_{name}"))
    return answered(
        rows.withWatermark("at", "0 seconds").join(table, holds).withColumn("n", f.lit(1)), "q", "key"
    )


def partials_of(predicates: list[Predicate]):
    """What `mapInArrow` runs: partial counts and sums of each predicate by pane of 10 s and key."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = [pa.Table.from_batches([batch]) for batch in batches]
        if not tables:
            return
        table = pa.concat_tables(tables)
        columns = {name: table[name].to_numpy() for name in NAMES}
        v = table["v"].to_numpy()
        pane = table["at"].cast(pa.int64()).to_numpy() // SLIDE_US
        panes, index = np.unique(pane, return_inverse=True)
        cells = len(panes) * KEYS
        code = index * KEYS + table["key"].to_numpy()
        q, cell, n, total = [], [], [], []
        for number, factors in enumerate(predicates):
            mask = np.ones(len(code), bool)
            for name, low, high in factors:
                column = columns[name]
                mask &= (column >= low) & (column <= high)
            mine = code[mask]
            counts = np.bincount(mine, minlength=cells)
            here = np.flatnonzero(counts)
            q.append(np.full(len(here), number, np.int32))
            cell.append(here)
            n.append(counts[here])
            total.append(np.bincount(mine, v[mask], cells)[here].astype(np.int64))
        # Punctuation of a kind: the greatest pane, also when no predicate wants its rows.
        q.append(np.array([-1], np.int32))
        cell.append(np.array([(len(panes) - 1) * KEYS]))
        n.append(np.zeros(1, np.int64))
        total.append(np.zeros(1, np.int64))
        where = np.concatenate(cell)
        at = pa.array(panes[where // KEYS] * SLIDE_US).cast(pa.timestamp("us", tz="UTC"))
        arrays = [
            np.concatenate(q),
            (where % KEYS).astype(np.int32),
            np.concatenate(n),
            np.concatenate(total),
        ]
        yield pa.RecordBatch.from_arrays([at, *map(pa.array, arrays)], names=["at", "q", "key", "n", "v"])

    return run


def asked(spark: SparkSession, way: str, rows: DataFrame, predicates: list[Predicate]) -> list[DataFrame]:
    """The streaming queries of a way."""
    if way == "one by one":
        return [one_by_one(rows, number, factors) for number, factors in enumerate(predicates)]
    if way == "conditional":
        return [conditional(rows, predicates)]
    if way == "join":
        return [joined(spark, rows, predicates)]
    partial = rows.mapInArrow(partials_of(predicates), "at timestamp, q int, key int, n bigint, v bigint")
    return [answered(partial.withWatermark("at", "0 seconds"), "q", "key")]


def run(spark: SparkSession, way: str, source: Path, output: Path, predicates: list[Predicate]) -> float:
    """Seconds from the start of the first micro-batch to the end of the last query."""
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "4").parquet(str(source))
    running = [
        query.writeStream.outputMode("append")
        .format("parquet")
        .option("path", str(output / f"answer/{number}"))
        .option("checkpointLocation", str(output / f"checkpoint/{number}"))
        .trigger(availableNow=True)
        .start()
        for number, query in enumerate(asked(spark, way, rows, predicates))
    ]
    for query in running:
        query.awaitTermination()
    ended = time.time()
    begun = min(datetime.fromisoformat(query.recentProgress[0]["timestamp"]).timestamp() for query in running)
    return ended - begun


def main() -> None:
    way, source, output = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    predicates: list[Predicate] = json.loads(Path(sys.argv[4]).read_text(encoding="utf-8"))
    last = output / "last"
    last.mkdir(parents=True)
    shutil.copy(max(source.iterdir()), last)
    spark = session(Request("tumbling", Path(source), 0, output / "answer", {}))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "250000")
    run(spark, way, last, output / "warm-up", predicates)
    print(json.dumps({"seconds": run(spark, way, source, output, predicates)}))
    spark.stop()


if __name__ == "__main__":
    main()
