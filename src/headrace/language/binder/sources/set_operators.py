"""Binding of UNION, UNION ALL, EXCEPT and INTERSECT between SELECTs: checks, common types of columns, and all inputs
as one source; for EXCEPT and INTERSECT also the GROUP BY and HAVING over it.

UNION is its distinct rows; for EXCEPT and INTERSECT equal rows are grouped and counted by input. With ALL a query of these groups has
the number of each in the result, and the source is the query that repeats them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from headrace.algebra.expressions.aggregates import is_aggregate
from headrace.algebra.expressions.expression import Column, Literal, Named
from headrace.algebra.functions.resolve import common_type
from headrace.algebra.query import (
    Aggregate,
    Distinct,
    Emit,
    Node,
    Project,
    Query,
    QueryScan,
    Top,
    UnionAll,
    Windowed,
    walk,
)
from headrace.algebra.windows.window import CHANGE, Changing, Unbounded
from headrace.errors import Span, UserError
from headrace.language.binder.expressions.expression_binder import cast, located
from headrace.language.binder.expressions.scope import BoundSource
from headrace.language.binder.sources.query_checks import check_names, readable
from headrace.language.binder.sources.unions import MAX_INPUTS
from headrace.language.syntax.ast import (
    AllColumns,
    Chain,
    Constant,
    Expr,
    FunctionCall,
    Infix,
    Item,
    Name,
    Select,
    Sets,
    Source,
    parts_of,
)
from headrace.language.syntax.refusals import fail, refuse
from headrace.schema import INT, TINYINT, Type

SIDE: Final = "__side"
"""The column with the number of a row's input, for EXCEPT and INTERSECT."""
_NARROW: Final = "narrow"
_COUNTED: Final = "counted"
_OF_BAGS: Final = ("EXCEPT ALL", "INTERSECT ALL")
_ONCE: Final = {
    "UNION": "would have to store all rows permanently, to recognise equal ones",
    "INTERSECT": "would have to store all rows permanently, to find equal ones",
    "EXCEPT": "would have to retract what it has emitted: a stream only ever grows",
    "INTERSECT ALL": "would have to store all rows permanently, to find equal ones",
    "EXCEPT ALL": "would have to retract what it has emitted: a stream only ever grows",
}


def several(sets: Sets, alias: str, inner: Callable[[Select], Query]) -> UnionAll | QueryScan:
    """The inputs of a set operator as one source; `inner` binds a SELECT.

    Raises `UserError` where columns do not agree, `UnsupportedQuery` for inputs without a set operator.
    """
    if sets.operator in _OF_BAGS and not sets.counts:
        return _repeated(sets, alias, inner)
    if len(sets.operands) > MAX_INPUTS:
        refuse(
            f"{sets.operator} is of at most {MAX_INPUTS} SELECTs",
            sets.operands[MAX_INPUTS].span,
            "Put some of them in parentheses.",
        )
    queries = []
    for written in sets.operands:
        query = inner(written)
        with located(written.span):
            queries.append(readable(query, f"a SELECT next to {sets.operator}"))
            check_names(query)
    _check_emissions(sets, queries)
    kinds = _kinds(sets, queries)
    wide = [_widened(query, kinds, later=index > 0) for index, query in enumerate(queries)]
    if sets.operator not in ("UNION ALL", "UNION"):
        last = len(wide) if sets.operator in ("INTERSECT", "INTERSECT ALL") else 1
        wide = [_with_side(query, min(index, last)) for index, query in enumerate(wide)]
    operands = tuple(
        QueryScan(f"{index}", f"{index}", query.schema, query) for index, query in enumerate(wide)
    )
    return UnionAll(operands, alias, operands[0].table)


def _repeated(sets: Sets, alias: str, inner: Callable[[Select], Query]) -> QueryScan:
    """The query that has each distinct row of the inputs as often as it counts."""
    items, span = sets.operands[0].items, sets.span
    source = Source(alias, None, None, "rows", span, sets=replace(sets, counts=True))
    counted = inner(Select((AllColumns(None, items[0].span.to(items[-1].span)),), source, span))
    scan = QueryScan(_COUNTED, _COUNTED, counted.schema, counted)
    *fields, times = counted.schema.fields
    number = Column(f"{_COUNTED}.{times.name}", times.type)
    window = Changing(Column(f"{_COUNTED}.{CHANGE}", TINYINT), number)
    columns = tuple(Named(field.name, Column(f"{_COUNTED}.{field.name}", field.type)) for field in fields)
    query = Query(Project(Windowed(scan, _COUNTED, window), columns), "relation")
    return QueryScan(alias, alias, query.schema, query)


def is_later(operand: Select, select: Select) -> bool:
    """Whether a SELECT is an input after the first, whose columns have the names."""
    sets = select.source.sets
    return sets is not None and operand is not sets.operands[0]


def spelled_out(select: Select, source: BoundSource) -> Select:
    """A SELECT * over a set operator, with its columns written out, and the condition of EXCEPT and INTERSECT."""
    sets = select.source.sets
    if sets is None:
        return select
    _check_order(select)
    names = [name for name in source.scan.table.names if name != SIDE]
    columns = [
        Name((source.alias, name), span)
        for name, span in zip(names, _spans(sets.operands[0], len(names)), strict=True)
    ]
    items = tuple(Item(column, name, column.span) for column, name in zip(columns, names, strict=True))
    select = replace(select, items=items)
    if sets.operator in ("UNION ALL", "UNION") or (sets.operator in _OF_BAGS and not sets.counts):
        return select

    def count(side: int) -> Expr:
        is_of = Infix("=", Name((source.alias, SIDE), sets.span), _number(side, sets.span), sets.span)
        return FunctionCall("count", (), sets.span, star=True, condition=is_of)

    none = _number(0, sets.span)
    if sets.counts:
        times: Expr = Infix("-", count(0), count(1), sets.span)
        if sets.operator == "INTERSECT ALL":
            numbers = tuple(count(side) for side in range(len(sets.operands)))
            times = FunctionCall("least", numbers, sets.span)
        number = "@times" + "'" * sum(name.startswith("@times") for name in names)
        select = replace(select, items=(*items, Item(times, number, sets.span)))
        having: Expr = Infix(">", times, none, sets.span)
    else:
        having = Infix("=", count(1), none, sets.span)
    if sets.operator == "INTERSECT":
        held = tuple(Infix(">", count(side), none, sets.span) for side in range(len(sets.operands)))
        having = Chain("and", held, sets.span)
    return replace(select, group_by=tuple(columns), having=having, having_span=sets.span)


def _with_side(query: Query, side: int) -> Query:
    return _over_list(query, lambda columns: (*columns, Named(SIDE, Literal(side, INT))))


def is_several(query: Query) -> bool:
    """Whether the query is a set operator between relations, with at most ORDER BY and LIMIT above."""
    return any(isinstance(node, Windowed) and _holds_several(node) for node in walk(query.root))


def _holds_several(node: Windowed) -> bool:
    return isinstance(node.source, UnionAll) and isinstance(node.window, Changing)


def _check_order(select: Select) -> None:
    """Raises `UserError` for an aggregate in the ORDER BY of a set operator: it orders rows, which are no groups."""
    waiting = [item.expression for item in select.order_by]
    while waiting:
        node = waiting.pop()
        if isinstance(node, FunctionCall) and is_aggregate(node.name):
            fail(
                f"ORDER BY after several SELECTs cannot contain the aggregate {node.name.upper()}",
                node.span,
                "Select it in each of them, and order by its column.",
            )
        waiting += parts_of(node)


def _number(value: int, span: Span) -> Constant:
    return Constant(value, INT, f"{value}", span)


def _check_emissions(sets: Sets, queries: Sequence[Query]) -> None:
    """Raises `UnsupportedQuery` for inputs that are streams where only relations can be, or of both kinds."""
    held = [query.emission == "relation" for query in queries]
    if all(held):
        return
    if sets.operator != "UNION ALL":
        refuse(
            f"{sets.operator} of streams {_ONCE[sets.operator]}",
            sets.operands[held.index(False)].span,
            "Write windows without SLIDE, and no ISTREAM: FROM s [RANGE 5 MINUTES], [ROWS 100] or [RANGE UNBOUNDED]"
            + ("; or UNION ALL, which keeps all rows." if sets.operator == "UNION" else "."),
        )
    if any(held):
        index = held.index(not held[0])
        first, other = ("holds a relation", "is a stream")[:: 1 if held[0] else -1]
        refuse(
            f"the first SELECT of UNION ALL {first}, and this one {other}",
            sets.operands[index].span,
            "Make both a relation, by windows without SLIDE and no ISTREAM; or both a stream: ISTREAM(SELECT …).",
        )


def _kinds(sets: Sets, queries: Sequence[Query]) -> list[Type]:
    """The common type of each column."""
    first = queries[0].schema.fields
    for query, operand in zip(queries[1:], sets.operands[1:], strict=True):
        count = len(query.schema.fields)
        if count != len(first):
            fail(
                f"the SELECTs of {sets.operator} have as many columns: {len(first)} in the first, {count} in this one",
                operand.items[0].span.to(operand.items[-1].span),
                "Leave some out, or add constants such as NULL.",
            )
    return [_kind(sets, queries, index) for index in range(len(first))]


def _kind(sets: Sets, queries: Sequence[Query], index: int) -> Type:
    fields = [query.schema.fields[index] for query in queries]
    spans = [_spans(operand, len(queries[0].schema.fields))[index] for operand in sets.operands]
    for number in range(2, len(fields) + 1):
        try:
            kind = common_type([field.type for field in fields[:number]])
        except UserError:
            raise UserError(
                f"column {index + 1} of this SELECT is {fields[number - 1].type}, and that of"
                f" {'the first' if number == 2 else 'those before it'} {common_type([field.type for field in fields[: number - 1]])}",
                span=spans[number - 1],
                remedy="CAST one of them to the type of the other.",
            ) from None
    if sets.operator != "UNION ALL" and not kind.is_orderable:
        refuse(
            f"{sets.operator} compares rows, and values of type {kind} cannot be compared",
            spans[0],
            "Select their parts one by one.",
        )
    return kind


def _spans(operand: Select, count: int) -> list[Span]:
    """The places of the columns of a SELECT; with a * the place of the * for all of its columns."""
    spans = [item.span for item in operand.items]
    return (
        [spans[0].to(spans[-1])] * count
        if any(isinstance(column, AllColumns) for column in operand.items)
        else spans
    )


def _widened(query: Query, kinds: Sequence[Type], *, later: bool) -> Query:
    """The query with columns of these types; the names of a `later` input are not read."""
    fields = query.schema.fields
    if [field.type for field in fields] == list(kinds):
        return query
    if _is_row_by_row(query):
        return _over_list(
            query,
            lambda columns: tuple(
                Named(field.name, cast(field.expression, kind))
                for field, kind in zip(columns, kinds, strict=True)
            ),
        )
    # Distinct rows may be equal after the cast, so DISTINCT is applied first.
    held = query.emission == "relation"
    scan = QueryScan(_NARROW, _NARROW, query.schema, query)
    window = Changing(Column(f"{_NARROW}.{CHANGE}", TINYINT)) if held else Unbounded()
    columns = tuple(
        Named(f"c{index}" if later else field.name, cast(Column(f"{_NARROW}.{field.name}", field.type), kind))
        for index, (field, kind) in enumerate(zip(fields, kinds, strict=True))
    )
    root = Project(Windowed(scan, _NARROW, window), columns)
    return Query(root, "relation") if held else Query(Emit(root, "istream"), "stream")


def _is_row_by_row(query: Query) -> bool:
    """Whether the select list is above everything that compares rows; a stream that only adds rows compares none."""
    nodes = walk(query.root)
    ranked = any(
        isinstance(node, Distinct) or (isinstance(node, Top) and node.limit is not None) for node in nodes
    )
    if ranked or is_several(query) or not isinstance(query.root, Emit):
        return not ranked and not is_several(query)
    windows = [node.window for node in nodes if isinstance(node, Windowed)]
    grows = all(isinstance(window, Unbounded) for window in windows)
    return query.root.kind == "istream" and grows and not any(isinstance(node, Aggregate) for node in nodes)


def _over_list(query: Query, change: Callable[[tuple[Named, ...]], tuple[Named, ...]]) -> Query:
    """The query with another select list."""

    def changed(node: Node) -> Node:
        if isinstance(node, Project):
            return replace(node, columns=change(node.columns))
        assert isinstance(node, Emit | Top | Distinct)
        return replace(node, source=changed(node.source))

    return replace(query, root=changed(query.root))
