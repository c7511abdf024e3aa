"""Equal expressions share a kernel; columns of one name and different types do not."""

from __future__ import annotations

import pyarrow as pa

from headrace.algebra.expressions.expression import Call, Column, Literal
from headrace.operators.scalar import Evaluation
from headrace.schema import BIGINT, DOUBLE, INT


def rounded(kind, values: pa.Array) -> list[object]:
    """ROUND(agg0, 1) where agg0 has the given type."""
    expression = Call("round", (Column("agg0", kind), Literal(1, INT)), kind)
    return Evaluation({"agg0": values}, len(values)).values(expression).to_pylist()


def test_a_column_of_another_type_under_the_same_name_has_its_own_kernel() -> None:
    """Internal names such as agg0 recur in every query of a process."""
    assert rounded(BIGINT, pa.array([15, 26])) == [15, 26]
    assert rounded(DOUBLE, pa.array([1.26, 2.74])) == [1.3, 2.7]
