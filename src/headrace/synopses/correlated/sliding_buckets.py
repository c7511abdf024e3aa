"""What happens to buckets when a row comes and another one leaves? The same for every window that slides.

A row is put into the bucket it falls in, the one that leaves is taken out of the bucket it now falls in; beyond the ends the outermost
buckets count. Once in a while buckets are counted anew from the rows themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace.synopses.correlated.focused_histograms import FocusedHistograms
from headrace.synopses.rows.arrays import Ints
from headrace.synopses.rows.recent_rows import Passing
from headrace.synopses.rows.rows_by_key import Doubles, Flags, running

_DRIFT: Final = 1e-6


@dataclass(slots=True)
class SlidingBuckets:
    """The buckets of keys while a batch passes; `negative` counts per key the weights found below zero, a sign of drift."""

    passing: Passing
    histograms: FocusedHistograms
    negative: Ints
    gone: Doubles
    """x and y of the row that leaves as each row comes; 0 where none does."""
    known: Flags
    """Rows that have been counted already, with all of their window."""

    @staticmethod
    def of(passing: Passing, histograms: FocusedHistograms, negative: Ints) -> SlidingBuckets:
        """Before the first row of a batch."""
        return SlidingBuckets(
            passing, histograms, negative, passing.leaving(), np.zeros(len(passing.values), bool)
        )

    def note_drift(self, keys: Ints) -> None:
        """Keys are about to be laid out again: how many of their weights have gone below zero?"""
        self.negative[keys] += np.count_nonzero(self.histograms.weights[keys] < -_DRIFT, axis=1)

    def recount(self, keys: Ints, at: Ints, came: Ints, fresh: FocusedHistograms) -> None:
        """Give keys fresh bounds, and what the rows of their window weigh, up to the row they are at."""
        values, begins = self.passing.windows(keys, came)
        if not len(keys):
            return
        low, high = (step.reduceat(values[:, 0], begins[:-1]) for step in (np.minimum, np.maximum))
        bounds = fresh.bounds.copy()
        bounds[:, 0] = np.minimum(bounds[:, 0], low)
        bounds[:, -1] = np.maximum(bounds[:, -1], np.nextafter(high, np.inf))
        found = FocusedHistograms(bounds, np.zeros_like(fresh.weights))
        owners = np.repeat(np.arange(len(keys)), np.diff(begins))
        found.add(owners, values[:, 0], values[:, 1])
        self.histograms.put(keys, found)
        self.known[at] = True

    def count(self, keys: Ints, at: Ints, begins: Ints, *, each: bool) -> Doubles | None:
        """Rows of keys come, others leave; if `each` is wanted, the weights of its key after every row."""
        held, weights = self.histograms, np.zeros(2 * len(at))
        entering, leaving = self.passing.values[at], self.gone[at]
        weights[0::2] = np.where(self.known[at], 0.0, entering[:, 1])
        weights[1::2] = np.where(self.known[at], 0.0, -leaving[:, 1])
        values = np.column_stack([entering[:, 0], leaving[:, 0]]).ravel()
        owners = np.repeat(keys, 2 * np.diff(begins))
        place = np.clip(held.places(owners, values), 0, held.buckets - 1)
        after = None
        if each:
            steps = np.zeros((len(values), held.buckets))
            steps[np.arange(len(values)), place] = weights
            after = running(np.add, steps, 2 * begins, held.weights[keys])[1::2]
        held.put_in(owners, place, weights)
        return after
