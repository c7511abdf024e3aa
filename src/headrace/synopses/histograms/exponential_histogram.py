"""Exponential histograms: approximate counts of ones in the last S instants, with an error bound, for many keys at
once, each in a few hundred numbers.

The ones of a key are in buckets whose sizes are powers of two, the newest the smallest. A bucket stores the time of its
newest one; sizes follow from the count (`canonical_form`). A window that begins inside a bucket counts half of it.

Repairs of the printed text, each shown by a test: merged buckets keep the *newer* time; there are k to k + 1 buckets of size
1; an oldest bucket of size 1 counts in full.
Source: Datar, Gionis, Indyk, Motwani, "Maintaining stream statistics over sliding windows" (2001), sections 3 and 4: a batch
of ones with equal or rising times is the buffer of SUM, so counts are whole numbers at times.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.synopses.arrays import Ints
from headrace.synopses.histograms.canonical_form import MOST, Form

_NARROW: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class Cells:
    """Counts at times that expire one by one: the sum of those in a window is its estimate.

    `slack[i]` is the maximum error of the estimate, up or down, when cell i is the oldest one left. Sorted by key,
    then newest first.
    """

    keys: Ints
    times: Ints
    weights: Ints
    slack: Ints

    def slack_of_newer(self) -> Ints:
        """The slack of the next newer cell of the same key, 0 without one: the slack after a cell has expired."""
        newer = np.r_[0, self.slack[:-1]] if len(self.slack) else self.slack
        return np.where(np.r_[True, self.keys[1:] != self.keys[:-1]], 0, newer) if len(newer) else newer


@dataclass(frozen=True, slots=True)
class Histograms:
    """One exponential histogram per key, for the keys 0..n-1.

    `totals[key]` ones are in the buckets whose times are `times[offsets[key]:offsets[key + 1]]`, newest first. Times are any
    non-decreasing whole numbers: instants for windows of time, numbers of elements for windows of elements.
    """

    form: Form
    totals: Ints
    offsets: Ints
    times: Ints

    @staticmethod
    def empty(form: Form, keys: int) -> Histograms:
        """Histograms without ones."""
        return Histograms(form, np.zeros(keys, np.int64), np.zeros(keys + 1, np.int64), np.empty(0, np.int64))

    @property
    def keys(self) -> int:
        """Number of keys."""
        return len(self.totals)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.totals.nbytes + self.offsets.nbytes + self.times.nbytes

    def buckets(self) -> Ints:
        """Number of buckets of each key."""
        numbers: Ints = np.diff(self.offsets)
        return numbers

    def owners(self) -> Ints:
        """The key of each bucket."""
        return np.repeat(np.arange(self.keys), self.buckets())

    def sizes(self) -> Ints:
        """The size of each bucket."""
        return _sizes(self.form.levels(self.totals))

    def absorb(self, keys: Ints, times: Ints, counts: Ints | None = None) -> Histograms:
        """The histograms with more ones: `counts[i]` (one when None) of `keys[i]` at `times[i]`, in the order of times.

        Raises `UserError` for negative counts, and where a key's count would be 2^61 or more.
        """
        rows = np.bincount(keys, minlength=self.keys)
        order = by_key(keys, self.keys)
        sizes = None if counts is None else counts[order]
        added = rows if sizes is None else _sums(keys[order], sizes, self.keys)
        totals = self.totals + added
        negative = sizes is not None and (sizes < 0).any()
        if negative or float(totals.astype(float).sum()) >= MOST:
            raise UserError(
                "only counts from 0 on that add up to less than 2^61 fit an exponential histogram"
            )
        levels = self.form.levels(totals)
        many = levels.sum(axis=1)
        widths = _sizes(levels)
        begins = np.cumsum(widths)
        begins -= widths
        begins -= np.repeat(np.cumsum(totals) - totals + added, many)
        owners = np.repeat(np.arange(self.keys), many)
        newest = np.empty(len(widths), np.int64)
        fresh = np.flatnonzero(begins < 0)  # the number of ones before the end of the batch
        rank = np.cumsum(added)[owners[fresh]] - added[owners[fresh]] - begins[fresh] - 1
        row = rank if sizes is None else np.searchsorted(np.cumsum(sizes), rank, side="right")
        newest[fresh] = times[order[row]]
        there = np.flatnonzero(begins >= 0)
        rank = (np.cumsum(self.totals) - self.totals)[owners[there]] + begins[there]
        newest[there] = self.times[np.searchsorted(np.cumsum(self.sizes()), rank, side="right")]
        return Histograms(self.form, totals, np.r_[0, np.cumsum(many)], newest)

    def since(self, start: int) -> Histograms:
        """The histograms without buckets that are entirely older than `start`."""
        recent = self.times >= start
        if recent.all():
            return self
        expired = np.bincount(self.owners()[~recent], minlength=self.keys)
        lost = _sums(self.owners()[~recent], self.sizes()[~recent], self.keys)
        offsets = np.r_[0, np.cumsum(self.buckets() - expired)]
        return Histograms(self.form, self.totals - lost, offsets, self.times[recent])

    def take(self, keys: Ints) -> Histograms:
        """The histograms of some keys, in that order."""
        many = self.buckets()[keys]
        offsets = np.r_[0, np.cumsum(many)]
        picked = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - self.offsets[keys], many)
        return Histograms(self.form, self.totals[keys], offsets, self.times[picked])

    def cells(self) -> Cells:
        """The same estimates for every window, as counts that expire.

        When the bucket of size c before the oldest expires, TOTAL decreases by c, and half of the new oldest one is subtracted.
        """
        sizes, owners = self.sizes(), self.owners()
        half = np.where(sizes > 1, sizes // 2, 0)
        newer = np.r_[0, half[:-1]] if len(half) else half
        newer[self.offsets[:-1][self.buckets() > 0]] = 0
        return Cells(owners, self.times, sizes - half + newer, half)

    def estimate(self, start: int) -> tuple[Ints, Ints]:
        """Per key the estimated number of ones at or after `start`, and its maximum error."""
        cells = self.cells()
        live = cells.times >= start
        owners = cells.keys[live]
        estimates = _sums(owners, cells.weights[live], self.keys)
        slack = np.zeros(self.keys, np.int64)
        slack[owners] = cells.slack[live]  # newest first: the oldest is written last
        return estimates, slack


def _sums(keys: Ints, values: Ints, count: int) -> Ints:
    """Exact sums per key (`bincount` would use doubles)."""
    sums = np.zeros(count, np.int64)
    np.add.at(sums, keys, values)
    return sums


def _sizes(levels: Ints) -> Ints:
    """Sizes of buckets, newest first, key after key."""
    powers = np.int64(1) << np.arange(levels.shape[1])
    sizes: Ints = np.repeat(np.tile(powers, len(levels)), levels.ravel())
    return sizes


def by_key(keys: Ints, count: int) -> Ints:
    """The stable order of rows by key: a counting sort, in two passes for many keys."""
    if count <= 1:
        return np.arange(len(keys))
    if count <= _NARROW:
        return _stable(keys)
    order = _stable(keys % _NARROW)
    return order[_stable(keys[order] // _NARROW)]


def _stable(codes: Ints) -> Ints:
    order: Ints = pc.array_sort_indices(pa.array(codes)).to_numpy().view(np.int64)
    return order
