"""The running plan with its measurements and each query's cost, made at most once a second for all observers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from headrace.planner.explain.plan_graph import Explained, QueryCost
from headrace.runtime.hub.hub import Hub

_SECONDS: Final = 1.0
"""For which a snapshot serves, though epochs were committed since; at most a tenth of the time is spent on making it."""


@dataclass(slots=True)
class PlanSnapshots:
    """The newest snapshot of a hub's plan. Any thread may ask; one makes it, the others wait for it."""

    hub: Hub
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _graph: Explained | None = None
    _costs: dict[str, QueryCost] = field(default_factory=dict)
    _of: tuple[int, int] = (-1, -1)
    """The epoch and the position of the query log that the snapshot is of."""
    _serves_until: float = 0.0

    def current(self) -> Explained:
        """The plan; one that lacks a query registered since is made again at once."""
        with self._lock:
            return self._renewed()

    def costs(self) -> dict[str, QueryCost]:
        """Each query's cost by name, the costliest first."""
        with self._lock:
            self._renewed()
            return self._costs

    def _renewed(self) -> Explained:
        of = self.hub.home.latest().epoch, self.hub.catalog.position
        started = self.clock()
        is_new = of[1] != self._of[1] or (of[0] != self._of[0] and started >= self._serves_until)
        if self._graph is None or is_new:
            from headrace.runtime.introspection.explain import explained  # noqa: PLC0415 - with its drawings

            self._graph = explained(self.hub.home)
            self._costs = {cost.name: cost for cost in self._graph.costs}
            self._of = of
            self._serves_until = self.clock() + max(_SECONDS, 10 * (self.clock() - started))
        return self._graph
