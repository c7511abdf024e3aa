"""The making of the epoch plan: the operators of every query of a catalog (bound, its joins divided into stages, lowered),
with the streams and relations that they read; and of the plan after further entries of the query log, mostly at the cost of
what these change.

A query is registered by its text; its meaning depends on the definitions it names. So a bound query is cached with those
(`bound_queries`), and bound again only when one of them changes: a registration costs as much as it adds, not as much as there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from headrace.algebra.query import Node, Query, QueryScan, StreamScan, UnionAll, find_window, walk
from headrace.algebra.windows.window import Landmark, TimeSlide
from headrace.catalog.catalog import OF_PRODUCTS, OF_SIDES, OF_SUMS, Catalog, CatalogQuery, is_of_query
from headrace.catalog.definitions import JoinTree, StreamDefinition
from headrace.dataclass import dataclass
from headrace.operators.base.operator import Operator
from headrace.operators.joins.side_products import SideProduct, SideSum
from headrace.operators.joins.window_join import WindowJoin
from headrace.planner.joins.interval_joins import with_intervals
from headrace.planner.joins.join_stage import JoinStage, growing, only_window_join
from headrace.planner.joins.now_joins import with_pairs_of_now
from headrace.planner.joins.outer_joins import decompose_outer, joins_changes
from headrace.planner.joins.row_window_relations import with_relations
from headrace.planner.joins.stream_constraints import constrained, unconstrained
from headrace.planner.joins.stream_joins import decompose, joins_streams
from headrace.planner.lowering.lower import combinations_of
from headrace.planner.lowering.materialization import Source
from headrace.runtime.messages.epoch_plan import EpochPlan, PlannedOperator, Retention
from headrace.runtime.plan import derived_streams, union_streams
from headrace.runtime.plan.bound_queries import bound, lowered
from headrace.time import Duration


def source_of(streams: Mapping[str, StreamDefinition], nodes: Sequence[Node]) -> Source:
    """The rows of the archive that a query can read; `nodes` are the query's."""
    if any(isinstance(node, UnionAll) for node in nodes):
        return Source(archived=False)
    scan = next((node for node in nodes if isinstance(node, StreamScan)), None)
    stream = None if scan is None else streams.get(scan.name)
    if stream is None:
        return Source(archived=False)
    return Source(stream.archive == "copy" and stream.using != derived_streams.USING, stream.retain)


def levels(name: str, query: Query, operator_id: str) -> Iterator[tuple[str, Query]]:
    """A query and the SELECTs in its FROM, outermost first, each with the id of its operator."""
    query = with_relations(with_pairs_of_now(query))
    yield operator_id, query
    for inner_id, inner in derived_streams.inner_queries(operator_id, query).values():
        yield from levels(name, inner, inner_id)


def make_plan(catalog: Catalog) -> EpochPlan:
    """All operators, the streams they read and the current relations."""
    streams = {stream.name: stream for stream in catalog.streams.values()}
    relations = {relation.definition.name: relation.file for relation in catalog.relations.values()}
    plan = EpochPlan({}, streams, relations, catalog.functions, sample_rates=_sample_rates(catalog))
    return _with_queries(plan, catalog, catalog.queries.values())


def _sample_rates(catalog: Catalog) -> dict[str, float]:
    """Streams with a sample rate below 1."""
    rates = {stream.name: catalog.sample_rate_of(stream.name) for stream in catalog.streams.values()}
    return {name: rate for name, rate in rates.items() if rate < 1}


def _retention(retain: Duration | None, operator: str, query: Query) -> Retention | None:
    """How long an operator's results are kept; those of a SELECT in FROM only until they were read by its one reader.

    The latest window is always kept, since INVOKE returns it.
    """
    if derived_streams.owner_of(operator) != operator:
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
    """A plan, and the ids of operators added or removed since the previous one; None: any may have changed."""

    plan: EpochPlan
    changed: frozenset[str] | None = None

    def then(self, later: Replanned) -> Replanned:
        """This change of the plan and a later one, as one."""
        if self.changed is None or later.changed is None:
            return Replanned(later.plan)
        return Replanned(later.plan, self.changed | later.changed)


def plan_after(
    plan: EpochPlan, before: Catalog, after: Catalog, entries: Sequence[Mapping[str, Any]]
) -> Replanned:
    """The plan of `after`, which is `before` with `entries` of the query log applied; `plan` is that of `before`.

    Changes of queries over sources that no other query reads cost as much as they change. Changes that run nothing (a pause,
    another owner) return the same plan.
    """
    if all(entry["do"] == "keep" for entry in entries):
        return Replanned(replace(plan, sample_rates=_sample_rates(after)), frozenset())
    if not all(is_of_query(entry) for entry in entries):
        return Replanned(make_plan(after))
    dropped: list[str] = []
    added: dict[str, CatalogQuery] = {}
    for name in _changed_names(entries):
        old, new = before.queries.get(name), after.queries.get(name)
        if old is not None:
            if has_dependents(plan, old.operator_id):
                return Replanned(make_plan(after))
            dropped.append(old.operator_id)
        if new is not None:
            added[name] = new
    if not dropped and not added:
        return Replanned(plan, frozenset())
    remaining = _without_queries(plan, dropped)
    planned = _with_queries(remaining, after, added.values())
    operators_added = islice(planned.planned, len(remaining.planned), None)
    return Replanned(planned, frozenset((*dropped, *operators_added)))


def _changed_names(entries: Sequence[Mapping[str, Any]]) -> dict[str, None]:
    """Names of the queries whose part of the plan log entries change, in order."""
    names: dict[str, None] = {}
    for entry in entries:
        if entry["do"] == "put_query":
            names[entry["query"]["name"].lower()] = None
        elif entry["do"] not in ("pause", "resume") and not _only_labels(entry):
            names[entry["name"].lower()] = None
            if entry["do"] == "rename":
                names[entry["to"].lower()] = None
    return names


def _only_labels(entry: Mapping[str, Any]) -> bool:
    """Whether a log entry changes only a query's owner or tags, which run nothing."""
    return entry["do"] == "set" and entry["settings"].keys() <= {"owner", "tags"}


def is_read(plan: EpochPlan, operator_id: str) -> bool:
    """Whether other queries of the plan read this one."""
    planned = plan.planned.get(operator_id)
    is_inlined_view = planned is not None and planned.is_inlined_view
    return is_inlined_view or derived_streams.name_of(operator_id) in plan.streams


def has_dependents(plan: EpochPlan, operator_id: str) -> bool:
    """Whether other operators depend on this one, or it on others."""
    if is_read(plan, operator_id):
        return True
    operator = plan.operators.get(operator_id)
    return operator is not None and plan.streams[operator.stream].using in (
        derived_streams.USING,
        union_streams.USING,
    )


def operator_of(catalog: Catalog, catalog_query: CatalogQuery) -> Operator:
    """The operator of one query as in the plan, planned with those that it reads alone."""
    streams = {stream.name: stream for stream in catalog.streams.values()}
    queries = [*_read_by(catalog, catalog_query), catalog_query]
    return _with_queries(EpochPlan({}, streams), catalog, queries).operators[catalog_query.operator_id]


def _read_by(catalog: Catalog, catalog_query: CatalogQuery) -> Iterator[CatalogQuery]:
    """The registered queries of which a query reads the results, each after those that it reads."""
    query = bound(catalog, catalog_query)
    for _, level in levels(catalog_query.definition.name, query, catalog_query.operator_id):
        for node in walk(level.root):
            if isinstance(node, QueryScan) and node.query is None:
                read = catalog.require_query(node.name)
                yield from _read_by(catalog, read)
                yield read


def _without_queries(plan: EpochPlan, dropped: Sequence[str]) -> EpochPlan:
    """The plan without some operators that read sources and have no readers."""
    if not dropped:
        return plan
    planned = dict(plan.planned)
    for name in dropped:
        del planned[name]
    return replace(plan, planned=planned)


def _with_queries(plan: EpochPlan, catalog: Catalog, queries: Iterable[CatalogQuery]) -> EpochPlan:
    """The plan with these queries added."""
    planned, streams = dict(plan.planned), dict(plan.streams)
    inlined_views = set[str]()
    for catalog_query in queries:
        name = catalog_query.definition.name
        query = with_relations(with_pairs_of_now(bound(catalog, catalog_query)))
        nodes, chain = walk(query.root), {catalog_query.operator_id: query}
        reads_queries = any(isinstance(node, QueryScan) for node in nodes)
        if reads_queries:
            chain = dict(levels(name, query, catalog_query.operator_id))
            inlined_views |= {
                catalog.require_query(view).operator_id for view in _inlined_views(chain.values())
            }
        for operator_id, meaning in chain.items():
            if reads_queries:
                query = _over_streams(catalog, catalog_query, operator_id, chain, streams)
                nodes = walk(query.root)
            join_stages: tuple[JoinStage, ...] = ()
            if joins_streams(query):
                query, join_stages = _with_joins(catalog_query, query, operator_id, planned, streams)
                nodes = walk(query.root)
            streams |= {
                node.name: union_streams.union_of(node, streams)
                for node in nodes
                if isinstance(node, UnionAll)
            }
            is_own = operator_id == catalog_query.operator_id
            materialize = catalog_query.definition.materialize if is_own else "complete"
            source = replace(source_of(streams, nodes), pairs_of=_own_join(catalog_query, query, join_stages))
            operator = lowered(name, query, operator_id, materialize, source)
            if join_stages and operator.stream == join_stages[0].union.name:  # it makes no pairs
                del planned[join_stages[0].operator.id]
                del streams[derived_streams.name_of(join_stages[0].operator.id)]
            if not is_own and query.emission == "relation":
                from headrace.planner.lowering.builders.instant_operators import logged  # noqa: PLC0415 - a relation

                operator = logged(operator)
            channel = next(node.channel for node in nodes if isinstance(node, StreamScan))
            stream = streams.get(operator.stream)
            if channel == "rows" and stream is not None and _closes_by_group(operator, stream):
                operator = operator.without_family()
            quality = meaning.quality
            if not catalog_query.definition.sharing or (quality is not None and quality.has_own_state):
                operator = operator.unshared()
            planned[operator.id] = PlannedOperator(
                operator,
                "kept" if query.shedding or query.has_alternatives else channel,
                query.revisions,
                _retention(catalog_query.definition.retain, operator_id, meaning),
                quality=quality,
                repairs=query.repair,
                settles=query.settles,
            )
    planned |= _with_readers_together(islice(planned.values(), len(plan.planned), None), planned, streams)
    for view in inlined_views & planned.keys():
        planned[view] = replace(planned[view], is_inlined_view=True)
    return replace(plan, planned=planned, streams=derived_streams.with_their_now(streams, planned))


def _closes_by_group(operator: Operator, stream: StreamDefinition) -> bool:
    """Whether the windows of single groups may close before those of others, so that the operator has a state of its own."""
    if stream.using != derived_streams.USING:
        return bool(stream.progress.groups)
    columns = derived_streams.promising(stream).groups
    return bool(columns) and bool(operator.without_family().group_columns(columns))


def _with_joins(
    catalog_query: CatalogQuery,
    query: Query,
    operator_id: str,
    planned: dict[str, PlannedOperator],
    streams: dict[str, StreamDefinition],
) -> tuple[Query, tuple[JoinStage, ...]]:
    """The query over the results of its joins, and these, which are added; and those of a tree that grows."""
    definition, is_whole = catalog_query.definition, operator_id == catalog_query.operator_id
    grows = definition.growing_tree if is_whole else None
    if grows is not None:
        _, stages = _decomposed(catalog_query, query, operator_id, streams, grows)
        _add_joins(growing(stages), planned, streams, catalog_query, None)
    tree = definition.join_tree if is_whole else None
    query, join_stages = _decomposed(catalog_query, query, operator_id, streams, tree)
    most_rows = definition.max_join_rows if is_whole else None
    _add_joins(join_stages, planned, streams, catalog_query, most_rows)
    return query, join_stages


def _decomposed(
    catalog_query: CatalogQuery,
    query: Query,
    operator_id: str,
    streams: Mapping[str, StreamDefinition],
    tree: JoinTree | None,
) -> tuple[Query, tuple[JoinStage, ...]]:
    """The query over the results of its joins of streams, and the joins; `tree`: their order, if another than the first was chosen."""
    name, join = catalog_query.definition.name, catalog_query.definition.join
    stored_without_end = join and catalog_query.layout < OF_SIDES  # as earlier versions planned shared joins
    if not stored_without_end:
        query = with_intervals(query)
    names = (
        derived_streams.joins_of_tree(operator_id, 0 if tree is None else tree.number),
        derived_streams.name_of,
    )
    if joins_changes(query):
        return decompose_outer(name, query, operator_id, *names)
    is_whole = operator_id == catalog_query.operator_id  # not a SELECT in FROM
    sizes = catalog_query.definition.join_sizes if is_whole else ()
    groups = () if tree is None else tree.groups
    query, join_stages = decompose(name, query, operator_id, *names, join, sizes, groups)
    finds, spill = catalog_query.definition.join_constraints == "find", catalog_query.definition.spill
    return query, tuple(constrained(stage, streams, finds=finds, spill=spill) for stage in join_stages)


def _add_joins(
    join_stages: Sequence[JoinStage],
    planned: dict[str, PlannedOperator],
    streams: dict[str, StreamDefinition],
    catalog_query: CatalogQuery,
    most_rows: int | None,
) -> None:
    """Add joins that are not planned yet, with the streams that they read and make; each stores about `most_rows` rows."""
    for join_stage in reversed(join_stages):
        if join_stage.operator.id not in planned:
            streams |= derived_streams.of_pairs(join_stage, streams)
            join = _planned_join(join_stage, streams, catalog_query, most_rows)
            planned[join.operator.id] = join


_WITHOUT_PAIRS: Final[Mapping[type, int]] = {SideProduct: OF_PRODUCTS, SideSum: OF_SUMS}
"""Since which layout aggregates of such a combination of two sides need no pairs."""


def _own_join(
    catalog_query: CatalogQuery, query: Query, join_stages: Sequence[JoinStage]
) -> WindowJoin | None:
    """The join whose pairs a query alone reads, if one operator makes them; earlier versions had stored the pairs."""
    definition = catalog_query.definition
    stores_pairs = definition.join or catalog_query.layout < OF_SIDES or definition.max_join_rows is not None
    join = None if stores_pairs else unconstrained(only_window_join(join_stages))
    needed_pairs = {kind for kind, layout in _WITHOUT_PAIRS.items() if catalog_query.layout < layout}
    if join is not None and needed_pairs and combinations_of(query, join) & needed_pairs:
        return None
    return join


def _with_readers_together(
    added: Iterable[PlannedOperator],
    planned: Mapping[str, PlannedOperator],
    streams: Mapping[str, StreamDefinition],
) -> dict[str, PlannedOperator]:
    """Those of the added operators that read results, by id, each in the family of readers of results with the same clock.

    The number of the query distinguishes their rows.
    """
    clocks = derived_streams.clocks_of(streams, planned)
    readers = {}
    for reader in added:
        stream = streams.get(reader.operator.stream)
        if stream is not None and stream.using in (derived_streams.USING, union_streams.USING):
            clock, behind = clocks.of(stream.name)
            results, bound = (
                f"@{clock.level} {' '.join(clock.sources)} {behind}",
                union_streams.bound_of(stream),
            )
            if bound.of_sources:
                operator = reader.operator.without_family()
            else:
                rounded = f" {bound.unit}" if bound.unit > 1 else ""
                operator = reader.operator.among_readers_of(results + rounded)
            readers[operator.id] = replace(reader, operator=operator)
    return readers


def _planned_join(
    join_stage: JoinStage,
    streams: Mapping[str, StreamDefinition],
    catalog_query: CatalogQuery,
    most_rows: int | None,
) -> PlannedOperator:
    pairs = streams.get(derived_streams.name_of(join_stage.operator.id))
    retain = 0 if pairs is None else pairs.retain
    join = join_stage.operator.with_most_rows(most_rows)
    if any(streams[name].progress.groups for name, _ in join_stage.union.inputs):
        join = join.heeding_key_promises()
    operator = join.in_family() if catalog_query.definition.sharing else join
    return PlannedOperator(operator, retention=None if retain is None else Retention(retain))


def _inlined_views(chain: Iterable[Query]) -> set[str]:
    """Registered queries that are read as relations."""
    nodes = (node for query in chain for node in walk(query.root))
    return {node.name for node in nodes if isinstance(node, QueryScan) and node.registered}


def _over_streams(
    catalog: Catalog,
    catalog_query: CatalogQuery,
    operator_id: str,
    chain: Mapping[str, Query],
    streams: dict[str, StreamDefinition],
) -> Query:
    """A query of `chain` (see `levels`) with scans of queries replaced by scans of streams, which are added to `streams`."""
    meaning, sources = chain[operator_id], dict[str, str]()
    inner = {
        alias: inner_id
        for alias, (inner_id, _) in derived_streams.inner_queries(operator_id, meaning).items()
    }
    for scan in (node for node in walk(meaning.root) if isinstance(node, QueryScan)):
        if scan.query is not None:
            source, owner = inner[scan.alias], catalog_query
            read = chain[source]
        else:
            owner = catalog.require_query(scan.name)
            source, read = owner.operator_id, bound(catalog, owner)
            sources[scan.name.lower()] = source
        retention = _retention(owner.definition.retain, source, read)
        results = streams[derived_streams.name_of(source)] = derived_streams.stream_of(
            source, read, retention
        )
        if scan.time is not None:
            at_times = derived_streams.at_times_of(results, scan.time, streams)
            streams[at_times.name] = at_times
    if not any(isinstance(node, QueryScan) for node in walk(meaning.root)):
        return meaning
    return derived_streams.over_streams(meaning, inner, sources)
