"""Rewriting of RSTREAM over [NOW] with aggregates and no GROUP BY, which has a result at every instant with a row,
even where WHERE is false for all of them.

So conditions may not drop rows before the aggregates. They become the aggregates' own:
`SELECT COUNT(*) FROM s [NOW] WHERE c` is `SELECT COUNT(*) FILTER (WHERE c) FROM s [NOW]`, and an inner join is a LEFT one
whose aggregates test that it matched.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.algebra.expressions.aggregates import NamedAggregate
from headrace.algebra.expressions.expression import (
    Call,
    Cast,
    Column,
    Expression,
    columns_of,
    conjunction,
    conjuncts,
)
from headrace.algebra.query import Join
from headrace.algebra.windows.window import TimeRange
from headrace.errors import UnsupportedQuery
from headrace.planner.lowering.query_shape import Shape
from headrace.schema import BOOLEAN


def conditions_in_aggregates(shape: Shape) -> Shape:
    """The query with its conditions inside the aggregates, where they would otherwise drop instants.

    Raises `UnsupportedQuery` for an inner join that is no equality with a column.
    """
    aggregate = shape.aggregate
    if aggregate is None or aggregate.keys or shape.emit is None or shape.emit.kind != "rstream":
        return shape
    if shape.window != TimeRange(0) or shape.bounds is not None:
        return shape
    conditions = [*(_matched(join) for join in shape.joins if join.kind == "inner"), *shape.where]
    if not conditions:
        return shape
    calls = tuple(
        NamedAggregate(item.name, replace(item.call, condition=_all([*conditions, item.call.condition])))
        for item in aggregate.aggregates
    )
    return replace(
        shape,
        joins=tuple(replace(join, kind="left") for join in shape.joins),
        where=(),
        aggregate=replace(aggregate, aggregates=calls),
    )


def _matched(join: Join) -> Expression:
    """True on rows that matched a row of the relation: a column of an equality is not NULL."""
    columns = frozenset(join.right.schema.names)
    for factor in conjuncts(join.condition) if join.condition is not None else ():
        for side in factor.arguments if isinstance(factor, Call) and factor.function == "=" else ():
            column = side.argument if isinstance(side, Cast) else side
            if isinstance(column, Column) and columns_of(column) <= columns:
                return Call("isnotnull", (column,), BOOLEAN)
    raise UnsupportedQuery(
        "RSTREAM over [NOW] of an aggregate needs GROUP BY where it joins on anything but a column's equality",
        remedy="Add GROUP BY, or join on a column: ON s.a = r.b.",
    )


def _all(factors: list[Expression | None]) -> Expression:
    present = [factor for factor in factors if factor is not None]
    return conjunction(present)
