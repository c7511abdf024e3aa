"""The least of any window, exactly, from a short list; distinct values of any window from times in bitmaps; tables whose rows expire."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines.histograms.distinct_window import DistinctWindow
from benchmarks.baselines.histograms.windowed_tables import WindowedTable, averages, places
from benchmarks.baselines.rows.sliding_extremes import Extremes
from headrace.operators.base.group_codes import hashes
from tests.synopses.families import FAMILIES

ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(-3, 3)), max_size=40)


@given(ROWS, st.lists(st.integers(0, 40), max_size=5), st.integers(1, 30))
def test_the_least_value_of_every_window_is_exact_for_any_cut_into_batches(
    rows: list[tuple[int, int, int]], cuts: list[int], length: int
) -> None:
    keys = np.array([key for key, _, _ in rows], np.int64)
    times = np.cumsum([step for _, step, _ in rows]).astype(np.int64)
    values = np.array([value for _, _, value in rows], float)
    extremes = Extremes.empty(3)
    for part in np.split(np.arange(len(rows)), sorted(min(cut, len(rows)) for cut in cuts)):
        extremes = extremes.absorb(keys[part], times[part], values[part])
        if not len(part):
            continue
        upto, now = part[-1] + 1, int(times[part[-1]])
        extremes = extremes.since(now - length + 1)
        for size in range(1, length + 1):
            least = extremes.least(now - size + 1)
            for key in range(3):
                held = values[:upto][(keys[:upto] == key) & (times[:upto] > now - size)]
                assert np.isnan(least[key]) if not len(held) else least[key] == held.min()


def test_in_random_order_about_ln_n_values_are_kept_and_in_rising_order_all() -> None:
    random, many = np.random.default_rng(5), 4000
    lengths = [
        len(Extremes.empty(1).absorb(np.zeros(many, np.int64), np.arange(many), random.random(many)).times)
        for _ in range(30)
    ]
    assert abs(np.mean(lengths) - np.log(many)) < 1.5
    rising = Extremes.empty(1).absorb(np.zeros(many, np.int64), np.arange(many), np.arange(many) * 1.0)
    assert len(rising.times) == many


@pytest.mark.parametrize("cuts", [[], [1], [2, 3], [1, 2, 3, 4]])
def test_of_equal_values_the_newest_alone_is_kept(cuts: list[int]) -> None:
    """An older one expires first, so it can never be the only least; a constant column would otherwise all be kept."""
    extremes, values = Extremes.empty(1), np.array([2.0, 1.0, 1.0, 3.0, 1.0])
    for part in np.split(np.arange(5), cuts):
        extremes = extremes.absorb(np.zeros(len(part), np.int64), part, values[part])
    assert (extremes.times.tolist(), extremes.values.tolist()) == ([4], [1.0])


def test_a_window_of_distinct_values_holds_those_that_came_at_its_first_instant() -> None:
    """As the least value of a window: both begin with `start`."""
    zeros, values = np.zeros(500, np.int64), hashes(pa.array(np.arange(500)))
    distinct = DistinctWindow.empty(1, 64).absorb(zeros, values, np.full(500, 10))
    assert distinct.estimate(10).tolist() == distinct.estimate(9).tolist()
    assert distinct.estimate(10)[0] > 250
    assert distinct.estimate(11).tolist() == [0]


@pytest.mark.parametrize("bitmaps", [16, 64, 256])
def test_distinct_values_of_any_window_are_off_by_about_the_root_of_the_bitmaps(bitmaps: int) -> None:
    errors = []
    for seed in range(12):
        random = np.random.default_rng(seed)
        values, times = random.integers(0, 30_000, 20_000), np.sort(random.integers(0, 1000, 20_000))
        distinct = DistinctWindow.empty(2, bitmaps)
        salted = hashes(pa.array(values + 1_000_000 * seed))
        for part in np.array_split(random.permutation(20_000), 3):
            distinct = distinct.absorb(np.zeros(len(part), np.int64), salted[part], times[part])
        for start in (0, 300, 700):
            true = len(np.unique(values[times >= start]))
            errors.append(distinct.estimate(start)[0] / true - 1)
        assert distinct.estimate(1001).tolist() == [0, 0]
        assert distinct.estimate(0)[1] == 0
    spread = float(np.sqrt(np.mean(np.square(errors))))
    assert 0.4 / np.sqrt(bitmaps) < spread < 1.2 / np.sqrt(bitmaps)


def test_bitmaps_of_two_streams_together_are_those_of_both() -> None:
    values, times = hashes(pa.array(np.arange(5000))), np.arange(5000)
    keys = np.zeros(5000, np.int64)
    whole = DistinctWindow.empty(1, 64).absorb(keys, values, times)
    halves = [
        DistinctWindow.empty(1, 64).absorb(keys[p], values[p], times[p])
        for p in (slice(2500), slice(2500, None))
    ]
    assert (halves[0].merged(halves[1]).last == whole.last).all()


def test_an_average_is_off_by_at_most_what_both_of_its_counters_allow() -> None:
    """100 ± 10 over 10 ± 2 is between 90/12 and 110/8; 10 ± 2 over 1 ± 1 between 8/2 and 12, since there is at least one row."""
    sums, counts = (np.array([100, 10, 0]), np.array([10, 2, 0])), (np.array([10, 1, 0]), np.array([2, 1, 0]))
    mean, off = averages(sums, counts)
    assert mean[:2].tolist() == [10, 10]
    assert off[:2].tolist() == [110 / 8 - 10, 10 - 8 / 2]
    assert np.isnan([mean[2], off[2]]).all(), "no rows, no average"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_counter_of_a_table_and_its_averages_stay_within_their_bounds(family: str) -> None:
    random, length, error = np.random.default_rng(1), 400, Fraction(1, 10)
    numbers = FAMILIES[family](2000, length, 10, random) % 1000
    times = np.arange(2000)
    keys, cells = random.integers(0, 3, 2000), places(random.normal(size=2000), np.array([-1.0, 0.0, 1.0]))
    counts = WindowedTable.empty(3, 4, length, error)
    sums = WindowedTable.empty(3, 4, length, error)
    for part in np.array_split(np.arange(2000), 41):
        counts.add(keys[part], cells[part], times[part])
        sums.add(keys[part], cells[part], times[part], numbers[part])
        now = int(times[part[-1]])
        for size in (length, length // 3):
            start = now - size + 1
            held = (times >= start) & (times <= now)
            true_sum, true_count = np.zeros((3, 4)), np.zeros((3, 4))
            np.add.at(true_sum, (keys[held], cells[held]), numbers[held])
            np.add.at(true_count, (keys[held], cells[held]), 1)
            estimates = sums.estimate(start), counts.estimate(start)
            for (value, bound), true in zip(estimates, (true_sum, true_count), strict=True):
                assert (np.abs(value - true) <= bound).all()
                assert (bound <= true / 10).all()
            mean, off = averages(*estimates)
            some = (true_count > 0) & (estimates[1][0] > 0)
            assert (np.abs(mean - true_sum / np.maximum(true_count, 1))[some] <= off[some] + 1e-9).all()
