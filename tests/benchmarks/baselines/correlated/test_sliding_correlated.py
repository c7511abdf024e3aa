"""Rows near the least value, or above the mean, of the last w rows from a few buckets: the published bars, and why the repairs."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.baselines.correlated.focused_histograms import STRATEGIES, Strategy
from benchmarks.baselines.correlated.sliding_correlated import SlidingAboveMean, SlidingNearMinimum
from benchmarks.correlated_data import GENERATORS, Doubles, multifrac, zipf
from tests.benchmarks.baselines.one_key import followed

WINDOW, ROWS = 500, 2500

MINIMA = {
    "USAGE": (lambda rows, random: np.ceil(random.lognormal(3.0, 2.0, rows)), 100.0),
    "MULTIFRAC": (lambda rows, random: multifrac(rows, random, levels=14), 100.0),
    "ZIPF": (lambda rows, random: zipf(rows, random, 1.0, 10_000), 1001.0),
}


def windows(x: Doubles) -> list[Doubles]:
    return [x[max(index - WINDOW + 1, 0) : index + 1] for index in range(len(x))]


def rmse(answers: Doubles, exact: Doubles) -> float:
    """Over w positions at a time and on: the text's own range has w + 1 (R22)."""
    return float(np.sqrt(np.mean((answers - exact)[WINDOW:] ** 2)))


def by_equi_depth(x: Doubles, limits: Doubles, buckets: int = 10) -> Doubles:
    """A histogram of the window itself, computed again at each position."""
    answers = []
    for held, limit in zip(windows(x), limits, strict=True):
        bounds = np.quantile(held, np.linspace(0, 1, buckets + 1))
        bucket = np.clip(np.searchsorted(bounds, held, side="right") - 1, 0, buckets - 1)
        total = np.r_[0.0, np.cumsum(np.bincount(bucket, minlength=buckets))]
        last = np.r_[bounds[1:] > bounds[:-1], True]
        answers.append(float(np.interp(limit, bounds[last], total[last])))
    return np.array(answers)


@pytest.mark.parametrize("data", MINIMA)
def test_counts_near_the_minimum_are_no_worse_than_by_equi_depth(data: str) -> None:
    make, factor = MINIMA[data]
    errors: dict[str, list[float]] = {}
    for seed in range(2):
        x = make(ROWS, np.random.default_rng(seed))
        limits = np.array([factor * held.min() for held in windows(x)])
        exact = np.array([(held < limit).sum() for held, limit in zip(windows(x), limits, strict=True)])
        errors.setdefault("equi-depth", []).append(rmse(by_equi_depth(x, limits), exact))
        for name, strategy in STRATEGIES.items():
            received = followed(SlidingNearMinimum.empty(1, factor, WINDOW, strategy=strategy), x)
            errors.setdefault(name, []).append(rmse(received, exact))
    means = {name: np.mean(of_method) for name, of_method in errors.items()}
    assert means["piecemeal uniform"] <= means["equi-depth"], means
    assert means["piecemeal uniform"] <= 1.05 * means["wholesale uniform"], means


@pytest.mark.parametrize("data", GENERATORS)
def test_counts_above_the_mean_are_at_most_three_and_a_half_times_as_wrong_as_equi_depth(data: str) -> None:
    ours, theirs, printed = [], [], []
    for seed in range(2):
        x = GENERATORS[data](ROWS, np.random.default_rng(seed))
        means = np.array([held.mean() for held in windows(x)])
        exact = np.array([(held > mean).sum() for held, mean in zip(windows(x), means, strict=True)])
        sizes = np.array([len(held) for held in windows(x)])
        theirs.append(rmse(sizes - by_equi_depth(x, means), exact))
        ours.append(rmse(followed(SlidingAboveMean.empty(1, WINDOW), x), exact))
        printed.append(rmse(followed(SlidingAboveMean.empty(1, WINDOW, z=1.0, rebuilds=False), x), exact))
    assert np.mean(ours) <= 3.5 * np.mean(theirs)
    assert np.mean(ours) < np.mean(printed), "z = 1, never counted anew: what is smeared stays"


@pytest.mark.parametrize("method", STRATEGIES)
def test_sums_slide_too_and_any_cut_gives_the_same(method: str) -> None:
    random = np.random.default_rng(7)
    x, y = random.uniform(1, 100, 1200), random.uniform(0, 10, 1200)
    strategy: Strategy = STRATEGIES[method]
    for make in (
        lambda: SlidingAboveMean.empty(1, 200, strategy=strategy),
        lambda: SlidingNearMinimum.empty(1, 9.0, 200, strategy=strategy),
    ):
        whole, parts = make(), make()
        once = followed(whole, x, y)
        cut = np.concatenate([followed(parts, x[p], y[p]) for p in np.array_split(np.arange(1200), 13)])
        assert once.tolist() == cut.tolist()
    held = [slice(max(p - 199, 0), p + 1) for p in range(1200)]
    exact = np.array([y[h][x[h] > x[h].mean()].sum() for h in held])
    assert np.abs(followed(SlidingAboveMean.empty(1, 200), x, y) - exact)[200:].mean() < 0.05 * exact.mean()


def test_the_weights_of_a_window_add_up_to_its_rows() -> None:
    x = GENERATORS["USAGE"](1500, np.random.default_rng(0))
    for synopsis in (SlidingAboveMean.empty(1, 300), SlidingNearMinimum.empty(1, 100.0, 300)):
        followed(synopsis, x)
        assert synopsis.histograms.weights.sum() == pytest.approx(300)


def test_counts_near_the_maximum_are_those_of_negated_values_near_their_minimum() -> None:
    x = np.random.default_rng(5).uniform(1, 100, ROWS)
    exact = np.array([(held > 0.8 * held.max()).sum() for held in windows(x)])
    received = followed(SlidingNearMinimum.empty(1, 0.8, WINDOW), -x)
    assert rmse(received, exact) < 0.05 * exact[WINDOW:].mean()
