"""Rewriting of a query's tree: other expressions in its nodes, and other nodes in place of some; and the list of a
node's expressions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headrace.algebra.expressions.aggregates import NamedAggregate
from headrace.algebra.expressions.expression import Call, Expression, Named, transform
from headrace.algebra.query import (
    Aggregate,
    Bounds,
    Distinct,
    Emit,
    Filter,
    Join,
    Node,
    Project,
    SemijoinColumn,
    SortKey,
    Top,
)

Change = Callable[[Expression], Expression | None]


def rewritten(node: Node, change: Change, below: Callable[[Node], Node | None]) -> Node:
    """The tree with `change` applied to every expression; a node for which `below` returns another is replaced by that."""
    replacement = below(node)
    if replacement is not None:
        return replacement

    def apply(expression: Expression) -> Expression:
        return transform(expression, change)

    match node:
        case Emit(source=source) | Distinct(source=source) | Bounds(source=source):
            return replace(node, source=rewritten(source, change, below))
        case Top(source=source, order=order):
            keys = tuple(SortKey(apply(key.expression), key.descending, key.nulls_first) for key in order)
            return replace(node, source=rewritten(source, change, below), order=keys)
        case Project(source=source, columns=columns):
            return Project(rewritten(source, change, below), _named(columns, apply))
        case Filter(source=source, predicate=predicate):
            return Filter(rewritten(source, change, below), apply(predicate))
        case Aggregate(source=source, keys=keys_of, aggregates=aggregates):
            calls = tuple(NamedAggregate(item.name, item.call.over(apply)) for item in aggregates)
            return Aggregate(rewritten(source, change, below), _named(keys_of, apply), calls)
        case Join(left=left, condition=condition):
            on = None if condition is None else apply(condition)
            return replace(node, left=rewritten(left, change, below), condition=on)
        case SemijoinColumn(source=source, condition=condition, test=test):
            on = None if condition is None else apply(condition)
            compared = (
                None if test is None else Call(test.function, tuple(map(apply, test.arguments)), test.type)
            )
            return replace(node, source=rewritten(source, change, below), condition=on, test=compared)
    raise AssertionError(f"{type(node).__name__} cannot be rewritten here")


def _named(columns: tuple[Named, ...], apply: Callable[[Expression], Expression]) -> tuple[Named, ...]:
    return tuple(Named(column.name, apply(column.expression)) for column in columns)


def expressions_of(node: Node) -> list[Expression]:
    """The expressions of a node itself."""
    match node:
        case Project(columns=columns):
            return [column.expression for column in columns]
        case Filter(predicate=predicate):
            return [predicate]
        case Top(order=order):
            return [key.expression for key in order]
        case Aggregate(keys=keys, aggregates=aggregates):
            calls = [item.call for item in aggregates]
            parts = [part for call in calls for part in (call.argument, call.condition, call.weight)]
            return [*(key.expression for key in keys), *(part for part in parts if part is not None)]
        case Join(condition=condition):
            return [] if condition is None else [condition]
        case SemijoinColumn(condition=condition, test=test):
            return [part for part in (condition, test) if part is not None]
        case _:
            return []
