"""Percentiles and modes from histograms: against numpy, and what their state costs."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate, result_type
from headrace.algebra.expressions.expression import Column, Named
from headrace.operators.aggregates.group_by import Grouped, fold
from headrace.operators.aggregates.holistic import Histogram, lower_by_value
from headrace.schema import BIGINT, DOUBLE, STRING

entries = st.lists(st.tuples(st.integers(0, 4), st.integers(-5, 5), st.integers(1, 4)), max_size=30)


def percentile(share: float, *, distinct: bool = False) -> AggregateCall:
    return AggregateCall("percentile", Column("v", BIGINT), DOUBLE, distinct, share=share)


def histogram(drawn: list[tuple[int, int, int]]) -> Histogram:
    owner, values, counts = (np.array([row[index] for row in drawn], np.int64) for index in range(3))
    return Histogram(owner, pa.array(values), counts)


@given(entries, st.floats(0, 1), st.booleans())
def test_a_percentile_of_counted_values_is_that_of_the_values_written_out(
    drawn: list[tuple[int, int, int]], share: float, distinct: bool
) -> None:
    items = lower_by_value(percentile(share, distinct=distinct), histogram(drawn), 5).values.to_pylist()
    for group in range(5):
        rows = [value for owner, value, count in drawn if owner == group for _ in range(count)]
        values = sorted(set(rows)) if distinct else rows
        if not values:
            assert items[group] is None
        else:
            assert items[group] == pytest.approx(np.percentile(values, 100 * share), abs=1e-9)


@given(entries)
def test_the_mode_is_the_least_of_the_most_frequent_values(drawn: list[tuple[int, int, int]]) -> None:
    call = AggregateCall("mode", Column("v", BIGINT), result_type("mode", BIGINT))
    values = lower_by_value(call, histogram(drawn), 5).values.to_pylist()
    for group in range(5):
        rows = [value for owner, value, count in drawn if owner == group for _ in range(count)]
        assert values[group] == (min(set(rows), key=lambda v: (-rows.count(v), v)) if rows else None)


@given(entries, st.sampled_from((0.05, 0.2, 0.5, 1.0)))
def test_heavy_hitters_are_the_values_with_their_share_of_the_rows(
    drawn: list[tuple[int, int, int]], share: float
) -> None:
    call = AggregateCall("heavy_hitters", Column("v", BIGINT), STRING, share=share)
    values = lower_by_value(call, histogram(drawn), 5).values.to_pylist()
    for group in range(5):
        rows = [value for owner, value, count in drawn if owner == group for _ in range(count)]
        heavy = {value for value in rows if rows.count(value) * 100 >= round(100 * share) * len(rows)}
        expected = sorted(heavy, key=lambda value: (-rows.count(value), value))
        assert (values[group] is None) == (not rows)
        assert json.loads(values[group] or "[]") == expected


def test_a_pane_keeps_a_value_once_however_often_it_occurs_and_all_percentiles_share_it() -> None:
    value = Column("v", BIGINT)
    calls = [percentile(share) for share in (0.1, 0.5, 0.9)]
    calls += [AggregateCall("mode", value, BIGINT), AggregateCall("count", value, BIGINT, True)]
    grouped = Grouped(
        (Named("k", Column("k", BIGINT)),), tuple(NamedAggregate(str(n), c) for n, c in enumerate(calls))
    )
    rows = 10_000
    inputs = {"k": pa.array(np.arange(rows) % 2), "v": pa.array(np.arange(rows) % 7)}
    values = [inputs[expression.name] for expression in grouped.inputs() if isinstance(expression, Column)]
    plain, beside = fold(grouped, np.zeros(rows, np.int64), values, None)
    assert (plain.num_rows, beside.num_rows) == (2, 14)


def test_a_window_from_the_one_before_by_subtraction_is_exact_for_integers_and_wrong_for_doubles() -> None:
    """Why no partial has an inverse: the differential rule (combine the new pane, take the old one away) loses digits."""
    whole = np.array([10**17, 3, 4], np.int64)
    assert whole[:2].sum() + whole[2] - whole[0] == 7
    doubles = whole.astype(np.float64)
    assert doubles[:2].sum() + doubles[2] - doubles[0] != 7.0
    with np.errstate(all="ignore"):
        endless = np.array([np.inf, 3.0, 4.0])
        assert np.isnan(endless[:2].sum() + endless[2] - endless[0])
