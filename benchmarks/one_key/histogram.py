"""One histogram of one key, as plain as can be: what `benchmarks.baselines.correlated.focused_histograms` does for many keys at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from benchmarks.baselines.correlated.focused_histograms import Strategy
from benchmarks.baselines.rows.rows_by_key import Doubles


@dataclass(frozen=True, slots=True)
class FocusedHistogram:
    """Bucket i holds weight `weights[i]` of values in [bounds[i], bounds[i + 1])."""

    bounds: Doubles
    weights: Doubles

    @staticmethod
    def empty(low: float, high: float, buckets: int) -> FocusedHistogram:
        """Equal buckets over [low, high)."""
        return FocusedHistogram(np.linspace(low, high, buckets + 1), np.zeros(buckets))

    def below(self, values: Doubles) -> Doubles:
        """The weight below each value, a bucket's spread evenly."""
        total = np.r_[0.0, np.cumsum(self.weights)]
        weight: Doubles = np.interp(values, *_rising(self.bounds, total))
        return weight

    def places(self, values: Doubles) -> npt.NDArray[np.int64]:
        """The bucket of each value; -1 below the first and the number of buckets above the last."""
        return np.searchsorted(self.bounds, values, side="right") - 1

    def added(self, values: Doubles, weights: Doubles) -> FocusedHistogram:
        """With more values; those outside count nowhere."""
        index = self.places(values)
        within = (index >= 0) & (index < len(self.weights))
        more = np.bincount(index[within], weights[within], len(self.weights))
        return replace(self, weights=self.weights + more)

    def moved(self, low: float, high: float, strategy: Strategy) -> FocusedHistogram:
        """The same number of buckets over [low, high): what is outside is dropped, and where nothing was counted yet is 0."""
        if strategy.piecemeal:
            return self._piecemeal(low, high, strategy)
        return self._wholesale(low, high, strategy)

    def _wholesale(self, low: float, high: float, strategy: Strategy) -> FocusedHistogram:
        buckets = len(self.weights)
        bounds = np.linspace(low, high, buckets + 1)
        start, end = self.below(np.array([low, high]))
        if strategy.quantile and end > start:
            total, at = np.maximum.accumulate(np.r_[0.0, np.cumsum(self.weights)]), self.bounds
            wanted = np.linspace(start, end, buckets + 1)
            bounds = np.r_[low, np.interp(wanted[1:-1], total, at), high]
            bounds = np.maximum.accumulate(np.clip(bounds, low, high))
        return FocusedHistogram(bounds, np.diff(self.below(bounds)))

    def _piecemeal(self, low: float, high: float, strategy: Strategy) -> FocusedHistogram:
        buckets = len(self.weights)
        bounds = np.unique(np.r_[self.bounds[(self.bounds > low) & (self.bounds < high)], low, high])
        if low < self.bounds[0] and len(bounds) > buckets + 1:
            bounds = np.delete(bounds, 1)  # no bucket is free: the first one reaches further
        cut = FocusedHistogram(bounds, np.diff(self.below(bounds)))
        return cut.with_buckets(buckets, strategy)

    def with_buckets(self, buckets: int, strategy: Strategy) -> FocusedHistogram:
        """As many buckets, the widest (uniform) or heaviest (quantile) of them cut in two."""
        bounds, weights = self.bounds, self.weights
        while len(weights) < buckets:
            sizes = weights if strategy.quantile else np.diff(bounds)
            index = int(np.argmax(sizes >= sizes.max() * (1 - 1e-9)))  # of equal ones the first
            bounds = np.insert(bounds, index + 1, (bounds[index] + bounds[index + 1]) / 2)
            weights = np.insert(weights, index, weights[index] / 2)
            weights[index + 1] = weights[index]
        while len(weights) > buckets:
            pairs = weights[:-1] + weights[1:]
            index = int(np.argmax(pairs <= pairs.min() * (1 + 1e-9)))
            bounds = np.delete(bounds, index + 1)
            weights = np.r_[weights[:index], weights[index] + weights[index + 1], weights[index + 2 :]]
        return FocusedHistogram(bounds, weights)

    def evened(self) -> FocusedHistogram:
        """One step of upkeep: the lightest neighbours merged, the heaviest bucket cut, if that lowers the variance."""
        weights, heaviest = self.weights, int(np.argmax(self.weights))
        pairs = weights[:-1] + weights[1:]
        pairs[max(heaviest - 1, 0) : heaviest + 1] = np.inf
        lightest = int(np.argmin(pairs))
        if not np.isfinite(pairs[lightest]):
            return self
        bounds = np.r_[
            np.delete(self.bounds, lightest + 1), (self.bounds[heaviest] + self.bounds[heaviest + 1]) / 2
        ]
        bounds.sort()
        merged = FocusedHistogram(bounds, np.diff(self.below(bounds)))
        return merged if merged.weights.var() < weights.var() * (1 - 1e-9) else self


def _rising(bounds: Doubles, total: Doubles) -> tuple[Doubles, Doubles]:
    """Where several bounds are equal the greatest weight counts."""
    last = np.r_[bounds[1:] > bounds[:-1], True]
    return bounds[last], total[last]
