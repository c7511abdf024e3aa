"""The lower part of a query's algebra tree: scans, windows and joins of FROM, subqueries and filters of WHERE, with
each condition of ON and WHERE put at the join or filter that tests it.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.algebra.expressions.expression import Call, Expression, columns_of, conjuncts
from headrace.algebra.query import Filter, Join, Node, Windowed
from headrace.language.binder.expressions.expression_binder import joined
from headrace.language.binder.sources.from_clause import From
from headrace.language.binder.subqueries.subquery_binder import SubqueryBinder


def tree(
    sources: From,
    where: Expression | None,
    subquery_binder: SubqueryBinder,
    bounds: frozenset[str],
    *,
    grouped_window: bool,
) -> Node:
    """Scans, windows, joins of streams, semijoins, joins with relations, the subqueries of WHERE and WHERE, bottom up.

    With `GROUP BY window()` conditions on the stream alone are below the window, as in SQL. A comma join takes its
    equalities from WHERE. Conditions on window `bounds` alone choose windows, and are of no join.
    """
    prefix = f"{sources.stream.alias}."
    pending = list(sources.conditions)
    pending += [condition for semijoin in subquery_binder.semijoins for condition in semijoin.conditions]
    pending += [] if where is None else list(conjuncts(where))
    of_windows = [factor for factor in pending if columns_of(factor) and columns_of(factor) <= bounds]
    pending = [factor for factor in pending if factor not in of_windows]
    node: Node = sources.stream.scan
    if grouped_window:
        early = [factor for factor in pending if all(name.startswith(prefix) for name in columns_of(factor))]
        pending = [factor for factor in pending if factor not in early]
        node = Filter(node, joined("and", early)) if early else node
    assert sources.stream.window is not None
    node = Windowed(node, sources.stream.alias, sources.stream.window)
    node, pending = _with_streams(node, sources, pending)
    for semijoin in subquery_binder.semijoins:
        node, pending = _paired(node, semijoin.right, sources, pending)
    for join in subquery_binder.joins:
        node = Join(node, join.right, join.kind, join.condition)
    for source, kind, condition in sources.relations:
        if kind == "inner":
            available = frozenset(node.schema.names) | frozenset(source.scan.schema.names)
            columns = frozenset(source.scan.schema.names)
            applicable = _applicable(pending, sources, available, columns)
            pending = [factor for factor in pending if factor not in applicable]
            condition = joined("and", applicable) if applicable else None  # noqa: PLW2901
        node = Join(node, source.scan, kind, condition)
    node = subquery_binder.over(node)
    pending += of_windows
    return Filter(node, joined("and", pending)) if pending else node


def _with_streams(node: Node, sources: From, pending: list[Expression]) -> tuple[Node, list[Expression]]:
    """The joins with the other streams, in order, and the conditions that are left.

    A comma join takes its equalities from WHERE, unless a later RIGHT or FULL join keeps rows that WHERE drops.
    """
    if sources.keeps_rows:
        written = [source.on for source in sources.others if source.kind == "inner" and source.on is not None]
        factors = [factor for on in written for factor in conjuncts(on)]
        pending = [factor for factor in pending if factor not in factors]
    for index, other in enumerate(sources.others):
        assert other.window is not None
        right = Windowed(other.scan, other.alias, other.window)
        if other.kind != "inner":
            node = Join(node, right, other.kind, other.on)
        elif any(later.kind in ("right", "full") for later in sources.others[index + 1 :]):
            node = Join(node, right, "inner", other.on)
        elif sources.keeps_rows and other.on is not None:
            node, pending = _paired(node, right, sources, pending)
            assert isinstance(node, Join)
            both = [other.on] if node.condition is None else [other.on, node.condition]
            node = replace(node, condition=joined("and", both))
        else:
            node, pending = _paired(node, right, sources, pending)
    return node, pending


def _paired(
    node: Node, right: Windowed, sources: From, pending: list[Expression]
) -> tuple[Node, list[Expression]]:
    """The pairs with another source that satisfy the conditions over both, and the conditions that are left."""
    columns = frozenset(right.schema.names)
    applicable = _applicable(pending, sources, frozenset(node.schema.names) | columns, columns)
    rest = [factor for factor in pending if factor not in applicable]
    return Join(node, right, "inner", joined("and", applicable) if applicable else None), rest


def _applicable(
    pending: list[Expression], sources: From, available: frozenset[str], columns: frozenset[str]
) -> list[Expression]:
    """The conditions of a join: those of ON, and equalities of WHERE over its inputs."""
    return [
        factor
        for factor in pending
        if factor in sources.conditions or _equates(factor)
        if columns_of(factor) <= available and columns_of(factor) & columns
    ]


def _equates(factor: Expression) -> bool:
    return isinstance(factor, Call) and factor.function == "="
