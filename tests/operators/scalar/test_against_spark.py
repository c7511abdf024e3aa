"""Every expression gives what Spark gives: value, type, NULL and failure, row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from headrace.algebra.expressions.expression import Call, Cast, Column, Expression, Literal
from headrace.algebra.functions.resolve import resolve
from headrace.language.binder.expressions.expression_binder import bind_expression
from headrace.schema import INT, STRING, to_arrow
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
    for index, text in enumerate(texts):
        wrong += _differences(text, text, theirs.column(index), rows, near=family == "transcendental")
    assert not wrong, f"{len(wrong)} differences:\n" + "\n".join(wrong)


def _column(name: str) -> Column:
    return Column(name, SCHEMA.field(name).type)


def _call(name: str, *parts: Expression | str | int) -> Expression:
    arguments = [
        part if isinstance(part, Column) else Literal(part, STRING if isinstance(part, str) else INT)
        for part in parts
    ]
    constants = tuple(part.value if isinstance(part, Literal) else None for part in arguments)
    signature = resolve(name, tuple(part.type for part in arguments), constants)
    cast = [
        p if p.type == kind else Cast(p, kind) for p, kind in zip(arguments, signature.arguments, strict=True)
    ]
    return Call(signature.function, tuple(cast), signature.result)


S, U, K = _column("s"), _column("u"), _column("k")
WITHOUT_SYNTAX = {
    "s ILIKE u": _call("ilike", S, U),
    "'a%c' LIKE u": _call("like", "a%c", U),
    "instr('headrace', u)": _call("instr", "headrace", U),
    "substring('headrace', k, 3)": _call("substring", "headrace", K, 3),
    "lpad('x', k, u)": _call("lpad", "x", K, U),
    "concat_ws(s)": _call("concat_ws", S),
}


def test_what_has_no_syntax_here_is_what_spark_says(
    spark: SparkSession, frame: DataFrame, rows: pa.Table
) -> None:
    theirs = answers(spark, frame, list(WITHOUT_SYNTAX))
    wrong = []
    for index, (text, expression) in enumerate(WITHOUT_SYNTAX.items()):
        wrong += _differences(text, expression, theirs.column(index), rows, near=False)
    assert not wrong, "\n".join(wrong)


def _nullable(kind: pa.DataType) -> pa.DataType:
    """Spark marks struct fields that cannot be NULL; all fields of Headrace may be."""
    return pa.struct([(field.name, field.type) for field in kind]) if pa.types.is_struct(kind) else kind


def _differences(
    text: str, meant: str | Expression, column: pa.ChunkedArray, rows: pa.Table, *, near: bool
) -> list[str]:
    try:
        expression = bind_expression(meant, SCHEMA) if isinstance(meant, str) else meant
        kind, ours = cells_of_ours(expression, rows)
    except Exception as failure:  # noqa: BLE001 the other expressions of the family are worth a look too
        return [f"{text}: {type(failure).__name__}: {failure}"]
    expected = _nullable(column.type.field("v").type)
    differences = []
    if kind != to_arrow(expression.type) or kind != expected:
        differences.append(f"{text}: type {kind}, Spark has {expected}")
    for row, (one, other) in enumerate(zip(ours, cells_of_spark(column), strict=True)):
        if one != other and not (near and is_near(one, other)):
            inputs = {
                name: rows.column(name)[row].as_py()
                for name in rows.column_names
                if name in text.replace("(", " ").replace(")", " ").replace(",", " ").split()
            }
            return [*differences, f"{text}: {one!r}, Spark says {other!r} for {inputs}"]
    return differences
