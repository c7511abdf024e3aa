"""Every expression gives what Spark gives: value, type, NULL and failure, row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from headrace.language.bind_expressions import bind_expression
from headrace.schema import to_arrow
from tests.operators.scalar.asking_spark import answers, cells_of_ours, cells_of_spark, is_near
from tests.operators.scalar.expressions_for_spark import FAMILIES
from tests.operators.scalar.rows import SCHEMA, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return table()


@pytest.fixture(scope="module")
def frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    return spark.createDataFrame(rows)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_row_is_what_spark_says(
    family: str, spark: SparkSession, frame: DataFrame, rows: pa.Table
) -> None:
    texts = FAMILIES[family]
    assert len(texts) == len(set(texts))
    theirs = answers(spark, frame, texts)
    wrong = []
    for place, text in enumerate(texts):
        wrong += _differences(text, theirs.column(place), rows, near=family == "transcendental")
    assert not wrong, f"{len(wrong)} differences:\n" + "\n".join(wrong)


def _differences(text: str, column: pa.ChunkedArray, rows: pa.Table, *, near: bool) -> list[str]:
    try:
        expression = bind_expression(text, SCHEMA)
        kind, ours = cells_of_ours(expression, rows)
    except Exception as failure:
        return [f"{text}: {type(failure).__name__}: {failure}"]
    expected = column.type.field("v").type
    found = []
    if kind != to_arrow(expression.type) or kind != expected:
        found.append(f"{text}: type {kind}, Spark has {expected}")
    for row, (one, other) in enumerate(zip(ours, cells_of_spark(column), strict=True)):
        if one != other and not (near and is_near(one, other)):
            inputs = {
                name: rows.column(name)[row].as_py()
                for name in rows.column_names
                if name in text.replace("(", " ").replace(")", " ").replace(",", " ").split()
            }
            return [*found, f"{text}: {one!r}, Spark says {other!r} for {inputs}"]
    return found
