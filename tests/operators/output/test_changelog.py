"""Changes of relations against loops: the union of intervals of each code, and what is left of changes of equal rows at one instant."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.windows.window import CHANGE
from headrace.operators.base.operator import AT, QUERY_NUMBER, WINDOW
from headrace.operators.output.changelog import EmitMode, consolidated, unite
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


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(("a", "b", None)), st.integers(0, 2), st.integers(-2, 3), st.sampled_from((-1, 1))
    ),
    max_size=25,
)


@pytest.mark.parametrize("emit_mode", ["changes", "istream", "dstream"])
@given(changes=CHANGES, of_many=st.booleans())
def test_equal_rows_at_one_instant_cancel_out_within_a_query(
    emit_mode: EmitMode, changes: list[tuple[str | None, int, int, int]], of_many: bool
) -> None:
    values, queries, instants, signs = ([change[part] for change in changes] for part in range(4))
    numbers = pa.array(queries, pa.int64())
    columns = {"k": pa.array(values, pa.string()), QUERY_NUMBER if of_many else "n": numbers}
    columns |= {
        WINDOW: pa.array(np.zeros(len(changes), np.int64)),
        AT: pa.array(np.zeros(len(changes), np.int64)),
    }
    net = Counter[tuple[str | None, int, int]]()
    for value, query, instant, sign in changes:
        net[value, query, instant] += sign
    wanted = {
        "changes": Counter({(*row, int(np.sign(count))): abs(count) for row, count in net.items() if count}),
        "istream": Counter({(*row, 1): count for row, count in net.items() if count > 0}),
        "dstream": Counter({(*row, 1): -count for row, count in net.items() if count < 0}),
    }
    table = consolidated(
        pa.table(columns), np.array(instants, np.int64), np.array(signs, np.int64), emit_mode
    )
    names = ["k", QUERY_NUMBER if of_many else "n", AT]
    rows = [table.column(name).to_pylist() for name in names]
    emitted_signs = table.column(CHANGE).to_pylist() if emit_mode == "changes" else [1] * table.num_rows
    assert Counter(zip(*rows, emitted_signs, strict=True)) == wanted[emit_mode]
