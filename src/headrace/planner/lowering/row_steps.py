"""Lowering of a query's filters, look-ups in stored relations and tests of membership to steps that are applied row
by row.

Names change here: a stream's column `alias.column` becomes `column`, so that equal expressions of different queries are
equal values; columns of joined relations keep `alias.column`.
"""

from __future__ import annotations

from headrace.algebra.expressions.expression import (
    Call,
    Cast,
    Column,
    Expression,
    columns_of,
    conjunction,
    conjuncts,
    transform,
)
from headrace.algebra.query import Join, RelationScan, SemijoinColumn
from headrace.operators.rows.row_pipeline import LookupJoin, RowFilter, RowStep
from headrace.operators.rows.semijoin import Membership
from headrace.planner.lowering.query_shape import Shape
from headrace.schema import BIGINT, DOUBLE


def row_steps(shape: Shape, *, separate: bool = False) -> tuple[RowStep, ...]:
    """Filters and look-ups before any state, cheapest first: stream-only conditions before the joins.

    A condition on stream columns commutes with the joins (for LEFT too, since stream rows are the kept side), but not with a test of
    membership that may reject the row. With `separate` the conditions below the window, where there are any, are the first step alone.
    """
    rename = Rename(shape)
    where, late = list(shape.where), list[Expression]()
    memberships = [_membership(mark, rename) for mark in shape.semijoin_columns]
    if any(membership.may_fail for membership in memberships):
        where, late = [], where
    elif shape.joins or memberships:
        where = [factor for factor in shape.where if rename.is_stream_only(factor)]
        late = [factor for factor in shape.where if not rename.is_stream_only(factor)]
    groups = [[*shape.before], where] if separate else [[*shape.before, *where]]
    steps: list[RowStep] = [
        RowFilter(conjunction([rename(factor) for factor in early])) for early in groups if early
    ]
    steps += [_look_up(join, rename) for join in shape.joins]
    steps += memberships
    if late:
        steps.append(RowFilter(conjunction([rename(factor) for factor in late])))
    return tuple(steps)


class Rename:
    """Rewrites columns of the stream to their plain names."""

    def __init__(self, shape: Shape) -> None:
        self._prefix = f"{shape.scan.alias}."

    def __call__(self, expression: Expression) -> Expression:
        """The expression over plain names."""
        return transform(expression, self._column)

    def _column(self, node: Expression) -> Expression | None:
        if isinstance(node, Column) and node.name.startswith(self._prefix):
            return Column(node.name.removeprefix(self._prefix), node.type)
        return None

    def is_stream_only(self, expression: Expression) -> bool:
        """Whether it reads columns of the stream alone."""
        return all(name.startswith(self._prefix) for name in columns_of(expression))


def _look_up(join: Join, rename: Rename) -> LookupJoin:
    relation = join.right
    assert isinstance(relation, RelationScan)
    inside = f"{relation.alias}."
    left_keys, right_keys, residual = [], [], []
    for factor in conjuncts(join.condition) if join.condition is not None else ():
        pair = _equi_pair(factor, inside)
        if pair is None:
            residual.append(rename(factor))
        else:
            left_keys.append(rename(pair[0]))
            right_keys.append(_strip(pair[1], inside))
    return LookupJoin(
        relation=relation.name,
        alias=relation.alias,
        schema=relation.table,
        left_keys=tuple(left_keys),
        right_keys=tuple(right_keys),
        residual=conjunction(residual) if residual else None,
        keep_unmatched=join.kind == "left",
    )


def _never_fails(key: Expression) -> bool:
    """True for a column, also as a wider number: a key that fails would drop its row, where a test reports the failure."""
    if isinstance(key, Cast):
        return _never_fails(key.argument) and key.argument.type.is_integer and key.type in (BIGINT, DOUBLE)
    return isinstance(key, Column)


def _membership(mark: SemijoinColumn, rename: Rename) -> Membership:
    inside = f"{mark.right.alias}."
    left_keys, right_keys, inner, residual = [], [], [], []
    for factor in conjuncts(mark.condition) if mark.condition is not None else ():
        pair = _equi_pair(factor, inside)
        if pair is not None and _never_fails(pair[1]):
            left_keys.append(rename(pair[0]))
            right_keys.append(_strip(pair[1], inside))
        elif all(name.startswith(inside) for name in columns_of(factor)):
            inner.append(_strip(factor, inside))
        else:
            residual.append(rename(factor))
    value, member = mark.test.arguments if mark.test is not None else (None, None)
    return Membership(
        name=mark.name,
        relation=mark.right.name,
        alias=mark.right.alias,
        left_keys=tuple(left_keys),
        right_keys=tuple(right_keys),
        own=conjunction(inner) if inner else None,
        residual=conjunction(residual) if residual else None,
        value=None if value is None else rename(value),
        tested_value=None if member is None else _strip(member, inside),
    )


def _equi_pair(factor: Expression, inside: str) -> tuple[Expression, Expression] | None:
    """(outer side, relation side) of an equality that a hash index can answer."""
    if not (isinstance(factor, Call) and factor.function == "="):
        return None
    one, other = factor.arguments
    for left, right in ((one, other), (other, one)):
        is_inner = columns_of(right) and all(name.startswith(inside) for name in columns_of(right))
        if is_inner and not any(name.startswith(inside) for name in columns_of(left)):
            return left, right
    return None


def _strip(expression: Expression, prefix: str) -> Expression:
    return transform(
        expression,
        lambda node: Column(node.name.removeprefix(prefix), node.type) if isinstance(node, Column) else None,
    )
