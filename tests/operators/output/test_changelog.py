"""The union of intervals of each code, against their instants one by one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.output.changelog import unite
from headrace.time import FOREVER

ENDS = st.one_of(st.integers(0, 12), st.just(FOREVER))
INTERVALS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12), ENDS), max_size=12)


@given(INTERVALS)
def test_united_intervals_are_maximal_and_hold_at_the_same_instants(
    intervals: list[tuple[int, int, int]],
) -> None:
    codes, begin, end = (np.array([each[index] for each in intervals], np.int64) for index in range(3))
    first, starts, stops = unite(codes, begin, end)
    instants = range(14)
    for code in range(4):
        at = {now for each, low, high in intervals if each == code for now in instants if low <= now < high}
        united = [
            (low, high)
            for row, low, high in zip(first.tolist(), starts.tolist(), stops.tolist(), strict=True)
            if codes[row] == code
        ]
        assert {now for low, high in united for now in instants if low <= now < high} == at
        assert all(high < low for (_, high), (low, _) in pairwise(united)), "they are apart"
