"""IN (SELECT …), NOT IN and EXISTS keep the rows that Spark keeps in batch, NULLs and empty sets included."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headrace as hr

WHERE = [
    "g IN (SELECT id FROM names)",
    "g NOT IN (SELECT id FROM names)",
    "g IN (SELECT id FROM names WHERE id IS NOT NULL)",
    "g NOT IN (SELECT id FROM names WHERE id IS NOT NULL)",
    "g NOT IN (SELECT id FROM names WHERE id > 99)",
    "g NOT IN (SELECT id FROM names AS n WHERE n.name = s.k)",
    "x > 1 OR g IN (SELECT id FROM names WHERE name = 'one')",
    "NOT (x > 1 AND g IN (SELECT id FROM names WHERE name = 'one'))",
    "EXISTS (SELECT 1 FROM names WHERE names.id = g)",
    "NOT EXISTS (SELECT * FROM names n WHERE n.id = s.g AND n.name <> s.k)",
    "EXISTS (SELECT id FROM names WHERE id > 99) OR k = 'one'",
    "g IN (SELECT id FROM names) AND k NOT IN (SELECT name FROM names WHERE name IS NOT NULL)",
]


def stream() -> pa.Table:
    rows = [
        {"k": k, "g": g, "x": number, "at": number * 1_000_000}
        for number, (k, g) in enumerate((k, g) for k in ("one", "two", "x", None) for g in (0, 1, 2, 3, None))
    ]
    stamp = pa.timestamp("us", tz="UTC")
    kinds = [("k", pa.string()), ("g", pa.int32()), ("x", pa.int64()), ("at", pa.int64())]
    table = pa.Table.from_pylist(rows, pa.schema(kinds))
    return table.set_column(3, "at", table.column("at").cast(stamp))


def relation() -> pa.Table:
    rows: list[dict[str, Any]] = [
        {"id": 1, "name": "one"},
        {"id": 1, "name": "uno"},
        {"id": 2, "name": None},
        {"id": None, "name": "two"},
    ]
    return pa.Table.from_pylist(rows, pa.schema([("id", pa.int64()), ("name", pa.string())]))


@pytest.mark.spark
def test_conditions_with_a_select_inside_keep_the_rows_that_spark_keeps(spark: SparkSession) -> None:
    s, names = stream(), relation()
    spark.createDataFrame(s).createOrReplaceTempView("s")
    spark.createDataFrame(names).createOrReplaceTempView("names")
    row_counts = {}
    for where in WHERE:
        text = f"SELECT x FROM s WHERE {where}"
        passing = sorted(row["x"] for row in hr.test(text, s=s, names=names))
        assert passing == sorted(row.x for row in spark.sql(text).collect()), where
        row_counts[where] = len(passing)
    assert min(row_counts.values()) == 0
    assert len(set(row_counts.values())) > 5
