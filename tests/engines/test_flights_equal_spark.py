"""The full flights data through the engine equals Spark's own window() in batch mode, for any range and slide."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from headrace.examples.flights import prepare
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub

pytestmark = pytest.mark.spark

PAIRS = {  # minutes: the last two do not divide
    "hourly": (60, 60),
    "day_by_hour": (1440, 60),
    "six_hours_by_two": (360, 120),
    "quarter_hours": (15, 15),
    "odd": (100, 45),
    "prime": (1441, 97),
}
DEPARTURES = 328_521  # of 336,776 flights; the others were cancelled


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prepared event files."""
    folder = tmp_path_factory.mktemp("flights")
    prepare(folder)
    return folder


@pytest.fixture(scope="module")
def hub(spark: SparkSession, flights: Path, tmp_path_factory: pytest.TempPathFactory) -> Hub:
    """A hub that has read all departures, under six standing queries."""
    hub = open_hub(tmp_path_factory.mktemp("home"), spark=spark, tasks=3)
    hub.execute(
        "CREATE STREAM departures (departed TIMESTAMP, carrier STRING, origin STRING, delay BIGINT, miles BIGINT) "
        f"USING parquet OPTIONS (path '{flights}/departures', order 'name', maxFilesPerTrigger '10') TIMESTAMP BY departed"
    )
    for name, (length, slide) in PAIRS.items():
        hub.execute(
            f"CREATE QUERY {name} AS SELECT carrier, window_end, COUNT(*) AS n, SUM(miles) AS miles, AVG(delay) AS mean, "
            "MIN(delay) AS least, MAX(delay) AS most, STDDEV(delay) AS spread, COUNT(DISTINCT origin) AS origins "
            f"FROM departures [RANGE {length} MINUTES SLIDE {slide} MINUTES] GROUP BY carrier"
        )
    hub.run_once(seal=True)
    yield hub
    hub.close()


def test_every_departure_arrived(hub: Hub) -> None:
    """Nothing was late, rejected or lost on the way."""
    seen = hub.status()["streams"]["departures"]
    assert (seen["rows"], seen["late"], seen["rejected"]) == (DEPARTURES, 0, 0)


@pytest.mark.parametrize("name", PAIRS)
def test_windows_equal_sparks_own(name: str, hub: Hub, spark: SparkSession, flights: Path) -> None:
    """Same windows, same groups, same aggregates; doubles to 1e-9."""
    ours = _sorted(hub.query(name).history())
    length, slide = PAIRS[name]
    theirs = _sorted(_spark_answer(spark, flights, length, slide))
    assert ours.num_rows == theirs.num_rows > 1000
    for column in ("carrier", "window_end", "n", "miles", "least", "most", "origins"):
        assert ours[column].to_pylist() == theirs[column].to_pylist(), column
    for column in ("mean", "spread"):
        mine, their = (np.array(table[column].to_pylist(), float) for table in (ours, theirs))
        np.testing.assert_allclose(mine, their, rtol=1e-9)


def _spark_answer(spark: SparkSession, flights: Path, length: int, slide: int) -> pa.Table:
    """Spark's windows start at multiples of the slide, ours end there: the start offset aligns them."""
    offset = -length % slide
    window = sf.window("departed", f"{length} minutes", f"{slide} minutes", f"{offset} minutes")
    rows = spark.read.parquet(f"{flights}/departures").groupBy("carrier", window)
    answer = rows.agg(
        sf.count("*").alias("n"),
        sf.sum("miles").alias("miles"),
        sf.avg("delay").alias("mean"),
        sf.min("delay").alias("least"),
        sf.max("delay").alias("most"),
        sf.stddev("delay").alias("spread"),
        sf.count_distinct("origin").alias("origins"),
    )
    return answer.withColumn("window_end", sf.col("window.end")).drop("window").toArrow()


def _sorted(table: pa.Table) -> pa.Table:
    stamp = pa.timestamp("us", tz="UTC")
    index = table.column_names.index("window_end")
    table = table.set_column(index, "window_end", table["window_end"].cast(stamp))
    return table.sort_by([("window_end", "ascending"), ("carrier", "ascending")])


def test_the_six_pairs_include_two_that_do_not_divide() -> None:
    """Guards the table above."""
    assert sum(length % slide != 0 for length, slide in PAIRS.values()) >= 2
    assert len(PAIRS) == 6
