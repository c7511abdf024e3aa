"""What a cache of a segment gains and costs in a unit of time: benefit, cost of use (proc), and upkeep.

Source: Babu (2005), section 5.5.1. Rates are rows, costs are of one row, in any units of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from headrace.adaptive.caches.segments import Segment
from headrace.dataclass import dataclass

ByPlace: TypeAlias = tuple[tuple[float, ...], ...]
_REFERENCE: Final = 8
"""Bytes of a reference to a row of a window."""


@dataclass(frozen=True, slots=True)
class PipelineLoad:
    """By pipeline and place the rows in a unit of time that come there, at the end those that leave the last; and the cost of one."""

    rates: ByPlace
    costs: ByPlace

    def plain(self, pipeline: int, place: int) -> float:
        """The cost of a place without a cache."""
        return self.rates[pipeline][place] * self.costs[pipeline][place]


@dataclass(frozen=True, slots=True)
class CacheCosts:
    """The cost of one look-up and of one change of a cache, and the share of look-ups that find nothing."""

    probe: float
    update: float
    miss_probability: float


@dataclass(frozen=True, slots=True)
class CacheValue:
    """A cache's `benefit`, the cost `proc` of processing with it, and its `upkeep`, in a unit of time."""

    benefit: float
    proc: float
    upkeep: float

    @property
    def net(self) -> float:
        """What it gains, if it does not share its upkeep."""
        return self.benefit - self.upkeep


def segment_cost(load: PipelineLoad, segment: Segment) -> float:
    """The cost of a segment without its cache."""
    return sum(load.plain(segment.pipeline, place) for place in range(segment.first, segment.last + 1))


def value_of(
    load: PipelineLoad, segment: Segment, cache: CacheCosts, seen_with: Sequence[int] = ()
) -> CacheValue:
    """The value of a segment's cache; of one that is globally consistent, changes are combinations of the windows `seen_with`."""
    plain, rates = segment_cost(load, segment), load.rates[segment.pipeline]
    creation_cost = rates[segment.last + 1] * cache.update
    proc = rates[segment.first] * cache.probe + cache.miss_probability * (plain + creation_cost)
    windows = seen_with or segment.windows
    changes = sum(load.rates[window][len(windows) - 1] for window in windows)
    return CacheValue(plain - proc, proc, cache.update * changes)
