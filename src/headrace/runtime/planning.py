"""The epoch plan of a catalog: every standing query bound and lowered, with what it reads.

A query's text is the truth; it is bound again whenever the catalog changed. Binding is cached by generation and by the
definitions it saw.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.algebra.query import Query, QueryScan, StreamScan, walk
from headrace.catalog.catalog import Catalog, StandingQuery
from headrace.catalog.definitions import QueryDefinition, RelationDefinition, StreamDefinition
from headrace.language.bind import bind_query
from headrace.planner.lower import lower
from headrace.runtime import derived
from headrace.runtime.functions import loaded
from headrace.runtime.messages import EpochPlan


@dataclass(frozen=True, slots=True)
class CatalogNames:
    """What the binder may ask of a catalog."""

    catalog: Catalog

    def stream(self, name: str) -> StreamDefinition | None:
        """The stream of that name."""
        return self.catalog.stream(name)

    def relation(self, name: str) -> RelationDefinition | None:
        """The relation of that name."""
        found = self.catalog.relation(name)
        return found.definition if found is not None else None

    def query(self, name: str) -> tuple[QueryDefinition, Query] | None:
        """The query of that name, bound."""
        found = self.catalog.query(name)
        return (found.definition, bound(self.catalog, found)) if found is not None else None

    def known(self) -> Iterable[str]:
        """All names there are."""
        catalog = self.catalog
        yield from (stream.name for stream in catalog.streams.values())
        yield from (relation.definition.name for relation in catalog.relations.values())
        yield from (query.definition.name for query in catalog.queries.values())


def bind_text(catalog: Catalog, text: str) -> Query:
    """The algebra of a query's text, among the names and functions of the catalog."""
    return bind_query(text, CatalogNames(catalog), functions=loaded(catalog.functions))


def bound(catalog: Catalog, standing: StandingQuery) -> Query:
    """The algebra of a standing query."""
    return bind_text(catalog, standing.definition.text)


def make_plan(catalog: Catalog) -> EpochPlan:
    """All operators, the streams they read and the relations in force."""
    operators, channels, revisions = {}, {}, {}
    queries = {standing.operator_id: bound(catalog, standing) for standing in catalog.queries.values()}
    by_name = {name: standing.operator_id for name, standing in catalog.queries.items()}
    streams = {stream.name: stream for stream in catalog.streams.values()}
    for standing in catalog.queries.values():
        query = queries[standing.operator_id]
        for scan in (node for node in walk(query.root) if isinstance(node, QueryScan)):
            source = by_name[scan.name.lower()]
            streams[derived.name_of(source)] = derived.stream_of(source, queries[source])
        query = derived.over_streams(query, by_name)
        operator = lower(standing.definition.name, query, standing.operator_id)
        operators[operator.id] = operator
        channel = next(node.channel for node in walk(query.root) if isinstance(node, StreamScan))
        if channel != "rows":
            channels[operator.id] = channel
        if query.revisions is not None:
            revisions[operator.id] = query.revisions.within
    return EpochPlan(
        operators,
        streams,
        {relation.definition.name: relation.file for relation in catalog.relations.values()},
        catalog.functions,
        channels,
        revisions,
    )
