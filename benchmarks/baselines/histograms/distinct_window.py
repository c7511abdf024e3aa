"""Distinct counts of the last S instants: bitmaps with the time at which each bit was last set.

A value's hash chooses one of m bitmaps and, with probabilities 1/2, 1/4, 1/8, …, a bit in it. The bits set since the
beginning of a window count; the lowest other bit estimates the number of values. Nothing expires: any window can be answered.
Source: Flajolet, Martin (1985), with times in place of bits: Datar, Gionis, Indyk, Motwani (2001), section 6. The error of a count is
about 0.78 / sqrt(m) of it (their constant), more for counts of a few m.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.synopses.arrays import Ints

_CORRECTION: Final = 0.77351
_NEVER: Final = np.iinfo(np.int64).min
_BITS: Final = 48


@dataclass(frozen=True, slots=True)
class DistinctWindow:
    """`last[key, bitmap, bit]` is the time at which the bit was last set."""

    last: Ints

    @staticmethod
    def empty(keys: int, bitmaps: int) -> DistinctWindow:
        """No values seen. `bitmaps` is a power of two up to 65,536."""
        return DistinctWindow(np.full((keys, bitmaps, _BITS), _NEVER))

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return int(self.last.nbytes)

    def absorb(self, keys: Ints, hashes: Ints, times: Ints) -> DistinctWindow:
        """The synopsis with more values, as 64-bit hashes, in any order of times."""
        bits = hashes.view(np.uint64)
        many = self.last.shape[1]
        bitmap = (bits & np.uint64(many - 1)).astype(np.int64)
        rest = (bits >> np.uint64(16)) | np.uint64(1 << (_BITS - 1))
        lowest = rest & (~rest + np.uint64(1))
        position = np.log2(lowest.astype(np.float64)).astype(np.int64)
        last = self.last.copy()
        np.maximum.at(last, (keys, bitmap, position), times)
        return DistinctWindow(last)

    def merged(self, other: DistinctWindow) -> DistinctWindow:
        """The synopsis of both streams together."""
        return DistinctWindow(np.maximum(self.last, other.last))

    def estimate(self, start: int) -> npt.NDArray[np.float64]:
        """Per key the estimated number of distinct values at or after `start`; 0 without rows."""
        live = self.last >= start
        lowest = np.where(live.all(axis=2), _BITS, np.argmin(live, axis=2))
        many = self.last.shape[1]
        by_bits = many / _CORRECTION * 2.0 ** lowest.mean(axis=1)
        unset = (~live.any(axis=2)).sum(axis=1)
        with np.errstate(divide="ignore"):
            few = many * np.log(
                many / np.maximum(unset, 1e-9)
            )  # linear counting is better while some bitmaps are empty
        estimates: npt.NDArray[np.float64] = np.where((unset > 0) & (few < 2.5 * many), few, by_bits)
        return estimates
