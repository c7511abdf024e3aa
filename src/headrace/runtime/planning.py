"""The epoch plan of a catalog: every standing query bound and lowered, with what it reads.

A query's text is the truth. What it means depends on the definitions it names, so a bound query is kept together with
those, and bound again only when one of them is another: a registration costs what it adds, not what is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

from headrace.algebra.query import Node, Query, QueryScan, StreamScan, UnionAll, find_window, walk
from headrace.algebra.windows import Landmark, TimeSlide
from headrace.catalog.catalog import Catalog, StandingQuery, is_of_query
from headrace.catalog.definitions import (
    FunctionDefinition,
    QueryDefinition,
    RelationDefinition,
    StreamDefinition,
    WindowDefinition,
)
from headrace.errors import UserError
from headrace.language.ast import Select
from headrace.language.bind import bind_query
from headrace.operators.operator import Operator
from headrace.planner.held_relations import logged, with_relations
from headrace.planner.materializing import Materialize, Source, materialized
from headrace.planner.stream_joins import joins_streams, taken_apart
from headrace.runtime import derived, several
from headrace.runtime.functions import callable_by_name
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


def source_of(streams: Mapping[str, StreamDefinition], nodes: Sequence[Node]) -> Source:
    """What the archive of a query's stream has; `nodes` are the query's."""
    if any(isinstance(node, UnionAll) for node in nodes):
        return Source(archived=False)
    scan = next((node for node in nodes if isinstance(node, StreamScan)), None)
    stream = None if scan is None else streams.get(scan.name)
    if stream is None:
        return Source(archived=False)
    return Source(stream.archive == "copy" and stream.using != derived.USING, stream.retain)


def bound(catalog: Catalog, standing: StandingQuery) -> Query:
    """The algebra of a standing query."""
    return bind_text(catalog, standing.definition.text, standing.definition.zone)


def levels(name: str, query: Query, operator_id: str) -> Iterator[tuple[str, Query]]:
    """A query and the SELECTs in its FROM, outermost first, each with the name of its operator."""
    query = with_relations(query)
    yield operator_id, query
    for inner_id, inner in derived.inner_queries(operator_id, query).values():
        yield from levels(name, inner, inner_id)


def make_plan(catalog: Catalog) -> EpochPlan:
    """All operators, the streams they read and the relations in force."""
    streams = {stream.name: stream for stream in catalog.streams.values()}
    relations = {relation.definition.name: relation.file for relation in catalog.relations.values()}
    plan = EpochPlan({}, streams, relations, catalog.functions, keeps=_keeps(catalog))
    return _with_queries(plan, catalog, catalog.queries.values())


def _keeps(catalog: Catalog) -> dict[str, float]:
    """The streams that keep less than all of their rows."""
    kept = {stream.name: catalog.keep_of(stream.name) for stream in catalog.streams.values()}
    return {name: keep for name, keep in kept.items() if keep < 1}


def _retention(retain: Duration | None, operator: str, query: Query) -> Retention | None:
    """How long an operator's results are kept. Those of a SELECT in FROM only until they were read: nobody else sees them.

    The latest window is always kept, since INVOKE returns it.
    """
    if derived.owner_of(operator) != operator:
        return Retention(0)
    if retain is None:
        return None
    window = find_window(query.root)
    slide = (
        window.window.slide if window is not None and isinstance(window.window, TimeSlide | Landmark) else 0
    )
    return Retention(max(retain, slide), adds_up=query.emission == "relation")


@dataclass(frozen=True, slots=True)
class Replanned:
    """A plan, and the ids of operators that came into it or went since the one before it; None: any may have."""

    plan: EpochPlan
    changed: frozenset[str] | None = None


def plan_after(
    plan: EpochPlan, before: Catalog, after: Catalog, entries: Sequence[Mapping[str, Any]]
) -> Replanned:
    """The plan of `after`, which is `before` with `entries` of the query log applied; `plan` is that of `before`.

    What only changes queries over sources, which no other query reads, costs what it changes; what runs nothing else
    (a pause, another owner) leaves the plan the same object.
    """
    if all(entry["do"] == "keep" for entry in entries):
        return Replanned(replace(plan, keeps=_keeps(after)), frozenset())
    if not all(is_of_query(entry) for entry in entries):
        return Replanned(make_plan(after))
    gone: list[str] = []
    fresh: dict[str, StandingQuery] = {}
    for name in _changed_names(entries):
        known, now = before.queries.get(name), after.queries.get(name)
        if known is not None:
            if is_woven(plan, known.operator_id):
                return Replanned(make_plan(after))
            gone.append(known.operator_id)
        if now is not None:
            fresh[name] = now
    if not gone and not fresh:
        return Replanned(plan, frozenset())
    kept = _without_queries(plan, gone)
    made = _with_queries(kept, after, fresh.values())
    added = islice(made.operators, len(kept.operators), None)
    return Replanned(made, frozenset((*gone, *added)))


def _changed_names(entries: Sequence[Mapping[str, Any]]) -> dict[str, None]:
    """The queries whose part of the plan is another after some log entries, in order."""
    found: dict[str, None] = {}
    for entry in entries:
        if entry["do"] == "put_query":
            found[entry["query"]["name"].lower()] = None
        elif entry["do"] not in ("pause", "resume") and not _only_labels(entry):
            found[entry["name"].lower()] = None
            if entry["do"] == "rename":
                found[entry["to"].lower()] = None
    return found


def _only_labels(entry: Mapping[str, Any]) -> bool:
    """Whether a log entry gives a query another owner or other tags, which run nothing."""
    return entry["do"] == "set" and entry["settings"].keys() <= {"owner", "tags"}


def is_read(plan: EpochPlan, operator_id: str) -> bool:
    """Whether other queries of the plan read this one."""
    return derived.name_of(operator_id) in plan.streams or operator_id in plan.viewed


def is_woven(plan: EpochPlan, operator_id: str) -> bool:
    """Whether other operators hang on this one, or it on others."""
    if is_read(plan, operator_id):
        return True
    operator = plan.operators.get(operator_id)
    return operator is not None and plan.streams[operator.stream].using in (derived.USING, several.USING)


def operator_of(catalog: Catalog, standing: StandingQuery) -> Operator:
    """The operator of one query as the plan has it, without planning the others."""
    streams = {stream.name: stream for stream in catalog.streams.values()}
    return _with_queries(EpochPlan({}, streams), catalog, [standing]).operators[standing.operator_id]


def _without_queries(plan: EpochPlan, gone: Sequence[str]) -> EpochPlan:
    """The plan without some operators that read sources, and whose results nobody reads."""
    if not gone:
        return plan
    operators, channels = dict(plan.operators), dict(plan.channels)
    revisions, retentions = dict(plan.revisions), dict(plan.retentions)
    for name in gone:
        del operators[name]
        for facts in (channels, revisions, retentions):
            facts.pop(name, None)
    return replace(plan, operators=operators, channels=channels, revisions=revisions, retentions=retentions)


def _with_queries(plan: EpochPlan, catalog: Catalog, queries: Iterable[StandingQuery]) -> EpochPlan:
    """The plan with these queries too."""
    operators, streams = dict(plan.operators), dict(plan.streams)
    channels, revisions, retentions = dict(plan.channels), dict(plan.revisions), dict(plan.retentions)
    viewed = set(plan.viewed)
    for standing in queries:
        name, query = standing.definition.name, with_relations(bound(catalog, standing))
        nodes, chain = walk(query.root), {standing.operator_id: query}
        reads_queries = any(isinstance(node, QueryScan) for node in nodes)
        if reads_queries:
            chain = dict(levels(name, query, standing.operator_id))
            viewed |= {catalog.require_query(each).operator_id for each in _views(chain.values())}
        for operator_id, meaning in chain.items():
            if reads_queries:
                query = _over_streams(catalog, standing, operator_id, chain, streams)
                nodes = walk(query.root)
            if joins_streams(query):
                query, pairings = taken_apart(name, query, operator_id, derived.inner_of, derived.name_of)
                nodes = walk(query.root)
                for pairing in reversed(pairings):
                    operators[pairing.operator.id] = pairing.operator
                    retentions[pairing.operator.id] = Retention(0)
                    streams |= derived.of_pairs(pairing, streams)
            streams |= {
                each.name: several.union_of(each, streams) for each in nodes if isinstance(each, UnionAll)
            }
            wanted = standing.definition.materialize if operator_id == standing.operator_id else "complete"
            operator = lowered(name, query, operator_id, wanted, source_of(streams, nodes))
            if operator_id != standing.operator_id and query.emission == "relation":
                operator = logged(operator)
            channel = next(node.channel for node in nodes if isinstance(node, StreamScan))
            stream = streams.get(operator.stream)
            if channel == "rows" and stream is not None and stream.progress.groups:
                operator = operator.without_family()
            if not standing.definition.sharing:
                operator = operator.unshared()
            operators[operator.id] = operator
            if channel != "rows" or query.shedding:
                channels[operator.id] = "kept" if query.shedding else channel
            if query.revisions is not None:
                revisions[operator.id] = query.revisions.within
            retention = _retention(standing.definition.retain, operator_id, meaning)
            if retention is not None:
                retentions[operator.id] = retention
    return replace(
        plan,
        operators=operators,
        streams=derived.with_their_now(streams, operators),
        channels=channels,
        revisions=revisions,
        retentions=retentions,
        viewed=frozenset(viewed),
    )


def _views(chain: Iterable[Query]) -> set[str]:
    """Registered queries that are read as relations."""
    nodes = (node for query in chain for node in walk(query.root))
    return {node.name for node in nodes if isinstance(node, QueryScan) and node.registered}


def _over_streams(
    catalog: Catalog,
    standing: StandingQuery,
    operator_id: str,
    chain: Mapping[str, Query],
    streams: dict[str, StreamDefinition],
) -> Query:
    """A query of `chain` (see `levels`) with what it reads of other queries as streams, which are added to `streams`."""
    meaning, sources = chain[operator_id], dict[str, str]()
    inner = {alias: found for alias, (found, _) in derived.inner_queries(operator_id, meaning).items()}
    for scan in (node for node in walk(meaning.root) if isinstance(node, QueryScan)):
        if scan.query is not None:
            source, owner = inner[scan.alias], standing
            read = chain[source]
        else:
            owner = catalog.require_query(scan.name)
            source, read = owner.operator_id, bound(catalog, owner)
            sources[scan.name.lower()] = source
        kept = _retention(owner.definition.retain, source, read)
        streams[derived.name_of(source)] = derived.stream_of(source, read, kept)
    if not any(isinstance(node, QueryScan) for node in walk(meaning.root)):
        return meaning
    return derived.over_streams(meaning, inner, sources)
