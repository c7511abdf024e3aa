"""Rewriting of joins with windows of `[ROWS n]`: each such window becomes a query in FROM whose changelog is joined.

Only later rows determine how long a row is among the last n: such a window becomes a query that emits a changelog, and
the join is one of relations (`operators/joins/changelog_join.py`). Conditions on its columns alone are applied above it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.algebra.expressions.expression import (
    Column,
    Expression,
    Named,
    columns_of,
    conjunction,
    conjuncts,
)
from headrace.algebra.query import Aggregate, Filter, Join, Node, Project, Query, QueryScan, Windowed, walk
from headrace.algebra.rewriting import expressions_of
from headrace.algebra.windows.window import CHANGE, Changing, Rows
from headrace.planner.joins.outer_joins import has_outer_joins
from headrace.schema import TINYINT


def with_relations(query: Query) -> Query:
    """The query where every joined window of rows is a SELECT in FROM; the query itself where there is none."""
    nodes = walk(query.root)
    windows = [node for node in nodes if isinstance(node, Windowed) and isinstance(node.window, Rows)]
    if not windows or not any(isinstance(node, Join) and isinstance(node.right, Windowed) for node in nodes):
        return query
    reads = frozenset().union(
        *(columns_of(expression) for node in nodes for expression in expressions_of(node))
    )
    groups = [node for node in nodes if isinstance(node, Aggregate)]
    # Aggregates of all rows depend on the first row: the relation must then begin with the stream. Outer joins test WHERE
    # themselves: conditions of a side whose columns may be NULL are above them.
    above = (groups and not groups[0].keys) or has_outer_joins(query)
    factors = () if above else _factors(query.root)
    root = query.root
    for window in windows:
        conditions = [factor for factor in factors if _is_of(factor, window)]
        root = _replaced(root, window, _held(window, conditions, reads), conditions)
    return replace(query, root=root)


def _held(window: Windowed, conditions: Sequence[Expression], reads: frozenset[str]) -> Windowed:
    """The relation of a window: the columns that are read, of the rows that satisfy its conditions."""
    prefix = f"{window.alias}."
    fields = [field for field in window.source.schema if field.name in reads] or [
        window.source.schema.fields[0]
    ]
    columns = tuple(
        Named(field.name.removeprefix(prefix), Column(field.name, field.type)) for field in fields
    )
    rows: Node = Filter(window, conjunction(conditions)) if conditions else window
    inner = Query(Project(rows, columns), "relation")
    scan = QueryScan(window.alias, window.alias, inner.schema, inner)
    return Windowed(scan, window.alias, Changing(Column(f"{prefix}{CHANGE}", TINYINT)))


def _is_of(factor: Expression, window: Windowed) -> bool:
    read = columns_of(factor)
    return bool(read) and read <= frozenset(window.source.schema.names)


def _factors(root: Node) -> list[Expression]:
    """The conditions above the joins, below groups."""
    return [factor for node in _filters(root) for factor in conjuncts(node.predicate)]


def _filters(root: Node) -> list[Filter]:
    nodes = walk(root)
    return [
        node
        for node in nodes
        if isinstance(node, Filter)
        if not any(isinstance(below, Aggregate) for below in walk(node))
        if any(isinstance(below, Join) for below in walk(node))
    ]


def _replaced(node: Node, window: Windowed, held: Windowed, conditions: Sequence[Expression]) -> Node:
    """The tree with another window in place of one, without the conditions that are now above it."""
    if node is window:
        return held
    match node:
        case Join(left=left, right=right):
            return replace(
                node,
                left=_replaced(left, window, held, conditions),
                right=_replaced(right, window, held, conditions) if isinstance(right, Windowed) else right,
            )
        case Filter(source=source, predicate=predicate) if node in _filters(node):
            rest = [factor for factor in conjuncts(predicate) if factor not in conditions]
            below = _replaced(source, window, held, conditions)
            return Filter(below, conjunction(rest)) if rest else below
        case Windowed():
            return node
        case _:
            below = _replaced(node.source, window, held, conditions)  # type: ignore[union-attr]
            return replace(node, source=below)  # type: ignore[arg-type]
