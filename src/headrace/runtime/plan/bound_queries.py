"""Binding of a query's text (to the algebra, by the names of a catalog) and lowering to its operator, both with a cache: a
query is bound again only when a name or function that it uses has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import field
from typing import Any, Final, TypeAlias, TypeVar

from headrace.algebra.query import Query, StreamScan, every_node
from headrace.catalog.catalog import Catalog, CatalogQuery
from headrace.catalog.definition_json import to_json
from headrace.catalog.definitions import (
    FunctionDefinition,
    QueryDefinition,
    RelationDefinition,
    StreamDefinition,
    WindowDefinition,
)
from headrace.catalog.system_streams import DEFINITIONS, built_in
from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.language.binder.query_binder import bind_query
from headrace.language.syntax.ast import Select
from headrace.operators.base.operator import Operator
from headrace.planner.lowering.materialization import Materialize, Source, materialized
from headrace.runtime.home.lru_cache import Recent
from headrace.runtime.plan.user_functions import callable_by_name

_REMEMBERED: Final = 100_000
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class CatalogNames:
    """The names of a catalog, as the binder reads them for a query with `former_names` or without."""

    catalog: Catalog
    former_names: bool = False

    def stream(self, name: str) -> StreamDefinition | None:
        """The stream of that name; a built-in one is there before it is in the catalog."""
        return self.catalog.stream(name) or built_in(name)

    def relation(self, name: str) -> RelationDefinition | None:
        """The relation of that name."""
        relation = self.catalog.relation(name)
        return relation.definition if relation is not None else None

    def query(self, name: str) -> tuple[QueryDefinition, Query] | None:
        """The query of that name, bound."""
        query = self.catalog.query(name)
        return (query.definition, bound(self.catalog, query)) if query is not None else None

    def window(self, name: str) -> WindowDefinition | None:
        """The user-defined window of that name."""
        return self.catalog.window(name)

    def known(self) -> Iterable[str]:
        """All names of streams, relations and queries; of built-in streams where a query reads them."""
        catalog = self.catalog
        yield from (stream.name for stream in catalog.streams.values())
        yield from (relation.definition.name for relation in catalog.relations.values())
        yield from (query.definition.name for query in catalog.queries.values())

    def built_in(self) -> Iterable[str]:
        """The names of the built-in streams."""
        return DEFINITIONS


@dataclass(frozen=True, slots=True)
class _Watched:
    """The names of a catalog, with a record of each lookup: (kind, name, result)."""

    names: CatalogNames
    lookups: list[tuple[str, str, object]] = field(default_factory=list)

    @property
    def former_names(self) -> bool:
        return self.names.former_names

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

    def built_in(self) -> Iterable[str]:
        """The names of the built-in streams."""
        return self.names.built_in()

    def _noted(self, kind: str, name: str, definition: _Found) -> _Found:
        self.lookups.append((kind, name, definition))
        return definition


@dataclass(frozen=True, slots=True)
class _Remembered:
    """A bound query, and the functions and lookups by which it was bound."""

    query: Query
    functions: Mapping[str, FunctionDefinition]
    lookups: tuple[tuple[str, str, object], ...]

    def holds(self, catalog: Catalog) -> bool:
        """True while the catalog has the same functions, and the same results of the lookups."""
        if catalog.functions is not self.functions and catalog.functions != self.functions:
            return False
        names = CatalogNames(catalog)
        return all(getattr(names, kind)(name) == definition for kind, name, definition in self.lookups)


_bound: Final[Recent[tuple[str, str, bool], _Remembered]] = Recent(_REMEMBERED)
_Inputs: TypeAlias = tuple[Materialize | None, Source]
_lowered: Final[Recent[tuple[str, str], tuple[Query, _Inputs, Operator]]] = Recent(_REMEMBERED)


def bind_text(catalog: Catalog, text: str, zone: str = "UTC") -> Query:
    """The algebra of a query's text with the catalog's names and functions; times without a zone are in `zone`."""
    return _bind(catalog, text, zone, text, None)


def bind_parsed(catalog: Catalog, text: str, zone: str, select: Select, script: str) -> None:
    """Bind `select`, which is `text` as parsed in a script, so that `bind_text` does not parse it again.

    Errors are ignored here: `bind_text` raises them, with their position in the text.
    """
    with suppress(UserError):
        _bind(catalog, text, zone, select, script)


def _bind(
    catalog: Catalog, text: str, zone: str, select: Select | str, script: str | None, *, former: bool = False
) -> Query:
    cached = _bound.get((text, zone, former))
    if cached is not None and cached.holds(catalog):
        return cached.query
    watched = _Watched(CatalogNames(catalog, former))
    query = bind_query(select, watched, script, callable_by_name(catalog.functions), zone)
    _bound.put((text, zone, former), _Remembered(query, catalog.functions, tuple(watched.lookups)))
    return query


def lowered(
    name: str, query: Query, operator_id: str, materialize: Materialize | None, source: Source
) -> Operator:
    """The operator of a bound query; see `materialized`."""
    cached, inputs = _lowered.get((operator_id, name)), (materialize, source)
    if cached is not None and (cached[0] is query or cached[0] == query) and cached[1] == inputs:
        return cached[2]
    operator = materialized(name, query, operator_id, materialize, source)
    _lowered.put((operator_id, name), (query, inputs, operator))
    return operator


def bound(catalog: Catalog, catalog_query: CatalogQuery) -> Query:
    """The algebra of a query of the catalog."""
    text, zone = catalog_query.definition.text, catalog_query.definition.zone
    return _bind(catalog, text, zone, text, None, former=catalog_query.has_former_names)


def streams_made_by(catalog: Catalog, query: Query) -> list[dict[str, Any]]:
    """The log entries that make the built-in streams which a query is the first to read."""
    named = {node.name for node in every_node(query) if isinstance(node, StreamScan)}
    new = (built_in(name) for name in sorted(named) if catalog.stream(name) is None)
    return [{"do": "create_stream", "stream": to_json(stream)} for stream in new if stream is not None]
