"""Candidates for globally consistent caches: segments without the prefix invariant, whose changes come from a larger set of windows
that has it; and their entries, whose rows are counted by the combinations that support them.

Such a cache of windows X has of each key at least the rows of X's join that are part of an answer, and rows of it alone. A
change of X is seen as combinations of X and Y, as many as Y has partners: a row of X is in the cache while it has one.
Source: Babu (2005), section 5.7. What is missing there: counts; that a miss stores rows with a partner only; and that a key is evicted
when the last row that could ask for it is gone, since changes are not seen then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import field
from typing import Generic, TypeVar

from headrace.adaptive.caches.segments import (
    Orders,
    Segment,
    candidates,
    is_prefix_invariant,
    segments,
)
from headrace.dataclass import dataclass

Part = TypeVar("Part", bound=Hashable)


@dataclass(frozen=True, slots=True, order=True)
class GlobalSegment:
    """A segment whose changes are seen as combinations of all the windows of `seen_with`, which have the prefix invariant."""

    segment: Segment
    seen_with: tuple[int, ...]


def global_candidates(orders: Orders) -> list[GlobalSegment]:
    """Segments without the prefix invariant, the largest first, each with the fewest windows that have it."""
    without_invariant = (
        GlobalSegment(segment, _least_around(orders, segment))
        for segment in segments(orders)
        if not is_prefix_invariant(orders, segment.windows)
    )
    return sorted(without_invariant, key=lambda one: (-len(one.segment.windows), one))


def _least_around(orders: Orders, segment: Segment) -> tuple[int, ...]:
    """The smallest set of windows with the prefix invariant that holds the segment and its pipeline: all of them, at last.

    The pipeline's window is one of them, so that a key that nothing can ask for is a key without changes.
    """
    inside = {*segment.windows, segment.pipeline}
    sets = {
        frozenset((window, *order[:length]))
        for window, order in enumerate(orders)
        for length in range(1, len(order) + 1)
    }
    fitting = [one for one in sets if inside <= one and is_prefix_invariant(orders, tuple(one))]
    ascending = sorted((tuple(sorted(one)) for one in fitting), key=lambda one: (len(one), one))
    return ascending[0]


def within_quota(orders: Orders, quota: int) -> tuple[tuple[Segment, ...], tuple[GlobalSegment, ...]]:
    """The candidates to choose among: all with the prefix invariant, and others up to the quota."""
    with_invariant = candidates(orders)
    return with_invariant, tuple(global_candidates(orders)[: max(0, quota - len(with_invariant))])


@dataclass(slots=True)
class CountedEntries(Generic[Part]):
    """Of each key that is present, the rows of X with the number of combinations that support each."""

    entries: dict[Hashable, Counter[Part]] = field(default_factory=dict)

    def create(self, key: Hashable, supported: Iterable[Part]) -> None:
        """Add a key; each row as often as a combination supports it."""
        self.entries[key] = Counter(supported)

    def change(self, key: Hashable, row: Part, sign: int) -> None:
        """A combination with a row came (+1) or went (-1): without effect where the key is absent."""
        entry = self.entries.get(key)
        if entry is None:
            return
        entry[row] += sign
        if not entry[row]:
            del entry[row]

    def evict(self, key: Hashable) -> None:
        """Remove a key."""
        self.entries.pop(key, None)
