"""Percentiles and modes of intervals in batches: the same as those of each interval separately."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import AggregateCall
from headrace.algebra.expressions.expression import Column
from headrace.operators.aggregates.holistic import Histogram, lower_by_value
from headrace.operators.relations import segment_values
from headrace.operators.relations.interval_segments import Intervals
from headrace.operators.relations.segment_values import ValueIntervals, lower_over_intervals, value_intervals
from headrace.schema import BIGINT, DOUBLE

MODE = AggregateCall("mode", Column("x", BIGINT), BIGINT)
MIDDLE = AggregateCall("percentile", Column("x", BIGINT), DOUBLE, share=0.5)
ROWS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from((None, 1, 2, 3)),
        st.integers(0, 4),
        st.integers(0, 4),
        st.integers(1, 3),
    ),
    max_size=12,
)


def known(rows: list[tuple[int, int | None, int, int, int]]) -> tuple[ValueIntervals, Intervals]:
    """Three groups of four intervals each; a row has a group, a value, a run of its intervals, and how often it is there."""
    intervals = Intervals(np.repeat(np.arange(3), 4), np.tile(np.arange(4), 3), np.arange(4))
    group, value, low, high, count = (
        (list(column) for column in zip(*rows, strict=True)) if rows else ([],) * 5
    )
    codes = np.array(group, np.int64)
    first = 4 * codes
    held = value_intervals(
        codes,
        pa.array(value, pa.int64()),
        first + np.array(low, np.int64),
        first + np.array(high, np.int64),
        np.array(count, np.int64),
    )
    return held, intervals


@given(rows=ROWS, call=st.sampled_from((MODE, MIDDLE)), entries=st.sampled_from((1, 3, 1 << 21)))
def test_each_segment_has_what_its_rows_say(
    rows: list[tuple[int, int | None, int, int, int]], call: AggregateCall, entries: int
) -> None:
    held, intervals = known(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_values, "ENTRIES", entries)
        values = lower_over_intervals(call, held, intervals).values.to_pylist()
    for index in range(intervals.count):
        there = [(value, count) for group, value, low, high, count in rows if low <= index - 4 * group < high]
        alone = Histogram(
            np.zeros(len(there), np.int64),
            pa.array([value for value, _ in there], pa.int64()),
            np.array([count for _, count in there], np.int64),
        )
        assert [values[index]] == lower_by_value(call, alone, 1).values.to_pylist()


def test_no_more_is_gone_through_at_once_than_is_allowed_and_a_value_counts_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousand rows of ten values over a thousand intervals: ten entries a segment, not as many as rows."""
    number = np.arange(1000)
    intervals = Intervals(np.zeros(1000, np.int64), number, number)
    held = value_intervals(
        np.zeros(1000, np.int64),
        pa.array(number % 10),
        number // 2,
        number // 2 + 400,
        np.ones(1000, np.int64),
    )
    gone_through: list[int] = []

    def counting(call: AggregateCall, histogram: Histogram, rows: int) -> object:
        gone_through.append(len(histogram.owner))
        return lower_by_value(call, histogram, rows)

    monkeypatch.setattr(segment_values, "ENTRIES", 500)
    monkeypatch.setattr(segment_values, "lower_by_value", counting)
    lower_over_intervals(MODE, held, intervals)
    assert max(gone_through) <= 500
    assert sum(gone_through) <= 10 * 1000
