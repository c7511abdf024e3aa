"""What is given up when a home's state outgrows its budget? How much of their answers queries keep, the heaviest first.

Queries that keep the whole answer of their window (`complete`) keep their selection instead; when there are none left, those that keep
their selection keep nothing. Each such step is an ALTER QUERY like any other: durable, in force from
the next epoch, and the answers stay the same. The past of a stream is no part of it: PSoup would shorten its windows first,
because it has them in memory; ours lie in the archive.
Source: PSoup (Chandrasekaran, Franklin 2002), sections 3.3 and 4.1: NoMat takes less than PSoup-P, that less than PSoup-C.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headrace.algebra.query import walk
from headrace.catalog.catalog import CatalogQuery
from headrace.observation import EpochObservation
from headrace.planner.lowering.materialization import Materialize, cheaper_materialization
from headrace.runtime.home.file_names import file_name
from headrace.runtime.plan.bound_queries import bound
from headrace.runtime.plan.epoch_planner import source_of

if TYPE_CHECKING:
    from headrace.runtime.hub.hub import Hub

_SETTLES: Final = 3
"""Epochs after which a step has freed what it can: the state of the query that was goes when runs are merged."""
LESS: Final[dict[Materialize, Materialize]] = {"complete": "partial", "partial": "none"}


@dataclass(frozen=True, slots=True)
class Step:
    """A query that keeps less from an epoch on, and the bytes of state that were too many."""

    epoch: int
    query: str
    materialize: Materialize
    state_bytes: int


@dataclass(slots=True)
class StateBudget:
    """Watches a hub's epochs; `limit` is in bytes of state runs, as `hub.status()["state_bytes"]` has them."""

    hub: Hub
    limit: int
    steps: list[Step] = field(default_factory=list)
    _nothing_left_at: int = -1

    def saw(self, seen: EpochObservation) -> None:
        """After an epoch: the next steps, if any are needed and the last ones have had their effect."""
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
        """As few queries of that mode as may free what is too much, by their share of the rows of state; at least one."""
        rows = {standing.definition.name: self._rows(standing, seen) for standing in self._able(mode)}
        whole = sum(known.state_rows for known in seen.operators.values())
        chosen: list[str] = []
        freed = 0
        for name in sorted(rows, key=lambda name: (-rows[name], name)):
            if chosen and freed * size >= (size - self.limit) * whole:
                break
            chosen.append(name)
            freed += rows[name]
        return chosen

    def _take(self, steps: list[Step]) -> None:
        self.hub.execute(
            "".join(f"ALTER QUERY `{each.query}` SET (materialize '{each.materialize}');" for each in steps)
        )
        self.steps += steps

    def _able(self, mode: Materialize) -> Iterator[CatalogQuery]:
        """Queries of that mode that could do with less, and whose changes nobody has to be told."""
        catalog, operators = self.hub.catalog, self.hub.loop.engine.plan.operators
        streams = {stream.name: stream for stream in catalog.streams.values()}
        for standing in catalog.queries.values():
            if standing.definition.paused or self._is_followed(standing):
                continue
            query = bound(catalog, standing)
            source = source_of(streams, walk(query.root))
            if cheaper_materialization(operators[standing.operator_id], query, source) == mode:
                yield standing

    def _is_followed(self, catalog_query: CatalogQuery) -> bool:
        """Whether a sink of this hub, or a client that has ever been there, counts its changes."""
        name = catalog_query.definition.name
        if self.hub.open_sinks.serve(name):
            return True
        return bool(self.hub.home.store.list(f"sinks/{file_name(f'client-{name}-')}"))

    def _rows(self, catalog_query: CatalogQuery, seen: EpochObservation) -> int:
        known = seen.operators.get(catalog_query.operator_id)
        return 0 if known is None else known.state_rows
