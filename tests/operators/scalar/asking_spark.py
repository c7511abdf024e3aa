"""Answers of Spark: many expressions in one job, where a failing row does not fail others.

Spark's own `TryEval` turns an exception into NULL; around a struct it distinguishes a failed row (NULL) from a NULL value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.algebra.expressions.expression import Expression
from headrace.operators.scalar import Evaluation

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FAILED = "failed"
_ZONE = "spark.sql.session.timeZone"
_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",  # compiling hundreds of expressions takes longer than running them
    "spark.sql.subexpressionElimination.enabled": "false",  # it would leave the shelter of TryEval
}


@contextmanager
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Spark evaluates expressions without compiling them."""
    for name, value in _INTERPRETED.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in _INTERPRETED:
            spark.conf.unset(name)


def _tried(spark: SparkSession, text: str) -> Column:
    # The condition is always true; it makes `v` nullable, without which the NULLs of TryEval have no place in Arrow.
    from pyspark.sql import Column

    jvm = spark._jvm
    parsed = (
        spark._jsparkSession.sessionState()
        .sqlParser()
        .parseExpression(f"named_struct('v', if(r >= 0, {text}, NULL))")
    )
    tried = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(parsed)
    return Column(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(tried))


def answers(spark: SparkSession, frame: DataFrame, texts: Sequence[str], zone: str = "UTC") -> pa.Table:
    """One struct column `v` for each expression, NULL on rows where it fails; expressions are read in a session's zone."""
    before = spark.conf.get(_ZONE)
    spark.conf.set(_ZONE, zone)
    try:
        columns = [_tried(spark, text).alias(str(index)) for index, text in enumerate(texts)]
        selected = frame.select(*columns)
    finally:
        spark.conf.set(_ZONE, before)
    with interpreted(spark):
        return selected.toArrow()


def cells_of_spark(column: pa.ChunkedArray) -> list[Any]:
    """Values as comparable Python values, FAILED for failed rows."""
    structs = column.combine_chunks()
    failed = structs.is_null().to_pylist()
    return [FAILED if bad else value for bad, value in zip(failed, plain(structs.field("v")), strict=True)]


def cells_of_ours(expression: Expression, table: pa.Table) -> tuple[pa.DataType, list[Any]]:
    """The same for our evaluation."""
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    evaluation = Evaluation(columns, table.num_rows)
    values = evaluation.values(expression)
    rows = plain(values)
    for row in evaluation.errors.reasons if evaluation.errors is not None else ():
        assert rows[row] is None, "a failed row is NULL"
        rows[row] = FAILED
    return values.type, rows


def plain(values: pa.Array) -> list[Any]:
    """Values that compare exactly: floats by their text (NaN is NaN, -0.0 is not 0.0), times as integers."""
    if pa.types.is_temporal(values.type):
        return values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64()).to_pylist()
    if pa.types.is_floating(values.type):
        return [value if value is None else repr(value) for value in values.to_pylist()]
    return values.to_pylist()


def is_near(ours: Any, theirs: Any) -> bool:
    """Equal, or doubles with a few units in the last place between them."""
    if ours == theirs or ours in (None, FAILED) or theirs in (None, FAILED):
        return ours == theirs
    return math.isclose(float(ours), float(theirs), rel_tol=1e-15, abs_tol=5e-324)
