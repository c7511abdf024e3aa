"""UNION, EXCEPT and INTERSECT over what has come hold at the end what Spark answers in batch: NULLs, NaN, zeros of both signs, types."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headrace as hr

ALL = "[RANGE UNBOUNDED]"
TEXTS = [
    "SELECT k, x FROM s {w} UNION ALL SELECT k, x FROM t {w}",
    "SELECT k, x FROM s {w} UNION SELECT k, x FROM t {w}",
    "SELECT k, x FROM s {w} UNION DISTINCT SELECT k, d FROM t {w} EXCEPT SELECT k, n FROM s {w}",
    "SELECT k FROM s {w} EXCEPT SELECT k FROM t {w}",
    "SELECT x FROM t {w} MINUS SELECT x FROM s {w}",
    "SELECT x FROM s {w} INTERSECT SELECT x FROM t {w}",
    "SELECT n FROM s {w} INTERSECT SELECT d FROM t {w}",
    "SELECT n FROM s {w} UNION SELECT x FROM t {w}",
    "SELECT d FROM s {w} UNION ALL SELECT n FROM t {w} UNION SELECT 7 FROM s {w}",
    "SELECT k, n FROM s {w} UNION ALL SELECT k, n FROM t {w} INTERSECT SELECT k, n FROM s {w}",
    "(SELECT k, n FROM s {w} UNION ALL SELECT k, n FROM t {w}) INTERSECT SELECT k, n FROM s {w}",
    "SELECT k FROM s {w} EXCEPT (SELECT k FROM t {w} EXCEPT SELECT k FROM s {w})",
    "SELECT k, COUNT(*) AS c FROM s {w} GROUP BY k EXCEPT SELECT k, COUNT(*) FROM t {w} GROUP BY k",
    "SELECT k, SUM(x) AS total FROM s {w} GROUP BY k INTERSECT SELECT k, SUM(x) FROM t {w} GROUP BY k ORDER BY k LIMIT 2",
    "SELECT n FROM s {w} UNION SELECT n FROM t {w} ORDER BY n DESC NULLS LAST LIMIT 3",
    "(SELECT n FROM s {w} ORDER BY n DESC LIMIT 2) UNION ALL (SELECT n FROM t {w} ORDER BY n LIMIT 2) ORDER BY 1",
    "SELECT COUNT(*) AS c FROM (SELECT k, x FROM s {w} EXCEPT SELECT k, x FROM t {w}) AS u",
    "SELECT NULL AS a, k FROM s {w} UNION SELECT n, 'z' FROM t {w}",
]
KINDS = pa.schema(
    [
        ("k", pa.string()),
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("d", pa.decimal128(6, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True))
    plain = [pa.array(column, kind) for column, kind in zip(columns, KINDS.types[:3], strict=True)]
    decimals = pa.array([None if n is None else Decimal(n) for n in columns[1]], KINDS.types[3])
    at = pa.array([second * 1_000_000 for second in range(len(rows))], pa.int64()).cast(KINDS.types[4])
    return pa.table([*plain, decimals, at], schema=KINDS)


NAN = float("nan")
S = table([("a", 1, 0.0), ("a", 1, 0.0), ("b", 2, NAN), (None, None, None), ("c", 3, 1.5), ("b", 2, -2.0)])
T = table([("a", 1, -0.0), (None, None, None), ("b", 2, NAN), ("d", 4, 2.0), ("d", 4, 2.0), ("c", None, 3.0)])


def shown(rows: Iterable[Iterable[Any]]) -> list[str]:
    """Rows in an order of their own; which zero represents several that are equal is not defined."""
    return sorted(
        repr([0.0 if isinstance(value, float) and value == 0 else value for value in row]) for row in rows
    )


@pytest.mark.spark
def test_set_operators_hold_at_the_end_what_spark_answers(spark: SparkSession) -> None:
    for name, rows in (("s", S), ("t", T)):
        spark.createDataFrame(rows).createOrReplaceTempView(name)
    for text in TEXTS:
        frame = spark.sql(text.format(w=""))
        answer = hr.test(text.format(w=ALL), s=S, t=T)
        assert shown(row.values() for row in answer) == shown(frame.collect()), text
        if answer:
            assert list(answer[0]) == frame.columns, text
