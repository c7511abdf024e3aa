"""A few buckets over the part of the values that matters now: how are they laid out again when that part moves?

For many keys at once, a histogram each: every operation is one over rows of a table, as many rows as keys that move.
*Wholesale*: new bounds each time, what was counted spread evenly within each old bucket. *Piecemeal*: bounds stay, and change
at the ends only. Either with *uniform* bounds or with *quantile* ones, which aim at equal weights.
Source: Gehrke, Korn, Srivastava, "On computing correlated aggregates over continual data streams" (2001), section 3. Repaired:
wholesale advances past a bucket only when it is wholly below (the printed loops lose one that straddles); a piecemeal cut keeps
`f * (b' - v) / (v' - v)` of a bucket of weight f (the text leaves out f).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace.synopses.rows.arrays import Ints
from headrace.synopses.rows.rows_by_key import Doubles, Flags

_TIE: Final = 1e-9
"""Sizes that differ by less than this share are equal: rounding decides nothing."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """How buckets are laid out again; piecemeal and uniform is the method of choice."""

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
    """A histogram a row: bucket i of key k holds weight `weights[k, i]` of values in [bounds[k, i], bounds[k, i + 1])."""

    bounds: Doubles
    weights: Doubles

    @staticmethod
    def none(keys: int, buckets: int) -> FocusedHistograms:
        """Of keys that have no rows yet: their bounds are beyond all values."""
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
        """Those of some keys."""
        return FocusedHistograms(self.bounds[keys], self.weights[keys])

    def put(self, keys: Ints | Flags, found: FocusedHistograms) -> None:
        """Those of some keys are others now."""
        self.bounds[keys], self.weights[keys] = found.bounds, found.weights

    def below(self, values: Doubles) -> Doubles:
        """The weight below each value, a bucket's spread evenly; values as (keys, any number)."""
        return interpolated(self.bounds, _summed(self.weights), values)

    def places(self, keys: Ints, values: Doubles) -> Ints:
        """The bucket of each value of a key; -1 below the first and the number of buckets from the last bound on."""
        return last_upto(self.bounds, keys, values)

    def add(self, keys: Ints, values: Doubles, weights: Doubles) -> None:
        """More values of keys; those outside count nowhere."""
        place = self.places(keys, values)
        inside = (place >= 0) & (place < self.buckets)
        self.put_in(keys[inside], place[inside], weights[inside])

    def put_in(self, keys: Ints, places: Ints, weights: Doubles) -> None:
        """More weight in buckets, one after the other."""
        flat = self.weights.reshape(-1, copy=False)  # a copy would lose what is added
        np.add.at(flat, keys * self.buckets + places, weights)

    def within(self, low: Doubles, high: Doubles) -> tuple[Doubles, Doubles, Doubles]:
        """The weight of [low, high) key by key: the least and the most if nothing was ever spread, and the linear share."""
        left, right = self.bounds[:, :-1], self.bounds[:, 1:]
        whole = (left >= low[:, None]) & (right <= high[:, None])
        touched = (left < high[:, None]) & (right > low[:, None])
        share = np.diff(self.below(np.column_stack([low, high])), axis=1)[:, 0]
        least, most = (np.where(part, self.weights, 0.0).sum(axis=1) for part in (whole, touched))
        return least, most, share

    def moved(self, low: Doubles, high: Doubles, strategy: Strategy) -> FocusedHistograms:
        """The same number of buckets over [low, high): what lies outside is gone, and nothing was there before."""
        if strategy.piecemeal:
            return self._piecemeal(low, high, strategy)
        return self._wholesale(low, high, strategy)

    def _wholesale(self, low: Doubles, high: Doubles, strategy: Strategy) -> FocusedHistograms:
        bounds = evenly(low, high, self.buckets + 1)
        if strategy.quantile:
            start, end = self.below(np.column_stack([low, high])).T
            total = np.maximum.accumulate(_summed(self.weights), axis=1)
            wanted = evenly(start, end, self.buckets + 1)
            equal = np.column_stack([low, interpolated(total, self.bounds, wanted[:, 1:-1]), high])
            equal = np.maximum.accumulate(np.clip(equal, low[:, None], high[:, None]), axis=1)
            bounds = np.where((end > start)[:, None], equal, bounds)
        return FocusedHistograms(bounds, np.diff(self.below(bounds), axis=1))

    def _piecemeal(self, low: Doubles, high: Doubles, strategy: Strategy) -> FocusedHistograms:
        bounds, many = kept_bounds(self.bounds, low, high)
        crowded = (low < self.bounds[:, 0]) & (
            many > self.buckets + 1
        )  # no bucket is free: the first one reaches further
        bounds = _without(bounds, np.where(crowded, 1, bounds.shape[1]))
        cut = FocusedHistograms(bounds, np.diff(self.below(bounds), axis=1))
        return cut.with_buckets(many - crowded - 1, self.buckets, strategy)

    def with_buckets(self, many: Ints, buckets: int, strategy: Strategy) -> FocusedHistograms:
        """From `many` buckets a key (those beyond are empty, at the last bound) to as many for all.

        The widest (uniform) or heaviest (quantile) are cut in two, or the lightest neighbours merged.
        """
        wide = max(self.buckets, buckets)
        found = FocusedHistograms(
            np.concatenate(
                [self.bounds, np.repeat(self.bounds[:, -1:], wide - self.buckets, axis=1)], axis=1
            ),
            np.concatenate([self.weights, np.zeros((self.keys, wide - self.buckets))], axis=1),
        )
        many = many.copy()
        while len(few := np.flatnonzero(many < buckets)):
            found.put(few, found.of(few).with_cut(many[few], strategy))
            many[few] += 1
        while len(more := np.flatnonzero(many > buckets)):
            found.put(more, found.of(more).with_joined(many[more]))
            many[more] -= 1
        return FocusedHistograms(found.bounds[:, : buckets + 1].copy(), found.weights[:, :buckets].copy())

    def with_cut(self, many: Ints, strategy: Strategy) -> FocusedHistograms:
        """Of each key one bucket in two halves, in place of an empty one at the end."""
        sizes = self.weights if strategy.quantile else np.diff(self.bounds, axis=1)
        sizes = np.where(np.arange(self.buckets) < many[:, None], sizes, -np.inf)
        place = _first(sizes >= sizes.max(axis=1, keepdims=True) * (1 - _TIE))
        keys, across = np.arange(self.keys), np.arange(self.buckets + 1)
        source = across - (across > place[:, None])
        bounds = np.take_along_axis(self.bounds, source, axis=1)
        bounds[keys, place + 1] = (self.bounds[keys, place] + self.bounds[keys, place + 1]) / 2
        weights = np.take_along_axis(self.weights, source[:, :-1], axis=1)
        weights[keys, place] = weights[keys, place + 1] = self.weights[keys, place] / 2
        return FocusedHistograms(bounds, weights)

    def with_joined(self, many: Ints) -> FocusedHistograms:
        """Of each key the two lightest neighbours as one."""
        pairs = self.weights[:, :-1] + self.weights[:, 1:]
        pairs = np.where(np.arange(self.buckets - 1) < many[:, None] - 1, pairs, np.inf)
        place = _first(pairs <= pairs.min(axis=1, keepdims=True) * (1 + _TIE))
        keys = np.arange(self.keys)
        weights = _without(self.weights, place + 1)
        weights[keys, place] = pairs[keys, place]
        weights[:, -1] = 0.0
        return FocusedHistograms(_without(self.bounds, place + 1), weights)

    def evened(self) -> FocusedHistograms:
        """One step of upkeep: the lightest neighbours merged, the heaviest bucket cut, where that lowers the variance."""
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
    """So many values from low to high, both among them, key by key."""
    found: Doubles = low[:, None] + np.arange(number) * ((high - low) / (number - 1))[:, None]
    found[:, -1] = high
    return found


def last_upto(bounds: Doubles, keys: Ints, values: Doubles) -> Ints:
    """The last of a key's bounds that is at most the value, -1 where there is none: all are halved together."""
    width, flat = bounds.shape[1], bounds.ravel()
    base, found = keys * width - 1, np.zeros(len(values), np.int64)
    step = 1 << (width.bit_length() - 1)
    while step:
        further = found + step
        found = np.where(
            (further <= width) & (flat[base + np.minimum(further, width)] <= values), further, found
        )
        step //= 2
    return found - 1


def interpolated(at: Doubles, up: Doubles, values: Doubles) -> Doubles:
    """`up` at values between `at`, which rises; of equal ones the last counts. All as (keys, any number)."""
    keys = np.repeat(np.arange(len(at)), values.shape[1])
    place = last_upto(at, keys, values.ravel()).reshape(values.shape)
    low = np.clip(place, 0, at.shape[1] - 2)
    left, right = np.take_along_axis(at, low, axis=1), np.take_along_axis(at, low + 1, axis=1)
    start, end = np.take_along_axis(up, low, axis=1), np.take_along_axis(up, low + 1, axis=1)
    slope = (end - start) / np.where(right > left, right - left, 1.0)
    found = slope * (values - left) + start
    found = np.where(place < 0, up[:, :1], found)
    return np.where(place > low, up[:, -1:], found)


def kept_bounds(bounds: Doubles, low: Doubles, high: Doubles) -> tuple[Doubles, Ints]:
    """low, the bounds between, and high, each once, then high again; and how many there are of them."""
    inside = (bounds > low[:, None]) & (bounds < high[:, None])
    found = np.sort(np.column_stack([low, np.where(inside, bounds, np.inf), high]), axis=1)
    found[:, 1:][found[:, 1:] == found[:, :-1]] = np.inf
    found = np.sort(found, axis=1)
    many = np.count_nonzero(np.isfinite(found), axis=1)
    return np.minimum(found, high[:, None]), many


def _summed(weights: Doubles) -> Doubles:
    return np.concatenate([np.zeros((len(weights), 1)), np.cumsum(weights, axis=1)], axis=1)


def _without(values: Doubles, place: Ints) -> Doubles:
    """Each row without the value at a place, which may be beyond the end; the last one stands there twice."""
    across = np.arange(values.shape[1])
    source = np.minimum(across + (across >= place[:, None]), len(across) - 1)
    return np.take_along_axis(values, source, axis=1)


def _first(flags: Flags) -> Ints:
    found: Ints = np.argmax(flags, axis=1)
    return found


def _variance(weights: Doubles) -> Doubles:
    mean = np.cumsum(weights, axis=1)[:, -1:] / weights.shape[1]
    return np.cumsum((weights - mean) ** 2, axis=1)[:, -1]
