"""Binding of a SELECT as a value, and of comparisons with ALL and ANY of a SELECT: an outer join with one row.

The SELECT is an aggregate without GROUP BY, or has LIMIT 1, so its relation has at most one row; without one the value is
NULL. With equalities between its columns and those of the query around it the row is that of a group.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from headrace.algebra.expressions.aggregates import is_aggregate
from headrace.algebra.expressions.expression import Call, Case, Column, Expression, Literal
from headrace.language.binder.expressions.expression_binder import ExpressionBinder, cast
from headrace.language.binder.subqueries.existence import (
    Correlation,
    Inner,
    SubqueryJoin,
    every_part,
    read_as,
)
from headrace.language.binder.subqueries.semijoins import relation_of
from headrace.language.syntax.ast import (
    AllColumns,
    FunctionCall,
    Infix,
    Item,
    Name,
    Quantified,
    ScalarSelect,
    Select,
    Source,
)
from headrace.language.syntax.refusals import fail, refuse
from headrace.schema import BIGINT, BOOLEAN

_ONE_ROW: Final = "Write an aggregate, such as MAX(x), or LIMIT 1."
_EXTREME: Final = {("<", True): "min", ("<=", True): "min", (">", True): "max", (">=", True): "max"} | {
    ("<", False): "max",
    ("<=", False): "max",
    (">", False): "min",
    (">=", False): "min",
}
"""The value with which `x < ALL`, `x < ANY` … compare x."""
_VALUES: Final = "compared"


def scalar(node: ScalarSelect, correlation: Correlation, inner: Inner) -> tuple[SubqueryJoin, Expression]:
    """The join that a SELECT as a value is, and the value.

    Raises `UserError` for several columns; `UnsupportedQuery` for a SELECT that may have several rows.
    """
    select = node.select
    if len(select.items) != 1 or isinstance(select.items[0], AllColumns):
        fail("a SELECT as a value has one column", select.span, "Name it: (SELECT MAX(x) FROM …).")
    item = select.items[0]
    one = select.limit == 1 or (not select.group_by and select.window is None and _aggregates(item))
    if not one or select.source.sets is not None:
        refuse("a SELECT as a value may have several rows", select.span, _ONE_ROW)
    factors, rest = correlation.split(select.where)
    if not factors:
        query = relation_of(select, "a value", correlation.outside, inner)
        joined = SubqueryJoin(read_as(correlation.alias, query), "left", None)
        return joined, _column(joined, 0)
    if select.limit is not None or select.having is not None:
        refuse(
            "a SELECT as a value with LIMIT or HAVING cannot read columns of the query around it",
            factors[0].span,
            "JOIN a SELECT with GROUP BY in FROM.",
        )
    for factor in factors:
        if not (isinstance(factor, Infix) and factor.operator == "="):
            refuse(
                "a SELECT as a value is compared with the query around it by equalities of columns only",
                factor.span,
                "Write WHERE inner.k = outer.k, or JOIN the SELECT in FROM.",
            )
    condition = correlation.bind(factors)
    keys = tuple(correlation.items.values())
    grouped = replace(select, items=(*keys, item), where=rest, group_by=tuple(key.expression for key in keys))
    query = relation_of(grouped, "a value", correlation.outside, inner)
    joined = SubqueryJoin(read_as(correlation.alias, query), "left", condition)
    value = _column(joined, len(keys))
    return joined, _counted(item, value)


def quantified(
    node: Quantified, outer: ExpressionBinder, correlation: Correlation, inner: Inner
) -> tuple[SubqueryJoin, Expression]:
    """The join that `x < ALL (SELECT …)` or `x < ANY (SELECT …)` is, and the truth: of SQL's three values.

    Raises `UnsupportedQuery` for `= ALL` and `<> ANY`.
    """
    select, span = node.select, node.select.span
    word = "ALL" if node.every else "ANY"
    extreme = _EXTREME.get((node.operator, node.every))
    if extreme is None:
        refuse(
            f"{node.operator} {word} is not available",
            node.span,
            "Compare with both ends: x >= ALL (…) AND x <= ALL (…)."
            if node.every
            else "Write NOT (x >= ALL (…) AND x <= ALL (…)).",
        )
    if len(select.items) != 1 or (isinstance(select.items[0], AllColumns) and select.source.sets is None):
        fail(f"the SELECT of {word} has one column", span, "Name it: ALL (SELECT x FROM …).")
    first = select.items[0]
    named = replace(select, items=(replace(first, alias="c0"),)) if isinstance(first, Item) else select
    wrapped = Source(_VALUES, _VALUES, None, "rows", span, named)
    relation_of(select, word, correlation.outside, inner)
    calls = [FunctionCall(name, (Name((_VALUES, "c0"), span),), span) for name in (extreme, "count")]
    calls.append(FunctionCall("count", (), span, star=True))
    query = inner(Select(tuple(Item(call, None, span) for call in calls), wrapped, span))
    joined = SubqueryJoin(read_as(correlation.alias, query), "left", None)
    value, known, rows = (_column(joined, index) for index in range(3))
    compared = outer.call(node.operator, node.span, outer.bind(node.operand), value)
    return joined, _truth(compared, known, rows, every=node.every)


def _truth(compared: Expression, known: Expression, rows: Expression, *, every: bool) -> Expression:
    """Over no rows ALL is true and ANY false; else one known answer decides, then NULLs, then all others."""
    none = Call("=", (Call("coalesce", (rows, Literal(0, BIGINT)), BIGINT), Literal(0, BIGINT)), BOOLEAN)
    decides = Call("not", (compared,), BOOLEAN) if every else compared
    has_nulls = Call("<", (known, rows), BOOLEAN)
    branches = (
        (none, Literal(every, BOOLEAN)),
        (decides, Literal(not every, BOOLEAN)),
        (has_nulls, Literal(None, BOOLEAN)),
    )
    return Case(branches, compared, BOOLEAN)


def _aggregates(item: Item) -> bool:
    return any(
        isinstance(part, FunctionCall) and is_aggregate(part.name) for part in every_part(item.expression)
    )


def _counted(item: Item, value: Expression) -> Expression:
    """The value of a group, where a group without rows has none: a COUNT is then 0."""
    call = item.expression
    counts = [
        part for part in every_part(call) if isinstance(part, FunctionCall) and part.name.lower() == "count"
    ]
    if counts and call is not counts[0]:
        refuse(
            "COUNT inside an expression cannot be a value for each row of the query around it",
            item.span,
            "Make the COUNT the value, and compute with it outside of the SELECT.",
        )
    return Call("coalesce", (value, cast(Literal(0, BIGINT), value.type)), value.type) if counts else value


def _column(joined: SubqueryJoin, index: int) -> Expression:
    field = joined.right.source.schema.fields[index]
    return Column(field.name, field.type)
