"""Sums of products by hand: exact in limbs, and combinations of which one may fail are not taken for products of sums."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.expression import Call, Column, Expression
from headrace.operators.aggregates.aggregate_calls import lift, partials_of
from headrace.operators.aggregates.cell_table import WindowCells
from headrace.operators.joins.side_products import SideProduct, aggregates_of, product_of_limbs
from headrace.operators.partials.encoding import count_partial, sum_partial
from headrace.schema import BIGINT, DOUBLE, INT, Type

MOST = 2**63 - 1


def limbs(value: int) -> tuple[np.ndarray, np.ndarray]:
    return np.array([value & 0xFFFFFFFF]), np.array([value >> 32])


@given(left=st.integers(-(2**60), 2**60), right=st.integers(-(2**33), 2**33))
def test_products_of_limbs_are_exact(left: int, right: int) -> None:
    low, high = product_of_limbs(limbs(left), limbs(right))
    assert int(low[0]) + (int(high[0]) << 32) == left * right
    assert 0 <= low[0] < 2**32, "many such limbs are summed"


def side(factor: Expression, *values: float | None) -> WindowCells:
    """One cell with some rows."""
    columns = partials_of([item.call for item in aggregates_of(factor)])
    kind = pa.float64() if factor.type == DOUBLE else pa.int64()
    answer = lift(columns, {factor: pa.array(values, kind)}, np.zeros(len(values), np.int64), 1)
    return WindowCells(np.zeros(1, np.int64), (), answer)


def product(of: Type, factors: Type) -> SideProduct:
    x, y = Column("x", factors), Column("y", factors)
    argument = Call("*", (Column("x", of), Column("y", of)), of)
    return SideProduct(argument, (0, 1), (x, y), argument)


ONE = [np.zeros(1, np.int64)] * 2


@pytest.mark.parametrize(
    ("of", "left", "right", "alike"),
    [
        (BIGINT, (1, -2, None), (3,), True),
        (BIGINT, (2**31, 1), (2**31,), True),
        (BIGINT, (2**32, 1), (-(2**31),), False),
        (BIGINT, (MOST, -MOST), (1, 0), False),
        (BIGINT, (None, None), (MOST, -(2**63)), True),
        (INT, (2**15,), (2**15, 0), True),
        (INT, (2**16,), (2**15, 0), False),
        (DOUBLE, (1.5, -2.0, None), (1e200,), True),
        (DOUBLE, (1e200,), (1e200, 1e-300), False),
        (DOUBLE, (float("nan"), 1.0), (1.0,), False),
        (DOUBLE, (float("-inf"), 1.0), (2.0, 1.0), False),
        (DOUBLE, (None,), (float("inf"), float("nan")), False),
    ],
)
def test_sums_are_multiplied_where_no_product_can_fail(
    of: Type, left: tuple[float | None, ...], right: tuple[float | None, ...], alike: bool
) -> None:
    of_two = product(of, DOUBLE if of == DOUBLE else BIGINT)
    sides = [side(factor, *values) for factor, values in zip(of_two.factors, (left, right), strict=True)]
    assert of_two.alike(sides, ONE).tolist() == [alike]


def test_sums_without_room_are_not_multiplied() -> None:
    """Each product fits, and so many do not."""
    of_two = product(BIGINT, BIGINT)
    for rows, alike in ((1 << 13, True), (1 << 14, False)):
        sides = [side(factor, *[2**31] * rows) for factor in of_two.factors]
        assert of_two.alike(sides, ONE).tolist() == [alike]


def test_the_count_and_the_sum_are_those_of_the_pairs_without_null() -> None:
    of_two = product(BIGINT, BIGINT)
    sides = [side(of_two.factors[0], 2, None, 5), side(of_two.factors[1], -7, 1, None)]
    assert of_two.cells(count_partial(of_two.argument), sides, ONE)[0].tolist() == [4]
    low, high = of_two.cells(sum_partial(of_two.argument), sides, ONE)
    assert int(low[0]) + (int(high[0]) << 32) == -42


def test_a_sum_of_doubles_is_no_negative_zero() -> None:
    of_two = product(DOUBLE, DOUBLE)
    sides = [side(of_two.factors[0], 0.0), side(of_two.factors[1], -1.0)]
    (total,) = of_two.cells(sum_partial(of_two.argument), sides, ONE)
    assert not np.signbit(total[0])
