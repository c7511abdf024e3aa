"""One key since a landmark, row by row or nearly so: what `benchmarks.baselines.correlated.correlated` does for many keys at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Final

import numpy as np

from benchmarks.baselines.correlated.focused_histograms import BEST, Strategy
from benchmarks.baselines.rows.rows_by_key import Doubles
from benchmarks.one_key.histogram import FocusedHistogram

_CLOSER: Final = 4


@dataclass(slots=True)
class OneNearMinimum:
    """Sum of y where x < scale * MIN(x). `scale` is above 1 for positive x, below 1 for negative ones (MAX, negated)."""

    scale: float
    buckets: int = 10
    strategy: Strategy = BEST
    histogram: FocusedHistogram | None = None

    def add(self, x: Doubles, y: Doubles) -> Doubles:
        """Take in rows in their order; the answer after each."""
        least = np.minimum.accumulate(
            np.r_[np.inf if self.histogram is None else self.histogram.bounds[0], x]
        )
        starts = np.flatnonzero(least[1:] < least[:-1])
        answers = np.empty(len(x))
        for start, stop in zip(np.r_[0, starts], np.r_[starts, len(x)], strict=True):
            if start == stop:
                continue
            if x[start] == least[start + 1] < least[start]:
                self._move(float(x[start]))
            assert self.histogram is not None
            part = slice(start, stop)
            inside = self.histogram.places(x[part]) < len(self.histogram.weights)
            answers[part] = self.histogram.weights.sum() + np.cumsum(np.where(inside, y[part], 0.0))
            self.histogram = self.histogram.added(x[part], y[part])
        return answers

    def _move(self, least: float) -> None:
        """A new minimum: nothing of the old range is in the new one, or its upper end is cut."""
        end = self.scale * least
        if self.histogram is None or end <= self.histogram.bounds[0]:
            self.histogram = FocusedHistogram.empty(least, end, self.buckets)
        else:
            self.histogram = self.histogram.moved(least, end, self.strategy)
            if self.strategy.piecemeal and self.strategy.quantile:
                self.histogram = self.histogram.evened()


@dataclass(slots=True)
class OneAboveMean:
    """Sum of y where x > AVG(x): buckets around the mean to where it may still move, mean +- z * deviation / sqrt(n).

    They are laid out again only when the mean leaves them, or could stay in half of them by now: to follow it at every row
    would smear what was counted. The text has z = 1; 3 is measured to be better where few rows decide.
    """

    buckets: int = 10
    strategy: Strategy = BEST
    z: float = 3.0
    lazy: bool = True
    """False: as printed, laid out again whenever the mean moves, which is at every row."""
    rows: int = 0
    total: float = 0.0
    squares: float = 0.0
    centre: float = 0.0
    anchored: int = 0
    histogram: FocusedHistogram | None = None
    least: float = field(default=np.inf)
    most: float = field(default=-np.inf)

    def add(self, x: Doubles, y: Doubles) -> Doubles:
        """Take in rows in their order; the answer after each."""
        answers = np.empty(len(x))
        start = 0
        if not self.rows and len(x):
            self.centre = float(x[0])
        while start < len(x):
            start = self._until_the_mean_leaves(x, y, start, answers)
        return answers

    def _until_the_mean_leaves(self, x: Doubles, y: Doubles, start: int, answers: Doubles) -> int:
        closer = _CLOSER * self.anchored if self.lazy else 0
        stop = min(len(x), start + max(closer - self.rows, 1))
        part = x[start:stop]
        count = self.rows + np.arange(1, len(part) + 1)
        means = self.centre + np.cumsum(np.r_[self.total, part - self.centre])[1:] / count
        histogram = self.histogram
        fits = np.zeros(len(part), bool)
        if histogram is not None and self.rows < closer:
            fits = (means >= histogram.bounds[1]) & (means <= histogram.bounds[-2])
        stay = len(part) if fits.all() else int(np.argmin(fits))
        length = max(stay, 1)
        self._note(part[:length])
        if stay == 0:
            self.anchored = self.rows
            self._move(float(means[0]))
        assert self.histogram is not None
        self._widen(part[:length])
        answers[start : start + length] = self._estimates(
            part[:length], y[start : start + length], means[:length]
        )
        return start + length

    def _note(self, values: Doubles) -> None:
        """Count, and moments about a fixed centre, so that little cancels."""
        self.rows += len(values)
        apart = values - self.centre
        self.total = float(
            np.cumsum(np.r_[self.total, apart])[-1]
        )  # one after the other: batches do not show
        self.squares = float(np.cumsum(np.r_[self.squares, apart**2])[-1])
        self.least, self.most = min(self.least, float(values.min())), max(self.most, float(values.max()))

    def _widen(self, values: Doubles) -> None:
        """Widens the outermost buckets to the least and the greatest value."""
        assert self.histogram is not None
        bounds = self.histogram.bounds.copy()
        bounds[0] = min(bounds[0], float(values.min()))
        bounds[-1] = max(bounds[-1], float(np.nextafter(values.max(), np.inf)))
        self.histogram = FocusedHistogram(bounds, self.histogram.weights)

    def _move(self, mean: float) -> None:
        """Inner buckets over the span the mean may stay in, one outer bucket on each side."""
        variance = max(self.squares / self.rows - (self.total / self.rows) ** 2, 0.0)
        error = float(np.sqrt(variance / self.rows)) or abs(mean) * 1e-9 or 1e-9
        ends = (self.least, self.most)
        self.histogram = around_mean(self.histogram, self.strategy, self.buckets, mean, error, self.z, ends)

    def _estimates(self, x: Doubles, y: Doubles, means: Doubles) -> Doubles:
        """Count rows in; the weight above each mean, with the rows up to it."""
        assert self.histogram is not None
        index = np.clip(self.histogram.places(x), 0, len(self.histogram.weights) - 1)
        held = np.zeros((len(x) + 1, len(self.histogram.weights)))
        held[0] = self.histogram.weights
        held[np.arange(len(x)) + 1, index] = y
        held = np.cumsum(held, axis=0)[1:]
        bounds = self.histogram.bounds
        self.histogram = FocusedHistogram(bounds, held[-1].copy())
        cut = np.clip(np.searchsorted(bounds, means, side="right") - 1, 0, len(bounds) - 2)
        above = held.sum(axis=1) - np.cumsum(held, axis=1)[np.arange(len(x)), cut]
        width = bounds[cut + 1] - bounds[cut]
        share = np.clip((bounds[cut + 1] - means) / np.where(width > 0, width, 1.0), 0.0, 1.0)
        estimates: Doubles = above + share * held[np.arange(len(x)), cut]
        return estimates


def around_mean(
    old: FocusedHistogram | None,
    strategy: Strategy,
    buckets: int,
    mean: float,
    error: float,
    z: float,
    ends: tuple[float, float],
) -> FocusedHistogram:
    """Inner buckets over mean +- z * error, one outer bucket on each side up to the least and the greatest value."""
    low, high = mean - z * error, mean + z * error
    first, last = min(ends[0], low), max(float(np.nextafter(ends[1], np.inf)), high)
    inner = _inner(strategy, buckets, (low, high), mean, error, z)
    bounds = np.r_[min(first, inner[0]), inner, max(last, inner[-1])]
    if old is None:
        return FocusedHistogram(bounds, np.zeros(len(bounds) - 1))
    reaching = np.r_[min(old.bounds[0], bounds[0]), old.bounds[1:-1], max(old.bounds[-1], bounds[-1])]
    old = FocusedHistogram(reaching, old.weights)
    if strategy.piecemeal:
        bounds = _kept(old, low, high, bounds)
    moved = FocusedHistogram(bounds, np.diff(np.r_[0.0, old.below(bounds[1:-1]), old.weights.sum()]))
    if not strategy.piecemeal:
        return moved
    middle = FocusedHistogram(moved.bounds[1:-1], moved.weights[1:-1]).with_buckets(buckets - 2, strategy)
    return FocusedHistogram(
        np.r_[moved.bounds[0], middle.bounds, moved.bounds[-1]],
        np.r_[moved.weights[0], middle.weights, moved.weights[-1]],
    )


def _inner(
    strategy: Strategy, buckets: int, ends: tuple[float, float], mean: float, error: float, z: float
) -> Doubles:
    """Bounds of the inner buckets: equal ones, or equally likely places of the mean."""
    if not strategy.quantile:
        return np.linspace(*ends, buckets - 1)
    normal = NormalDist()
    likely = np.linspace(normal.cdf(-z), normal.cdf(z), buckets - 1).tolist()
    return np.r_[ends[0], mean + error * np.array([normal.inv_cdf(p) for p in likely])[1:-1], ends[1]]


def _kept(old: FocusedHistogram, low: float, high: float, bounds: Doubles) -> Doubles:
    """Piecemeal: old bounds inside the new span stay; whole buckets beyond it go to the outer ones."""
    inside = old.bounds[1:-1]
    inside = inside[(inside >= low) & (inside <= high)]
    ends = [low] if not len(inside) or inside[0] > low else []
    ends += [high] if not len(inside) or inside[-1] < high else []
    merged: Doubles = np.r_[bounds[0], np.unique(np.r_[inside, ends]), bounds[-1]]
    return merged
