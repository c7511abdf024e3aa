"""Correlated aggregates since a landmark, near the minimum or above the mean: one pass, few buckets, many keys at once.

COUNT or SUM of y over the rows of a key since a landmark whose x is below scale * MIN(x), or above AVG(x). MAX is MIN of the negated
values: x above f * MAX(x) is -x below f * MIN(-x), with f below 1. Rows between two changes of a key's range are counted together,
and so are those of all keys; a change is one step for all keys that change.
Source: Gehrke, Korn, Srivastava (2001), section 3. There is no bound on the error; a change of the range by less than the range
costs one cut bucket, a greater one nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.baselines.correlated.focused_histograms import BEST, FocusedHistograms, Strategy
from benchmarks.baselines.correlated.mean_buckets import Means, above, laid, laid_again, spread
from benchmarks.baselines.rows.rows_by_key import Doubles, Flags, RowsByKey, TakesRows, advance, running
from headrace.synopses.arrays import Ints

_CLOSER: Final = 4
"""The factor of rows after which the mean's standard error has halved."""


@dataclass(slots=True)
class NearMinimum(TakesRows):
    """Per key the sum of y where x < scale * MIN(x). `scale` is above 1 for positive x, below 1 for negative ones (MAX, negated)."""

    scale: float
    strategy: Strategy
    histograms: FocusedHistograms

    @staticmethod
    def empty(keys: int, scale: float, buckets: int = 10, strategy: Strategy = BEST) -> NearMinimum:
        """No rows."""
        return NearMinimum(scale, strategy, FocusedHistograms.none(keys, buckets))

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.histograms.nbytes

    def reset(self, keys: Ints) -> None:
        """Set a landmark of some keys: earlier rows do not count."""
        self.histograms.put(keys, FocusedHistograms.none(len(keys), self.histograms.buckets))

    def answer(self) -> Doubles:
        """The sum of each key; 0 without rows."""
        return self.histograms.totals

    def merged(self, other: NearMinimum) -> NearMinimum:
        """The sum over the rows of both, key by key: weight in the greater minimum's range is spread evenly."""
        ours, theirs = self.histograms, other.histograms
        lower = ours.bounds[:, 0] <= theirs.bounds[:, 0]
        merged = FocusedHistograms(
            np.where(lower[:, None], ours.bounds, theirs.bounds),
            np.where(lower[:, None], ours.weights, theirs.weights),
        )
        for further, part in ((~lower, ours), (lower, theirs)):
            both = further & np.isfinite(part.bounds[:, 0])
            merged.weights[both] += np.diff(part.of(both).below(merged.bounds[both]), axis=1)
        return NearMinimum(self.scale, self.strategy, merged)

    def _take(self, keys: Ints, x: Doubles, y: Doubles, answers: Doubles | None) -> None:
        rows, held = RowsByKey.of(keys), self.histograms
        x, y = x[rows.order], y[rows.order]
        least = running(np.minimum, x, rows.offsets, held.bounds[rows.present, 0])

        def fits(keys: Ints, at: Ints) -> Flags:
            same: Flags = least[at] == held.bounds[keys, 0]
            return same

        def count(keys: Ints, at: Ints, begins: Ints) -> None:
            owners = np.repeat(keys, np.diff(begins))
            if answers is not None:
                inside = x[at] < held.bounds[owners, -1]
                before = held.of(keys).totals
                answers[rows.order[at]] = running(np.add, np.where(inside, y[at], 0.0), begins, before)
            held.add(owners, x[at], y[at])

        advance(rows, fits, lambda keys, at: self._move(keys, least[at]), count)

    def _move(self, keys: Ints, least: Doubles) -> None:
        """Move the ranges to new minima: the old range is outside of the new one, or its upper end is cut."""
        held, end = self.histograms, self.scale * least
        disjoint = end <= held.bounds[keys, 0]
        held.put(keys[disjoint], FocusedHistograms.even(least[disjoint], end[disjoint], held.buckets))
        near = keys[~disjoint]
        moved = held.of(near).moved(least[~disjoint], end[~disjoint], self.strategy)
        if self.strategy.piecemeal and self.strategy.quantile:
            moved = moved.evened()
        held.put(near, moved)


@dataclass(slots=True)
class AboveMean(TakesRows):
    """Per key the sum of y where x > AVG(x): buckets around the range of the mean, mean +- z * deviation / sqrt(n).

    They are laid out again only when the mean leaves them, or when half of them cover its range: doing so at every row
    would spread the counts too much. The text has z = 1; 3 is measured to be better for few rows. The outermost buckets
    hold all values beyond.
    """

    strategy: Strategy
    z: float
    lazy: bool
    """False: as printed, laid out again whenever the mean changes, which is at every row."""
    rows: Ints
    centre: Doubles
    """The first value of each key: the moments are about it, to avoid cancellation."""
    total: Doubles
    squares: Doubles
    least: Doubles
    most: Doubles
    anchored: Ints
    """The number of rows when the buckets were laid out."""
    histograms: FocusedHistograms

    @staticmethod
    def empty(
        keys: int, buckets: int = 10, strategy: Strategy = BEST, *, z: float = 3.0, lazy: bool = True
    ) -> AboveMean:
        """No rows."""
        zeros = np.zeros(keys), np.zeros(keys), np.zeros(keys)
        ends = np.full(keys, np.inf), np.full(keys, -np.inf)
        rows, anchored = np.zeros(keys, np.int64), np.zeros(keys, np.int64)
        return AboveMean(
            strategy, z, lazy, rows, *zeros, *ends, anchored, FocusedHistograms.none(keys, buckets)
        )

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        moments = (self.rows, self.centre, self.total, self.squares, self.least, self.most, self.anchored)
        return self.histograms.nbytes + sum(part.nbytes for part in moments)

    def reset(self, keys: Ints) -> None:
        """Set a landmark of some keys: earlier rows do not count."""
        fresh = AboveMean.empty(len(keys), self.histograms.buckets)
        for name in ("rows", "centre", "total", "squares", "least", "most", "anchored"):
            getattr(self, name)[keys] = getattr(fresh, name)
        self.histograms.put(keys, fresh.histograms)

    def answer(self) -> Doubles:
        """The sum of each key; 0 without rows."""
        sums, some = np.zeros(len(self.rows)), np.flatnonzero(self.rows)
        means = self.centre[some] + self.total[some] / self.rows[some]
        sums[some] = above(self.histograms.bounds, some, self.histograms.weights[some], means)
        return sums

    def merged(self, other: AboveMean) -> AboveMean:
        """The sum over the rows of both, key by key: buckets around the common mean, with the weights of both spread evenly."""
        buckets, rows = self.histograms.buckets, self.rows + other.rows
        merged = AboveMean.empty(len(rows), buckets, self.strategy, z=self.z, lazy=self.lazy)
        merged.rows, merged.anchored = rows, rows.copy()
        merged.centre = np.where(self.rows > 0, self.centre, other.centre)
        for part in (self, other):
            shift = np.where(part.rows > 0, part.centre - merged.centre, 0.0)
            merged.squares += part.squares + 2 * shift * part.total + part.rows * shift**2
            merged.total += part.total + part.rows * shift
            merged.least, merged.most = (
                np.minimum(merged.least, part.least),
                np.maximum(merged.most, part.most),
            )
        some = np.flatnonzero(rows)
        moments = merged.centre[some], merged.total[some], merged.squares[some]
        ends = merged.least[some], merged.most[some]
        means = Means.of(moments, rows[some], rows[some], ends)
        merged.histograms.put(some, laid(means, buckets, self.strategy, self.z))
        for part in (self, other):
            held = np.flatnonzero(part.rows)
            merged.histograms.weights[held] += spread(
                part.histograms.of(held), merged.histograms.bounds[held]
            )
        return merged

    def _take(self, keys: Ints, x: Doubles, y: Doubles, answers: Doubles | None) -> None:
        rows, held = RowsByKey.of(keys), self.histograms
        x, y, owners = x[rows.order], y[rows.order], rows.owners()
        came = self.rows[owners] + rows.numbers() + 1
        centre, total, squares, least, most = self._note(rows, x, owners)
        means = centre + total / came

        def fits(keys: Ints, at: Ints) -> Flags:
            inside: Flags = (means[at] >= held.bounds[keys, 1]) & (means[at] <= held.bounds[keys, -2])
            return inside & (came[at] <= _CLOSER * self.anchored[keys]) & self.lazy

        def lay(keys: Ints, at: Ints) -> None:
            moments = centre[at], total[at], squares[at]
            self._move(keys, Means.of(moments, came[at], came[at], (least[at], most[at])))
            self.anchored[keys] = came[at]

        def count(keys: Ints, at: Ints, begins: Ints) -> None:
            owner, value, weight = np.repeat(keys, np.diff(begins)), x[at], y[at]
            bucket = np.clip(held.places(owner, value), 0, held.buckets - 1)
            if answers is not None:
                fresh = np.zeros((len(at), held.buckets))
                fresh[np.arange(len(at)), bucket] = weight
                after = running(np.add, fresh, begins, held.weights[keys])
                answers[rows.order[at]] = above(held.bounds, owner, after, means[at])
            held.put_in(owner, bucket, weight)

        advance(rows, fits, lay, count)

    def _note(self, rows: RowsByKey, x: Doubles, owners: Ints) -> tuple[Doubles, ...]:
        """Count rows; returns for each the centre, and after it the sums of distances and squares, the least and the greatest."""
        first, last, keys = rows.offsets[:-1], rows.offsets[1:] - 1, rows.present
        self.centre[keys] = np.where(self.rows[keys] > 0, self.centre[keys], x[first])
        self.rows[keys] += rows.sizes
        centre = self.centre[owners]
        columns = [centre]
        for step, values, held in (
            (np.add, x - centre, self.total),
            (np.add, (x - centre) ** 2, self.squares),
            (np.minimum, x, self.least),
            (np.maximum, x, self.most),
        ):
            along = running(step, values, rows.offsets, held[keys])
            held[keys] = along[last]
            columns.append(along)
        return tuple(columns)

    def _move(self, keys: Ints, means: Means) -> None:
        held, first = self.histograms, self.anchored[keys] == 0
        held.put(keys[first], laid(means.of_some(first), held.buckets, self.strategy, self.z))
        again = laid_again(held.of(keys[~first]), means.of_some(~first), self.strategy, self.z)
        held.put(keys[~first], again)
