"""Percentiles, medians, modes and the aggregates of conditions, per window, equal Spark's own in batch mode."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headrace.runtime.hub.opening import open_hub

pytestmark = pytest.mark.spark

AGGREGATES = (
    "MEDIAN(x) AS a, PERCENTILE(x, 0.9) AS b, PERCENTILE(DISTINCT x, 0.3) AS c, MEDIAN(y) AS d, "
    "PERCENTILE(y, 0.25) FILTER (WHERE x > 3) AS e, BOOL_AND(x > 0) AS f, SOME(x > 18) AS g, MODE(x{least}) AS h, "
    "PERCENTILE(x, 1) AS i, MODE(k{least}) FILTER (WHERE x < 9) AS j, MEDIAN(CAST(x AS DECIMAL(9, 2)) / 7) AS l"
)


def _rows(count: int) -> pa.Table:
    """Ties, NULLs, NaN, infinities and both zeros, half an hour of them."""
    random = np.random.default_rng(7)
    doubles = random.choice([0.0, -0.0, 0.1, 1.5, -2.25, np.nan, np.inf, -np.inf, 7.75], count)
    return pa.table(
        {
            "at": pa.array(
                np.sort(random.integers(0, 1800, count)) * 1_000_000, pa.timestamp("us", tz="UTC")
            ),
            "k": random.choice(["a", "b", "c", "d"], count),
            "x": pa.array(random.integers(0, 20, count), mask=random.random(count) < 0.2),
            "y": pa.array(doubles, mask=random.random(count) < 0.2),
        }
    )


def test_windows_of_holistic_aggregates_equal_sparks_own(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(_rows(3000), tmp_path / "in" / "rows.parquet")
    hub = open_hub(tmp_path / "home", spark=spark, tasks=2)
    hub.execute(
        "CREATE STREAM s (at TIMESTAMP, k STRING, x BIGINT, y DOUBLE) "
        f"USING parquet OPTIONS (path '{tmp_path}/in') TIMESTAMP BY at"
    )
    hub.execute(
        f"CREATE QUERY q AS SELECT k, window_end, {AGGREGATES.format(least='')} "
        "FROM s [RANGE 2 MINUTES SLIDE 1 MINUTES] GROUP BY k"
    )
    hub.run_once(seal=True)
    ours = hub.query("q").history()
    hub.close()
    spark.read.parquet(f"{tmp_path}/in").createOrReplaceTempView("holistic_rows")
    theirs = spark.sql(
        f"SELECT k, window.end AS window_end, {AGGREGATES.format(least=', true')} "
        "FROM holistic_rows GROUP BY k, window(at, '2 minutes', '1 minute')"
    ).toArrow()
    assert _plain(ours) == _plain(theirs)
    assert ours.num_rows > 100


def _plain(table: pa.Table) -> list[str]:
    names = ["k", "window_end", *"abcdefghijl"]
    stamp = pa.timestamp("us", tz="UTC")
    table = table.set_column(
        table.column_names.index("window_end"), "window_end", table["window_end"].cast(stamp)
    )
    rows = zip(*(map(_shown, table[name].to_pylist()) for name in names), strict=True)
    return sorted(map(repr, rows))


def _shown(value: object) -> object:
    """-0.0 is 0.0."""
    return value + 0.0 if isinstance(value, float) else value
