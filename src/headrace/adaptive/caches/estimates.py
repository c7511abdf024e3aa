"""Online estimates of what the cost model needs: loads of pipelines from profiled rows, and the probability that a cache misses
from the keys that would be looked up in it.

A profiled row is run without caches, so that it is seen by every operator. A Bloom filter over a block of keys counts the different
ones: each would miss once, if the cache began empty with the block and had room for all of them. So the estimate is too high where
keys come again after a block, and too low where two keys share a bit or a bucket.
Source: Babu (2005), section 5.5.2. Every statistic is the mean of its most recent observations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import field
from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.adaptive.caches.cost_model import PipelineLoad
from headrace.dataclass import dataclass

OBSERVATIONS: Final = 10
"""How many of the most recent observations a statistic is the mean of."""
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(slots=True)
class RecentMean:
    """The mean of the most recent observations."""

    most: int = OBSERVATIONS
    _values: deque[float] = field(default_factory=deque)

    def add(self, value: float) -> None:
        """Add an observation; the oldest of too many is dropped."""
        self._values.append(value)
        if len(self._values) > self.most:
            self._values.popleft()

    @property
    def is_full(self) -> bool:
        """Whether there are as many observations as count."""
        return len(self._values) == self.most

    @property
    def mean(self) -> float:
        """The mean; 0 without observations."""
        return sum(self._values) / len(self._values) if self._values else 0.0


@dataclass(slots=True)
class PipelineProfile:
    """Profiled rows of one pipeline: how many rows each place got for one of them, those that left the last, and their time."""

    rows: list[RecentMean]
    times: list[RecentMean]

    @staticmethod
    def of(places: int, most: int = OBSERVATIONS) -> PipelineProfile:
        """Without observations."""
        counts = [RecentMean(most) for _ in range(places + 1)]
        return PipelineProfile(counts, [RecentMean(most) for _ in range(places)])

    def add(self, rows: Sequence[float], times: Sequence[float]) -> None:
        """Add a profiled row: the rows that came to each place for it and left the last, and the time of each place."""
        for mean, value in zip((*self.rows, *self.times), (*rows, *times), strict=True):
            mean.add(value)

    def rates(self, arriving: float) -> tuple[float, ...]:
        """The rows that come to each place, and leave the last, when so many enter the pipeline."""
        return tuple(arriving * mean.mean for mean in self.rows)

    @property
    def costs(self) -> tuple[float, ...]:
        """The time of one row at each place; 0 where none came."""
        return tuple(
            time.mean / rows.mean if rows.mean else 0.0
            for time, rows in zip(self.times, self.rows, strict=False)
        )


def load_of(profiles: Sequence[PipelineProfile], arriving: Sequence[float]) -> PipelineLoad:
    """The load of all pipelines with these rates of new rows."""
    rates = tuple(profile.rates(rate) for profile, rate in zip(profiles, arriving, strict=True))
    return PipelineLoad(rates, tuple(profile.costs for profile in profiles))


@dataclass(slots=True)
class MissEstimate:
    """The probability that a look-up misses, from blocks of so many keys, with `bits` of a Bloom filter for each key."""

    block: int = 1000
    bits: int = 8
    blocks: RecentMean = field(default_factory=RecentMean)
    _filter: npt.NDArray[np.bool_] = field(init=False)
    _seen: int = 0

    def __post_init__(self) -> None:
        self._filter = np.zeros(self.block * self.bits, bool)

    def add(self, keys: npt.NDArray[np.int64]) -> None:
        """Add the keys that would be looked up next, in order."""
        while len(keys):
            part, keys = keys[: self.block - self._seen], keys[self.block - self._seen :]
            self._seen += len(part)
            self._filter[((part.view(np.uint64) * _MIX) >> np.uint64(11)) % np.uint64(len(self._filter))] = (
                True
            )
            if self._seen == self.block:
                self.blocks.add(float(np.count_nonzero(self._filter)) / self.block)
                self._filter[:] = False
                self._seen = 0

    @property
    def probability(self) -> float:
        """Of the last blocks; 1, all, before the first one is full."""
        return min(1.0, self.blocks.mean) if self.blocks.mean else 1.0
