"""A year of hourly weather at three airports: every kind of window equals Spark in batch, also where values are missing.

Readings tie at every hour and are missing now and then, which flights are not and never do.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headrace.examples.flights import prepare
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub

pytestmark = pytest.mark.spark

ANSWERS = "COUNT(*) AS n, COUNT(temp) AS seen, SUM(temp) AS warm, AVG(wind_speed) AS wind, MIN(visib) AS least, MAX(precip) AS most"
ORDER = "micros, place"
HOUR = 3_600_000_000


def over(frame: str) -> str:
    """The same aggregates over a window of SQL."""
    return ANSWERS.replace(" AS ", f" OVER ({frame}) AS ")


def numbered(frame: str, every: int, part: str = "") -> str:
    """The windows that end at every n-th row."""
    by = f"PARTITION BY {part} " if part else ""
    return (
        f"SELECT * FROM (SELECT *, {over(by + frame)}, ROW_NUMBER() OVER ({by}ORDER BY {ORDER}) AS number FROM weather) "
        f"WHERE number % {every} = 0"
    )


def last(rows: int) -> str:
    return f"ORDER BY {ORDER} ROWS BETWEEN {rows - 1} PRECEDING AND CURRENT ROW"


KINDS = {
    "sliding": (
        f"SELECT window.end AS at, origin, {ANSWERS} FROM weather GROUP BY window(seen, '36 hours', '5 hours'), origin",
        (
            f"SELECT unix_micros(window.end) AS micros, origin, {ANSWERS} FROM timed "
            "GROUP BY window(seen, '36 hours', '5 hours'), origin"
        ),
    ),
    "sessions": (
        f"SELECT session_window.end AS at, origin, {ANSWERS} FROM weather GROUP BY session_window(seen, '1 hour'), origin",
        (
            f"SELECT unix_micros(session_window.end) AS micros, origin, {ANSWERS} FROM timed "
            "GROUP BY session_window(seen, '1 hour'), origin"
        ),
    ),
    "sessions_of_rain": (
        f"SELECT window_end AS at, origin, {ANSWERS} FROM weather WHERE precip > 0 GROUP BY session_window(seen, '3 hours'), origin",
        (
            f"SELECT unix_micros(session_window.end) AS micros, origin, {ANSWERS} FROM timed WHERE precip > 0 "
            "GROUP BY session_window(seen, '3 hours'), origin"
        ),
    ),
    "rows": (f"SELECT window_end AS at, {ANSWERS} FROM weather [ROWS 75 SLIDE 6]", numbered(last(75), 6)),
    "partitioned": (
        f"SELECT window_end AS at, origin, {ANSWERS} FROM weather [PARTITION BY origin ROWS 24 SLIDE 3] GROUP BY origin",
        numbered(last(24), 3, "origin"),
    ),
    "ends": (
        f"SELECT window_end AS at, origin, {ANSWERS} FROM weather [RANGE 12 HOURS SLIDE 4 ROWS PA origin] GROUP BY origin",
        (
            "SELECT DISTINCT micros, origin, n, seen, warm, wind, least, most FROM ("
            + numbered(
                f"ORDER BY micros RANGE BETWEEN {12 * HOUR - 1} PRECEDING AND CURRENT ROW", 4, "origin"
            )
            + ")"
        ),
    ),
    "landmark": (
        f"SELECT window_end AS at, origin, {ANSWERS} FROM weather [LANDMARK SLIDE 1 DAY] GROUP BY origin",
        (
            f"SELECT DISTINCT origin, day * {24 * HOUR} AS micros, n, seen, warm, wind, least, most FROM (SELECT *, "
            + over("PARTITION BY origin ORDER BY day")
            + f" FROM (SELECT *, micros div {24 * HOUR} + 1 AS day FROM weather))"
        ),
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The year's weekly files."""
    whole = tmp_path_factory.mktemp("weather")
    prepare(whole)
    return whole / "weather"


@pytest.fixture(scope="module")
def ours(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    """What the engine answers, without Spark."""
    with Hub(tmp_path_factory.mktemp("home"), LocalExecutor(), tasks=2) as hub:
        hub.execute(
            "CREATE STREAM weather (seen TIMESTAMP, origin STRING, temp DOUBLE, wind_speed DOUBLE, precip DOUBLE, visib DOUBLE) "
            f"USING parquet OPTIONS (path '{folder}', order 'name', maxFilesPerTrigger '9') TIMESTAMP BY seen"
        )
        for name, (text, _) in KINDS.items():
            hub.execute(f"CREATE QUERY {name} AS {text}")
        hub.run_once(seal=True)
        assert hub.status()["streams"]["weather"]["late"] == 0
        return {name: hub.query(name).history() for name in KINDS}


@pytest.fixture(scope="module")
def weather(spark: SparkSession, folder: Path) -> None:
    """The view `weather`: every reading with its time in microseconds and its place in the stream's order."""
    rows = pa.concat_tables([pq.read_table(file) for file in sorted(folder.iterdir())])
    rows = rows.append_column("micros", rows["seen"].cast(pa.int64())).drop_columns(["seen"])
    spark.createDataFrame(
        rows.append_column("place", pa.array(range(rows.num_rows)))
    ).createOrReplaceTempView("weather")
    spark.sql("CREATE OR REPLACE TEMP VIEW timed AS SELECT *, timestamp_micros(micros) AS seen FROM weather")


@pytest.mark.parametrize("name", KINDS)
def test_windows_of_the_weather_equal_spark_s(
    name: str, ours: dict[str, pa.Table], weather: None, spark: SparkSession
) -> None:
    mine = ours[name]
    mine = mine.append_column("micros", mine["at"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()))
    theirs = spark.sql(KINDS[name][1]).toArrow()
    if name == "landmark":  # emitted for every day; Spark's has the days with a reading
        days = set(theirs["micros"].to_pylist())
        mine = mine.filter(pa.array([micros in days for micros in mine["micros"].to_pylist()]))
    names = [each for each in ("micros", "origin", "n", "seen", "least", "most") if each in mine.column_names]
    keys = [(column, "ascending") for column in (*names, "warm", "wind")]
    mine, theirs = (table.select([column for column, _ in keys]).sort_by(keys) for table in (mine, theirs))
    assert mine.num_rows == theirs.num_rows > (40 if name.startswith("sessions") else 900)
    for column in names:
        assert mine[column].to_pylist() == theirs[column].to_pylist(), column
    for column in ("warm", "wind"):
        both = [np.array(table[column].to_pylist(), float) for table in (mine, theirs)]
        np.testing.assert_allclose(*both, rtol=1e-9)
