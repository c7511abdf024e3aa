"""Changes of relations against loops: the union of intervals of each code, and what is left of changes of equal rows at one instant."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.expression import Column, Literal, Named
from headrace.algebra.windows.window import CHANGE
from headrace.operators.base.operator import AT, QUERY_NUMBER, WINDOW
from headrace.operators.output.changelog import EmitMode, Items, Span, consolidated, emit, unite
from headrace.operators.output.output_stage import Finish
from headrace.schema import BIGINT
from headrace.time import FOREVER
from tests.laws.strategies import call

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


def test_a_row_that_fails_above_its_window_takes_its_interval_with_it() -> None:
    """The others keep theirs."""
    plan = Finish((Named("q", call("div", Literal(6, BIGINT), Column("x", BIGINT), kind=BIGINT)),))
    items = Items({"x": pa.array([0, 2, 3])}, np.array([1, 3, 4]), np.array([5, 7, 9]))
    table, rejected = emit(plan, items, Span(0, 20), "changes")
    assert table is not None
    changes = [table.column(name).to_pylist() for name in ("q", AT, CHANGE)]
    assert [*zip(*changes, strict=True)] == [(3, 3, 1), (2, 4, 1), (3, 7, -1), (2, 9, -1)]
    assert [failed.at.tolist() for failed in rejected] == [[1]]
