"""Correlated aggregates over the last w values, near the minimum or above the mean: from a few buckets and the values.

As in `correlated`, for many keys at once and for sliding windows: the row that leaves is subtracted from its present bucket,
so the last w rows of each key are stored (the text's constant space is that of the buckets). Weight that interpolation put into a
wrong bucket remains there; so buckets are laid out again as rarely as possible, and are counted again from the rows once in
`window` rows: the cost per row remains small, and misplaced weight is removed after a window. Windows of rows have no merge:
the last rows of two streams are not known from either alone.
Source: Gehrke, Korn, Srivastava (2001), section 4. Repairs: the least of *closed* panes bounds the region (an open pane of one row
makes it jump); buckets around the mean stay while it is inside them; z = 3, since w is all there will ever be.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.baselines.correlated.focused_histograms import BEST, FocusedHistograms, Strategy, evenly
from benchmarks.baselines.correlated.mean_buckets import Means, above, laid, laid_again
from benchmarks.baselines.correlated.sliding_buckets import SlidingBuckets
from benchmarks.baselines.rows.pane_minima import PaneMinima
from benchmarks.baselines.rows.recent_rows import Passing, RecentRows
from benchmarks.baselines.rows.rows_by_key import Doubles, Flags, RowsByKey, TakesRows, advance, running
from headrace.synopses.arrays import Ints


@dataclass(slots=True)
class SlidingNearMinimum(TakesRows):
    """Per key the sum of y where x < scale * MIN(x), over its last `window` rows; x above 0 and scale above 1, or both below (MAX, negated)."""

    scale: float
    strategy: Strategy
    rebuilds: bool
    """False: as printed, never counted again from the rows."""
    closed_panes: bool
    """False: as printed, the open pane's minimum bounds the region too."""
    recent: RecentRows
    panes: PaneMinima
    histograms: FocusedHistograms
    counted: Ints
    """The number of rows of a key when it was last counted from the rows."""
    negative: Ints
    """The number of buckets of each key below zero when they were laid out again: a sign of drift."""

    @staticmethod
    def empty(
        keys: int,
        scale: float,
        window: int,
        buckets: int = 10,
        strategy: Strategy = BEST,
        *,
        rebuilds: bool = True,
        closed_panes: bool = True,
    ) -> SlidingNearMinimum:
        """No rows."""
        recent, panes = RecentRows.empty(keys, window), PaneMinima.empty(keys, window)
        counts = np.zeros(keys, np.int64), np.zeros(keys, np.int64)
        held = FocusedHistograms.none(keys, buckets)
        return SlidingNearMinimum(scale, strategy, rebuilds, closed_panes, recent, panes, held, *counts)

    @property
    def nbytes(self) -> int:
        """Bytes in memory; the rows are most of it."""
        parts = (self.recent, self.panes, self.histograms, self.counted, self.negative)
        return sum(part.nbytes for part in parts)

    def answer(self) -> Doubles:
        """The sum of each key; 0 without rows."""
        some = np.flatnonzero(self.recent.seen)
        sums = np.zeros(len(self.counted))
        limits = self.scale * self.panes.least()[some]
        sums[some] = self.histograms.of(some).below(limits[:, None])[:, 0]
        return sums

    def _take(self, keys: Ints, x: Doubles, y: Doubles, answers: Doubles | None) -> None:
        rows = RowsByKey.of(keys)
        passing = Passing(self.recent, rows, np.column_stack([x, y])[rows.order])
        came, x = passing.serials(), passing.values[:, 0]
        least, greatest = self.panes.passed(rows, x, came, with_open=not self.closed_panes)
        reach = self.scale * greatest
        most = np.maximum(x, reach)
        sliding = SlidingBuckets.of(passing, self.histograms, self.negative)

        def fits(keys: Ints, at: Ints) -> Flags:
            bounds = self.histograms.bounds
            same: Flags = (least[at] == bounds[keys, 0]) & (reach[at] == bounds[keys, -2])
            return same & ~self._due(keys, came[at])

        def lay(keys: Ints, at: Ints) -> None:
            held, due = self.histograms, self._due(keys, came[at])
            first = ~due & np.isinf(held.bounds[keys, 0])
            held.put(keys[first], _regions(least[at[first]], reach[at[first]], most[at[first]], held.buckets))
            again = ~due & ~first
            sliding.note_drift(keys)
            held.put(
                keys[again], _moved(held.of(keys[again]), least[at[again]], reach[at[again]], self.strategy)
            )
            regions = _regions(least[at[due]], reach[at[due]], most[at[due]], held.buckets)
            sliding.recount(keys[due], at[due], came[at[due]], regions)
            self.counted[keys[due]] = came[at[due]]

        def count(keys: Ints, at: Ints, begins: Ints) -> None:
            ends = np.nextafter(np.maximum.reduceat(most[at], begins[:-1]), np.inf)
            self.histograms.bounds[keys, -1] = np.maximum(self.histograms.bounds[keys, -1], ends)
            after = sliding.count(keys, at, begins, per_row=answers is not None)
            if answers is not None and after is not None:
                bounds = self.histograms.bounds[np.repeat(keys, np.diff(begins))]
                below = FocusedHistograms(bounds, after).below(self.scale * least[at][:, None])
                answers[rows.order[at]] = below[:, 0]

        advance(rows, fits, lay, count)
        self.recent.keep(rows, passing.values)

    def _due(self, keys: Ints, came: Ints) -> Flags:
        due: Flags = (came - self.counted[keys] >= self.recent.window) & self.rebuilds
        return due


@dataclass(slots=True)
class SlidingAboveMean(TakesRows):
    """Per key the sum of y where x > AVG(x), over its last `window` rows: inner buckets over mean +- z * deviation / sqrt(window)."""

    strategy: Strategy
    z: float
    rebuilds: bool
    recent: RecentRows
    centre: Doubles
    total: Doubles
    squares: Doubles
    histograms: FocusedHistograms
    counted: Ints
    negative: Ints
    """As in `SlidingNearMinimum`."""

    @staticmethod
    def empty(
        keys: int,
        window: int,
        buckets: int = 10,
        strategy: Strategy = BEST,
        *,
        z: float = 3.0,
        rebuilds: bool = True,
    ) -> SlidingAboveMean:
        """No rows."""
        sums = np.zeros(keys), np.zeros(keys), np.zeros(keys)
        counts = np.zeros(keys, np.int64), np.zeros(keys, np.int64)
        held = FocusedHistograms.none(keys, buckets)
        return SlidingAboveMean(strategy, z, rebuilds, RecentRows.empty(keys, window), *sums, held, *counts)

    @property
    def nbytes(self) -> int:
        """Bytes in memory; the rows are most of it."""
        parts = (self.recent, self.centre, self.total, self.squares, self.histograms, self.counted)
        return sum(part.nbytes for part in parts) + self.negative.nbytes

    def answer(self) -> Doubles:
        """The sum of each key; 0 without rows."""
        some = np.flatnonzero(self.recent.seen)
        sums = np.zeros(len(self.counted))
        means = self.centre[some] + self.total[some] / np.minimum(self.recent.seen[some], self.recent.window)
        sums[some] = above(self.histograms.bounds, some, self.histograms.weights[some], means)
        return sums

    def _take(self, keys: Ints, x: Doubles, y: Doubles, answers: Doubles | None) -> None:
        rows = RowsByKey.of(keys)
        passing = Passing(self.recent, rows, np.column_stack([x, y])[rows.order])
        came, x, owners = passing.serials(), passing.values[:, 0], rows.owners()
        sliding = SlidingBuckets.of(passing, self.histograms, self.negative)
        total, squares = self._note(rows, x, sliding.leaving[:, 0], came > self.recent.window)
        number = np.minimum(came, self.recent.window)
        means = self.centre[owners] + total / number

        def fits(keys: Ints, at: Ints) -> Flags:
            bounds = self.histograms.bounds
            inside: Flags = (bounds[keys, 1] <= means[at]) & (means[at] <= bounds[keys, -2])
            return inside & ~self._due(keys, came[at])

        def lay(keys: Ints, at: Ints) -> None:
            values, begins = passing.windows(keys, came[at])
            ends = tuple(step.reduceat(values[:, 0], begins[:-1]) for step in (np.minimum, np.maximum))
            moments = self.centre[keys], total[at], squares[at]
            over = np.full(len(at), self.recent.window)
            self._lay(keys, at, came[at], Means.of(moments, number[at], over, (ends[0], ends[1])), sliding)

        def count(keys: Ints, at: Ints, begins: Ints) -> None:
            bounds = self.histograms.bounds
            low, high = (step.reduceat(x[at], begins[:-1]) for step in (np.minimum, np.maximum))
            bounds[keys, 0] = np.minimum(bounds[keys, 0], low)
            bounds[keys, -1] = np.maximum(bounds[keys, -1], np.nextafter(high, np.inf))
            after = sliding.count(keys, at, begins, per_row=answers is not None)
            if answers is not None and after is not None:
                answers[rows.order[at]] = above(bounds, np.repeat(keys, np.diff(begins)), after, means[at])

        advance(rows, fits, lay, count)
        self.recent.keep(rows, passing.values)

    def _due(self, keys: Ints, came: Ints) -> Flags:
        due: Flags = (came - self.counted[keys] >= self.recent.window) & self.rebuilds
        return due

    def _note(self, rows: RowsByKey, x: Doubles, leaving: Doubles, leaves: Flags) -> tuple[Doubles, Doubles]:
        """The sums of distances and of squares after each row, without the row that leaves."""
        keys, last = rows.present, rows.offsets[1:] - 1
        self.centre[keys] = np.where(self.recent.seen[keys] > 0, self.centre[keys], x[rows.offsets[:-1]])
        centre = self.centre[rows.owners()]
        distance, left = x - centre, np.where(leaves, leaving - centre, 0.0)
        sums = []
        for held, steps in ((self.total, (distance, -left)), (self.squares, (distance**2, -(left**2)))):
            both = np.column_stack(steps).ravel()
            along = running(np.add, both, 2 * rows.offsets, held[keys])[1::2]
            held[keys] = along[last]
            sums.append(along)
        return sums[0], sums[1]

    def _lay(self, keys: Ints, at: Ints, came: Ints, means: Means, sliding: SlidingBuckets) -> None:
        held, due = self.histograms, self._due(keys, came)
        first = ~due & np.isinf(held.bounds[keys, 0])
        again = ~due & ~first
        sliding.note_drift(keys)
        held.put(keys[first], laid(means.of_some(first), held.buckets, self.strategy, self.z))
        moved = laid_again(held.of(keys[again]), means.of_some(again), self.strategy, self.z)
        held.put(keys[again], moved)
        fresh = laid(means.of_some(due), held.buckets, self.strategy, self.z)
        sliding.recount(keys[due], at[due], came[due], fresh)
        self.counted[keys[due]] = came[due]


def _regions(least: Doubles, reach: Doubles, most: Doubles, buckets: int) -> FocusedHistograms:
    """Equal buckets over [least, reach), and one more up to the greatest value."""
    end = np.nextafter(np.maximum(most, reach), np.inf)
    bounds = np.column_stack([evenly(least, reach, buckets), end])
    return FocusedHistograms(bounds, np.zeros((len(least), buckets)))


def _moved(old: FocusedHistograms, least: Doubles, reach: Doubles, strategy: Strategy) -> FocusedHistograms:
    """All buckets but the last over [least, reach); the last one up to the greatest value."""
    buckets, end = old.buckets, np.maximum(old.bounds[:, -1], np.nextafter(reach, np.inf))
    wide = FocusedHistograms(
        np.column_stack([np.minimum(old.bounds[:, 0], least), old.bounds[:, 1:-1], end]), old.weights
    )
    result = FocusedHistograms.none(old.keys, buckets)
    rises = reach > wide.bounds[:, -2]
    for part, number in ((rises, buckets), (~rises, buckets - 1)):
        inner = FocusedHistograms(wide.bounds[part, : number + 1], wide.weights[part, :number])
        if number == buckets:  # part of the last bucket is included
            share = np.diff(wide.of(part).below(np.column_stack([inner.bounds[:, -2], reach[part]])), axis=1)
            inner = FocusedHistograms(
                np.column_stack([inner.bounds[:, :-1], reach[part]]),
                np.column_stack([inner.weights[:, :-1], share]),
            )
        moved = inner.moved(least[part], reach[part], strategy)
        moved = moved.with_buckets(np.full(moved.keys, number), buckets - 1, strategy)
        if strategy.piecemeal and strategy.quantile:
            moved = moved.evened()
        rest = old.of(part).totals - moved.totals
        result.put(
            part,
            FocusedHistograms(
                np.column_stack([moved.bounds, end[part]]), np.column_stack([moved.weights, rest])
            ),
        )
    return result
