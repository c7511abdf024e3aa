"""The baselines of the benchmarks answer what the definition of a window has, and lose what their slack loses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines.slack import buffer_sort, by_slack, truth
from benchmarks.baselines.windows import (
    Sliding,
    by_buffering,
    by_differences,
    by_grouped_buffering,
    by_negative_tuples,
    by_window_id,
)

SPECS = st.builds(Sliding, st.integers(1, 12), st.integers(1, 6))
TIMES = st.lists(st.integers(0, 40), min_size=2, max_size=30).filter(lambda at: max(at) > 6)


def extents(at: np.ndarray, spec: Sliding) -> list[np.ndarray]:
    """Which rows each complete window holds, by its definition."""
    ends = [(window + 1) * spec.slide for window in spec.complete(int(at.max())).tolist()]
    return [(end - spec.range <= at) & (at < end) for end in ends]


@given(times=TIMES, spec=SPECS)
def test_all_ways_answer_alike_in_order(times: list[int], spec: Sliding) -> None:
    at = np.sort(np.array(times))
    value = np.arange(len(at)) * 7.0 % 11
    greatest = [value[held].max() if held.any() else np.nan for held in extents(at, spec)]
    sums = [value[held].sum() if held.any() else np.nan for held in extents(at, spec)]
    np.testing.assert_array_equal(by_buffering(at, value, spec).values, greatest)
    np.testing.assert_array_equal(by_window_id(at, value, spec, batch=4).values, greatest)
    np.testing.assert_allclose(by_differences(at, value, spec).values, sums, atol=1e-9)
    np.testing.assert_allclose(by_negative_tuples(at, value, spec).values, sums, atol=1e-9)
    by_key = by_grouped_buffering(at, np.arange(len(at)) % 3, value, spec, spec.complete(int(at[-1])))
    wanted = {
        ((index + 1) * spec.slide, k): value[held & (np.arange(len(at)) % 3 == k)].max()
        for index, held in enumerate(extents(at, spec))
        for k in range(3)
        if (held & (np.arange(len(at)) % 3 == k)).any()
    }
    rows = by_key.to_pylist()
    assert {(row["window_end"], row["k"]): row["v_max"] for row in rows} == wanted


@given(times=TIMES, spec=SPECS)
def test_a_partial_for_each_window_needs_no_order(times: list[int], spec: Sliding) -> None:
    at = np.array(times)
    value = np.arange(len(at)) * 7.0 % 11
    wanted = [value[held].max() if held.any() else np.nan for held in extents(at, spec)]
    np.testing.assert_array_equal(by_window_id(at, value, spec, batch=4).values, wanted)


@given(times=TIMES, spec=SPECS, slack=st.integers(0, 15), generous=st.booleans())
def test_slack_drops_row_by_row_what_its_rule_says(
    times: list[int], spec: Sliding, slack: int, generous: bool
) -> None:
    at = np.array(times)
    value = np.arange(len(at)) + 1.0
    rows, sums, highest = np.zeros(99, int), np.zeros(99), -(10**6)
    for moment, amount in zip(times, value, strict=True):
        windows = [w for w in range(99) if (w + 1) * spec.slide - spec.range <= moment < (w + 1) * spec.slide]
        in_time = [w for w in windows if (w + 1) * spec.slide > highest - slack]
        if generous or in_time == windows:
            rows[in_time] += 1
            sums[in_time] += amount
        highest = max(highest, moment)
    answers = by_slack(at, at.astype(float), value, spec, slack, generous=generous)
    np.testing.assert_array_equal(answers.rows, rows[: len(answers.windows)])
    np.testing.assert_allclose(answers.sums, sums[: len(answers.windows)])


@given(times=TIMES, spec=SPECS)
def test_slack_as_great_as_the_disorder_loses_nothing(times: list[int], spec: Sliding) -> None:
    at = np.array(times)
    needed = int((np.maximum.accumulate(at) - at).max())
    right = truth(at, np.ones(len(at)), spec)
    for generous in (False, True):
        answers = by_slack(at, at.astype(float), np.ones(len(at)), spec, needed, generous=generous)
        np.testing.assert_array_equal(answers.rows, right[0])
    released, _ = buffer_sort(at, needed)
    assert at[released].tolist() == sorted(times)
    assert needed == 0 or len(buffer_sort(at, needed - 1)[0]) < len(at)


@pytest.mark.parametrize(
    ("slack", "order", "held"),
    [(0, [3, 5, 9], 0), (1, [3, 4, 5, 8, 9], 1), (2, [3, 4, 5, 8, 9], 2), (9, [3, 4, 5, 8, 9], 5)],
)
def test_a_sorting_buffer_lets_rows_go_in_order(slack: int, order: list[int], held: int) -> None:
    at = np.array([3, 5, 4, 9, 8])
    released, most = buffer_sort(at, slack)
    assert at[released].tolist() == order
    assert most == held
