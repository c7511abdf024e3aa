"""The catalog's queries, bound and lowered; made once, and kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

from headrace.algebra.query import Query
from headrace.catalog.catalog import Catalog, CatalogQuery
from headrace.catalog.definitions import (
    FunctionDefinition,
    QueryDefinition,
    RelationDefinition,
    StreamDefinition,
    WindowDefinition,
)
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


_bound: Final[Recent[tuple[str, str], _Remembered]] = Recent(_REMEMBERED)
_Kept: TypeAlias = tuple[Materialize | None, Source]
_lowered: Final[Recent[tuple[str, str], tuple[Query, _Kept, Operator]]] = Recent(_REMEMBERED)


def bind_text(catalog: Catalog, text: str, zone: str = "UTC") -> Query:
    """The algebra of a query's text, among the names and functions of the catalog, read by the clocks of a zone."""
    return _bind(catalog, text, zone, text, None)


def bind_parsed(catalog: Catalog, text: str, zone: str, select: Select, script: str) -> None:
    """Spare `bind_text` reading the text once more: `select` is what was parsed of it, where it stands in a script.

    A mistake is left for it to find, who can say where in the text it is.
    """
    with suppress(UserError):
        _bind(catalog, text, zone, select, script)


def _bind(catalog: Catalog, text: str, zone: str, select: Select | str, script: str | None) -> Query:
    known = _bound.get((text, zone))
    if known is not None and known.holds(catalog):
        return known.query
    watched = _Watched(CatalogNames(catalog))
    query = bind_query(select, watched, script, callable_by_name(catalog.functions), zone)
    _bound.put((text, zone), _Remembered(query, catalog.functions, tuple(watched.found)))
    return query


def lowered(
    name: str, query: Query, operator_id: str, wanted: Materialize | None, source: Source
) -> Operator:
    """The operator of a bound query; see `materialized`."""
    known, kept = _lowered.get((operator_id, name)), (wanted, source)
    if known is not None and (known[0] is query or known[0] == query) and known[1] == kept:
        return known[2]
    operator = materialized(name, query, operator_id, wanted, source)
    _lowered.put((operator_id, name), (query, kept, operator))
    return operator


def bound(catalog: Catalog, catalog_query: CatalogQuery) -> Query:
    """The algebra of a standing query."""
    return bind_text(catalog, catalog_query.definition.text, catalog_query.definition.zone)
