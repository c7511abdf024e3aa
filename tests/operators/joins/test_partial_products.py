"""Products of partial aggregates by hand: exact where sums pass 64 bits and come back, and combinations of equal keys only."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headrace.algebra.expressions.expression import Column
from headrace.operators.aggregates.aggregate_calls import Answer
from headrace.operators.aggregates.cell_table import WindowCells
from headrace.operators.joins.partial_products import combinations, repeated
from headrace.operators.partials.encoding import extreme_partial, rows_partial, sum_partial, whole_numbers
from headrace.schema import BIGINT, DOUBLE

V = Column("v", BIGINT)


def limbs(*values: int) -> tuple[np.ndarray, np.ndarray]:
    """Integers of any size as two limbs, not carried: as sums of rows leave them."""
    return np.array([v & 0xFFFFFFFF for v in values]), np.array([v >> 32 for v in values])


@pytest.mark.parametrize("value", [0, 1, -1, 2**62, -(2**63), 2**63 - 1, 2**31, -(2**32) - 7])
@pytest.mark.parametrize("times", [1, 3, 2**31 - 1])
def test_a_sum_times_a_number_of_rows_is_exact(value: int, times: int) -> None:
    repeats = [np.array([times])]
    low, high = repeated(sum_partial(V), limbs(value), repeats)
    assert int(low[0]) + (int(high[0]) << 32) == value * times
    assert 0 <= low[0] < 2**32, "many such limbs are summed"


def test_sums_that_pass_64_bits_and_come_back_are_no_overflow() -> None:
    cells = repeated(sum_partial(V), limbs(2**62, -(2**62)), [np.array([5, 5]), np.array([7, 7])])
    whole, bad = whole_numbers(tuple(part.sum(keepdims=True) for part in cells), BIGINT)
    assert whole.to_pylist() == [0]
    assert not bad.any()


def test_extremes_and_counts() -> None:
    times = [np.array([2, 3]), np.array([1, 4])]
    least = (np.array([5.0, np.nan]),)
    assert repeated(extreme_partial(Column("d", DOUBLE), largest=False), least, times) is least
    assert repeated(rows_partial(), (np.array([1, 2]),), times)[0].tolist() == [2, 24]


def cells(*rows: tuple[int, str | None, int]) -> WindowCells:
    """Rows are (window, key, another key)."""
    windows = np.array([row[0] for row in rows], np.int64)
    keys = (pa.array([row[1] for row in rows], pa.string()), pa.array([row[2] for row in rows], pa.int64()))
    return WindowCells(windows, keys, Answer({}))


def without_other_key(side: WindowCells) -> WindowCells:
    return WindowCells(side.windows, side.keys[:1], side.answer)


def test_cells_are_combined_where_window_and_key_are_equal() -> None:
    one = cells((1, "a", 0), (1, "b", 0), (2, "a", 0), (2, None, 0), (3, "c", 0))
    many = cells((1, "a", 7), (1, "a", 8), (2, "a", 7), (2, None, 7), (2, "b", 7), (3, "a", 7))
    alone = without_other_key(one)
    found = combinations([alone, many], 1)
    assert sorted(zip(*(numbers.tolist() for numbers in found), strict=True)) == [(0, 0), (0, 1), (2, 2)]
    found = combinations([many, alone, many], 1)
    assert sorted(zip(*(numbers.tolist() for numbers in found), strict=True)) == [
        *((0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1)),
        (2, 2, 2),
    ]
