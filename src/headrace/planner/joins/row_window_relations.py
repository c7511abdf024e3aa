"""Windows of rows among those that are joined, as relations of their own.

Until when a row is among the last n, only rows to come say: so such a window is a query of its own that tells its changes, and
what is joined are relations (`operators/joins/changelog_join.py`). Conditions on its columns alone come to stand over it.
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
from headrace.operators.approximate.approximate_instants import ApproximateInstants
from headrace.operators.base.operator import Operator
from headrace.operators.relations.changelog_projection import ChangingRows
from headrace.operators.relations.instant_aggregate import InstantAggregate
from headrace.operators.relations.instant_rows import InstantRows
from headrace.schema import TINYINT


def with_relations(query: Query) -> Query:
    """The query where every window of rows that is joined is a SELECT in FROM; the query itself where there is none."""
    nodes = walk(query.root)
    windows = [node for node in nodes if isinstance(node, Windowed) and isinstance(node.window, Rows)]
    if not windows or not any(isinstance(node, Join) and isinstance(node.right, Windowed) for node in nodes):
        return query
    reads = frozenset().union(*(columns_of(each) for node in nodes for each in expressions_of(node)))
    groups = [node for node in nodes if isinstance(node, Aggregate)]
    # Aggregates of all rows say from when on there were any: the relation must then begin with the stream.
    apart = () if groups and not groups[0].keys else _factors(query.root)
    root = query.root
    for window in windows:
        own = [factor for factor in apart if _is_of(factor, window)]
        root = _replaced(root, window, _held(window, own, reads), own)
    return replace(query, root=root)


def logged(operator: Operator) -> Operator:
    """The operator of a relation that is read: those who read it may look at it later than its own NOW."""
    if isinstance(operator, InstantRows | InstantAggregate | ChangingRows):
        return replace(operator, emit_mode="log")
    if isinstance(operator, ApproximateInstants):
        return replace(operator, exactly=replace(operator.exactly, emit_mode="log"))
    raise AssertionError(f"{type(operator).__name__} holds no relation")


def _held(window: Windowed, own: Sequence[Expression], reads: frozenset[str]) -> Windowed:
    """What a window holds of the columns that are read, where the conditions of its own are true, as a relation."""
    prefix = f"{window.alias}."
    fields = [field for field in window.source.schema if field.name in reads] or [
        window.source.schema.fields[0]
    ]
    columns = tuple(
        Named(field.name.removeprefix(prefix), Column(field.name, field.type)) for field in fields
    )
    rows: Node = Filter(window, conjunction(own)) if own else window
    inner = Query(Project(rows, columns), "relation")
    scan = QueryScan(window.alias, window.alias, inner.schema, inner)
    return Windowed(scan, window.alias, Changing(Column(f"{prefix}{CHANGE}", TINYINT)))


def _is_of(factor: Expression, window: Windowed) -> bool:
    read = columns_of(factor)
    return bool(read) and read <= frozenset(window.source.schema.names)


def _factors(root: Node) -> list[Expression]:
    """The conditions that stand over the joins, below groups."""
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


def _replaced(node: Node, window: Windowed, held: Windowed, own: Sequence[Expression]) -> Node:
    """The tree with one window said otherwise, and without the conditions that stand over it now."""
    if node is window:
        return held
    match node:
        case Join(left=left, right=right):
            return replace(
                node,
                left=_replaced(left, window, held, own),
                right=_replaced(right, window, held, own) if isinstance(right, Windowed) else right,
            )
        case Filter(source=source, predicate=predicate) if node in _filters(node):
            rest = [factor for factor in conjuncts(predicate) if factor not in own]
            below = _replaced(source, window, held, own)
            return Filter(below, conjunction(rest)) if rest else below
        case Windowed():
            return node
        case _:
            below = _replaced(node.source, window, held, own)  # type: ignore[union-attr]
            return replace(node, source=below)  # type: ignore[arg-type]
