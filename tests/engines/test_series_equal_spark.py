"""Statistics of time series, per window and series, equal Spark's own in batch mode, with its NULLs."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headrace.runtime.hub.opening import open_hub

pytestmark = pytest.mark.spark

OF_PAIRS = ("CORR", "COVAR_POP", "COVAR_SAMP", "REGR_SLOPE", "REGR_INTERCEPT", "REGR_R2", "REGR_COUNT")
OF_PAIRS += ("REGR_AVGX", "REGR_AVGY", "REGR_SXX", "REGR_SYY", "REGR_SXY")
BY_ANOTHER = (
    "MAX_BY(y, at) AS i0, MIN_BY(n, at) FILTER (WHERE x > 3) AS i1, MAX_BY(struct(n, y), at) AS i2, MIN_BY(x, y) FILTER (WHERE k <> 3) AS i3, "
    "MAX_BY(n, d * 1000000 + unix_millis(at) % 1000000) AS i4, MAX_BY(x, NULL) AS i5, MIN_BY(x, concat(n, string(at))) AS i6, "
    "BIT_AND(x) AS j0, BIT_OR(k * x) AS j1, BIT_XOR(x - 4) FILTER (WHERE y IS NOT NULL) AS j2, BIT_XOR(DISTINCT x) AS j3, "
    "MAX_BY(k, at) AS i7, MAX_BY(DISTINCT y, at) AS i8"
)
AGGREGATES = ", ".join(
    [f"{name}(y, x) AS a{place}" for place, name in enumerate(OF_PAIRS)]
    + [f"{name}(y, d) FILTER (WHERE x > 3) AS b{place}" for place, name in enumerate(OF_PAIRS)]
    + [
        "SKEWNESS(y) AS c0",
        "KURTOSIS(y) AS c1",
        "SKEWNESS(x) FILTER (WHERE y > 0) AS c2",
        "KURTOSIS(d) AS c3",
        BY_ANOTHER,
    ]
)
OURS = (
    "FIRST(y) AS f0, LAST(y) AS f1, FIRST(x, TRUE) AS f2, LAST(n, TRUE) AS f3, SLOPE(y) AS g0, R2(y, at) AS g1, "
    "ANY_VALUE(x) IGNORE NULLS AS h0, LAST_VALUE(y) FILTER (WHERE x > 3) IGNORE NULLS AS h1, "
    "ANY_VALUE(y) RESPECT NULLS AS h2, ANY_VALUE(y, TRUE) AS h3"
)
THEIRS = (
    "min_by(x, at) FILTER (WHERE x IS NOT NULL) AS h0, max_by(y, at) FILTER (WHERE x > 3 AND y IS NOT NULL) AS h1, "
    "min_by(y, at) AS h2, min_by(y, at) FILTER (WHERE y IS NOT NULL) AS h3, "
    "min_by(y, at) AS f0, max_by(y, at) AS f1, min_by(x, at) FILTER (WHERE x IS NOT NULL) AS f2, "
    "max_by(n, at) FILTER (WHERE n IS NOT NULL) AS f3, "
    "regr_slope(y, CAST(at AS DOUBLE)) AS g0, regr_r2(y, CAST(at AS DOUBLE)) AS g1"
)


def _rows(count: int) -> pa.Table:
    """Half an hour: no two rows of one time, NULLs, series of one row and of one value alone, integers and decimals."""
    random = np.random.default_rng(11)
    series = random.integers(0, 30, count)
    y = np.where(series == 3, 7.25, 1e6 + random.normal(0, 3, count))
    at = np.sort(random.choice(1_800_000, count, replace=False)) * 1000 + 1_700_000_000_000_000
    return pa.table(
        {
            "at": pa.array(at, pa.timestamp("us", tz="UTC")),
            "k": series,
            "n": random.choice(["a", "b", "c"], count),
            "x": pa.array(
                np.where(series == 4, 5, random.integers(0, 9, count)), mask=random.random(count) < 0.2
            ),
            "y": pa.array(y, mask=random.random(count) < 0.2),
            "d": pa.array(random.integers(0, 500, count)).cast(pa.decimal128(20, 0)),
        }
    )


def test_windows_of_statistics_equal_sparks_own(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(_rows(2500), tmp_path / "in" / "rows.parquet")
    hub = open_hub(tmp_path / "home", spark=spark, tasks=2)
    hub.execute(
        "CREATE STREAM s (at TIMESTAMP, k BIGINT, n STRING, x BIGINT, y DOUBLE, d DECIMAL(20, 0)) "
        f"USING parquet OPTIONS (path '{tmp_path}/in') TIMESTAMP BY at"
    )
    hub.execute(
        f"CREATE QUERY q AS SELECT k, window_end, {AGGREGATES}, {OURS} "
        "FROM s [RANGE 2 MINUTES SLIDE 1 MINUTES] GROUP BY k"
    )
    hub.run_once(seal=True)
    ours = hub.query("q").history()
    hub.close()
    spark.read.parquet(f"{tmp_path}/in").createOrReplaceTempView("series_rows")
    theirs = spark.sql(
        f"SELECT k, window.end AS window_end, {AGGREGATES}, {THEIRS} "
        "FROM series_rows GROUP BY k, window(at, '2 minutes', '1 minute')"
    ).toArrow()
    mine, others = _by_group(ours), _by_group(theirs)
    assert mine.keys() == others.keys()
    assert len(mine) > 500
    for group, row in mine.items():
        for name, value in row.items():
            assert _same(value, others[group][name]), (group, name, value, others[group][name])


def _by_group(table: pa.Table) -> dict[tuple[int, object], dict[str, object]]:
    rows = table.to_pylist()
    return {(row.pop("k"), row.pop("window_end").timestamp()): row for row in rows}


def _same(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-7) or (math.isnan(one) and math.isnan(other))
    return one == other
