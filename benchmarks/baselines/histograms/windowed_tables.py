"""Tables of counters over a sliding window: hash tables and histograms of the last S instants, each counter an exponential histogram.

A row is added to one cell of its key's table, by the hash of a value or by its interval. Every cell has its own bound, so
sums of cells (ranges of a histogram, an average) have the same relative error.
Source: Datar, Gionis, Indyk, Motwani (2001), section 6: the counters of any table, with the overhead of a histogram each.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from benchmarks.baselines.histograms.batch_counting import Counting
from headrace.synopses.arrays import Ints
from headrace.synopses.histograms.canonical_form import Form
from headrace.synopses.histograms.exponential_histogram import Histograms

Doubles: TypeAlias = npt.NDArray[np.float64]


@dataclass(slots=True)
class WindowedTable:
    """`width` counters for each key, over windows of up to `length` instants; each within `error`."""

    counters: Counting
    keys: int
    width: int

    @staticmethod
    def empty(keys: int, width: int, length: int, error: Fraction) -> WindowedTable:
        """All counters zero."""
        return WindowedTable(
            Counting(Histograms.empty(Form.within(error), keys * width), length), keys, width
        )

    def add(self, keys: Ints, cells: Ints, times: Ints, numbers: Ints | None = None) -> None:
        """Add 1, or numbers from 0 on, to cells of keys, in the order of times."""
        self.counters.add(keys * self.width + cells, times, numbers)

    def estimate(self, start: int) -> tuple[Ints, Ints]:
        """Counters since `start` and the maximum error of each, shape (keys, width)."""
        value, bound = self.counters.estimate(start)
        return value.reshape(self.keys, self.width), bound.reshape(self.keys, self.width)


def places(values: Doubles, bounds: Doubles) -> Ints:
    """The interval of each value, from 0 (below the first bound) to the number of bounds."""
    intervals: Ints = np.searchsorted(bounds, values, side="right")
    return intervals


def averages(sums: tuple[Ints, Ints], counts: tuple[Ints, Ints]) -> tuple[Doubles, Doubles]:
    """Sums over counts, and their maximum error: about the sum of both errors. NaN for a count of 0."""
    (total, total_bound), (number, number_bound) = sums, counts
    with np.errstate(all="ignore"):
        mean = total / number
        high = (total + total_bound) / np.maximum(number - number_bound, 1)
        low = np.maximum(total - total_bound, 0) / (number + number_bound)
    return np.where(number > 0, mean, np.nan), np.where(
        number > 0, np.maximum(high - mean, mean - low), np.nan
    )
