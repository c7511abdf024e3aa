"""The stable order of rows by several columns, where they have room in one integer and where they have not."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.base.group_ranks import stable_order

NARROW, WIDE = st.integers(-3, 3), st.sampled_from((-(1 << 63), -1, 0, 5, (1 << 62) + 1, (1 << 63) - 1))


def rows_of(kind: st.SearchStrategy[int]) -> st.SearchStrategy[list[tuple[int, int, int]]]:
    return st.lists(st.tuples(NARROW, kind, NARROW), max_size=30)


@given(st.one_of(rows_of(NARROW), rows_of(NARROW), rows_of(WIDE)), st.integers(1, 3))
def test_rows_are_ordered_by_the_first_column_first_and_equal_ones_stay(
    rows: list[tuple[int, int, int]], columns: int
) -> None:
    values = [np.array([row[column] for row in rows], np.int64) for column in range(columns)]
    expected = sorted(range(len(rows)), key=lambda index: rows[index][:columns])
    order = stable_order(*values)
    assert order.rows.tolist() == expected
    ordered = [rows[index][:columns] for index in expected]
    assert [*zip(*(column.tolist() for column in order.columns), strict=True)] == ordered
    assert order.begins.tolist() == [
        index == 0 or row != ordered[index - 1] for index, row in enumerate(ordered)
    ]
