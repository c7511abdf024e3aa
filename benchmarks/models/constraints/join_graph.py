"""The directed graph of many-one joins: which stream's rows join at most one row of which other stream; roots, covers, and the
check that it is a tree.

Source: Babu (2005), sections 6.2 and 6.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from headrace.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ManyOne:
    """Each row of `parent` joins at most one row of `child`: that with `child.child_key` equal to `parent.parent_key`."""

    parent: str
    child: str
    parent_key: str
    child_key: str


@dataclass(frozen=True)
class JoinGraph:
    """Streams and the many-one joins between them; connected, and without an undirected cycle.

    Raises `ValueError` otherwise, which names the stream that is the reason.
    """

    joins: tuple[ManyOne, ...]

    def __post_init__(self) -> None:
        joined = {self.joins[0].parent} if self.joins else set[str]()
        waiting = list(self.joins)
        while waiting:
            touching = next((join for join in waiting if {join.parent, join.child} & joined), None)
            if touching is None:
                raise ValueError(f"{waiting[0].parent} is not connected to {min(joined)} by joins")
            if {touching.parent, touching.child} <= joined:
                raise ValueError(f"the join of {touching.parent} with {touching.child} closes a cycle")
            waiting.remove(touching)
            joined |= {touching.parent, touching.child}

    @cached_property
    def streams(self) -> tuple[str, ...]:
        """All streams, each after its children."""
        names = dict.fromkeys(name for join in self.joins for name in (join.parent, join.child))
        ordered: dict[str, None] = {}
        while len(ordered) < len(names):
            for name in names:
                if all(join.child in ordered for join in self.below(name)):
                    ordered[name] = None
        return tuple(ordered)

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """The streams without parents: the only minimal cover (theorem 6.3.4)."""
        return tuple(name for name in self.streams if not self.above(name))

    def below(self, stream: str) -> tuple[ManyOne, ...]:
        """The joins of which a stream is the parent."""
        return tuple(join for join in self.joins if join.parent == stream)

    def above(self, stream: str) -> tuple[ManyOne, ...]:
        """The joins of which a stream is the child."""
        return tuple(join for join in self.joins if join.child == stream)

    def reachable(self, stream: str) -> frozenset[str]:
        """A stream with all streams below it."""
        return frozenset({stream}).union(*(self.reachable(join.child) for join in self.below(stream)))

    def is_cover(self, streams: Iterable[str]) -> bool:
        """Whether all streams are reachable from these."""
        return frozenset[str]().union(*map(self.reachable, streams)) == frozenset(self.streams)

    def walk(self, start: str) -> list[tuple[ManyOne, bool]]:
        """The joins in an order that visits all streams from one of them; whether each is followed from parent to child."""
        seen, steps = {start}, list[tuple[ManyOne, bool]]()
        while len(steps) < len(self.joins):
            for join in self.joins:
                if (join.parent in seen) != (join.child in seen):
                    steps.append((join, join.parent in seen))
                    seen |= {join.parent, join.child}
        return steps
