"""PySpark has a worker look for cycles after every task; what the worker has loaded is none of its business."""

from __future__ import annotations

import datetime as dt
import gc
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.runtime.hub.opening import open_hub

START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)


@pytest.mark.spark
def test_after_a_task_of_ours_few_objects_are_walked_through(spark: SparkSession, tmp_path: Path) -> None:
    with open_hub(tmp_path / "home", spark=spark, tasks=2) as hub:
        hub.execute("CREATE STREAM s (at TIMESTAMP, v INT) USING push TIMESTAMP BY at")
        hub.execute("CREATE QUERY q AS SELECT COUNT(*) AS n FROM s [RANGE 1 SECONDS]")
        for second in range(3):
            hub.push("s", [{"at": START + dt.timedelta(seconds=second), "v": 1}])
            hub.catch_up()

    def seen(_: int) -> tuple[int, int]:
        return gc.get_freeze_count(), len(gc.get_objects())

    for out_of_sight, sought in spark.sparkContext.parallelize(range(2), 2).map(seen).collect():
        assert out_of_sight > 50_000, "modules of PySpark, Arrow, pandas and ours"
        assert sought < out_of_sight / 4
