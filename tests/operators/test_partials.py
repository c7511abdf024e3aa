"""The laws of partial aggregates, for every kind."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.partials import PARTIALS, Argument, Cells, Count, Extreme, Moments, Partial, Sum

DOUBLES = (0.0, -0.0, 1.5, -2.25, 1e6, 0.1, math.nan, math.inf, -math.inf)


def exact(partial: Partial) -> bool:
    """Integers and extremes: no rounding at all."""
    return isinstance(partial, Count | Extreme) or (isinstance(partial, Sum) and partial.integer)


def arguments(partial: Partial, rows: int) -> st.SearchStrategy[Argument]:
    whole = exact(partial) and not (isinstance(partial, Extreme) and not partial.integer)
    element = st.integers(-(2**31), 2**31) if whole else st.sampled_from(DOUBLES)
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
    """Equal cells; a mean says nothing once its deviations are NaN, as they are for ever after an infinity."""
    if isinstance(partial, Moments):
        left, right = (
            (number, np.where(np.isfinite(square), mean, 0.0), square)
            for number, mean, square in (left, right)
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
    width = partial.width if isinstance(partial, Sum) else 1
    kind = (
        np.int64
        if exact(partial) and not (isinstance(partial, Extreme) and not partial.integer)
        else np.float64
    )
    nothing = np.empty((0, width) if width > 1 else 0, kind)
    cells = partial.lift(Argument(nothing, None), np.empty(0, np.int64), 4)
    same(partial, cells, partial.identity((4,)))
    same(partial, partial.reduce(partial.identity((0,)), np.empty(0, np.int64), 4), partial.identity((4,)))


def test_moments_do_not_cancel_far_from_zero() -> None:
    values = 1e9 + np.array([4.0, 7.0, 13.0, 16.0])
    partial = Moments()
    cells = partial.lift(Argument(values, None), np.array([0, 0, 1, 1]), 2)
    number, mean, square = partial.reduce(cells, np.zeros(2, np.int64), 1)
    assert number[0] == 4
    assert mean[0] == pytest.approx(1e9 + 10)
    assert square[0] == pytest.approx(90.0, rel=1e-9)
