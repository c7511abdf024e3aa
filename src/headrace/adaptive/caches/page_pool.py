"""Pages of memory for the caches of a join, given by priority: the gain of a cache for each byte that it is expected to take.

Caches are chosen as if memory were unlimited. One that needs a page and finds none free takes it from the cache of the least priority,
if that is below its own; else it continues with the pages it has. What a cache holds never changes an answer.
Source: Babu (2005), section 5.6.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import field
from typing import Generic, TypeVar

from headrace.dataclass import dataclass

Cache = TypeVar("Cache", bound=Hashable)


def priority(net: float, entries: float, entry_bytes: float) -> float:
    """The gain of a cache for each byte of its expected entries."""
    return net / max(1.0, entries * entry_bytes)


@dataclass(frozen=True, slots=True)
class Grant(Generic[Cache]):
    """The answer to a request for a page: whether it is given, and from whom it is taken, if it was not free."""

    given: bool
    victim: Cache | None = None


@dataclass(slots=True)
class PagePool(Generic[Cache]):
    """So many pages, by cache that holds them, and the priorities of caches; a cache without one has priority 0."""

    pages: int
    priorities: dict[Cache, float] = field(default_factory=dict)
    held: dict[Cache, int] = field(default_factory=dict)

    @property
    def free(self) -> int:
        """Pages that no cache holds; negative after the pool was made smaller than what is held."""
        return self.pages - sum(self.held.values())

    def need_page(self, cache: Cache) -> Grant[Cache]:
        """A page for a cache, free or taken from another one, whose entries there have to be evicted."""
        if self.free > 0:
            self.held[cache] = self.held.get(cache, 0) + 1
            return Grant(True)
        victim = self._least(below=self.priorities.get(cache, 0.0), but=cache)
        if victim is None:
            return Grant(False)
        self.give_back(victim)
        self.held[cache] = self.held.get(cache, 0) + 1
        return Grant(True, victim)

    def _least(self, below: float, but: Cache | None = None) -> Cache | None:
        holding = [other for other, pages in self.held.items() if pages and other != but]
        least = min(holding, key=lambda other: self.priorities.get(other, 0.0), default=None)
        return least if least is not None and self.priorities.get(least, 0.0) < below else None

    def give_back(self, cache: Cache, pages: int = 1) -> None:
        """A cache has evicted the entries of some pages."""
        self.held[cache] = self.held.get(cache, 0) - pages
        if self.held[cache] <= 0:
            del self.held[cache]

    def prioritize(self, priorities: Mapping[Cache, float]) -> None:
        """Take new priorities, after caches were chosen."""
        self.priorities = dict(priorities)

    def resize(self, pages: int) -> list[Cache]:
        """Change the number of pages; returns whose entries to evict, once for each page, those of the least priority first."""
        self.pages = pages
        victims: list[Cache] = []
        while self.free < 0:
            victim = self._least(below=float("inf"))
            assert victim is not None
            self.give_back(victim)
            victims.append(victim)
        return victims
