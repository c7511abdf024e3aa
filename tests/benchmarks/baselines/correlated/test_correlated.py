"""Correlated aggregates from a few buckets: near the exact answer in a landmark scope, whatever the cut into batches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines.correlated.correlated import AboveMean, NearMinimum
from benchmarks.baselines.correlated.focused_histograms import STRATEGIES, FocusedHistograms, Strategy
from benchmarks.correlated_data import FACTORS, GENERATORS, Doubles, reversed_order
from tests.benchmarks.baselines.one_key import followed, histogram

ROWS = 3000


def near_minimum(x: Doubles, y: Doubles, scale: float) -> Doubles:
    least = np.minimum.accumulate(x)
    return np.array([y[: p + 1][x[: p + 1] < scale * least[p]].sum() for p in range(len(x))])


def above_mean(x: Doubles, y: Doubles) -> Doubles:
    means = np.cumsum(x) / np.arange(1, len(x) + 1)
    return np.array([y[: p + 1][x[: p + 1] > means[p]].sum() for p in range(len(x))])


def rmse(answers: Doubles, exact: Doubles) -> float:
    return float(np.sqrt(np.mean((answers - exact) ** 2)))


@pytest.mark.parametrize("data", ["USAGE", "ZIPF", "MULTIFRAC"])
@pytest.mark.parametrize("method", STRATEGIES)
def test_counts_near_the_minimum_stay_below_the_published_error(method: str, data: str) -> None:
    errors = []
    for seed in range(5):
        x = GENERATORS[data](ROWS, np.random.default_rng(seed))
        received = followed(NearMinimum.empty(1, FACTORS[data], 10, STRATEGIES[method]), x)
        errors.append(rmse(received, near_minimum(x, np.ones(ROWS), FACTORS[data])))
    assert np.mean(errors) < 8


@pytest.mark.parametrize("data", GENERATORS)
@pytest.mark.parametrize("method", STRATEGIES)
def test_counts_above_the_mean_stay_below_the_published_error(method: str, data: str) -> None:
    errors = []
    for seed in range(3):
        x = GENERATORS[data](ROWS, np.random.default_rng(seed))
        received = followed(AboveMean.empty(1, 10, STRATEGIES[method]), x)
        errors.append(rmse(received, above_mean(x, np.ones(ROWS))))
    assert np.mean(errors) < 30


def test_sums_and_the_maximum_are_answered_too() -> None:
    random = np.random.default_rng(2)
    x, y = random.uniform(1, 100, ROWS), random.uniform(0, 10, ROWS)
    most = np.maximum.accumulate(x)
    exact = np.array([y[: p + 1][x[: p + 1] > 0.9 * most[p]].sum() for p in range(ROWS)])
    received = followed(NearMinimum.empty(1, 0.9), -x, y)
    assert rmse(received, exact) < 0.02 * exact[-1]
    assert rmse(followed(AboveMean.empty(1), x, y), above_mean(x, y)) < 0.02 * y.sum()


def test_a_landmark_begins_anew() -> None:
    x = np.array([1.0, 1.5, 9.0])
    later = np.array([50.0, 60.0, 99.0])
    for make in (lambda: NearMinimum.empty(1, 2.0), lambda: AboveMean.empty(1)):
        counted = make()
        followed(counted, x)
        counted.reset(np.array([0]))
        assert followed(counted, later).tolist() == followed(make(), later).tolist()
    assert followed(NearMinimum.empty(1, 2.0), later).tolist() == [1, 2, 3]


def test_a_minimum_below_all_of_the_old_range_costs_nothing() -> None:
    x = np.array([100.0, 120.0, 150.0, 10.0, 11.0, 15.0, 30.0])
    assert followed(NearMinimum.empty(1, 2.0), x).tolist() == near_minimum(x, np.ones(7), 2.0).tolist()


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
    for make in (
        lambda: NearMinimum.empty(1, 5.0, 8, STRATEGIES[method]),
        lambda: AboveMean.empty(1, 8, STRATEGIES[method]),
    ):
        whole, parts = make(), make()
        expected = followed(whole, x, y)
        answers = [followed(parts, x[low:high], y[low:high]) for low, high in itertools.pairwise(bounds)]
        assert np.allclose(np.concatenate(answers), expected, rtol=1e-6, atol=1e-6)


def test_the_cut_bucket_gives_a_lower_and_an_upper_bound() -> None:
    """For ranges with two ends too, as long as nothing was spread by a move."""
    random = np.random.default_rng(3)
    x = random.uniform(0, 10, 500)
    keys, factors = np.arange(500) % 2, np.array([1.0, 3.0])
    counted = FocusedHistograms.even(np.zeros(2), 10 * factors, 7)
    counted.add(keys, x * factors[keys], np.ones(500))
    for low, high in np.sort(random.uniform(0, 10, (50, 2))):
        least, most, share = counted.within(low * factors, high * factors)
        exact = np.bincount(keys, (x >= low) & (x < high))
        assert (least <= exact).all()
        assert (exact <= most).all()
        assert (least <= share).all()
        assert (share <= most).all()


weights = st.lists(st.integers(0, 50), min_size=3, max_size=9)


@given(weights, st.floats(-5, 12), st.floats(0.5, 30), st.sampled_from(list(STRATEGIES)))
def test_moving_keeps_the_number_of_buckets_and_the_weight_that_is_left(
    held: list[int], low: float, width: float, method: str
) -> None:
    start = histogram(held)
    moved = start.moved(np.array([low]), np.array([low + width]), STRATEGIES[method])
    assert moved.weights.shape == (1, len(held))
    assert (np.diff(moved.bounds) >= 0).all()
    assert (moved.weights >= -1e-9).all()
    left = start.below(np.array([[low, low + width]]))[0]
    assert moved.weights.sum() == pytest.approx(left[1] - left[0], abs=1e-6)


@given(weights)
def test_upkeep_lowers_the_variance_or_changes_nothing(held: list[int]) -> None:
    start = histogram(held)
    evened = start.evened()
    assert evened.weights.shape == (1, len(held))
    assert evened.weights.sum() == pytest.approx(sum(held))
    same = (evened.weights == start.weights).all() and (evened.bounds == start.bounds).all()
    assert same or evened.weights.var() < start.weights.var()


def test_upkeep_merges_the_lightest_neighbours_and_cuts_the_heaviest_bucket() -> None:
    """The third and fourth bucket are the lightest pair; the fifth is cut in halves."""
    bounds, held = np.array([[0.0, 1, 2, 3, 4, 5, 6]]), np.array([[3.0, 3, 1, 1, 9, 2]])
    evened = FocusedHistograms(bounds, held).evened()
    assert evened.bounds.tolist() == [[0, 1, 2, 4, 4.5, 5, 6]]
    assert evened.weights.tolist() == [[3, 3, 2, 4.5, 4.5, 2]]


def spread_by_loops(start: FocusedHistograms, bounds: Doubles, *, printed: bool) -> Doubles:
    """Wholesale, by the text's two loops over old buckets j and new ones k; printed, they pass a bucket that still reaches on."""
    spread, old, weights = np.zeros(len(bounds) - 1), start.bounds[0], start.weights[0]
    j = k = 0
    while j < len(weights) and k < len(spread):
        overlap = min(old[j + 1], bounds[k + 1]) - max(old[j], bounds[k])
        if overlap > 0:
            spread[k] += weights[j] * overlap / (old[j + 1] - old[j])
        ends = bounds[k + 1] <= old[j + 1]
        k += ends
        j += (not ends) or printed
    return spread


def test_loops_that_pass_a_straddling_bucket_lose_weight() -> None:
    start = FocusedHistograms(np.array([[0.0, 3, 5, 9]]), np.array([[30.0, 20, 40]]))
    moved = start.moved(np.array([-1.0]), np.array([9.0]), Strategy(piecemeal=False))
    assert spread_by_loops(start, moved.bounds[0], printed=False) == pytest.approx(moved.weights[0])
    assert spread_by_loops(start, moved.bounds[0], printed=True).sum() < moved.weights.sum()


def test_a_piecemeal_cut_keeps_a_share_of_the_weight_and_not_the_share_itself() -> None:
    start = FocusedHistograms(np.array([[0.0, 4, 8]]), np.array([[10.0, 40]]))
    moved = start.moved(np.array([0.0]), np.array([6.0]), Strategy())
    assert moved.weights.sum() == 10 + 40 * (6 - 4) / (8 - 4)
    assert moved.bounds[0, -1] == 6, "the new end, where the text prints the old one's name"
    printed = 10 + (6 - 4) / (8 - 4)
    assert moved.weights.sum() != printed
