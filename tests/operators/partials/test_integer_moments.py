"""Variances of integers and decimals are one function of exact sums: right, and the same bits over every cut."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import AggregateCall
from headrace.algebra.expressions.expression import Column
from headrace.operators.aggregates.aggregate_calls import Answer, lift, lower, partials_of
from headrace.operators.partials.integer_moments import carried, squared
from headrace.reference.aggregate import aggregate
from headrace.schema import BIGINT, DOUBLE, INT, SMALLINT, Type, to_arrow
from headrace.schema import decimal as decimal_type

FUNCTIONS = ("var_samp", "var_pop", "stddev_samp", "stddev_pop")
KINDS: dict[str, tuple[Type, st.SearchStrategy[Any]]] = {
    "small": (SMALLINT, st.integers(-(2**15), 2**15 - 1)),
    "int": (INT, st.one_of(st.integers(-20, 20), st.integers(-(2**31), 2**31 - 1))),
    "bigint": (
        BIGINT,
        st.one_of(
            st.integers(-(2**63), 2**63 - 1), st.integers(10**15, 10**15 + 9), st.sampled_from([-(2**63)])
        ),
    ),
    "decimal": (
        decimal_type(38, 2),
        st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(f"{n}E-2")),
    ),
}


def call_of(function: str, kind: Type) -> AggregateCall:
    return AggregateCall(function, Column("v", kind), DOUBLE)


def answered(call: AggregateCall, values: Sequence[Any], cuts: Sequence[int]) -> list[float | None]:
    """One cell, lifted batch by batch and combined from the left."""
    assert call.argument is not None
    partial_columns = partials_of([call])
    whole = Answer(
        {partial_column: partial_column.partial.identity((1,)) for partial_column in partial_columns}
    )
    for start, stop in zip([0, *cuts], [*cuts, len(values)], strict=True):
        column = pa.array(values[start:stop], to_arrow(call.argument.type))
        part = lift(partial_columns, {call.argument: column}, np.zeros(stop - start, np.int64), 1)
        whole = Answer(
            {
                partial_column: partial_column.partial.combine(
                    whole.cells[partial_column], part.cells[partial_column]
                )
                for partial_column in partial_columns
            }
        )
    rows: list[float | None] = lower(call, whole).values.to_pylist()
    return rows


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_a_variance_of_integers_is_exact_and_has_the_same_bits_over_every_cut(
    name: str, function: str, data: st.DataObject
) -> None:
    kind, one = KINDS[name]
    values = data.draw(st.lists(st.none() | one, max_size=12))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=3)))
    call = call_of(function, kind)
    (whole,) = answered(call, values, [])
    expected = aggregate(call, values)
    assert whole == (None if expected is None else pytest.approx(expected, rel=1e-15, abs=0))
    assert answered(call, values, cuts) == [whole]
    assert answered(call, values[::-1], []) == [whole]


def test_the_average_of_large_integers_does_not_cancel() -> None:
    values = [2**62 + one for one in (1, 2, 3, 4)]
    assert answered(call_of("var_pop", BIGINT), values, [1, 3]) == [1.25]


@given(st.lists(st.integers(0, 2**127 - 1), min_size=1, max_size=5))
def test_squares_of_limbs_are_those_of_the_numbers(numbers: list[int]) -> None:
    limbs = np.array([[one >> 32 * index & 0xFFFFFFFF for index in range(4)] for one in numbers], np.int64)
    wide = squared(limbs)
    assert [sum(int(limb) << 32 * index for index, limb in enumerate(row)) for row in wide] == [
        one * one for one in numbers
    ]
    assert ((wide >= 0) & (wide < 2**32)).all()


def test_carried_limbs_of_one_number_are_the_same_however_it_was_summed() -> None:
    ways = [(5, -1), (5 - 2**32, 0), (5 + 2**33, -3)]
    assert {
        tuple(int(part[0]) for part in carried(tuple(np.array([limb]) for limb in way))) for way in ways
    } == {(5, -1)}
