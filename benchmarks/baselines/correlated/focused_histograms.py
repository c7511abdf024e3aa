"""Histograms of a few buckets over a part of the values that moves.

There is one histogram per key; every operation is one over the rows of a table, one row per key that moves.
*Wholesale*: new bounds each time, with weights spread evenly within each old bucket. *Piecemeal*: bounds remain, and change
at the ends only. Both with *uniform* bounds or with *quantile* ones, for equal weights.
Source: Gehrke, Korn, Srivastava, "On computing correlated aggregates over continual data streams" (2001), section 3. Repaired:
wholesale advances past a bucket only when it is wholly below (the printed loops lose one that straddles); a piecemeal cut keeps
`f * (b' - v) / (v' - v)` of a bucket of weight f (the text leaves out f).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.baselines.rows.rows_by_key import Doubles, Flags
from headrace.synopses.arrays import Ints

_TIE: Final = 1e-9
"""Sizes that differ by less than this share are equal, so that rounding has no effect."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """The way buckets are laid out again; piecemeal and uniform is the best."""

    piecemeal: bool = True
    quantile: bool = False


BEST: Final = Strategy()

STRATEGIES: Final = {
    "piecemeal uniform": BEST,
    "wholesale uniform": Strategy(piecemeal=False),
    "piecemeal quantile": Strategy(quantile=True),
    "wholesale quantile": Strategy(piecemeal=False, quantile=True),
}


@dataclass(slots=True)
class FocusedHistograms:
    """One histogram per row: bucket i of key k holds weight `weights[k, i]` of values in [bounds[k, i], bounds[k, i + 1])."""

    bounds: Doubles
    weights: Doubles

    @staticmethod
    def none(keys: int, buckets: int) -> FocusedHistograms:
        """Histograms of keys without rows: their bounds are beyond all values."""
        return FocusedHistograms(np.full((keys, buckets + 1), np.inf), np.zeros((keys, buckets)))

    @staticmethod
    def even(low: Doubles, high: Doubles, buckets: int) -> FocusedHistograms:
        """Equal empty buckets over [low, high), key by key."""
        return FocusedHistograms(evenly(low, high, buckets + 1), np.zeros((len(low), buckets)))

    @property
    def keys(self) -> int:
        """Number of keys."""
        return len(self.weights)

    @property
    def buckets(self) -> int:
        """Buckets of each key."""
        return int(self.weights.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.bounds.nbytes + self.weights.nbytes

    @property
    def totals(self) -> Doubles:
        """The weight of each key."""
        return np.cumsum(self.weights, axis=1)[:, -1]

    def of(self, keys: Ints | Flags) -> FocusedHistograms:
        """The histograms of some keys."""
        return FocusedHistograms(self.bounds[keys], self.weights[keys])

    def put(self, keys: Ints | Flags, replacement: FocusedHistograms) -> None:
        """Replace the histograms of some keys."""
        self.bounds[keys], self.weights[keys] = replacement.bounds, replacement.weights

    def below(self, values: Doubles) -> Doubles:
        """The weight below each value, linear within a bucket; values as (keys, any number)."""
        return interpolated(self.bounds, _summed(self.weights), values)

    def places(self, keys: Ints, values: Doubles) -> Ints:
        """The bucket of each value of a key; -1 below the first and the number of buckets from the last bound on."""
        return last_upto(self.bounds, keys, values)

    def add(self, keys: Ints, values: Doubles, weights: Doubles) -> None:
        """Add values of keys; those outside of the bounds do not count."""
        bucket = self.places(keys, values)
        inside = (bucket >= 0) & (bucket < self.buckets)
        self.put_in(keys[inside], bucket[inside], weights[inside])

    def put_in(self, keys: Ints, places: Ints, weights: Doubles) -> None:
        """Add weights to buckets, in order."""
        flat = self.weights.reshape(-1, copy=False)  # a copy would lose the additions
        np.add.at(flat, keys * self.buckets + places, weights)

    def within(self, low: Doubles, high: Doubles) -> tuple[Doubles, Doubles, Doubles]:
        """The weight of [low, high) key by key: its minimum and maximum if nothing was spread, and the linear share."""
        left, right = self.bounds[:, :-1], self.bounds[:, 1:]
        inside = (left >= low[:, None]) & (right <= high[:, None])
        touched = (left < high[:, None]) & (right > low[:, None])
        share = np.diff(self.below(np.column_stack([low, high])), axis=1)[:, 0]
        least, most = (np.where(part, self.weights, 0.0).sum(axis=1) for part in (inside, touched))
        return least, most, share

    def moved(self, low: Doubles, high: Doubles, strategy: Strategy) -> FocusedHistograms:
        """The same number of buckets over [low, high): weights outside are dropped, new parts are empty."""
        if strategy.piecemeal:
            return self._piecemeal(low, high, strategy)
        return self._wholesale(low, high, strategy)

    def _wholesale(self, low: Doubles, high: Doubles, strategy: Strategy) -> FocusedHistograms:
        bounds = evenly(low, high, self.buckets + 1)
        if strategy.quantile:
            start, end = self.below(np.column_stack([low, high])).T
            total = np.maximum.accumulate(_summed(self.weights), axis=1)
            targets = evenly(start, end, self.buckets + 1)
            equal = np.column_stack([low, interpolated(total, self.bounds, targets[:, 1:-1]), high])
            equal = np.maximum.accumulate(np.clip(equal, low[:, None], high[:, None]), axis=1)
            bounds = np.where((end > start)[:, None], equal, bounds)
        return FocusedHistograms(bounds, np.diff(self.below(bounds), axis=1))

    def _piecemeal(self, low: Doubles, high: Doubles, strategy: Strategy) -> FocusedHistograms:
        bounds, many = kept_bounds(self.bounds, low, high)
        crowded = (low < self.bounds[:, 0]) & (
            many > self.buckets + 1
        )  # no bucket is free: the first one is extended
        bounds = _without(bounds, np.where(crowded, 1, bounds.shape[1]))
        cut = FocusedHistograms(bounds, np.diff(self.below(bounds), axis=1))
        return cut.with_buckets(many - crowded - 1, self.buckets, strategy)

    def with_buckets(self, many: Ints, buckets: int, strategy: Strategy) -> FocusedHistograms:
        """From `many` buckets of each key (those beyond are empty, at the last bound) to the same number for all.

        The widest (uniform) or heaviest (quantile) are cut in two, or the lightest neighbours merged.
        """
        wide = max(self.buckets, buckets)
        changed = FocusedHistograms(
            np.concatenate(
                [self.bounds, np.repeat(self.bounds[:, -1:], wide - self.buckets, axis=1)], axis=1
            ),
            np.concatenate([self.weights, np.zeros((self.keys, wide - self.buckets))], axis=1),
        )
        many = many.copy()
        while len(few := np.flatnonzero(many < buckets)):
            changed.put(few, changed.of(few).with_cut(many[few], strategy))
            many[few] += 1
        while len(more := np.flatnonzero(many > buckets)):
            changed.put(more, changed.of(more).with_joined(many[more]))
            many[more] -= 1
        return FocusedHistograms(changed.bounds[:, : buckets + 1].copy(), changed.weights[:, :buckets].copy())

    def with_cut(self, many: Ints, strategy: Strategy) -> FocusedHistograms:
        """The histograms with one bucket of each key in two halves, in place of an empty one at the end."""
        sizes = self.weights if strategy.quantile else np.diff(self.bounds, axis=1)
        sizes = np.where(np.arange(self.buckets) < many[:, None], sizes, -np.inf)
        cut = _first(sizes >= sizes.max(axis=1, keepdims=True) * (1 - _TIE))
        keys, across = np.arange(self.keys), np.arange(self.buckets + 1)
        source = across - (across > cut[:, None])
        bounds = np.take_along_axis(self.bounds, source, axis=1)
        bounds[keys, cut + 1] = (self.bounds[keys, cut] + self.bounds[keys, cut + 1]) / 2
        weights = np.take_along_axis(self.weights, source[:, :-1], axis=1)
        weights[keys, cut] = weights[keys, cut + 1] = self.weights[keys, cut] / 2
        return FocusedHistograms(bounds, weights)

    def with_joined(self, many: Ints) -> FocusedHistograms:
        """The histograms with the two lightest neighbours of each key as one."""
        pairs = self.weights[:, :-1] + self.weights[:, 1:]
        pairs = np.where(np.arange(self.buckets - 1) < many[:, None] - 1, pairs, np.inf)
        first = _first(pairs <= pairs.min(axis=1, keepdims=True) * (1 + _TIE))
        keys = np.arange(self.keys)
        weights = _without(self.weights, first + 1)
        weights[keys, first] = pairs[keys, first]
        weights[:, -1] = 0.0
        return FocusedHistograms(_without(self.bounds, first + 1), weights)

    def evened(self) -> FocusedHistograms:
        """One step of maintenance: the lightest neighbours merged, the heaviest bucket cut, where that lowers the variance."""
        keys, heaviest = np.arange(self.keys), np.argmax(self.weights, axis=1)
        pairs = self.weights[:, :-1] + self.weights[:, 1:]
        pairs[keys, np.maximum(heaviest - 1, 0)] = np.inf
        pairs[keys, np.minimum(heaviest, self.buckets - 2)] = np.inf
        lightest = np.argmin(pairs, axis=1)
        bounds = _without(self.bounds, lightest + 1)
        bounds[:, -1] = (self.bounds[keys, heaviest] + self.bounds[keys, heaviest + 1]) / 2
        bounds = np.sort(bounds, axis=1)
        merged = np.diff(self.below(bounds), axis=1)
        better = np.isfinite(pairs[keys, lightest]) & (
            _variance(merged) < _variance(self.weights) * (1 - _TIE)
        )
        return FocusedHistograms(
            np.where(better[:, None], bounds, self.bounds), np.where(better[:, None], merged, self.weights)
        )


def evenly(low: Doubles, high: Doubles, number: int) -> Doubles:
    """`number` values from low to high, inclusive, key by key."""
    values: Doubles = low[:, None] + np.arange(number) * ((high - low) / (number - 1))[:, None]
    values[:, -1] = high
    return values


def last_upto(bounds: Doubles, keys: Ints, values: Doubles) -> Ints:
    """The last of a key's bounds that is at most the value, or -1: a binary search of all keys together."""
    width, flat = bounds.shape[1], bounds.ravel()
    base, count = keys * width - 1, np.zeros(len(values), np.int64)
    step = 1 << (width.bit_length() - 1)
    while step:
        further = count + step
        count = np.where(
            (further <= width) & (flat[base + np.minimum(further, width)] <= values), further, count
        )
        step //= 2
    return count - 1


def interpolated(at: Doubles, up: Doubles, values: Doubles) -> Doubles:
    """`up` at values between `at`, which is ascending; of equal ones the last counts. All as (keys, any number)."""
    keys = np.repeat(np.arange(len(at)), values.shape[1])
    index = last_upto(at, keys, values.ravel()).reshape(values.shape)
    low = np.clip(index, 0, at.shape[1] - 2)
    left, right = np.take_along_axis(at, low, axis=1), np.take_along_axis(at, low + 1, axis=1)
    start, end = np.take_along_axis(up, low, axis=1), np.take_along_axis(up, low + 1, axis=1)
    slope = (end - start) / np.where(right > left, right - left, 1.0)
    line = slope * (values - left) + start
    line = np.where(index < 0, up[:, :1], line)
    return np.where(index > low, up[:, -1:], line)


def kept_bounds(bounds: Doubles, low: Doubles, high: Doubles) -> tuple[Doubles, Ints]:
    """low, the bounds between, and high, each once, then high again; and the number of distinct ones."""
    inside = (bounds > low[:, None]) & (bounds < high[:, None])
    distinct = np.sort(np.column_stack([low, np.where(inside, bounds, np.inf), high]), axis=1)
    distinct[:, 1:][distinct[:, 1:] == distinct[:, :-1]] = np.inf
    distinct = np.sort(distinct, axis=1)
    many = np.count_nonzero(np.isfinite(distinct), axis=1)
    return np.minimum(distinct, high[:, None]), many


def _summed(weights: Doubles) -> Doubles:
    return np.concatenate([np.zeros((len(weights), 1)), np.cumsum(weights, axis=1)], axis=1)


def _without(values: Doubles, index: Ints) -> Doubles:
    """Each row without the value at an index, which may be beyond the end; the last value is repeated."""
    across = np.arange(values.shape[1])
    source = np.minimum(across + (across >= index[:, None]), len(across) - 1)
    return np.take_along_axis(values, source, axis=1)


def _first(flags: Flags) -> Ints:
    index: Ints = np.argmax(flags, axis=1)
    return index


def _variance(weights: Doubles) -> Doubles:
    mean = np.cumsum(weights, axis=1)[:, -1:] / weights.shape[1]
    return np.cumsum((weights - mean) ** 2, axis=1)[:, -1]
