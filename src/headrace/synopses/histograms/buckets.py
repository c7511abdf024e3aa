"""Buckets of ones with sizes of their own, for many keys at once: what remains of an exponential histogram when another one, with another error,
continues after it.

Sizes of an exponential histogram follow from its count and its form; these are stored, so that any adjacent buckets may be merged. A window that
begins inside a bucket counts half of it, whatever the bucket was made of: the error is at most half of its size.
"""

from __future__ import annotations

import numpy as np

from headrace.dataclass import dataclass
from headrace.synopses.arrays import Ints
from headrace.synopses.histograms.exponential_histogram import Cells, Histograms


@dataclass(frozen=True, slots=True)
class Buckets:
    """Buckets of keys 0..n-1: those of a key are `offsets[key]:offsets[key + 1]`, newest first; each with the time of its newest one."""

    offsets: Ints
    times: Ints
    sizes: Ints

    @staticmethod
    def of(histograms: Histograms) -> Buckets:
        """Those of histograms."""
        return Buckets(histograms.offsets, histograms.times, histograms.sizes())

    @property
    def keys(self) -> int:
        """Number of keys."""
        return len(self.offsets) - 1

    def owners(self) -> Ints:
        """The key of each bucket."""
        return np.repeat(np.arange(self.keys), np.diff(self.offsets))

    def totals(self) -> Ints:
        """The ones of each key."""
        upto = np.r_[0, np.cumsum(self.sizes)]
        totals: Ints = upto[self.offsets[1:]] - upto[self.offsets[:-1]]
        return totals

    def followed_by(self, older: Buckets) -> Buckets:
        """With the buckets of the same keys that are older than all of them."""
        owners = np.r_[self.owners(), older.owners()]
        order = np.argsort(owners, kind="stable")
        return Buckets(
            self.offsets + older.offsets,
            np.r_[self.times, older.times][order],
            np.r_[self.sizes, older.sizes][order],
        )

    def where(self, kept: np.ndarray) -> Buckets:
        """Some of the buckets."""
        many = np.bincount(self.owners()[kept], minlength=self.keys)
        return Buckets(np.r_[0, np.cumsum(many)], self.times[kept], self.sizes[kept])

    def since(self, start: int) -> Buckets:
        """Without buckets that are entirely older than `start`."""
        return self.where(self.times >= start)

    def take(self, keys: Ints) -> Buckets:
        """The buckets of some keys, in that order."""
        many = np.diff(self.offsets)[keys]
        offsets = np.r_[0, np.cumsum(many)]
        picked = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - self.offsets[keys], many)
        return Buckets(offsets, self.times[picked], self.sizes[picked])

    def thinned(self, k: int, newer: Ints) -> Buckets:
        """As few buckets as have an error of at most 1/k of the answer; `newer` ones of each key are newer than all of its buckets.

        From the newest on, adjacent ones are merged while half of them is at most 1/k of those that a window counts for certain.
        """
        owners, upto = self.owners(), np.cumsum(self.sizes)
        before = upto - self.sizes
        first = np.r_[before, 0][self.offsets[:-1]]
        certain = newer[owners] + before - first[owners] + 1
        most = 2 * (certain // k) + 1
        last = np.searchsorted(upto, before + np.maximum(most, self.sizes), side="right") - 1
        last = np.minimum(last, self.offsets[1:][owners] - 1)
        begins = np.zeros(len(owners), bool)
        at = self.offsets[:-1][np.diff(self.offsets) > 0]
        while len(at):
            begins[at] = True
            then = last[at] + 1
            at = then[then < self.offsets[1:][owners[at]]]
        index = np.flatnonzero(begins)
        merged = np.add.reduceat(self.sizes, index) if len(index) else self.sizes
        thin = self.where(begins)
        return Buckets(thin.offsets, thin.times, merged)

    def cells(self) -> Cells:
        """The same estimates for every window, as counts that expire: see `Histograms.cells`."""
        half = np.where(self.sizes > 1, self.sizes // 2, 0)
        newer = np.r_[0, half[:-1]] if len(half) else half
        newer[self.offsets[:-1][np.diff(self.offsets) > 0]] = 0
        return Cells(self.owners(), self.times, self.sizes - half + newer, half)
