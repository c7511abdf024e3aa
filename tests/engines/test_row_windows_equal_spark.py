"""Three weeks of flights: windows of rows, partitioned, ending at rows and landmark equal Spark's SQL windows in batch; sessions
equal its session_window().

Spark sees the rows with the engine's own order as a column: the place of a row in its files, in the order of their names.
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

ANSWERS = "COUNT(*) AS n, SUM(miles) AS far, AVG(delay) AS mean, MIN(delay) AS least, MAX(delay) AS most"
STREAM_ORDER, ARRIVAL = "micros, place", "place"


def over(frame: str) -> str:
    """The same aggregates over a window of SQL."""
    return ANSWERS.replace(" AS ", f" OVER ({frame}) AS ")


def numbered(frame: str, order: str, every: int, part: str = "") -> str:
    """The windows that end at every n-th row."""
    by = f"PARTITION BY {part} " if part else ""
    return (
        f"SELECT * FROM (SELECT *, {over(by + frame)}, ROW_NUMBER() OVER ({by}ORDER BY {order}) AS number FROM flights) "
        f"WHERE number % {every} = 0"
    )


HOUR = 3_600_000_000
LAST = "ROWS BETWEEN {} PRECEDING AND CURRENT ROW"
AFTER = f"ORDER BY micros RANGE BETWEEN {2 * HOUR - 1} PRECEDING AND CURRENT ROW"
KINDS = {
    "rows": (
        f"SELECT window_end AS at, {ANSWERS} FROM departures [ROWS 100 SLIDE 10]",
        numbered(f"ORDER BY {STREAM_ORDER} {LAST.format(99)}", STREAM_ORDER, 10),
    ),
    "rows_by_arrival": (
        f"SELECT window_end AS at, {ANSWERS} FROM departures [ROWS 100 SLIDE 10 WATTR row_num]",
        numbered(f"ORDER BY {ARRIVAL} {LAST.format(99)}", ARRIVAL, 10),
    ),
    "partitioned": (
        f"SELECT window_end AS at, carrier, {ANSWERS} FROM departures [PARTITION BY carrier ROWS 50 SLIDE 5] GROUP BY carrier",
        numbered(f"ORDER BY {STREAM_ORDER} {LAST.format(49)}", STREAM_ORDER, 5, "carrier"),
    ),
    "ends": (
        f"SELECT window_end AS at, carrier, {ANSWERS} FROM departures [RANGE 2 HOURS SLIDE 1 ROW PA carrier] GROUP BY carrier",
        f"SELECT DISTINCT micros, carrier, n, far, mean, least, most FROM ({numbered(AFTER, STREAM_ORDER, 1, 'carrier')})",
    ),
    "ends_of_seven": (
        f"SELECT window_end AS at, {ANSWERS} FROM departures [RANGE 2 HOURS SLIDE 7 ROWS SATTR rank(departed)]",
        f"SELECT DISTINCT micros, n, far, mean, least, most FROM ({numbered(AFTER, STREAM_ORDER, 7)})",
    ),
    "sessions": (
        f"SELECT session_window.end AS at, carrier, {ANSWERS} FROM departures GROUP BY session_window(departed, '20 minutes'), carrier",
        (
            f"SELECT unix_micros(session_window.end) AS micros, carrier, {ANSWERS} FROM timed "
            "GROUP BY carrier, session_window(departed, '20 minutes')"
        ),
    ),
    "sessions_of_the_delayed": (
        f"SELECT window_end AS at, {ANSWERS} FROM departures WHERE delay > 60 GROUP BY session_window(departed, '11 minutes')",
        (
            f"SELECT unix_micros(session_window.end) AS micros, {ANSWERS} FROM timed WHERE delay > 60 "
            "GROUP BY session_window(departed, '11 minutes')"
        ),
    ),
    "landmark": (
        f"SELECT window_end AS at, carrier, {ANSWERS} FROM departures [LANDMARK SLIDE 1 DAY] GROUP BY carrier",
        f"SELECT DISTINCT carrier, day * {24 * HOUR} AS micros, n, far, mean, least, most FROM (SELECT *, "
        + over("PARTITION BY carrier ORDER BY day")
        + f" FROM (SELECT *, micros div {24 * HOUR} + 1 AS day FROM flights))",
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three weekly files; in the second one arrivals are shuffled within a few minutes."""
    whole, few = tmp_path_factory.mktemp("flights"), tmp_path_factory.mktemp("few")
    prepare(whole)
    rng = np.random.default_rng(1)
    for week in (1, 2, 3):
        table = pq.read_table(whole / "departures" / f"week-{week:02d}.parquet")
        at = table["departed"].cast(pa.int64()).to_numpy()
        order = np.argsort(at + rng.integers(0, 600_000_000, len(at)), kind="stable")
        pq.write_table(table.take(pa.array(order)), few / f"{week}.parquet")
    return few


@pytest.fixture(scope="module")
def ours(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    """What the engine answers, without Spark."""
    with Hub(tmp_path_factory.mktemp("home"), LocalExecutor(), tasks=2) as hub:
        hub.execute(
            "CREATE STREAM departures (departed TIMESTAMP, carrier STRING, delay BIGINT, miles BIGINT) USING parquet "
            f"OPTIONS (path '{folder}', order 'name', maxFilesPerTrigger '1') TIMESTAMP BY departed SLACK INTERVAL 1 HOUR"
        )
        for name, (text, _) in KINDS.items():
            hub.execute(f"CREATE QUERY {name} AS {text}")
        hub.run_once(seal=True)
        assert hub.status()["streams"]["departures"]["late"] == 0
        return {name: hub.query(name).history() for name in KINDS}


@pytest.fixture(scope="module")
def flights(spark: SparkSession, folder: Path) -> None:
    """The view `flights`: every row with its time in microseconds and its place."""
    rows = pa.concat_tables([pq.read_table(file) for file in sorted(folder.iterdir())])
    rows = rows.select(["carrier", "delay", "miles"]).append_column(
        "micros", rows["departed"].cast(pa.int64())
    )
    spark.createDataFrame(
        rows.append_column("place", pa.array(range(rows.num_rows)))
    ).createOrReplaceTempView("flights")
    spark.sql(
        "CREATE OR REPLACE TEMP VIEW timed AS SELECT *, timestamp_micros(micros) AS departed FROM flights"
    )


@pytest.mark.parametrize("name", KINDS)
def test_windows_equal_spark_s_sql_windows(
    name: str, ours: dict[str, pa.Table], flights: None, spark: SparkSession
) -> None:
    mine = ours[name]
    mine = mine.append_column("micros", mine["at"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()))
    theirs = spark.sql(KINDS[name][1]).toArrow()
    if (
        name == "landmark"
    ):  # a carrier that rests for a day is emitted all the same: compare the days on which it flies
        wanted = set(zip(theirs["micros"].to_pylist(), theirs["carrier"].to_pylist(), strict=True))
        there = zip(mine["micros"].to_pylist(), mine["carrier"].to_pylist(), strict=True)
        mine = mine.filter(pa.array([pair in wanted for pair in there]))
    names = [
        column
        for column in ("micros", "carrier", "n", "far", "least", "most", "mean")
        if column in mine.column_names
    ]
    keys = [(column, "ascending") for column in names]
    mine, theirs = mine.select(names).sort_by(keys), theirs.select(names).sort_by(keys)
    assert mine.num_rows == theirs.num_rows > 300
    for column in names[:-1]:
        assert mine[column].to_pylist() == theirs[column].to_pylist(), column
    np.testing.assert_allclose(mine["mean"].to_numpy(), theirs["mean"].to_numpy(), rtol=1e-9)
