"""Rewriting of an approximate aggregate that compares rows with aggregates of its group, so that synopses of panes
answer it; none where they cannot.

`COUNT(*) FILTER (WHERE x > AVG(x) AND y = 1) WITHIN 1 PERCENT`: one expression of rows compared with values of exact aggregates,
with conditions on rows alone. Others are answered exactly, from rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.expressions.correlated import depends_on
from headrace.algebra.expressions.expression import Call, Cast, Expression, columns_of, conjunction, conjuncts
from headrace.schema import BOOLEAN

_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def comparing(item: NamedAggregate, aggregates: Sequence[NamedAggregate]) -> NamedAggregate | None:
    """The aggregate over a synopsis; None where a synopsis cannot answer it."""
    call = item.call
    if call.condition is None or call.distinct or call.type.name == "DECIMAL":
        return None
    if not _are_exact(call, aggregates):
        return None
    names = {aggregate.name for aggregate in aggregates}
    factors = conjuncts(call.condition)
    pairs = [_compared(factor, names) for factor in factors if columns_of(factor) & names]
    against = [pair for pair in pairs if pair is not None]
    rows = {row for row, _, _ in against}
    if len(against) < len(pairs) or len(rows) != 1:
        return None
    (row,) = rows
    plain = [factor for factor in factors if not columns_of(factor) & names]
    if call.function == "count" and call.argument is not None:
        plain.append(Call("isnotnull", (call.argument,), BOOLEAN))
    comparison = replace(
        call,
        argument=row,
        weight=call.argument if call.function in ("sum", "avg") else None,
        condition=conjunction(plain) if plain else None,
        against=tuple((operator, limit) for _, operator, limit in against),
    )
    return NamedAggregate(item.name, comparison)


def _are_exact(call: AggregateCall, aggregates: Sequence[NamedAggregate]) -> bool:
    """True when the aggregates that it reads depend on rows alone and are not approximate."""
    read = [item.call for item in aggregates if item.name in depends_on(call, aggregates)]
    return bool(read) and all(
        aggregate.within is None and not depends_on(aggregate, aggregates) for aggregate in read
    )


def _compared(factor: Expression, names: Collection[str]) -> tuple[Expression, str, Expression] | None:
    """An expression of rows, the comparison, and the value of the group."""
    if not isinstance(factor, Call) or factor.function not in _MIRRORED:
        return None
    left, right = factor.arguments
    for row, limit, operator in (
        (left, right, factor.function),
        (right, left, _MIRRORED[factor.function]),
    ):
        read = columns_of(limit)
        if read and read <= set(names) and not columns_of(row) & set(names):
            plain = _without_widening(row)
            if plain.type.is_integer or plain.type.is_fractional:
                return plain, operator, limit
    return None


def _without_widening(expression: Expression) -> Expression:
    """The expression without casts to wider numbers: comparisons are of DOUBLE."""
    while isinstance(expression, Cast) and expression.type.is_numeric and expression.argument.type.is_integer:
        expression = expression.argument
    return expression
