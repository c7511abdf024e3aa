"""The caches in force in a state task, what its process remembers of each join, and what was observed: for the joins that advance
in a block of code.

Outside such a block (tests, INVOKE) there are no caches, and nothing is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import Final, TypeAlias

from headrace.adaptive.caches.estimates import MissEstimate
from headrace.adaptive.caches.page_pool import PagePool, priority
from headrace.dataclass import dataclass
from headrace.observation import CacheObservation
from headrace.operators.joins.caches.subjoin_cache import SubjoinCache
from headrace.operators.rows.sorted_rows import Sorted
from headrace.time import Instant

Sides: TypeAlias = tuple[int, ...]
Chosen: TypeAlias = Mapping[int, Sides]
"""By side whose new rows look it up, the sides of a cache."""
PAGES: Final = 256
"""Pages of the caches of a join in one task."""


@dataclass(slots=True)
class JoinMemory:
    """A join as its process remembers it: the rows of its sides, with numbers that stay, and caches that refer to them.

    `bounds`: by side, an instant below which no new row of it is. It is dropped whenever an epoch was not the next one.
    """

    rows: dict[int, tuple[Sorted, ...]] = field(default_factory=dict)
    caches: dict[Sides, SubjoinCache] = field(default_factory=dict)
    pool: PagePool[Sides] = field(default_factory=lambda: PagePool(PAGES))
    bounds: dict[int, Instant] = field(default_factory=dict)
    misses: dict[int, MissEstimate] = field(default_factory=dict)
    asked: dict[Sides, tuple[int, int]] = field(default_factory=dict)
    """By cache the look-ups of this epoch, and those that found their key."""

    def prioritize(self) -> None:
        """Give the pages of the next epoch to the caches that were of most use for their bytes; one that has no pages might be hit each time."""
        useful = {
            sides: float(hits if self.pool.held.get(sides) else lookups)
            for sides, (lookups, hits) in self.asked.items()
        }
        self.pool.prioritize(
            {sides: priority(useful.get(sides, 0.0), 1, cache.nbytes) for sides, cache in self.caches.items()}
        )
        self.asked = {}

    @property
    def nbytes(self) -> int:
        """Memory of its rows and caches."""
        rows: int = sum(piece.table.nbytes for pieces in self.rows.values() for piece in pieces)
        return rows + sum(cache.nbytes for cache in self.caches.values())


@dataclass(slots=True)
class Caching:
    """By join the caches to use; the memories of joins, None if this process does not run the next epoch; and by side what was
    observed.
    """

    chosen: Mapping[str, Chosen] = field(default_factory=dict)
    memories: dict[str, JoinMemory] | None = None
    measures: bool = False
    observed: dict[str, CacheObservation] = field(default_factory=dict)

    def add(self, name: str, seen: CacheObservation) -> None:
        """Add what was observed of a side."""
        self.observed[name] = self.observed[name].plus(seen) if name in self.observed else seen


_IN_FORCE: ContextVar[Caching] = ContextVar("caching", default=Caching())  # noqa: B039 - never changed unless it measures


@contextmanager
def caching(caches: Caching) -> Iterator[None]:
    """Caches for all joins that advance inside the block."""
    token = _IN_FORCE.set(caches)
    try:
        yield
    finally:
        _IN_FORCE.reset(token)


def in_force() -> Caching:
    """Those of the innermost `caching` block."""
    return _IN_FORCE.get()
