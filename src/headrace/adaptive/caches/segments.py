"""Segments of the pipelines of a join that a cache may replace: those that keep the prefix invariant, and how they nest.

A join of windows 0..n-1 has a pipeline for each: the order in which its new rows probe the others. A segment is some successive
places of a pipeline. Its cache is kept up to date at no cost of its own if the new rows of each window in it probe the others in it
first: then their changes are a by-product. Such segments of one pipeline nest or are disjoint.
Source: Babu, Adaptive Query Processing in Data Stream Management Systems (2005), sections 5.4 and 5.5, example 5.5.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from headrace.dataclass import dataclass

Orders: TypeAlias = tuple[tuple[int, ...], ...]
"""Of each window, the others in the order in which its new rows probe them."""
Equality: TypeAlias = tuple[tuple[int, str], tuple[int, str]]
"""Two columns, each with its window, that a join condition makes equal."""
Key: TypeAlias = tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """The places `first` to `last` of a pipeline, and the windows there, in ascending order."""

    pipeline: int
    first: int
    last: int
    windows: tuple[int, ...]

    def holds(self, other: Segment) -> bool:
        """Whether the other is a smaller part of the same places."""
        return self != other and self.overlaps(other) and set(other.windows) < set(self.windows)

    def overlaps(self, other: Segment) -> bool:
        """Whether both have a place in common, so that one cache at most can be used."""
        return self.pipeline == other.pipeline and self.first <= other.last and other.first <= self.last


def is_prefix_invariant(orders: Orders, windows: Sequence[int]) -> bool:
    """Whether the new rows of each of these windows probe all others of them first."""
    inside = frozenset(windows)
    return all(frozenset(orders[window][: len(inside) - 1]) == inside - {window} for window in inside)


def segments(orders: Orders) -> Iterator[Segment]:
    """All segments of two places or more."""
    for pipeline, order in enumerate(orders):
        for first in range(len(order)):
            for last in range(first + 1, len(order)):
                yield Segment(pipeline, first, last, tuple(sorted(order[first : last + 1])))


def candidates(orders: Orders) -> tuple[Segment, ...]:
    """The segments that keep the prefix invariant, by pipeline and place."""
    return tuple(segment for segment in segments(orders) if is_prefix_invariant(orders, segment.windows))


def key_of(segment: Segment, orders: Orders, equalities: Sequence[Equality]) -> Key:
    """The columns of the segment that are equal to columns of the rows that come to it: the key of its cache."""
    before = {segment.pipeline, *orders[segment.pipeline][: segment.first]}
    inside = frozenset(segment.windows)
    columns = {
        inner
        for one, other in equalities
        for inner, outer in ((one, other), (other, one))
        if inner[0] in inside and outer[0] in before
    }
    return tuple(sorted(columns))


def children(among: Sequence[Segment]) -> dict[Segment | None, list[Segment]]:
    """The largest segments within each segment, and under None those within no other: a forest, as they nest."""
    forest: dict[Segment | None, list[Segment]] = {None: []}
    for segment in among:
        forest[segment] = []
    for segment in among:
        around = [other for other in among if other.holds(segment)]
        parent = min(around, key=lambda other: len(other.windows), default=None)
        forest[parent].append(segment)
    return forest
