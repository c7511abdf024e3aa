"""INVOKE asks what is kept: not one Spark job is started for an answer, whatever the kind of query and of its window."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.runtime.hub.opening import open_hub

START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
SINCE_10 = "BEGIN NOW - INTERVAL 10 SECONDS END NOW"
QUERIES = {
    "windows": "SELECT k, COUNT(*) AS n, AVG(v) AS m FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k",
    "relation": "SELECT k, MAX(v) AS m FROM s [RANGE 20 SECONDS] GROUP BY k",
    "stream": "SELECT k, v FROM s WHERE v > 5",
    "landmark": "SELECT k, COUNT(*) AS n FROM s BEGIN TIMESTAMP '2024-05-01 00:00:05' END NOW GROUP BY k",
    "snapshot": "SELECT AVG(v) AS m FROM s BEGIN TIMESTAMP '2024-05-01 00:00:05' END TIMESTAMP '2024-05-01 00:00:20'",
    "rows": "SELECT SUM(v) AS t FROM s [ROWS 10 SLIDE 5]",
    **{
        f"kept_{mode}": f"SELECT k, v FROM s WHERE v > 3 {SINCE_10}"
        for mode in ("none", "partial", "complete")
    },
}


def jobs_so_far(spark: SparkSession) -> int:
    return int(spark.sparkContext._jsc.sc().dagScheduler().nextJobId())


@pytest.mark.spark
def test_no_answer_takes_a_job(spark: SparkSession, tmp_path: Path) -> None:
    with open_hub(tmp_path / "home", spark=spark, tasks=2) as hub:
        hub.execute("CREATE STREAM s (at TIMESTAMP, k INT, v DOUBLE) USING push TIMESTAMP BY at")
        for name, text in QUERIES.items():
            mode = (
                f" OPTIONS (materialize '{name.removeprefix('kept_')}')" if name.startswith("kept_") else ""
            )
            hub.execute(f"CREATE QUERY {name}{mode} AS {text}")
        before = jobs_so_far(spark)
        hub.push("s", [{"at": START + dt.timedelta(seconds=s), "k": s % 3, "v": s % 7.0} for s in range(40)])
        hub.catch_up()
        done = jobs_so_far(spark)
        assert done > before, "an epoch is a job, so jobs are counted"
        answers = {name: hub.query(name).invoke() for name in QUERIES}
        shorter = hub.query("windows").invoke(last="5 SECONDS")
        assert jobs_so_far(spark) == done
        assert all(table.num_rows for table in [*answers.values(), shorter])
        assert answers["kept_none"].equals(answers["kept_partial"])
