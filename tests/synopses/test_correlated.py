"""Correlated aggregates from a few buckets: near the exact answer in a landmark scope, whatever the cut into batches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.correlated_data import FACTORS, GENERATORS, Doubles, reversed_order
from headrace.synopses.correlated import AboveMean, NearMinimum
from headrace.synopses.focused_histogram import STRATEGIES, FocusedHistogram, Strategy

ROWS = 3000


def near_minimum(x: Doubles, y: Doubles, scale: float) -> Doubles:
    least = np.minimum.accumulate(x)
    return np.array([y[: p + 1][x[: p + 1] < scale * least[p]].sum() for p in range(len(x))])


def above_mean(x: Doubles, y: Doubles) -> Doubles:
    means = np.cumsum(x) / np.arange(1, len(x) + 1)
    return np.array([y[: p + 1][x[: p + 1] > means[p]].sum() for p in range(len(x))])


def rmse(found: Doubles, exact: Doubles) -> float:
    return float(np.sqrt(np.mean((found - exact) ** 2)))


@pytest.mark.parametrize("data", ["USAGE", "ZIPF", "MULTIFRAC"])
@pytest.mark.parametrize("method", STRATEGIES)
def test_counts_near_the_minimum_stay_below_the_published_error(method: str, data: str) -> None:
    errors = []
    for seed in range(5):
        x = GENERATORS[data](ROWS, np.random.default_rng(seed))
        found = NearMinimum(FACTORS[data], 10, STRATEGIES[method]).add(x, np.ones(ROWS))
        errors.append(rmse(found, near_minimum(x, np.ones(ROWS), FACTORS[data])))
    assert np.mean(errors) < 8


@pytest.mark.parametrize("data", GENERATORS)
@pytest.mark.parametrize("method", STRATEGIES)
def test_counts_above_the_mean_stay_below_the_published_error(method: str, data: str) -> None:
    errors = []
    for seed in range(3):
        x = GENERATORS[data](ROWS, np.random.default_rng(seed))
        found = AboveMean(10, STRATEGIES[method]).add(x, np.ones(ROWS))
        errors.append(rmse(found, above_mean(x, np.ones(ROWS))))
    assert np.mean(errors) < 30


def test_sums_and_the_maximum_are_answered_too() -> None:
    random = np.random.default_rng(2)
    x, y = random.uniform(1, 100, ROWS), random.uniform(0, 10, ROWS)
    most = np.maximum.accumulate(x)
    exact = np.array([y[: p + 1][x[: p + 1] > 0.9 * most[p]].sum() for p in range(ROWS)])
    found = NearMinimum(0.9).add(-x, y)
    assert rmse(found, exact) < 0.02 * exact[-1]
    assert rmse(AboveMean().add(x, y), above_mean(x, y)) < 0.02 * y.sum()


def test_a_landmark_begins_anew() -> None:
    x = np.array([1.0, 1.5, 9.0])
    counted = NearMinimum(2.0)
    counted.add(x, np.ones(3))
    counted.reset()
    assert counted.add(np.array([50.0, 60.0, 99.0]), np.ones(3)).tolist() == [1, 2, 3]


def test_a_minimum_below_all_of_the_old_range_costs_nothing() -> None:
    x = np.array([100.0, 120.0, 150.0, 10.0, 11.0, 15.0, 30.0])
    assert NearMinimum(2.0).add(x, np.ones(7)).tolist() == near_minimum(x, np.ones(7), 2.0).tolist()


@given(
    st.sampled_from(list(STRATEGIES)),
    st.integers(0, 99),
    st.lists(st.integers(0, 400), max_size=5),
    st.booleans(),
)
def test_batches_do_not_show(method: str, seed: int, cuts: list[int], falls: bool) -> None:
    x = GENERATORS["USAGE"](400, np.random.default_rng(seed))
    x = reversed_order(x) if falls else x
    y = np.ones(400)
    bounds = [0, *sorted(cuts), 400]
    for make in (lambda: NearMinimum(5.0, 8, STRATEGIES[method]), lambda: AboveMean(8, STRATEGIES[method])):
        whole, parts = make(), make()
        expected = whole.add(x, y)
        found = [parts.add(x[low:high], y[low:high]) for low, high in itertools.pairwise(bounds)]
        assert np.allclose(np.concatenate(found), expected, rtol=1e-6, atol=1e-6)


def test_the_cut_bucket_gives_a_lower_and_an_upper_bound() -> None:
    """For ranges with two ends too, as long as nothing was spread by a move."""
    random = np.random.default_rng(3)
    x = random.uniform(0, 10, 500)
    counted = FocusedHistogram.empty(0, 10, 7).added(x, np.ones(500))
    for low, high in np.sort(random.uniform(0, 10, (50, 2))):
        least, most, share = counted.within(low, high)
        assert least <= ((x >= low) & (x < high)).sum() <= most
        assert least <= share <= most


weights = st.lists(st.integers(0, 50), min_size=3, max_size=9)


@given(weights, st.floats(-5, 12), st.floats(0.5, 30), st.sampled_from(list(STRATEGIES)))
def test_moving_keeps_the_number_of_buckets_and_the_weight_that_is_left(
    held: list[int], low: float, width: float, method: str
) -> None:
    start = FocusedHistogram(np.arange(len(held) + 1.0), np.array(held, float))
    moved = start.moved(low, low + width, STRATEGIES[method])
    assert len(moved.weights) == len(held)
    assert (np.diff(moved.bounds) >= 0).all()
    assert (moved.weights >= -1e-9).all()
    left = start.below(np.array([low, low + width]))
    assert moved.weights.sum() == pytest.approx(left[1] - left[0], abs=1e-6)


@given(weights)
def test_upkeep_lowers_the_variance_or_changes_nothing(held: list[int]) -> None:
    start = FocusedHistogram(np.arange(len(held) + 1.0), np.array(held, float))
    evened = start.evened()
    assert len(evened.weights) == len(held)
    assert evened.weights.sum() == pytest.approx(sum(held))
    assert evened is start or evened.weights.var() < start.weights.var()


def spread_by_loops(start: FocusedHistogram, bounds: Doubles, *, printed: bool) -> Doubles:
    """Wholesale, by the text's two loops over old buckets j and new ones k; printed, they pass a bucket that still reaches on."""
    found, old = np.zeros(len(bounds) - 1), start.bounds
    j = k = 0
    while j < len(start.weights) and k < len(found):
        overlap = min(old[j + 1], bounds[k + 1]) - max(old[j], bounds[k])
        if overlap > 0:
            found[k] += start.weights[j] * overlap / (old[j + 1] - old[j])
        ends = bounds[k + 1] <= old[j + 1]
        k += ends
        j += (not ends) or printed
    return found


def test_loops_that_pass_a_straddling_bucket_lose_weight() -> None:
    start = FocusedHistogram(np.array([0.0, 3, 5, 9]), np.array([30.0, 20, 40]))
    moved = start.moved(-1, 9, Strategy(piecemeal=False))
    assert spread_by_loops(start, moved.bounds, printed=False) == pytest.approx(moved.weights)
    assert spread_by_loops(start, moved.bounds, printed=True).sum() < moved.weights.sum()


def test_a_piecemeal_cut_keeps_a_share_of_the_weight_and_not_the_share_itself() -> None:
    start = FocusedHistogram(np.array([0.0, 4, 8]), np.array([10.0, 40]))
    moved = start.moved(0, 6, Strategy())
    assert moved.weights.sum() == 10 + 40 * (6 - 4) / (8 - 4)
    assert moved.bounds[-1] == 6, "the new end, where the text prints the old one's name"
    printed = 10 + (6 - 4) / (8 - 4)
    assert moved.weights.sum() != printed
