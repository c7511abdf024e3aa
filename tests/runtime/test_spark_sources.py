"""Spark's own streaming sources feed streams: frames handed in by a program, and sources named in CREATE STREAM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.errors import UserError
from headrace.runtime.hub import Hub
from headrace.runtime.opening import open_hub

pytestmark = pytest.mark.spark


@pytest.fixture
def hub(spark: SparkSession, tmp_path: Path) -> Iterator[Hub]:
    """A hub on the shared session."""
    with open_hub(tmp_path / "home", spark=spark) as hub:
        yield hub


def written(spark: SparkSession, folder: Path, first: int, last: int) -> None:
    """Rows (at, k) with one row a second, as a new file of the folder."""
    rows = spark.range(first, last).selectExpr("timestamp_seconds(id) AS at", "id % 3 AS k")
    rows.coalesce(1).write.mode("append").orc(str(folder))


def counts(hub: Hub, name: str) -> dict[int, int]:
    """Rows per key in the committed windows."""
    found: dict[int, int] = {}
    for row in hub.query(name).history().to_pylist():
        found[row["k"]] = found.get(row["k"], 0) + row["n"]
    return found


QUERY = "SELECT k, COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k"


def test_a_streaming_dataframe_is_a_stream(hub: Hub, spark: SparkSession, tmp_path: Path) -> None:
    """Files that come between two runs are read once each; the checkpoint and the ingest log agree."""
    folder = tmp_path / "in"
    written(spark, folder, 0, 120)
    frame = spark.readStream.schema("at TIMESTAMP, k BIGINT").orc(str(folder))
    hub.create_stream("s", frame, timestamp="at")
    hub.register(QUERY, "q")
    hub.run_once()
    assert counts(hub, "q") == {0: 20, 1: 20, 2: 20}
    written(spark, folder, 120, 241)
    hub.run_once()
    assert counts(hub, "q") == {0: 80, 1: 80, 2: 80}


def test_a_spark_source_can_be_named(hub: Hub, spark: SparkSession, tmp_path: Path) -> None:
    """USING takes the name of any streaming source Spark has."""
    folder = tmp_path / "in"
    written(spark, folder, 0, 121)
    hub.execute(
        f"CREATE STREAM s (at TIMESTAMP, k BIGINT) USING orc OPTIONS (path '{folder}') TIMESTAMP BY at"
    )
    hub.register(QUERY, "q")
    hub.run_once()
    assert counts(hub, "q") == {0: 40, 1: 40, 2: 40}


def test_a_source_spark_does_not_have_is_refused_at_create(hub: Hub) -> None:
    """No kafka connector ships with Spark: the message says what to do."""
    with pytest.raises(UserError, match="Spark cannot open the source 'kafka'") as refused:
        hub.execute("CREATE STREAM s (value BINARY) USING kafka OPTIONS (subscribe 'bids')")
    assert "class path" in str(refused.value)
    assert hub.catalog.stream("s") is None


def test_a_batch_dataframe_is_refused(hub: Hub, spark: SparkSession) -> None:
    """Only streaming frames have a future."""
    with pytest.raises(UserError, match="not streaming"):
        hub.create_stream("s", spark.range(3))


def test_the_archive_is_a_dataframe(hub: Hub, spark: SparkSession, tmp_path: Path) -> None:
    """All accepted rows, for the rest of Spark."""
    written(spark, tmp_path / "in", 0, 10)
    hub.execute(
        f"CREATE STREAM s (at TIMESTAMP, k BIGINT) USING orc OPTIONS (path '{tmp_path}/in') TIMESTAMP BY at"
    )
    hub.run_once()
    assert hub.archive("s").count() == 10
    assert hub.archive("s").columns == ["at", "k"]
