"""Frames cut by numpy begin where those of a loop over the rows do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.row_windows import delta_frames

VALUES = st.sampled_from((np.nan, np.inf, -np.inf, 0.0, 1.0, 2.0, 2.5, 3.0, 5.0, 8.0))


def by_hand(codes: list[int], values: list[float], threshold: float) -> list[bool]:
    first: dict[int, float] = {}
    starts = []
    for code, value in zip(codes, values, strict=True):
        known = first.get(code)
        begins = known is not None and (value > known + threshold or value < known - threshold)
        if begins or (known is None and not np.isnan(value)):
            first[code] = value
        starts.append(begins)
    return starts


@pytest.mark.parametrize("at_once", [2, 5, 1 << 16])
@given(st.lists(st.tuples(st.integers(0, 3), VALUES), max_size=40), st.sampled_from((0.0, 1.0, 2.5)))
def test_frames_begin_where_a_loop_over_the_rows_says(
    at_once: int, rows: list[tuple[int, float]], threshold: float
) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    codes, values = [code for code, _ in rows], [value for _, value in rows]
    before = delta_frames._AT_ONCE
    try:
        delta_frames._AT_ONCE = at_once
        beginnings = delta_frames.beginnings(
            np.array(codes, np.int64), np.array(values, np.float64), threshold
        )
    finally:
        delta_frames._AT_ONCE = before
    assert beginnings.tolist() == by_hand(codes, values, threshold)
