"""The laws of partial aggregates, for every kind."""

from __future__ import annotations

import math
from typing import Literal as Choice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.partials.central_moments import CoMoments, Moments, Shape
from headrace.operators.partials.partial import (
    Argument,
    Bitwise,
    Cells,
    Count,
    Extreme,
    Partial,
    Sum,
    reduce_onto,
)
from headrace.operators.partials.time_weighted import Fading, Placed

PARTIALS: tuple[Partial, ...] = (
    Count(),
    Sum(),
    Sum(integer=True),
    Sum(2, integer=True),
    Sum(4, integer=True),
    Extreme(largest=True, integer=True),
    Extreme(largest=False, integer=True),
    Extreme(largest=True, integer=False),
    Extreme(largest=False, integer=False),
    Bitwise("and"),
    Bitwise("or"),
    Bitwise("xor"),
    Moments(),
    Shape(),
    CoMoments(),
    Fading(7),
    Placed(last=True),
    Placed(last=False),
)
DOUBLES = (0.0, -0.0, 1.5, -2.25, 1e6, 0.1, math.nan, math.inf, -math.inf)


def exact(partial: Partial) -> bool:
    """Integers and extremes: no rounding at all."""
    return isinstance(partial, Bitwise | Count | Extreme | Placed) or (
        isinstance(partial, Sum) and partial.integer
    )


def placed(rows: int) -> st.SearchStrategy[Argument]:
    """Rows of few times and positions; the place is the same where both are."""
    row = st.tuples(st.integers(-3, 3), st.integers(0, 5)).map(lambda row: (*row, row[0] * 6 + row[1] + 18))
    return st.builds(
        lambda values, valid: Argument(np.array(values, np.int64).reshape(rows, 3), np.array(valid, bool)),
        st.lists(row, min_size=rows, max_size=rows),
        st.lists(st.booleans(), min_size=rows, max_size=rows),
    )


def structured(partial: Partial, rows: int) -> st.SearchStrategy[Argument]:
    """Pairs of doubles; or doubles with their times, as integers. Small ones: products of large ones cancel."""
    number = st.sampled_from(tuple(value for value in DOUBLES if value != 1e6))

    def build(first: list[float], second: list[int], valid: list[bool]) -> Argument:
        values = np.stack([np.array(first, np.float64), np.array(second, np.float64) / 4], axis=1)
        if isinstance(partial, Fading):
            bits = np.array(first, np.float64).view(np.int64)
            values = np.stack([bits, np.array(second, np.int64)], axis=1)
        return Argument(values, np.array(valid, bool))

    return st.builds(
        build,
        st.lists(number, min_size=rows, max_size=rows),
        st.lists(st.integers(-9, 9), min_size=rows, max_size=rows),
        st.lists(st.booleans(), min_size=rows, max_size=rows),
    )


def arguments(partial: Partial, rows: int) -> st.SearchStrategy[Argument]:
    if isinstance(partial, Placed):
        return placed(rows)
    if isinstance(partial, CoMoments | Fading):
        return structured(partial, rows)
    whole = exact(partial) and not (isinstance(partial, Extreme) and not partial.integer)
    doubles = DOUBLES if not isinstance(partial, Shape) else tuple(one for one in DOUBLES if one != 1e6)
    element = st.integers(-(2**31), 2**31) if whole else st.sampled_from(doubles)
    width = partial.width if isinstance(partial, Sum) else 1

    def build(values: list[list[float]], valid: list[bool]) -> Argument:
        array = np.array(values, np.int64 if whole else np.float64).reshape(rows, width)
        return Argument(array[:, 0] if width == 1 else array, np.array(valid, bool))

    row = st.lists(element, min_size=width, max_size=width)
    return st.builds(
        build,
        st.lists(row, min_size=rows, max_size=rows),
        st.lists(st.booleans(), min_size=rows, max_size=rows),
    )


def same(partial: Partial, left: Cells, right: Cells) -> None:
    """Equal cells; a mean is not compared once its deviations are NaN, as they are permanently after an infinity."""
    if isinstance(partial, Moments | Shape):
        left, right = (
            (number, np.where(np.isfinite(squares[0]), mean, 0.0), *squares)
            for number, mean, *squares in (left, right)
        )
    if isinstance(partial, CoMoments):  # a mean is one of the values, whichever, and the distance from it
        left, right = (
            (n, y + y_apart, x + x_apart, *rest) for n, y, y_apart, x, x_apart, *rest in (left, right)
        )
    for one, other in zip(left, right, strict=True):
        assert one.dtype == other.dtype
        if exact(partial):
            np.testing.assert_array_equal(one, other)
        else:
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-6)


def lifted(data: st.DataObject, partial: Partial, cells: int, rows: int) -> Cells:
    argument = data.draw(arguments(partial, rows))
    codes = np.array(data.draw(st.lists(st.integers(0, cells - 1), min_size=rows, max_size=rows)), np.int64)
    with np.errstate(all="ignore"):
        return partial.lift(argument, codes, cells)


ids = [repr(partial) for partial in PARTIALS]


@pytest.mark.parametrize("partial", PARTIALS, ids=ids)
@given(data=st.data())
def test_combining_is_associative_and_commutative_with_the_identity_neutral(
    partial: Partial, data: st.DataObject
) -> None:
    one, two, three = (lifted(data, partial, 3, data.draw(st.integers(0, 6))) for _ in range(3))
    with np.errstate(all="ignore"):
        combine = partial.combine
        same(partial, combine(combine(one, two), three), combine(one, combine(two, three)))
        same(partial, combine(one, two), combine(two, one))
        same(partial, combine(one, partial.identity((3,))), one)
        same(partial, combine(partial.identity((3,)), one), one)


@pytest.mark.parametrize("partial", PARTIALS, ids=ids)
@given(data=st.data())
def test_reducing_is_folding_the_cells_of_each_code(partial: Partial, data: st.DataObject) -> None:
    cells = lifted(data, partial, 5, data.draw(st.integers(0, 8)))
    codes = np.array(data.draw(st.lists(st.integers(0, 2), min_size=5, max_size=5)), np.int64)
    folded = partial.identity((3,))
    with np.errstate(all="ignore"):
        for cell, code in enumerate(codes):
            other = partial.identity((3,))
            for part, source in zip(other, cells, strict=True):
                part[code] = source[cell]
            folded = partial.combine(folded, other)
        same(partial, partial.reduce(cells, codes, 3), folded)


@pytest.mark.parametrize("partial", PARTIALS, ids=ids)
@given(data=st.data())
def test_reducing_onto_cells_is_combining_with_what_was_reduced(
    partial: Partial, data: st.DataObject
) -> None:
    cells = lifted(data, partial, 5, data.draw(st.integers(0, 8)))
    codes = np.array(data.draw(st.lists(st.integers(0, 2), min_size=5, max_size=5)), np.int64)
    onto = lifted(data, partial, 3, data.draw(st.integers(0, 8)))
    with np.errstate(all="ignore"):
        expected = partial.combine(partial.reduce(cells, codes, 3), onto)
        same(partial, reduce_onto(partial, cells, codes, onto), expected)


@pytest.mark.parametrize("partial", PARTIALS, ids=ids)
@given(data=st.data())
def test_accumulating_combines_every_prefix(partial: Partial, data: st.DataObject) -> None:
    cells = tuple(part.reshape(3, 2) for part in lifted(data, partial, 6, data.draw(st.integers(0, 8))))
    with np.errstate(all="ignore"):
        sums = partial.accumulate(cells)
        before = tuple(part[0] for part in cells)
        for row in range(3):
            if row:
                before = partial.combine(before, tuple(part[row] for part in cells))
            same(partial, tuple(part[row] for part in sums), before)


@pytest.mark.parametrize("partial", PARTIALS, ids=ids)
@given(data=st.data())
def test_lifting_in_parts_and_combining_is_lifting_at_once(partial: Partial, data: st.DataObject) -> None:
    rows = data.draw(st.integers(0, 8))
    argument = data.draw(arguments(partial, rows))
    cut = data.draw(st.integers(0, rows))
    codes = np.array(data.draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows)), np.int64)
    assert argument.valid is not None
    with np.errstate(all="ignore"):
        parts = [
            partial.lift(Argument(argument.values[rows_], argument.valid[rows_]), codes[rows_], 3)
            for rows_ in (slice(0, cut), slice(cut, rows))
        ]
        same(partial, partial.combine(*parts), partial.lift(argument, codes, 3))


@pytest.mark.parametrize("partial", PARTIALS, ids=ids)
def test_of_no_rows_every_cell_is_the_identity_in_type_and_value(partial: Partial) -> None:
    width = {CoMoments: 2, Fading: 2, Placed: 3, Sum: partial.width}.get(type(partial), 1)
    kind = (
        np.int64
        if isinstance(partial, Fading)
        or (exact(partial) and not (isinstance(partial, Extreme) and not partial.integer))
        else np.float64
    )
    nothing = np.empty((0, width) if width > 1 else 0, kind)
    cells = partial.lift(Argument(nothing, None), np.empty(0, np.int64), 4)
    same(partial, cells, partial.identity((4,)))
    same(partial, partial.reduce(partial.identity((0,)), np.empty(0, np.int64), 4), partial.identity((4,)))


@pytest.mark.parametrize("partial", [Moments(), Shape(), CoMoments()], ids=repr)
def test_values_that_are_all_the_same_deviate_by_exactly_nothing_however_they_were_cut(
    partial: Partial,
) -> None:
    values = np.full((9, 2) if isinstance(partial, CoMoments) else 9, 0.1)
    edge = 5 if isinstance(partial, CoMoments) else 2
    cells = partial.lift(Argument(values, None), np.arange(9) // 3, 3)
    once = partial.reduce(cells, np.zeros(3, np.int64), 1)
    twice = partial.combine(once, partial.lift(Argument(values[:7], None), np.zeros(7, np.int64), 1))
    for some_cells in (cells, once, twice):
        assert all((part == 0).all() for part in some_cells[edge:])


def test_lines_do_not_cancel_far_from_zero() -> None:
    """Seconds since 1970 against readings around a million: sums of squares would leave no digit of the slope."""
    x = 1_700_000_000.0 + np.arange(12)
    y = 1e6 + 0.25 * np.arange(12)
    partial = CoMoments()
    cells = partial.lift(Argument(np.stack([y, x], axis=1), None), np.arange(12) % 4, 4)
    for whole in (
        partial.reduce(cells, np.zeros(4, np.int64), 1),
        tuple(p[-1:] for p in partial.accumulate(cells)),
    ):
        yy, xx, xy = (float(part[0]) for part in whole[5:])
        assert xy / xx == pytest.approx(0.25, rel=1e-9)
        assert xy * xy / (xx * yy) == pytest.approx(1.0, rel=1e-9)
    seconds = 1_700_000_000.0 + np.arange(12) / 1024
    cells = partial.lift(Argument(np.stack([np.arange(12) / 8, seconds], axis=1), None), np.arange(12) % 4, 4)
    for whole in (
        partial.reduce(cells, np.zeros(4, np.int64), 1),
        tuple(p[-1:] for p in partial.accumulate(cells)),
    ):
        xx, xy = (float(part[0]) for part in whole[6:])
        assert xy / xx == pytest.approx(128.0, rel=1e-12)  # a rounded mean of the seconds leaves seven digits
    raw = (12 * (x * y).sum() - x.sum() * y.sum()) / (12 * (x * x).sum() - x.sum() ** 2)
    assert raw != pytest.approx(0.25, rel=1e-3)  # the result of sums of squares


def test_the_shape_of_values_far_from_zero_is_that_of_their_distances() -> None:
    near = np.array([0.0, 1.0, 1.0, 2.0, 9.0, 30.0])
    partial = Shape()
    here, there = (
        partial.reduce(partial.lift(Argument(v, None), np.arange(6) % 3, 3), np.zeros(3, np.int64), 1)
        for v in (near, near + 1e8)
    )
    for one, other in zip(here[2:], there[2:], strict=True):
        assert one[0] == pytest.approx(other[0], rel=1e-9)


def test_a_row_that_faded_to_nothing_still_counts_beside_nothing_and_never_overflows() -> None:
    partial = Fading(1)
    values = np.stack([np.array([5.0, 7.0]).view(np.int64), np.array([0, 10**9])], axis=1)
    both = partial.lift(Argument(values, None), np.zeros(2, np.int64), 1)
    assert [float(part[0]) for part in both] == [1e9, 1.0, 7.0]
    old = partial.lift(Argument(values[:1], None), np.zeros(1, np.int64), 1)
    assert [float(part[0]) for part in old] == [0.0, 1.0, 5.0]


def test_moments_do_not_cancel_far_from_zero() -> None:
    values = 1e9 + np.array([4.0, 7.0, 13.0, 16.0])
    partial = Moments()
    cells = partial.lift(Argument(values, None), np.array([0, 0, 1, 1]), 2)
    number, mean, square = partial.reduce(cells, np.zeros(2, np.int64), 1)
    assert number[0] == 4
    assert mean[0] == pytest.approx(1e9 + 10)
    assert square[0] == pytest.approx(90.0, rel=1e-9)


@pytest.mark.parametrize(("which", "both"), [("and", [2, 12]), ("or", [7, 12]), ("xor", [5, 12])])
def test_bits_of_a_cell_are_those_of_its_numbers(which: Choice["and", "or", "xor"], both: list[int]) -> None:
    values = Argument(np.array([6, 12, 3, 99]), np.array([True, True, True, False]))
    assert Bitwise(which).lift(values, np.array([0, 1, 0, 1]), 2)[0].tolist() == both
