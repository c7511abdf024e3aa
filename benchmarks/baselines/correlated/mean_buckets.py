"""Buckets around means: inner ones over the range of the mean, one outer one on each side; many keys at once.

Source: Gehrke, Korn, Srivastava (2001), section 3: mean +- z * deviation / sqrt(n).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np

from benchmarks.baselines.correlated.focused_histograms import (
    FocusedHistograms,
    Strategy,
    evenly,
    kept_bounds,
    last_upto,
)
from benchmarks.baselines.rows.rows_by_key import Doubles, Flags
from headrace.synopses.arrays import Ints


@dataclass(frozen=True, slots=True)
class Means:
    """Moments of the values of some keys: the mean, its deviation, the least and the greatest value."""

    mean: Doubles
    error: Doubles
    least: Doubles
    most: Doubles

    @staticmethod
    def of(
        moments: tuple[Doubles, Doubles, Doubles], rows: Ints, over: Ints, ends: tuple[Doubles, Doubles]
    ) -> Means:
        """From a centre, the sums of distances from it and of their squares over the rows; the deviation over the root of `over`."""
        centre, total, squares = moments
        mean = centre + total / rows
        variance = np.maximum(squares / rows - (total / rows) ** 2, 0.0)
        error = np.sqrt(variance / over)
        error = np.where(error > 0, error, np.where(mean != 0, np.abs(mean) * 1e-9, 1e-9))
        return Means(mean, error, *ends)

    def of_some(self, which: Ints | Flags) -> Means:
        """The means of some keys."""
        return Means(self.mean[which], self.error[which], self.least[which], self.most[which])


def laid(means: Means, buckets: int, strategy: Strategy, z: float) -> FocusedHistograms:
    """Empty buckets around each mean."""
    low, high = means.mean - z * means.error, means.mean + z * means.error
    inner = evenly(low, high, buckets - 1)
    if strategy.quantile:
        inner = means.mean[:, None] + means.error[:, None] * _scores(z, buckets - 1)
        inner[:, 0], inner[:, -1] = low, high
    first = np.minimum(means.least, low)
    last = np.maximum(np.nextafter(means.most, np.inf), high)
    return FocusedHistograms(np.column_stack([first, inner, last]), np.zeros((len(low), buckets)))


def laid_again(old: FocusedHistograms, means: Means, strategy: Strategy, z: float) -> FocusedHistograms:
    """The same number of buckets around new means, with the old weights."""
    fresh = laid(means, old.buckets, strategy, z)
    if not strategy.piecemeal:
        return FocusedHistograms(fresh.bounds, spread(old, fresh.bounds))
    low, high = fresh.bounds[:, 1], fresh.bounds[:, -2]
    inner, many = kept_bounds(old.bounds[:, 1:-1], low, high)
    weights = spread(old, np.column_stack([fresh.bounds[:, 0], inner, fresh.bounds[:, -1]]))
    middle = FocusedHistograms(inner, weights[:, 1:-1]).with_buckets(many - 1, old.buckets - 2, strategy)
    return FocusedHistograms(
        np.column_stack([fresh.bounds[:, 0], middle.bounds, fresh.bounds[:, -1]]),
        np.column_stack([weights[:, 0], middle.weights, weights[:, -1]]),
    )


def spread(old: FocusedHistograms, bounds: Doubles) -> Doubles:
    """The weight of each bucket between bounds; the outer ones hold all values beyond."""
    reaching = old.bounds.copy()
    reaching[:, 0] = np.minimum(reaching[:, 0], bounds[:, 0])
    reaching[:, -1] = np.maximum(reaching[:, -1], bounds[:, -1])
    below = FocusedHistograms(reaching, old.weights).below(bounds[:, 1:-1])
    return np.diff(np.column_stack([np.zeros(len(bounds)), below, old.totals]), axis=1)


def above(bounds: Doubles, keys: Ints, weights: Doubles, limits: Doubles) -> Doubles:
    """The weight above limits, linear within a bucket: for each row of weights, with the bounds of its key."""
    rows = np.arange(len(keys))
    cut = np.clip(last_upto(bounds, keys, limits), 0, weights.shape[1] - 1)
    left, right = bounds[keys, cut], bounds[keys, cut + 1]
    share = np.clip((right - limits) / np.where(right > left, right - left, 1.0), 0.0, 1.0)
    upto = np.cumsum(weights, axis=1)
    sums: Doubles = upto[:, -1] - upto[rows, cut] + share * weights[rows, cut]
    return sums


@cache
def _scores(z: float, number: int) -> Doubles:
    """Equally likely values from -z to z of a standard normal variable."""
    normal = NormalDist()
    return np.array([normal.inv_cdf(p) for p in np.linspace(normal.cdf(-z), normal.cdf(z), number).tolist()])
