"""One key over its last w rows, row by row: what `benchmarks.baselines.correlated.sliding_correlated` does for many keys at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from benchmarks.baselines.correlated.focused_histograms import BEST, Strategy
from benchmarks.baselines.rows.rows_by_key import Doubles
from benchmarks.one_key.histogram import FocusedHistogram
from benchmarks.one_key.landmark import around_mean

_PANES: Final = 5


@dataclass(slots=True)
class OneSlidingNearMinimum:
    """Sum of y where x < scale * MIN(x), over the last `window` rows; x above 0, scale above 1."""

    scale: float
    window: int
    buckets: int = 10
    strategy: Strategy = BEST
    rows: deque[tuple[float, float]] = field(default_factory=deque)
    panes: deque[float] = field(default_factory=deque)
    """The least value of each closed pane of the window, the oldest first."""
    seen: int = 0
    open_least: float = np.inf
    histogram: FocusedHistogram | None = None
    rebuilds: bool = True
    """False: as printed, never counted again."""
    closed_panes: bool = True
    """False: as printed, the open pane's least value bounds the region too."""
    counted: int = 0
    """How many rows had arrived when it was last counted from its rows."""

    @property
    def pane(self) -> int:
        """Rows in a pane."""
        return max(self.window // _PANES, 1)

    def add(self, x: Doubles, y: Doubles) -> Doubles:
        """Take in rows in their order; the answer after each."""
        return np.array([self._one(float(value), float(weight)) for value, weight in zip(x, y, strict=True)])

    def _one(self, value: float, weight: float) -> float:
        gone = self.rows.popleft() if len(self.rows) == self.window else None
        self.rows.append((value, weight))
        self._note(value)
        least = min([self.open_least, *self.panes])
        minima = list(self.panes)
        if not self.closed_panes and np.isfinite(self.open_least):
            minima.append(self.open_least)
        reach = self.scale * max(minima, default=least)
        most = max(value, reach)
        if self.histogram is None:
            self.histogram = _region(least, reach, most, self.buckets)
        elif least != self.histogram.bounds[0] or reach != self.histogram.bounds[-2]:
            self.histogram = self._moved(self.histogram, least, reach)
        if self.rebuilds and self.seen - self.counted >= self.window:
            self.histogram = recounted(_region(least, reach, most, self.buckets), self.rows)
            self.counted = self.seen
            return float(self.histogram.below(np.array([self.scale * least]))[0])
        weights = self.histogram.weights.copy()
        bounds = self.histogram.bounds
        bounds[-1] = max(bounds[-1], np.nextafter(most, np.inf))
        places = np.searchsorted(bounds, [value, value if gone is None else gone[0]], side="right") - 1
        places = np.clip(places, 0, len(weights) - 1)
        weights[places[0]] += weight
        if gone is not None:
            weights[places[1]] -= gone[1]
        self.histogram = FocusedHistogram(bounds, weights)
        return float(self.histogram.below(np.array([self.scale * least]))[0])

    def _note(self, value: float) -> None:
        """The least of each pane; a pane leaves when its last row does."""
        self.seen += 1
        self.open_least = min(self.open_least, value)
        if self.seen % self.pane == 0:
            self.panes.append(self.open_least)
            self.open_least = np.inf
        if len(self.panes) > self.window // self.pane:
            self.panes.popleft()

    def _moved(self, old: FocusedHistogram, least: float, reach: float) -> FocusedHistogram:
        """All buckets but the last one over [least, reach); the last one up to the greatest value."""
        end = max(old.bounds[-1], np.nextafter(reach, np.inf))
        wide = FocusedHistogram(np.r_[min(old.bounds[0], least), old.bounds[1:-1], end], old.weights)
        inner = FocusedHistogram(wide.bounds[:-1], wide.weights[:-1])
        if reach > wide.bounds[-2]:  # part of the last bucket comes in
            share = float(np.diff(wide.below(np.array([wide.bounds[-2], reach])))[0])
            inner = FocusedHistogram(np.r_[wide.bounds[:-1], reach], np.r_[wide.weights[:-1], share])
        moved = inner.moved(least, reach, self.strategy)
        if len(moved.weights) != self.buckets - 1:
            moved = moved.with_buckets(self.buckets - 1, self.strategy)
        if self.strategy.piecemeal and self.strategy.quantile:
            moved = moved.evened()
        rest = old.weights.sum() - moved.weights.sum()
        return FocusedHistogram(np.r_[moved.bounds, end], np.r_[moved.weights, rest])


def _region(least: float, reach: float, most: float, buckets: int) -> FocusedHistogram:
    bounds = np.r_[np.linspace(least, reach, buckets), np.nextafter(max(most, reach), np.inf)]
    return FocusedHistogram(bounds, np.zeros(buckets))


def recounted(histogram: FocusedHistogram, rows: Iterable[tuple[float, float]]) -> FocusedHistogram:
    """The same buckets with what the rows weigh."""
    x, y = (np.array(part) for part in zip(*rows, strict=True))
    bounds = histogram.bounds.copy()
    bounds[0], bounds[-1] = min(bounds[0], x.min()), max(bounds[-1], float(np.nextafter(x.max(), np.inf)))
    places = np.clip(np.searchsorted(bounds, x, side="right") - 1, 0, len(histogram.weights) - 1)
    return FocusedHistogram(bounds, np.bincount(places, y, len(histogram.weights)).astype(np.float64))


@dataclass(slots=True)
class OneSlidingAboveMean:
    """Sum of y where x > AVG(x), over the last `window` rows: inner buckets over mean +- z * deviation / sqrt(window)."""

    window: int
    buckets: int = 10
    strategy: Strategy = BEST
    z: float = 3.0
    rows: deque[tuple[float, float]] = field(default_factory=deque)
    total: float = 0.0
    squares: float = 0.0
    centre: float = 0.0
    histogram: FocusedHistogram | None = None
    rebuilds: bool = True
    seen: int = 0
    counted: int = 0

    def add(self, x: Doubles, y: Doubles) -> Doubles:
        """Take in rows in their order; the answer after each."""
        return np.array([self._one(float(value), float(weight)) for value, weight in zip(x, y, strict=True)])

    def _one(self, value: float, weight: float) -> float:
        if not self.rows:
            self.centre = value
        gone = self.rows.popleft() if len(self.rows) == self.window else None
        self.rows.append((value, weight))
        for sign, row in ((1, (value, weight)), (-1, gone)):
            if row is not None:
                self.total += sign * (row[0] - self.centre)
                self.squares += sign * (row[0] - self.centre) ** 2
        self.seen += 1
        mean = self.centre + self.total / len(self.rows)
        if self.histogram is None or not self.histogram.bounds[1] <= mean <= self.histogram.bounds[-2]:
            self.histogram = self._around(mean, self.histogram)
        if self.rebuilds and self.seen - self.counted >= self.window:
            self.histogram, self.counted = recounted(self._around(mean, None), self.rows), self.seen
            return float(self.histogram.weights.sum() - self.histogram.below(np.array([mean]))[0])
        bounds, weights = self.histogram.bounds, self.histogram.weights
        bounds[0], bounds[-1] = min(bounds[0], value), max(bounds[-1], float(np.nextafter(value, np.inf)))
        places = np.searchsorted(bounds, [value, value if gone is None else gone[0]], side="right") - 1
        places = np.clip(places, 0, len(weights) - 1)
        weights[places[0]] += weight
        if gone is not None:
            weights[places[1]] -= gone[1]
        return float(weights.sum() - self.histogram.below(np.array([mean]))[0])

    def _around(self, mean: float, old: FocusedHistogram | None) -> FocusedHistogram:
        number = len(self.rows)
        variance = max(self.squares / number - (self.total / number) ** 2, 0.0)
        error = float(np.sqrt(variance / self.window)) or abs(mean) * 1e-9 or 1e-9
        values = [row[0] for row in self.rows]
        ends = (min(values), max(values))
        return around_mean(old, self.strategy, self.buckets, mean, error, self.z, ends)
