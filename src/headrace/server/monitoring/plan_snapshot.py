"""The running plan with its measurements, each query's cost, and pictures of it: made once for all observers, and made again
in the background, so that none of them waits for a plan of thousands of queries.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import partial
from typing import Final

from headrace.dataclass import dataclass
from headrace.planner.explain.diagram import Picture, picture
from headrace.planner.explain.plan_graph import Explained, QueryCost
from headrace.runtime.home.lru_cache import Recent
from headrace.runtime.hub.hub import Hub

_SECONDS: Final = 1.0
"""For which a snapshot serves, though epochs were committed since; at most a tenth of the time is spent on making it."""
_SMALL_SECONDS: Final = 0.05
"""A snapshot that is made in less is always of the newest definitions."""
_PICTURES: Final = 32


@dataclass(frozen=True, slots=True)
class PlanSnapshot:
    """The plan after an epoch; `costs` by query, the costliest first, `total` their sum in nanoseconds."""

    graph: Explained
    costs: Mapping[str, QueryCost]
    total: float
    pictures: Recent[tuple[str | None, frozenset[str]], Picture]

    def picture(self, query: str | None = None, chosen: Iterable[str] = ()) -> Picture:
        """All work, that of one query, or that of the chosen ones."""
        key = query, frozenset(chosen)
        drawn = self.pictures.get(key)
        if drawn is None:
            drawn = picture(self.graph, query, key[1])
            self.pictures.put(key, drawn)
        return drawn


@dataclass(slots=True)
class PlanSnapshots:
    """The newest snapshot of a hub's plan. Any thread may ask."""

    hub: Hub
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while a snapshot is made."""
    _newest: PlanSnapshot | None = None
    _of: tuple[int, int] = (-1, -1)
    """The epoch and the position of the query log that the newest is of."""
    _serves_until: float = 0.0
    _took: float = 0.0

    def current(self, query: str | None = None) -> PlanSnapshot:
        """The newest snapshot, waiting for one only if there is none, or none with a query that was registered since."""
        of, newest = self._now(), self._newest
        if newest is None or (query is not None and query not in newest.costs):
            return self._made(partial(self._lacks, query))
        if of[1] != self._of[1] and self._took < _SMALL_SECONDS:
            return self._made(lambda: self._of[1] != of[1])
        if of != self._of and self.clock() >= self._serves_until and not self._lock.locked():
            threading.Thread(
                target=self._made, args=(self._is_old,), name="headrace-plan", daemon=True
            ).start()
        return newest

    def _now(self) -> tuple[int, int]:
        return self.hub.home.latest().epoch, self.hub.catalog.position

    def _lacks(self, query: str | None) -> bool:
        return self._newest is None or (query is not None and query not in self._newest.costs)

    def _is_old(self) -> bool:
        return self.clock() >= self._serves_until

    def _made(self, is_needed: Callable[[], bool]) -> PlanSnapshot:
        from headrace.runtime.introspection.explain import explained  # noqa: PLC0415 - with its drawings

        with self._lock:  # another thread may have made what this one needs
            if self._newest is None or is_needed():
                started, of = self.clock(), self._now()
                graph = explained(self.hub.home)
                costs = {cost.name: cost for cost in graph.costs}
                total = sum(cost.nanoseconds for cost in graph.costs) or 1.0
                self._newest, self._of = PlanSnapshot(graph, costs, total, Recent(_PICTURES)), of
                self._took = self.clock() - started
                self._serves_until = self.clock() + max(_SECONDS, 10 * self._took)
            return self._newest
