"""State and results of each owner's queries (`Usage`), and the suspension of the costliest one of an owner who is beyond a quota.

State that queries share counts in equal parts. Paused queries count for further registrations, but not for a suspension: their state
does not grow.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import field
from typing import Final

from headrace.catalog.catalog import CatalogQuery
from headrace.dataclass import dataclass
from headrace.errors import UnknownName
from headrace.language.statements import statement as stmt
from headrace.observation import EpochObservation
from headrace.planner.explain.plan_graph import Explained
from headrace.runtime.hub.hub import Hub
from headrace.server.monitoring.plan_snapshot import PlanSnapshots
from headrace.server.security.quotas import RESULT_SECONDS, Quotas

_LOG = logging.getLogger("headrace.server")
_WATCH_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class OwnerUse:
    """What the queries of an owner use: bytes of state, and result rows of this minute."""

    queries: int
    state_bytes: int
    result_rows: int


@dataclass(slots=True)
class Usage:
    """The use of one hub, and its limits. Any thread may ask."""

    hub: Hub
    snapshots: PlanSnapshots
    quotas: Quotas
    seconds: Callable[[], float] = time.monotonic
    _emitted: Counter[str] = field(default_factory=Counter)
    """Result rows since `_since`, by operator."""
    _since: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def epoch(self, seen: EpochObservation) -> None:
        """An epoch was committed."""
        with self._lock:
            now = self.seconds()
            if now - self._since >= RESULT_SECONDS:
                self._since = now
                self._emitted.clear()
            for operator, measured in seen.operators.items():
                if measured.results:
                    self._emitted[operator] += measured.results

    def by_owner(self) -> dict[str, OwnerUse]:
        """All owners of queries, by name in lower case."""
        state, results = self._by_query()
        return {
            owner: OwnerUse(
                len(queries),
                sum(state[query.definition.name] for query in queries),
                sum(results[query.definition.name] for query in queries),
            )
            for owner, queries in self._queries().items()
        }

    async def watch(self) -> None:
        """Check from time to time, for as long as the server runs."""
        while self.quotas.limits_use:
            await asyncio.sleep(_WATCH_SECONDS)
            try:
                await asyncio.to_thread(self.check)
            except Exception:  # noqa: BLE001 - of any kind: it is logged, and the next check comes
                _LOG.exception("quotas could not be checked; they will be again")

    def check(self) -> None:
        """Suspend queries of owners beyond a quota, the costliest first, until the active ones are within it."""
        state, results = self._by_query()
        owned = self._queries()
        self.quotas.state_in_use = {
            owner: sum(state[query.definition.name] for query in queries) for owner, queries in owned.items()
        }
        for owner, queries in owned.items():
            active = [query.definition.name for query in queries if not query.definition.paused]
            for used, limit, unit in (
                (state, self.quotas.state_bytes, "bytes of state"),
                (results, self.quotas.result_rows, "result rows in a minute"),
            ):
                if limit is not None:
                    self._suspend(owner, active, used, limit, unit)

    def _suspend(self, owner: str, active: list[str], used: Mapping[str, int], limit: int, unit: str) -> None:
        total = sum(used[name] for name in active)
        while total > limit:
            costliest = max(active, key=lambda name: used[name])
            reason = f"the queries of '{owner}' have {total:,} {unit}, and may have {limit:,}"
            with suppress(UnknownName):  # dropped meanwhile
                list(self.hub.execute_each([stmt.PauseQuery(costliest, reason)], "", _always))
            active.remove(costliest)
            total -= used[costliest]

    def _by_query(self) -> tuple[Counter[str], Counter[str]]:
        """State and results by the name of a query."""
        graph = self.snapshots.current().graph
        with self._lock:
            emitted = dict(self._emitted)
        results = Counter[str]()
        for operator, rows in emitted.items():
            if operator in graph.owners:
                results[graph.owners[operator]] += rows
        return _state_bytes(graph), results

    def _queries(self) -> dict[str, list[CatalogQuery]]:
        owned = defaultdict[str, list[CatalogQuery]](list)
        for query in self.hub.catalog.queries.values():
            if query.definition.owner:
                owned[query.definition.owner.casefold()].append(query)
        return owned


def _state_bytes(graph: Explained) -> Counter[str]:
    by_owner = Counter[str]()
    if graph.seen is not None:
        for position, work in enumerate(graph.sharing.works):
            size = graph.seen.state_bytes[position]
            for user in work.users if size else ():
                by_owner[graph.owners[user]] += -(-size // len(work.users))
    return by_owner


def _always(_: stmt.Statement) -> bool:
    return True
