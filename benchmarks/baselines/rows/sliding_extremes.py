"""Exact minima of the last S instants, for many keys, from the values that may still become the minimum.

A value can be the minimum of a window only while no later one is as small, so the stored values rise from the oldest to the newest. In random
order these are about ln N of N values; the worst order stores all, as any exact answer must. MAX is MIN of the negated values.
Source: Datar, Gionis, Indyk, Motwani (2001), section 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.synopses.arrays import Ints

Doubles: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Extremes:
    """The values of key k are at `times[offsets[k]:offsets[k + 1]]`; both times and values rise."""

    offsets: Ints
    times: Ints
    values: Doubles

    @staticmethod
    def empty(keys: int) -> Extremes:
        """No values."""
        return Extremes(np.zeros(keys + 1, np.int64), np.empty(0, np.int64), np.empty(0))

    def owners(self) -> Ints:
        """The key of each value."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def absorb(self, keys: Ints, times: Ints, values: Doubles) -> Extremes:
        """The synopsis with more values, in the order of times; none may be older than an earlier one. No NaN."""
        owner, time, value = (
            np.r_[self.owners(), keys],
            np.r_[self.times, times],
            np.r_[self.values, values],
        )
        order = np.argsort(owner, kind="stable")
        owner, time, value = owner[order], time[order], value[order]
        _, rank = np.unique(value, return_inverse=True)
        placed = rank + owner * (len(value) + 1)  # a key's ranks are below those of later keys
        later = np.minimum.accumulate(placed[::-1])[::-1]
        remaining = np.r_[placed[:-1] < later[1:], np.ones(min(len(placed), 1), bool)]
        return self._of(owner[remaining], time[remaining], value[remaining])

    def since(self, start: int) -> Extremes:
        """The synopsis without values older than `start`."""
        recent = self.times >= start
        return self._of(self.owners()[recent], self.times[recent], self.values[recent])

    def least(self, start: int) -> Doubles:
        """Per key the minimum at or after `start`, any start since the last argument of `since`; NaN without values."""
        owner, late = self.owners(), self.times >= start
        minima = np.full(len(self.offsets) - 1, np.nan)
        minima[owner[late][::-1]] = self.values[late][::-1]  # the oldest that is left is written last
        return minima

    def _of(self, owner: Ints, time: Ints, value: Doubles) -> Extremes:
        return Extremes(np.searchsorted(owner, np.arange(len(self.offsets))), time, value)
