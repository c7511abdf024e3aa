"""Binding of FROM: each source as a scan under its window (that of GROUP BY too), the kinds and conditions of joins
(ON, USING), and the scope of names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias
from typing import Literal as Choice

from headrace.algebra.expressions.expression import Column, Expression, conjuncts
from headrace.algebra.functions.resolve import UserFunction
from headrace.algebra.query import Query, QueryScan, RelationScan, StreamScan, UnionAll
from headrace.algebra.windows.window import CHANGE, Changing, Session, TimeSlide, Unbounded, Window
from headrace.catalog.definitions import StreamDefinition
from headrace.dataclass import dataclass
from headrace.errors import UserError, did_you_mean
from headrace.language.binder.expressions.expression_binder import ExpressionBinder, joined, located
from headrace.language.binder.expressions.scope import REJECTS, WINDOW_COLUMNS, BoundSource, Names, Scope
from headrace.language.binder.sources.bounds import are_instants
from headrace.language.binder.sources.query_checks import readable
from headrace.language.binder.sources.set_operators import several
from headrace.language.binder.sources.side_times import at_times_of_side
from headrace.language.binder.sources.stream_joins import (
    bounded,
    check_grouped_window,
    check_outer_joins,
    check_together,
)
from headrace.language.binder.sources.unions import united
from headrace.language.binder.sources.window_binder import bind_window, check_attribute
from headrace.language.syntax.ast import (
    FunctionCall,
    JoinClause,
    Select,
    SessionWindow,
    Source,
    StartingWindow,
)
from headrace.language.syntax.refusals import fail, refuse
from headrace.schema import TINYINT, Schema
from headrace.time import Duration

STREAM_FIRST: Final = (
    "Available are streams and any number of relations, the streams first: FROM s JOIN r ON …"
)

StoredJoin: TypeAlias = tuple[BoundSource, Choice["inner", "left"], Expression | None]


@dataclass(frozen=True, slots=True)
class From:
    """Bound sources. `scope` has them in the order of FROM; `stream` is the first stream, `others` the streams joined with it.

    `relations` is the rest. `conditions` are of inner joins, not yet attached; a LEFT join has its own. `retain` is the
    retention of the stream, None without a limit; `latency` how long its rows may wait for others; `archive` where its rows are
    stored, if it is a stream.
    """

    scope: Scope
    stream: BoundSource
    others: tuple[BoundSource, ...]
    relations: tuple[StoredJoin, ...]
    conditions: tuple[Expression, ...]
    retain: Duration | None = None
    latency: Duration = 0
    archive: str | None = None

    @property
    def streams(self) -> tuple[BoundSource, ...]:
        """All streams, in the order of FROM."""
        return (self.stream, *self.others)

    @property
    def keeps_rows(self) -> bool:
        """True when a join of streams keeps rows without a pair."""
        return any(source.kind != "inner" for source in self.others)

    @property
    def bare(self) -> bool:
        """True when no stream has a window written."""
        return all(source.bare for source in self.streams)


def bind_from(
    select: Select,
    names: Names,
    functions: Mapping[str, UserFunction],
    inner: Callable[[Select], Query],
) -> From:
    """Sources, windows and joins of a SELECT; `inner` binds a SELECT in FROM.

    Raises `UserError` for unknown names and for windows that do not fit; `UnsupportedQuery` for joins that are not available.
    """
    sources = [
        _source(source, names, functions, inner)
        for source in (select.source, *(j.source for j in select.joins))
    ]
    if select.window is not None:
        check_grouped_window(select.window, [item for item in sources if item.window is not None])
        sources = [_with_group_window(source, select.window, names) for source in sources]
    _check_aliases(sources)
    stream, *others = _streams(sources)
    if others and select.bounds is not None and not are_instants(select.bounds):
        limits = select.bounds
        sources = [item if item.window is None else bounded(item, *limits) for item in sources]
        stream, *others = _streams(sources)
    scope = Scope((sources[0],))
    joined_sources = [sources[0]]
    for clause, source in zip(select.joins, sources[1:], strict=True):
        scope, condition = _joined(scope, clause, source, functions)
        joined_sources.append(replace(source, kind=clause.kind, on=condition))
    stream, *others = _streams(joined_sources)
    relations = _stored(joined_sources)
    if others:
        check_together(select, (stream, *others))
    check_outer_joins(select, joined_sources)
    written = [source.on for source in joined_sources if source.kind == "inner" and source.on is not None]
    conditions = tuple(factor for on in written for factor in conjuncts(on))
    definition = names.stream(stream.scan.name)
    of_stream = (
        (None, 0) if definition is None else (definition.retain, definition.latency, definition.archive)
    )
    return From(scope, stream, tuple(others), relations, conditions, *of_stream)


def _stored(sources: list[BoundSource]) -> tuple[StoredJoin, ...]:
    """The joins with stored relations. Conditions of inner ones are attached later."""
    if sources[0].window is None:
        for source in sources[1:]:
            if source.kind == "left":
                refuse("a LEFT JOIN keeps the rows of the stream", sources[0].span, STREAM_FIRST)
    joins: list[StoredJoin] = []
    for source in (item for item in sources if item.window is None):
        if source.kind == "left":
            joins.append((source, "left", source.on))
        elif source.kind == "inner":
            joins.append((source, "inner", None))
        else:
            refuse(
                f"a {source.kind.upper()} JOIN cannot keep the rows of '{source.alias}', which is stored: they have no instant",
                source.span,
                "Keep those of the stream with LEFT JOIN, or make the relation a stream.",
            )
    return tuple(joins)


def _check_aliases(sources: list[BoundSource]) -> None:
    seen: set[str] = set()
    for source in sources:
        if source.alias.lower() in seen:
            fail(
                f"two sources of FROM are called '{source.alias}'",
                source.span,
                "Give one of them another name: FROM s AS a, s AS b.",
            )
        seen.add(source.alias.lower())


def _streams(sources: list[BoundSource]) -> list[BoundSource]:
    streams = [source for source in sources if source.window is not None]
    if not streams:
        refuse(
            "a query over relations alone is not available: its answer would never change by itself",
            sources[0].span,
            STREAM_FIRST,
        )
    return streams


def _source(
    source: Source,
    names: Names,
    functions: Mapping[str, UserFunction],
    inner: Callable[[Select], Query],
) -> BoundSource:
    with located(source.span):
        scan: StreamScan | RelationScan | QueryScan | UnionAll
        if source.sets is not None:
            scan = several(source.sets, source.name, inner)
        elif source.others:
            scan = united(source, lambda part: _scan(part, names))
        else:
            scan = _scan(source, names) if source.select is None else _derived(source, inner(source.select))
        if "." in scan.alias:
            raise UserError(
                f"'{scan.alias}' cannot qualify columns: it contains a dot",
                remedy=f"Give it an alias: FROM `{scan.name}` AS s.",
            )
    if isinstance(scan, RelationScan):
        if source.window is not None:
            fail(
                f"'{source.name}' is a relation: only streams have windows",
                source.window.span,
                "Leave the brackets out.",
            )
        return BoundSource(scan, None, bare=False, span=source.span)
    window: Window = Unbounded()
    if holds_relation(scan):
        window = changes_of(scan)
        if source.window is not None:
            fail(
                f"'{scan.alias}' holds a relation: only streams have windows",
                source.window.span,
                "Leave the brackets out, or make it a stream with ISTREAM(SELECT …).",
            )
    elif source.window is not None:
        with located(source.window.span):
            scan = at_times_of_side(scan, source.window, names)
            window = bind_window(source.window, scan, functions, names)
    bare = source.window is None and not isinstance(window, Changing)
    bound = BoundSource(scan, window, bare=bare, span=source.span)
    return _without_clash(bound)


def _without_clash(source: BoundSource) -> BoundSource:
    """The source without the columns that its window adds too; a query's are refused where they are named.

    Raises `UserError` where a stream has such a column.
    """
    both = frozenset(name for name in WINDOW_COLUMNS if source.sliding and source.scan.table.find(name))
    if not both:
        return source
    source = replace(source, doubled=both)
    if not isinstance(source.scan, QueryScan):
        source.check_single(min(both), source.span)
    table = Schema(tuple(field for field in source.scan.table if field.name.lower() not in both))
    return replace(source, scan=replace(source.scan, table=table))


def _scan(source: Source, names: Names) -> StreamScan | RelationScan | QueryScan:
    if (stream := names.stream(source.name)) is not None:
        alias = source.alias or stream.name
        if source.channel == "rejects":
            return StreamScan(stream.name, alias, REJECTS, None, "rejects")
        reducer = _reducer(source, stream)
        return StreamScan(stream.name, alias, stream.schema, stream.time, source.channel, reducer)
    if source.channel != "rows" or source.reducer is not None:
        what = "reducers" if source.reducer is not None else source.channel.upper()
        raise UserError(f"only a stream has {what}, and '{source.name}' is none")
    if (relation := names.relation(source.name)) is not None:
        return RelationScan(relation.name, source.alias or relation.name, relation.schema)
    if (query := names.query(source.name)) is not None:
        definition, bound = query
        read = readable(bound, f"the query '{definition.name}'")
        held = read if read.emission == "relation" or read.settles else None
        return QueryScan(
            definition.name, source.alias or definition.name, bound.schema, held, held is not None
        )
    raise UserError(
        f"there is no stream, relation or query '{source.name}'",
        remedy=did_you_mean(source.name, names.built_in() if "." in source.name else names.known()),
    )


def _reducer(source: Source, stream: StreamDefinition) -> str:
    """The reducer that REDUCED BY names; "" without it."""
    if source.reducer is None:
        return ""
    names = [reducer.name.lower() for reducer in stream.reducers]
    if source.reducer.lower() not in names:
        raise UserError(
            f"the stream '{stream.name}' has no reducer '{source.reducer}'",
            span=source.span,
            remedy=did_you_mean(source.reducer, names),
        )
    return source.reducer.lower()


def _derived(source: Source, query: Query) -> QueryScan:
    read = readable(query, "the SELECT in FROM")
    return QueryScan(source.name, source.alias or source.name, read.schema, read)


def holds_relation(scan: StreamScan | QueryScan | UnionAll) -> bool:
    """True for a query that is read as a relation at every instant, and for a set operator."""
    if isinstance(scan, UnionAll):
        return holds_relation(scan.inputs[0])
    return isinstance(scan, QueryScan) and scan.query is not None and scan.query.emission == "relation"


def changes_of(scan: StreamScan | QueryScan | UnionAll) -> Changing:
    """The window of a relation that is read."""
    return Changing(Column(f"{scan.alias}.{CHANGE}", TINYINT))


def _with_group_window(
    source: BoundSource, clause: StartingWindow | SessionWindow, names: Names
) -> BoundSource:
    """The stream under the window of GROUP BY window(…)."""
    if source.window is None:
        return source
    if isinstance(source.window, Changing):
        fail(
            f"'{source.alias}' holds a relation, and GROUP BY a window is of a stream",
            clause.span,
            "Put the window into the SELECT that is read.",
        )
    if not source.bare:
        fail("the stream has a window in FROM and another one in GROUP BY", clause.span, "Keep one of them.")
    assert not isinstance(source.scan, RelationScan)
    scan = at_times_of_side(source.scan, clause, names)
    check_attribute(clause.attribute, scan)
    window: Window
    if isinstance(clause, SessionWindow):
        window = Session(clause.gap)
    else:
        window = TimeSlide(clause.range, clause.slide, clause.origin + clause.range)
    return _without_clash(replace(source, scan=scan, window=window, bare=False))


def _joined(
    scope: Scope, clause: JoinClause, source: BoundSource, functions: Mapping[str, UserFunction]
) -> tuple[Scope, Expression | None]:
    """The scope with one more source, and the condition of its join."""
    if not clause.using:
        wider = Scope((*scope.sources, source))
        if clause.condition is None:
            return wider, None
        return wider, _conditions(wider, functions).condition(clause.condition, "the condition of ON")
    pairs = []
    binder = _conditions(scope, functions)
    for name in clause.using:
        source.check_single(name.parts[-1], name.span)
        right = source.find(name.parts[-1])
        if right is None or len(name.parts) > 1:
            fail(
                f"there is no column '{'.'.join(name.parts)}' in '{source.alias}' for USING",
                name.span,
                did_you_mean(name.parts[-1], source.scan.table.names),
            )
        pairs.append(binder.call("=", name.span, binder.bind(name), right))
    hidden = source.hidden | {name.parts[-1].lower() for name in clause.using}
    condition = joined("and", pairs)
    return Scope((*scope.sources, replace(source, hidden=hidden))), condition


def _conditions(scope: Scope, functions: Mapping[str, UserFunction]) -> ExpressionBinder:
    def aggregate(call: FunctionCall) -> Expression:
        fail(f"ON cannot hold the aggregate {call.name.upper()}", call.span, "Compare it in HAVING.")

    return ExpressionBinder(scope.column, aggregate, functions)
