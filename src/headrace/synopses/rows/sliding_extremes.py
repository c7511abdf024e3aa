"""What is the least value of the last S instants? Exactly, for many keys, from the values that may still become it.

A value can be the least of a window only while no later one is as small, so those kept rise from the oldest to the newest. In random
order that is about ln N of N values; the worst order keeps them all, as any exact answer must. MAX is MIN of the negated values.
Source: Datar, Gionis, Indyk, Motwani (2001), section 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.synopses.rows.arrays import Ints

Doubles: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Extremes:
    """Those of key k are `times[offsets[k]:offsets[k + 1]]` with their values, both rising."""

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
        """With more values, in the order of times; none may be older than one that came before. No NaN."""
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
        kept = np.r_[placed[:-1] < later[1:], np.ones(min(len(placed), 1), bool)]
        return self._of(owner[kept], time[kept], value[kept])

    def since(self, start: int) -> Extremes:
        """Without what is older than `start`."""
        kept = self.times >= start
        return self._of(self.owners()[kept], self.times[kept], self.values[kept])

    def least(self, start: int) -> Doubles:
        """Per key the least value at or after `start`, any start since the last one given to `since`; NaN where there is none."""
        owner, late = self.owners(), self.times >= start
        found = np.full(len(self.offsets) - 1, np.nan)
        found[owner[late][::-1]] = self.values[late][::-1]  # the oldest that is left is written last
        return found

    def _of(self, owner: Ints, time: Ints, value: Doubles) -> Extremes:
        return Extremes(np.searchsorted(owner, np.arange(len(self.offsets))), time, value)
