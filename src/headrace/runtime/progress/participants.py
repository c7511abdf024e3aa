"""The operators that take part in a round of an epoch, which serves one level of queries over queries: those that are not
paused, backfilling or left out. Also the operators of paused queries, and those that are backfilling.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.catalog.catalog import Catalog
from headrace.dataclass import dataclass
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.task_messages import Participants
from headrace.runtime.progress.plan_index import index_of
from headrace.store.logs.manifest import Manifest


@dataclass(slots=True)
class Pauses:
    """The paused queries of a catalog, by their operators, looked up once for each position of the query log."""

    position: int = -1
    paused: frozenset[str] = frozenset()

    def of(self, catalog: Catalog) -> frozenset[str]:
        """The operators of the paused queries, and the shared joins of which all readers are paused."""
        if self.position != catalog.position:
            queries = catalog.queries.values()
            paused = {query.operator_id for query in queries if query.definition.paused}
            if paused:
                read = {query.definition.join for query in queries if query.operator_id not in paused}
                paused |= {query.definition.join for query in queries} - read
            self.paused = frozenset(paused)
            self.position = catalog.position
        return self.paused


def participants(
    plan: EpochPlan, manifest: Manifest, paused: Iterable[str], level: int, left_out: frozenset[str]
) -> Participants:
    """The operators that take part in the round of a level; `paused` are those of registered queries."""
    index, absent, named = index_of(plan), set(left_out), set[str]()
    for owner in paused:
        absent.update(index.owned_by.get(owner, ()))
    behind = backfilling(plan, manifest)
    for name in manifest.operators.moving:
        if name in plan.operators and name not in absent:
            takes_part = name not in behind and index.clock_of(plan.operators[name].stream).level >= level
            (named if takes_part else absent).add(name)
    return Participants(frozenset(named), True, frozenset(absent))


def backfilling(plan: EpochPlan, manifest: Manifest) -> dict[str, int]:
    """Operators that have not folded all of their stream's archive, with their positions."""
    return {
        name: progress.replayed
        for name, progress in manifest.operators.moving.items()
        if name in plan.operators and progress.replayed < manifest.length_of(plan.operators[name].stream)
    }
