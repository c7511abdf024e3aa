"""The epoch plan of a catalog: every standing query bound and lowered, with what it reads.

A query's text is the truth. What it means depends on the definitions it names, so a bound query is kept together with
those, and bound again only when one of them is another: a registration costs what it adds, not what is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from headrace.algebra.query import Query, QueryScan, StreamScan, derived_in, find_window, walk
from headrace.algebra.windows import Landmark, TimeSlide
from headrace.catalog.catalog import Catalog, StandingQuery
from headrace.catalog.definitions import (
    FunctionDefinition,
    QueryDefinition,
    RelationDefinition,
    StreamDefinition,
    WindowDefinition,
)
from headrace.language.bind import bind_query
from headrace.operators.group_ahead import by_itself
from headrace.operators.operator import Operator
from headrace.planner.lower import lower
from headrace.runtime import derived
from headrace.runtime.functions import loaded
from headrace.runtime.messages import EpochPlan, Retention
from headrace.runtime.recent import Recent
from headrace.time import Duration

_REMEMBERED: Final = 100_000
_Found = TypeVar("_Found")


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

    def window(self, name: str) -> WindowDefinition | None:
        """The user's kind of window of that name."""
        return self.catalog.window(name)

    def known(self) -> Iterable[str]:
        """All names there are."""
        catalog = self.catalog
        yield from (stream.name for stream in catalog.streams.values())
        yield from (relation.definition.name for relation in catalog.relations.values())
        yield from (query.definition.name for query in catalog.queries.values())


@dataclass(frozen=True, slots=True)
class _Watched:
    """Names of a catalog, and what was found under those that were asked for: (kind, name, what)."""

    names: CatalogNames
    found: list[tuple[str, str, object]] = field(default_factory=list)

    def stream(self, name: str) -> StreamDefinition | None:
        return self._noted("stream", name, self.names.stream(name))

    def relation(self, name: str) -> RelationDefinition | None:
        return self._noted("relation", name, self.names.relation(name))

    def query(self, name: str) -> tuple[QueryDefinition, Query] | None:
        return self._noted("query", name, self.names.query(name))

    def window(self, name: str) -> WindowDefinition | None:
        return self._noted("window", name, self.names.window(name))

    def known(self) -> Iterable[str]:
        return self.names.known()

    def _noted(self, kind: str, name: str, what: _Found) -> _Found:
        self.found.append((kind, name, what))
        return what


@dataclass(frozen=True, slots=True)
class _Remembered:
    """A bound query, and all it was bound by."""

    query: Query
    functions: Mapping[str, FunctionDefinition]
    found: tuple[tuple[str, str, object], ...]

    def holds(self, catalog: Catalog) -> bool:
        """True while the catalog still says the same of everything the query names."""
        if catalog.functions is not self.functions and catalog.functions != self.functions:
            return False
        names = CatalogNames(catalog)
        return all(getattr(names, kind)(name) == what for kind, name, what in self.found)


_bound: Final[Recent[str, _Remembered]] = Recent(_REMEMBERED)
_lowered: Final[Recent[tuple[str, str], tuple[Query, Operator]]] = Recent(_REMEMBERED)


def bind_text(catalog: Catalog, text: str) -> Query:
    """The algebra of a query's text, among the names and functions of the catalog."""
    known = _bound.get(text)
    if known is not None and known.holds(catalog):
        return known.query
    watched = _Watched(CatalogNames(catalog))
    query = bind_query(text, watched, functions=loaded(catalog.functions))
    _bound.put(text, _Remembered(query, catalog.functions, tuple(watched.found)))
    return query


def lowered(name: str, query: Query, operator_id: str) -> Operator:
    """The operator of a bound query; see `lower`."""
    known = _lowered.get((operator_id, name))
    if known is not None and (known[0] is query or known[0] == query):
        return known[1]
    operator = lower(name, query, operator_id)
    _lowered.put((operator_id, name), (query, operator))
    return operator


def bound(catalog: Catalog, standing: StandingQuery) -> Query:
    """The algebra of a standing query."""
    return bind_text(catalog, standing.definition.text)


def levels(name: str, query: Query, operator_id: str) -> Iterator[tuple[str, Query]]:
    """A query and the SELECTs in its FROM, outermost first, each with the name of its operator."""
    yield operator_id, query
    scan = derived_in(query)
    if scan is not None and scan.query is not None:
        yield from levels(name, scan.query, derived.inner_of(operator_id))


def make_plan(catalog: Catalog) -> EpochPlan:
    """All operators, the streams they read and the relations in force."""
    operators, channels, revisions, retentions = {}, {}, {}, {}
    queries = {
        operator: (standing.definition.name, query)
        for standing in catalog.queries.values()
        for operator, query in levels(
            standing.definition.name, bound(catalog, standing), standing.operator_id
        )
    }
    retains = {standing.operator_id: standing.definition.retain for standing in catalog.queries.values()}
    by_name = {name: standing.operator_id for name, standing in catalog.queries.items()}
    streams = {stream.name: stream for stream in catalog.streams.values()}
    for operator_id, (name, meaning) in queries.items():
        scan = next((node for node in walk(meaning.root) if isinstance(node, QueryScan)), None)
        query = meaning
        if scan is not None:
            source = derived.inner_of(operator_id) if scan.query is not None else by_name[scan.name.lower()]
            kept = _retention(retains[derived.owner_of(source)], source, queries[source][1])
            streams[derived.name_of(source)] = derived.stream_of(source, queries[source][1], kept)
            query = derived.over_streams(meaning, operator_id, by_name)
        operator = lowered(name, query, operator_id)
        channel = next(node.channel for node in walk(query.root) if isinstance(node, StreamScan))
        stream = streams.get(operator.stream)
        if channel == "rows" and stream is not None and stream.progress.groups:
            operator = by_itself(operator)
        operators[operator.id] = operator
        if channel != "rows":
            channels[operator.id] = channel
        if query.revisions is not None:
            revisions[operator.id] = query.revisions.within
        retention = _retention(retains[derived.owner_of(operator_id)], operator_id, meaning)
        if retention is not None:
            retentions[operator.id] = retention
    return EpochPlan(
        operators,
        streams,
        {relation.definition.name: relation.file for relation in catalog.relations.values()},
        catalog.functions,
        channels,
        revisions,
        retentions,
    )


def _retention(retain: Duration | None, operator: str, query: Query) -> Retention | None:
    """How long an operator's results are kept. Those of a SELECT in FROM only until they were read: nobody else sees them.

    The latest window is always kept, since INVOKE returns it.
    """
    adds_up = query.emission == "relation"
    if derived.owner_of(operator) != operator:
        return None if adds_up else Retention(0)
    if retain is None:
        return None
    window = find_window(query.root)
    slide = (
        window.window.slide if window is not None and isinstance(window.window, TimeSlide | Landmark) else 0
    )
    return Retention(max(retain, slide), adds_up)
