"""State budget of a home: queries store less of their answers, the heaviest first, while the state exceeds the limit.

Queries that store the whole answer of their window (`complete`) store their selection instead; when there are none left, those
that store their selection store nothing. Each such step is an ALTER QUERY like any other: durable, in force from the next
epoch, and the answers stay the same. The archive of a stream is no part of the budget: PSoup would shorten its windows first,
because they are in memory; here they are on disk.
Source: PSoup (Chandrasekaran, Franklin 2002), sections 3.3 and 4.1: NoMat takes less than PSoup-P, that less than PSoup-C.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING, Final

from headrace.algebra.query import walk
from headrace.catalog.catalog import CatalogQuery
from headrace.dataclass import dataclass
from headrace.errors import UnknownName
from headrace.observation import EpochObservation
from headrace.planner.lowering.materialization import Materialize, cheaper_materialization
from headrace.runtime.home.file_names import file_name
from headrace.runtime.plan.bound_queries import bound
from headrace.runtime.plan.epoch_planner import source_of

if TYPE_CHECKING:
    from headrace.runtime.hub.hub import Hub

_SETTLES: Final = 3
"""Epochs after which a step has freed what it can: the query's old state is deleted when runs are merged."""
LESS: Final[dict[Materialize, Materialize]] = {"complete": "partial", "partial": "none"}


@dataclass(frozen=True, slots=True)
class Step:
    """A query that stores less from an epoch on, and the bytes of state that were over the limit."""

    epoch: int
    query: str
    materialize: Materialize
    state_bytes: int


@dataclass(slots=True)
class StateBudget:
    """Checks a hub's epochs; `limit` is in bytes of state runs, as in `hub.status()["state_bytes"]`."""

    hub: Hub
    limit: int
    steps: list[Step] = field(default_factory=list)
    _nothing_left_at: int = -1

    def saw(self, seen: EpochObservation) -> None:
        """After an epoch: the next steps, if the state is over the limit and the last steps have had their effect."""
        size = sum(run.bytes for run in self.hub.home.latest().state)
        settled = not self.steps or seen.epoch >= self.steps[-1].epoch + _SETTLES
        if size <= self.limit or not settled or self._nothing_left_at == self.hub.catalog.position:
            return
        if self.hub.loop.engine.is_catching_up():
            return
        for mode, less in LESS.items():
            chosen = self._heaviest(mode, seen, size)
            if chosen:
                self._take([Step(seen.epoch, name, less, size) for name in chosen])
                return
        self._nothing_left_at = self.hub.catalog.position

    def _heaviest(self, mode: Materialize, seen: EpochObservation, size: int) -> list[str]:
        """As few queries of that mode as may free the excess, by their share of the rows of state; at least one."""
        rows = {standing.definition.name: self._rows(standing, seen) for standing in self._able(mode)}
        whole = sum(operator.state_rows for operator in seen.operators.values())
        chosen: list[str] = []
        freed = 0
        for name in sorted(rows, key=lambda name: (-rows[name], name)):
            if chosen and freed * size >= (size - self.limit) * whole:
                break
            chosen.append(name)
            freed += rows[name]
        return chosen

    def _take(self, steps: list[Step]) -> None:
        """Store less of these queries; where another client has just dropped one of them, the next epoch chooses again."""
        with suppress(UnknownName):
            self.hub.execute(
                "".join(
                    f"ALTER QUERY `{step.query}` SET (materialize '{step.materialize}');" for step in steps
                )
            )
            self.steps += steps

    def _able(self, mode: Materialize) -> Iterator[CatalogQuery]:
        """Queries of that mode that could store less, and whose changes no sink or client reads."""
        catalog, operators = self.hub.catalog, self.hub.plan.operators
        streams = {stream.name: stream for stream in catalog.streams.values()}
        for standing in catalog.queries.values():
            if standing.definition.paused or self._is_followed(standing):
                continue
            query = bound(catalog, standing)
            source = source_of(streams, walk(query.root))
            operator = operators.get(standing.operator_id)  # a query may be newer than the plan
            if operator is not None and cheaper_materialization(operator, query, source) == mode:
                yield standing

    def _is_followed(self, catalog_query: CatalogQuery) -> bool:
        """Whether a sink or an action of this hub, or a client that ever had a cursor, reads its changes."""
        name = catalog_query.definition.name
        if self.hub.open_sinks.serve(name) or self.hub.actions.serve(name):
            return True
        return bool(self.hub.home.store.list(f"sinks/{file_name(f'client-{name}-')}"))

    def _rows(self, catalog_query: CatalogQuery, seen: EpochObservation) -> int:
        operator = seen.operators.get(catalog_query.operator_id)
        return 0 if operator is None else operator.state_rows
