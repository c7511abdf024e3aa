"""Summaries of ranks for many keys at once: the weight below a value, and quantiles, from a few points per key, within
an error relative to the total weight.

A point is a value v with an upper bound of the weight below v and a lower bound of the weight at or below it. Two summaries are
merged by adding these bounds, which is correct however they were made; a point may be dropped while the uncertainty between its
neighbours is at most 2 * error of the total. So the bound holds for any order of batches and merges, without random numbers:
the same rows in the same batches give the same bytes.
Source: Greenwald, Khanna, "Space-efficient online computation of quantile summaries" (2001), with bounds on both sides in place of
counts of ones, so that rows may have weights and summaries may be merged.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.dataclass import dataclass
from headrace.synopses.arrays import Ints

Doubles: TypeAlias = npt.NDArray[np.float64]
_WHOLE: Final = 2.0**53
"""The limit up to which sums of whole numbers are exact."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """Points of keys 0..n-1: those of a key are `offsets[key]:offsets[key + 1]`, ascending.

    `most_below[i]` is at least the weight below `values[i]`, `least_upto[i]` at most the weight at or below it, and `totals`
    the total weight (rows when each weighs 1). The least and the greatest value are always stored.
    """

    totals: Doubles
    offsets: Ints
    values: Doubles
    most_below: Doubles
    least_upto: Doubles

    @staticmethod
    def of(keys: Ints, values: Doubles, weights: Doubles | None, count: int) -> Ranks:
        """Exact: a point for each distinct value of a key; weights are 0 or more, 1 when None."""
        order = np.lexsort((values, keys))
        owner, value = keys[order], values[order] + 0.0  # no -0.0
        new = _first(owner, value)
        point = np.cumsum(new) - 1
        owner, value = owner[new], value[new]
        held = np.bincount(point, None if weights is None else weights[order], len(owner)).astype(np.float64)
        totals, offsets = _totals(owner, held, count)
        upto = _running(owner, held, offsets)
        return Ranks(totals, offsets, value, upto - held, upto)

    @property
    def keys(self) -> int:
        """Number of keys."""
        return len(self.totals)

    def owners(self) -> Ints:
        """The key of each point."""
        return np.repeat(np.arange(self.keys), np.diff(self.offsets))

    def merged(self, codes: Ints, count: int) -> Ranks:
        """Summaries with equal codes as one: `count` of them. Each point gets the bounds of every other summary at its value."""
        source = self.owners()
        owner = codes[source]
        order = np.lexsort((self.values, owner))
        owner, value = owner[order], self.values[order]
        new = _first(owner, value)
        point = np.cumsum(new) - 1
        first, last = np.zeros(len(source), bool), np.zeros(len(source), bool)
        full = np.flatnonzero(np.diff(self.offsets) > 0)
        first[self.offsets[:-1][full]] = last[self.offsets[1:][full] - 1] = True
        came = self.least_upto - np.where(first, 0.0, np.r_[0.0, self.least_upto[:-1]])
        comes = np.where(last, self.totals[source], np.r_[self.most_below[1:], 0.0]) - self.most_below
        size = int(new.sum())
        came_at, comes_at = (_sums(point, part[order], size) for part in (came, comes))
        owner = owner[new]
        offsets = np.searchsorted(owner, np.arange(count + 1))
        begin = np.bincount(codes[source[first]], self.most_below[first], count)
        most = _running(owner, comes_at, offsets) - comes_at + begin[owner]
        totals = np.bincount(codes, self.totals, count).astype(np.float64)
        return Ranks(totals, offsets, value[new], most, _running(owner, came_at, offsets))

    def thinned(self, error: Fraction, fewest: int = 0) -> Ranks:
        """The summary with the fewest points whose uncertainty between neighbours is at most 2 * error of a key's total.

        Keys of up to `fewest` points are unchanged.
        """
        size = np.diff(self.offsets)
        many = np.flatnonzero(size > max(fewest, 2))
        if not len(many):
            return self
        owner = self.owners()
        part = float(error) * self.totals
        of_rows = self.totals == np.floor(
            self.totals
        )  # of rows: so that half of the uncertainty, rounded up, is within it
        allowed = 2.0 * np.where(of_rows, np.floor(part), part)
        reach = self._last_below(self.least_upto + allowed[owner], owner)
        remaining = np.ones(len(owner), bool)
        remaining[np.isin(owner, many)] = False
        at, last = self.offsets[:-1][many], self.offsets[1:][many] - 1
        remaining[at] = remaining[last] = True
        while len(at):
            at = reach[at]
            remaining[at] = True
            going = at < last
            at, last = at[going], last[going]
        offsets = np.r_[0, np.cumsum(np.bincount(owner[remaining], minlength=self.keys))]
        return Ranks(
            self.totals,
            offsets,
            self.values[remaining],
            self.most_below[remaining],
            self.least_upto[remaining],
        )

    def _last_below(self, limits: Doubles, owner: Ints) -> Ints:
        """For each point the last one of its key with at most its limit below; at least the next one."""
        low, last = np.arange(len(owner)) + 1, self.offsets[1:][owner] - 1
        low = np.minimum(low, last)
        high = last.copy()
        while (low < high).any():
            middle = (low + high + 1) // 2
            right = self.most_below[middle] <= limits
            low, high = np.where(right, middle, low), np.where(right, high, np.maximum(middle - 1, low))
        return low

    def upto(self, limits: Doubles, *, strictly: bool = False) -> tuple[Doubles, Doubles]:
        """Per key the minimum and maximum weight at or below its limit (`strictly`: below it)."""
        index = self._places(limits, strictly=strictly)
        begins, ends = self.offsets[:-1], self.offsets[1:]
        low = np.where(index > begins, _at(self.least_upto, index - 1), 0.0)
        high = np.where(index < ends, _at(self.most_below, index), self.totals)
        return low, np.maximum(low, high)

    def _places(self, limits: Doubles, *, strictly: bool) -> Ints:
        """The first point of each key above its limit (`strictly`: at or above it)."""
        low, high = self.offsets[:-1].copy(), self.offsets[1:].copy()
        while (open_ := low < high).any():
            middle = (low + high) // 2
            value = _at(self.values, np.where(open_, middle, 0))
            right = _above(limits, value) if strictly else ~_above(value, limits)
            low = np.where(open_ & right, middle + 1, low)
            high = np.where(open_ & ~right, middle, high)
        return low

    def quantile(self, share: float, uncertain: Doubles | None = None) -> tuple[Doubles, Doubles]:
        """Per key the value at rank (total - 1) * share, rows counted from 0, and its maximum distance from the exact one.

        Exact, by interpolation between neighbours, where every row is stored. Weights must be whole numbers. If the rank itself is
        `uncertain` by so much, the distance is to any value at such ranks; NaN where one of these is before the first or after the last.
        """
        where = np.maximum(self.totals - 1, 0) * share
        first, last = np.floor(where), np.ceil(where)
        ends = np.maximum(self.offsets[1:] - 1, 0)
        exact = self._is_exact()
        low_at = self._first_holding(self.least_upto, first + 1)
        high_at = self._first_holding(self.least_upto, last + 1)
        aside = np.zeros(self.keys) if uncertain is None else uncertain
        lower, upper = _at(self.values, np.minimum(low_at, ends)), _at(self.values, np.minimum(high_at, ends))
        with np.errstate(all="ignore"):
            between = np.where(lower == upper, lower, lower + (where - first) * (upper - lower))
        middle = (self.most_below + self.least_upto) / 2
        near = np.minimum(self._first_holding(middle, where + 0.5), ends)
        least = self._last_at(first, ends)
        value = np.where(exact, between, np.clip(_at(self.values, near), least, upper))
        if aside.any():
            least = np.where(aside > 0, self._last_at(first - aside, ends), least)
            reached = self._first_holding(self.least_upto, last + 1 + aside)
            upper = np.where(aside > 0, _at(self.values, np.minimum(reached, ends)), upper)
        with np.errstate(all="ignore"):
            below = np.where(value == least, 0.0, value - least)
            far = np.maximum(below, np.where(value == upper, 0.0, upper - value))
        far = np.where(exact & (aside == 0), 0.0, np.where(np.isnan(far), np.inf, far))
        is_open = (aside > 0) & ((first < aside) | (last + 1 + aside > self.totals))
        return value, np.where(is_open, np.nan, far)

    def _last_at(self, ranks: Doubles, ends: Ints) -> Doubles:
        """The last value of each key with at most so much below it."""
        place = self._first_holding(self.most_below, np.nextafter(ranks, np.inf)) - 1
        return _at(self.values, np.clip(place, self.offsets[:-1], ends))

    def _is_exact(self) -> npt.NDArray[np.bool_]:
        """Keys whose rows are all stored."""
        gap = np.r_[self.most_below[1:], 0.0] > self.least_upto
        gap |= self.most_below > self.least_upto
        owner = self.owners()
        if len(gap):
            gap[self.offsets[1:][np.diff(self.offsets) > 0] - 1] = False
        exact: npt.NDArray[np.bool_] = np.bincount(owner[gap], minlength=self.keys) == 0
        return exact

    def _first_holding(self, bounds: Doubles, least: Doubles) -> Ints:
        """The first point of each key whose bound is at least `least`; past its last one without such a point."""
        low, high = self.offsets[:-1].copy(), self.offsets[1:].copy()
        while (open_ := low < high).any():
            middle = (low + high) // 2
            right = _at(bounds, np.where(open_, middle, 0)) < least
            low = np.where(open_ & right, middle + 1, low)
            high = np.where(open_ & ~right, middle, high)
        return low


def _above(values: Doubles, limits: Doubles) -> npt.NDArray[np.bool_]:
    """NaN is above every number and equal to itself, as in Spark."""
    return (values > limits) | (np.isnan(values) & ~np.isnan(limits))


def _at(values: Doubles, places: Ints) -> Doubles:
    """Values at indices; arbitrary for indices out of range."""
    if not len(values):
        return np.zeros(len(places))
    return values[np.clip(places, 0, len(values) - 1)]


def _first(owner: Ints, value: Doubles) -> npt.NDArray[np.bool_]:
    """The beginnings of (key, value) pairs in sorted rows; all NaN are one value."""
    same = (value[1:] == value[:-1]) | (np.isnan(value[1:]) & np.isnan(value[:-1]))
    first: npt.NDArray[np.bool_] = np.r_[np.ones(min(len(owner), 1), bool), (owner[1:] != owner[:-1]) | ~same]
    return first


def _sums(codes: Ints, values: Doubles, count: int) -> Doubles:
    return np.bincount(codes, values, count).astype(np.float64)


def _totals(owner: Ints, held: Doubles, count: int) -> tuple[Doubles, Ints]:
    totals = np.bincount(owner, held, count).astype(np.float64)
    return totals, np.searchsorted(owner, np.arange(count + 1))


def _running(owner: Ints, held: Doubles, offsets: Ints) -> Doubles:
    """Sums up to each point, within its key."""
    running: Doubles
    if (held != np.floor(held)).any() or float(
        held.sum()
    ) >= _WHOLE:  # the rounding of one key must not affect another
        from pandas import Series  # noqa: PLC0415 - takes long to import, and is rarely needed

        running = Series(held).groupby(owner).cumsum().to_numpy()
        return running
    upto = np.cumsum(held)
    running = upto - np.r_[0.0, upto][offsets[:-1]][owner]
    return running
