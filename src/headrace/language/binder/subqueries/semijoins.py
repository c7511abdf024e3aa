"""Binding of `x IN (SELECT …)` over a changing relation: a semijoin with the relation at every instant; and checks
of the query around such a SELECT: its windows, BEGIN … END, and aggregates.

The relation of the SELECT is joined as distinct rows, so that an outer row matches at most one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from headrace.algebra.expressions.aggregates import NamedAggregate
from headrace.algebra.expressions.expression import Call, Column, Expression, Named, columns_of
from headrace.algebra.expressions.series import AT, POSITION
from headrace.algebra.query import (
    Aggregate,
    Ago,
    Distinct,
    Project,
    Query,
    QueryScan,
    StreamScan,
    Top,
    Windowed,
    walk,
)
from headrace.algebra.windows.window import TimeRange, Unbounded
from headrace.dataclass import dataclass
from headrace.errors import Span, UnsupportedQuery
from headrace.language.binder.expressions.expression_binder import ExpressionBinder, cast
from headrace.language.binder.expressions.scope import NotInScope, Scope
from headrace.language.binder.sources.bounds import follows_now
from headrace.language.binder.sources.from_clause import From, changes_of
from headrace.language.binder.sources.set_operators import is_several
from headrace.language.binder.sources.stream_joins import bounded
from headrace.language.syntax.ast import AllColumns, Expr, InSelect, Name, Select
from headrace.language.syntax.refusals import fail, refuse
from headrace.schema import Type

_INSTANT = "FROM s [RANGE 5 MINUTES], [ROWS 100] or [RANGE UNBOUNDED]"
_LIMITED = "members"


@dataclass(frozen=True, slots=True)
class Semijoin:
    """The inner relation of a semijoin, and the equalities with its columns, in order."""

    right: Windowed
    conditions: tuple[Expression, ...]


def semijoin(
    node: InSelect, outer: ExpressionBinder, scope: Scope, inner: Callable[[Select], Query], alias: str
) -> Semijoin:
    """The semijoin of a condition; `inner` binds its SELECT with columns c0, c1, ….

    Raises `UserError` where the values before IN and the columns of the SELECT differ in number, or cannot be compared;
    `UnsupportedQuery` for a SELECT that is no relation, or reads columns of the outer query.
    """
    operands, query = operands_of(node, scope), relation_of(node.select, "IN", scope, inner)
    fields = query.schema.fields
    if len(operands) != len(fields):
        of_row = len(operands) != len(node.operands)
        listed = ", ".join(item.parts[-1] for item in operands if isinstance(item, Name))
        fail(
            f"IN compares place by place: {len(operands)} before it, {len(fields)} in its SELECT",
            node.select.items[0].span.to(node.select.items[-1].span),
            f"'{operands[0].parts[0]}' is expanded to {listed}."
            if of_row and isinstance(operands[0], Name)
            else "Select as many columns as there are values before IN.",
        )
    spans = _places(node)
    conditions, kinds = [], []
    for operand, column, span in zip(operands, fields, spans or [node.span] * len(fields), strict=True):
        equality = outer.call("=", span, outer.bind(operand), Column(f"{alias}.{column.name}", column.type))
        assert isinstance(equality, Call)
        kinds.append(equality.arguments[1].type)
        inner_column = Column(f"{alias}.{column.name}", kinds[-1])
        conditions.append(replace(equality, arguments=(equality.arguments[0], inner_column)))
    held = _each_once(query, kinds)
    scan = QueryScan(alias, alias, held.schema, held)
    return Semijoin(Windowed(scan, alias, changes_of(scan)), tuple(conditions))


def operands_of(node: InSelect, scope: Scope) -> tuple[Expr, ...]:
    """The values before IN; the name of a source, unless it is a column, means all its columns."""
    first = node.operands[0]
    if len(node.operands) > 1 or not isinstance(first, Name) or len(first.parts) > 1:
        return node.operands
    source = scope.source(first.parts[0])
    if source is None or scope.has_column(first):
        return node.operands
    return tuple(Name((source.alias, name), first.span) for name in source.scan.table.names)


def _places(node: InSelect) -> list[Span] | None:
    """The places of the columns of the SELECT; None with a *."""
    items = node.select.items
    return None if any(isinstance(item, AllColumns) for item in items) else [item.span for item in items]


def relation_of(select: Select, what: str, scope: Scope, inner: Callable[[Select], Query]) -> Query:
    """The query of the SELECT of a condition, `what`, if it is a relation; `scope` has the sources around it.

    Raises `UnsupportedQuery` for a SELECT that is a stream.
    """
    query = _bound(select, scope, inner)
    if query.emission != "relation":
        kind = "windows, each emitted when it ends" if query.emission == "windows" else "a stream of rows"
        refuse(
            f"the SELECT of {what} is {kind}, and {what} reads a relation at an instant",
            select.span,
            f"Write a window without SLIDE: {_INSTANT}."
            if select.emit is None
            else f"Leave {select.emit.upper()} out.",
        )
    return query


def _bound(select: Select, scope: Scope, inner: Callable[[Select], Query]) -> Query:
    try:
        return inner(select)
    except NotInScope as error:
        if not scope.has_column(error.name):
            raise
        raise UnsupportedQuery(
            f"a SELECT over what changes cannot read '{'.'.join(error.name.parts)}' of the query around it",
            span=error.name.span,
            remedy="Write what is equal before IN: (a, b) IN (SELECT c, d FROM …); or JOIN what the SELECT reads.",
        ) from None


def _each_once(query: Query, kinds: Sequence[Type]) -> Query:
    """The distinct rows of a relation, as these types: values that are equal after the cast are one."""
    root = query.root
    top: Top | None = None
    if isinstance(root, Top):
        top = root
        root = root.source
    if isinstance(root, Distinct):
        root = root.source
    assert isinstance(root, Project)
    columns, below = root.columns, root.source
    if isinstance(below, Top):
        top = below
        below = below.source
    limited = top is not None and top.limit is not None
    several, same = is_several(query), [field.type for field in query.schema] == list(kinds)
    if several and same and not limited and any(isinstance(node, Aggregate) for node in walk(below)):
        return Query(Project(below, columns), "relation")  # EXCEPT and INTERSECT have distinct rows
    if limited or (several and not same):
        # Aggregates that depend on order take all rows, also equal ones; set operators compare values before the cast.
        scan = QueryScan(_LIMITED, _LIMITED, query.schema, query)
        below = Windowed(scan, _LIMITED, changes_of(scan))
        columns = tuple(
            Named(field.name, Column(f"{_LIMITED}.{field.name}", field.type)) for field in query.schema.fields
        )
    named = tuple(
        Named(column.name, cast(column.expression, kind)) for column, kind in zip(columns, kinds, strict=True)
    )
    return Query(Distinct(Project(below, named)), "relation")


# ----------------------------------------------------------------------------------------------- the query around them


def with_semijoins(select: Select, sources: From) -> From:
    """The sources of a query that has semijoins; `BEGIN NOW - INTERVAL d END NOW` is the window of its stream.

    Raises `UnsupportedQuery` for a query that holds no relation at every instant, and for what is not available then.
    """
    for source in sources.streams:
        if source.sliding:
            where = "its SLIDE" if select.window is None else "it"
            refuse(
                f"the window of '{source.alias}' slides, and a SELECT over what changes is read at an instant",
                source.span if select.window is None else select.window.span,
                f"Leave {where} out: {_INSTANT}.",
            )
        if isinstance(source.scan, StreamScan) and source.scan.channel != "rows":
            refuse(
                f"{source.scan.channel.upper()} rows arrive after their time: the state of that time has expired",
                source.span,
                "Select them by themselves, or use a stored relation.",
            )
    if select.revisions is not None:
        refuse(
            "WITH REVISIONS is not available with a SELECT over what changes",
            select.revisions.span,
            "Leave it out, or give the streams a SLACK that keeps their late rows.",
        )
    if select.bounds is None or (sources.others and not follows_now(select.bounds)):
        return sources
    begin, end = select.bounds
    upto = isinstance(begin, Ago) and end == Ago()
    if not upto or not isinstance(sources.stream.window, Unbounded | TimeRange):
        refuse(
            "BEGIN … END with a SELECT over what changes is an interval up to NOW, and allows no window but [RANGE d]",
            select.bounds_span or sources.stream.span,
            "Write BEGIN NOW - INTERVAL d END NOW, or compare the stream's time column in WHERE.",
        )
    return replace(sources, stream=bounded(sources.stream, begin, end))


def check_order(aggregates: Iterable[NamedAggregate], select: Select) -> None:
    """Raises `UnsupportedQuery` for aggregates that depend on the order of rows: rows that begin to match have none."""
    for item in aggregates:
        names = frozenset[str]() if item.call.argument is None else columns_of(item.call.argument)
        if any(name.endswith((AT, POSITION)) for name in names):
            refuse(
                f"{item.call.function.upper()} depends on the order of rows, and with a SELECT over what changes they have none",
                select.span,
                "Use MIN, MAX or another aggregate that does not.",
            )
