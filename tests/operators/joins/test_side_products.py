"""Sums of products, and of sums, of two sides by hand: exact in limbs; combinations of which one may fail are made."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.expression import Call, Column, Expression
from headrace.operators.aggregates.aggregate_calls import lift, partials_of
from headrace.operators.aggregates.cell_table import WindowCells
from headrace.operators.joins.side_products import SideProduct, SideSum, aggregates_of, product_of_limbs
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


def added(function: str, of: Type) -> SideSum:
    """A sum or a difference of integers of a type, as it would be written over columns of that type."""
    product_ = product(of, BIGINT)
    argument = Call(function, (Column("x", of), Column("y", of)), of)
    return SideSum(argument, (0, 1), product_.factors, argument)


@pytest.mark.parametrize("function", ["+", "-"])
@pytest.mark.parametrize(
    ("of", "left", "right", "alike"),
    [
        (BIGINT, (1, -2, None), (3,), True),
        (BIGINT, (2**62, 1), (2**61, 0), True),
        (BIGINT, (2**62, 1), (-(2**62),), False),
        (BIGINT, (MOST, 5), (1, 0), False),
        (INT, (2**30,), (2**29, 0), True),
        (INT, (-(2**30),), (2**30, 0), False),
        (INT, (None,), (7, None), True),
    ],
)
def test_sums_are_added_where_no_sum_can_fail(
    function: str, of: Type, left: tuple[int | None, ...], right: tuple[int | None, ...], alike: bool
) -> None:
    of_two = added(function, of)
    sides = [side(factor, *values) for factor, values in zip(of_two.factors, (left, right), strict=True)]
    assert of_two.alike(sides, ONE).tolist() == [alike]


@given(
    left=st.lists(st.none() | st.integers(-(2**61), 2**61), min_size=1, max_size=5),
    right=st.lists(st.none() | st.integers(-(2**61), 2**61), min_size=1, max_size=5),
    sign=st.sampled_from([1, -1]),
    others=st.integers(0, 9),
)
def test_sums_of_two_sides_are_those_of_the_pairs(
    left: list[int | None], right: list[int | None], sign: int, others: int
) -> None:
    """Also where a third side has rows, each pair in as many combinations; 0 where there is no such side."""
    of_two = added("+" if sign > 0 else "-", BIGINT)
    third = [side(Column("z", BIGINT), *([0] * others))] if others else []
    sides = [side(of_two.factors[0], *left), side(of_two.factors[1], *right), *third]
    pairs = [x + sign * y for x in left for y in right if x is not None and y is not None] * max(others, 1)
    numbers = [np.zeros(1, np.int64)] * len(sides)
    assert of_two.alike(sides, numbers).all()
    assert of_two.cells(count_partial(of_two.argument), sides, numbers)[0].tolist() == [len(pairs)]
    low, high = of_two.cells(sum_partial(of_two.argument), sides, numbers)
    assert int(low[0]) + (int(high[0]) << 32) == sum(pairs)
    assert 0 <= low[0] < 2**32, "many such limbs are summed"


def test_a_sum_of_doubles_is_no_negative_zero() -> None:
    of_two = product(DOUBLE, DOUBLE)
    sides = [side(of_two.factors[0], 0.0), side(of_two.factors[1], -1.0)]
    (total,) = of_two.cells(sum_partial(of_two.argument), sides, ONE)
    assert not np.signbit(total[0])
