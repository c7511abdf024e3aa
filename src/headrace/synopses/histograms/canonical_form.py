"""The canonical form of exponential histograms: the number of buckets of each size for a count.

A count S is `sum of k_i * 2^i` over i = 0..j, with `least(i) <= k_i <= least(i) + 1` below the top and `1 <= k_j <= least(j) + 1`. There
is exactly one such form, and inserting S ones, one after the other, results in it. So the sizes of all buckets
follow from the count alone, and only times are stored.
Source: Datar, Gionis, Indyk, Motwani, "Maintaining stream statistics over sliding windows", section 4 (2001).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import numpy as np

from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.synopses.arrays import Ints

MOST: Final = 1 << 61
"""The upper limit of counts, exclusive."""


@dataclass(frozen=True, slots=True)
class Form:
    """`first` or one more buckets of size 1, `rest` or one more of every other size but the largest.

    An error of at most 1/k of the answer needs first = k and rest = ceil(k/2): half of a bucket of size 2^r is then at most
    1/k of the newer ones, `k + (k/2)(2^r - 2)` (Invariant 1). The paper's Invariant 2 has first = rest = k/2, which is not
    enough for small counts: a single bucket of size 2 would have the error 1/(k/2 + 2).
    """

    first: int
    rest: int

    @staticmethod
    def within(error: Fraction) -> Form:
        """The form whose answers have a relative error of at most `error`.

        Raises `UserError` unless 0 < error <= 1.
        """
        if not 0 < error <= 1:
            raise UserError("an error is above 0 and at most 100 percent", remedy="Write WITHIN 1 PERCENT.")
        k = -(-error.denominator // error.numerator)
        return Form(k, -(-k // 2))

    def coarser(self, doubled: int) -> Form:
        """The form whose error is doubled so often."""
        k = -(-self.first // 2**doubled)
        return Form(k, -(-k // 2))

    def starts(self) -> Ints:
        """The least count with level j, for every j: all lower levels at their least, and one bucket of 2^j."""
        least_counts, below, level = [], 0, 0
        while below + (1 << level) < MOST:
            least_counts.append(below + (1 << level))
            below += (self.rest if level else self.first) << level
            level += 1
        return np.array(least_counts, np.int64)

    def levels(self, counts: Ints) -> Ints:
        """The number of buckets of size 2^level of each count: shape (counts, levels)."""
        starts = self.starts()
        top = np.searchsorted(starts, counts, side="right") - 1
        width = int(top.max(initial=-1)) + 1
        level = np.arange(max(width, 1))
        least = np.where(level == 0, self.first, self.rest)
        spare = np.where(top >= 0, counts - starts[top] + (np.int64(1) << np.maximum(top, 0)), 0)
        bits = (spare[:, None] >> level) & 1
        below = level < top[:, None]
        at_top = np.where(level == top[:, None], spare[:, None] >> level, 0)
        numbers: Ints = np.where(below, least + bits, at_top)
        return numbers

    def most_buckets(self, count: int) -> int:
        """The maximum number of buckets of a count (Theorem 1, with the repaired level of ones)."""
        if count <= 0:
            return 0
        top = int(np.searchsorted(self.starts(), count, side="right")) - 1
        return (self.first + 1 if top else min(count, self.first + 1)) + top * (self.rest + 1)
