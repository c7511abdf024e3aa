"""Ranks of samples: as those of all rows where none is missing; else bounds that hold as often as promised, and none without enough rows."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from headrace.synopses.sketches.rank_sketch import Ranking, decode
from headrace.synopses.sketches.sampled_ranks import SampledRanking, uncertainty

RANKING = Ranking(Fraction(1, 100))
KIND = SampledRanking(RANKING)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
def test_with_all_rows_values_and_bounds_are_those_of_the_ranking(share: float) -> None:
    random = np.random.default_rng(1)
    rows, cells = random.normal(size=9000), random.integers(0, 5, 9000)
    plainly = decode(RANKING.made(rows, None, cells, 6)).quantile(share)
    for weights in (None, np.ones(9000)):
        value, bound = KIND.quantile(KIND.made(rows, weights, cells, 6), share)
        assert value[:5].tolist() == plainly[0][:5].tolist()
        assert bound[:5].tolist() == plainly[1][:5].tolist()


@pytest.mark.parametrize(
    ("share", "rates"), [(0.5, (1 / 8,)), (0.9, (1 / 4,)), (0.1, (1 / 16,)), (0.5, (1.0, 1 / 4, 1 / 16))]
)
def test_of_a_thousand_samples_the_bounds_hold_for_95_percent(share: float, rates: tuple[float, ...]) -> None:
    """Rows are divided into parts, each with a rate of its own, and merged; the bounds are not much wider than needed."""
    count, size = 1000, 3000
    random = np.random.default_rng(7)
    rows = random.exponential(size=size)
    truth = np.quantile(rows, share)
    parts = []
    for number, rate in enumerate(rates):
        mine = np.tile(rows[number :: len(rates)], count)
        cells = np.repeat(np.arange(count), len(rows[number :: len(rates)]))
        seen = random.random(len(mine)) < rate
        parts.append(KIND.made(mine[seen], np.full(seen.sum(), 1 / rate), cells[seen], count))
    blobs = parts[0]
    for part in parts[1:]:
        blobs = KIND.merged(np.concatenate([blobs, part]), np.r_[np.arange(count), np.arange(count)], count)
    value, bound = KIND.quantile(blobs, share)
    held = np.mean(np.abs(value - truth) <= bound)
    assert 0.94 <= held <= 1.0
    of_sampling = SampledRanking(Ranking(Fraction(1, 100_000)))
    if len(rates) == 1:
        alone = of_sampling.made(mine[seen], np.full(seen.sum(), 1 / rates[0]), cells[seen], count)
        value, bound = of_sampling.quantile(alone, share)
        assert np.std(value) * 1.9 < np.mean(bound) < np.std(value) * 3.2


def test_a_sample_of_few_rows_has_no_bound_and_says_nothing_about_the_extremes() -> None:
    rows, cells = np.arange(4.0), np.zeros(4, np.int64)
    assert np.isnan(KIND.quantile(KIND.made(rows, np.full(4, 8.0), cells, 1), 0.5)[1][0])
    many, none = np.arange(4000.0), np.zeros(4000, np.int64)
    blobs = KIND.made(many, np.full(4000, 2.0), none, 1)
    assert np.isnan(KIND.quantile(blobs, 0.0)[1][0])
    assert np.isnan(KIND.quantile(blobs, 1.0)[1][0])
    assert np.isfinite(KIND.quantile(blobs, 0.5)[1][0])


def test_the_uncertainty_of_equal_weights_is_that_of_a_binomial_share() -> None:
    """Of 1,000 rows at a quarter: 3 times the variance of 4,000 draws."""
    aside = uncertainty(np.array([4000.0]), np.array([1000 * 4.0 * 3.0]), np.array([4.0]), 0.9)[0]
    half = 1.959963984540054**2 * 4 / 2
    assert aside == pytest.approx(half + np.sqrt(half**2 + 1.959963984540054**2 * 3 * 4000 * 0.09))
    assert uncertainty(np.array([4000.0]), np.array([0.0]), np.array([1.0]), 0.9)[0] == 0
