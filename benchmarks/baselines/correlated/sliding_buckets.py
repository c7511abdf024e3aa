"""Buckets of a sliding window while rows enter and leave it.

A row that enters is added to its bucket, and a row that leaves is subtracted from its present bucket; beyond the ends the
outermost buckets count. From time to time buckets are counted again from the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.baselines.correlated.focused_histograms import FocusedHistograms
from benchmarks.baselines.rows.recent_rows import Passing
from benchmarks.baselines.rows.rows_by_key import Doubles, Flags, running
from headrace.synopses.arrays import Ints

_DRIFT: Final = 1e-6


@dataclass(slots=True)
class SlidingBuckets:
    """The buckets of keys during a batch; `negative` counts per key the weights found below zero, a sign of drift."""

    passing: Passing
    histograms: FocusedHistograms
    negative: Ints
    leaving: Doubles
    """x and y of the row that leaves at each row; 0 without one."""
    counted: Flags
    """Rows that have been counted already, with all of their window."""

    @staticmethod
    def of(passing: Passing, histograms: FocusedHistograms, negative: Ints) -> SlidingBuckets:
        """The buckets before the first row of a batch."""
        return SlidingBuckets(
            passing, histograms, negative, passing.leaving(), np.zeros(len(passing.values), bool)
        )

    def note_drift(self, keys: Ints) -> None:
        """Count the weights of keys below zero, before they are laid out again."""
        self.negative[keys] += np.count_nonzero(self.histograms.weights[keys] < -_DRIFT, axis=1)

    def recount(self, keys: Ints, at: Ints, came: Ints, fresh: FocusedHistograms) -> None:
        """Replace the bounds of keys, and count the rows of their windows, up to the row in `at`."""
        values, begins = self.passing.windows(keys, came)
        if not len(keys):
            return
        low, high = (step.reduceat(values[:, 0], begins[:-1]) for step in (np.minimum, np.maximum))
        bounds = fresh.bounds.copy()
        bounds[:, 0] = np.minimum(bounds[:, 0], low)
        bounds[:, -1] = np.maximum(bounds[:, -1], np.nextafter(high, np.inf))
        counted = FocusedHistograms(bounds, np.zeros_like(fresh.weights))
        owners = np.repeat(np.arange(len(keys)), np.diff(begins))
        counted.add(owners, values[:, 0], values[:, 1])
        self.histograms.put(keys, counted)
        self.counted[at] = True

    def count(self, keys: Ints, at: Ints, begins: Ints, *, per_row: bool) -> Doubles | None:
        """Add rows of keys, and subtract those that leave; with `per_row`, the weights of its key after every row."""
        held, weights = self.histograms, np.zeros(2 * len(at))
        entering, leaving = self.passing.values[at], self.leaving[at]
        weights[0::2] = np.where(self.counted[at], 0.0, entering[:, 1])
        weights[1::2] = np.where(self.counted[at], 0.0, -leaving[:, 1])
        values = np.column_stack([entering[:, 0], leaving[:, 0]]).ravel()
        owners = np.repeat(keys, 2 * np.diff(begins))
        bucket = np.clip(held.places(owners, values), 0, held.buckets - 1)
        after = None
        if per_row:
            steps = np.zeros((len(values), held.buckets))
            steps[np.arange(len(values)), bucket] = weights
            after = running(np.add, steps, 2 * begins, held.weights[keys])[1::2]
        held.put_in(owners, bucket, weights)
        return after
