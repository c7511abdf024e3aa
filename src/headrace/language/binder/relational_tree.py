"""The lower part of a query's tree: the order of FROM and WHERE."""

from __future__ import annotations

from headrace.algebra.expressions.expression import Call, Expression, columns_of, conjuncts
from headrace.algebra.query import Filter, Join, Node, Windowed
from headrace.language.binder.expressions.expression_binder import joined
from headrace.language.binder.sources.from_clause import From
from headrace.language.binder.subqueries import Memberships


def tree(
    sources: From,
    where: Expression | None,
    memberships: Memberships,
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
    pending += [condition for semijoin in memberships.semijoins for condition in semijoin.conditions]
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
    rights = [Windowed(other.scan, other.alias, other.window) for other in sources.others if other.window]
    for right in (*rights, *(semijoin.right for semijoin in memberships.semijoins)):
        columns = frozenset(right.schema.names)
        taken = _taken(pending, sources, frozenset(node.schema.names) | columns, columns)
        pending = [factor for factor in pending if factor not in taken]
        node = Join(node, right, "inner", joined("and", taken) if taken else None)
    for source, kind, condition in sources.relations:
        if kind == "inner":
            available = frozenset(node.schema.names) | frozenset(source.scan.schema.names)
            columns = frozenset(source.scan.schema.names)
            taken = _taken(pending, sources, available, columns)
            pending = [factor for factor in pending if factor not in taken]
            condition = joined("and", taken) if taken else None  # noqa: PLW2901
        node = Join(node, source.scan, kind, condition)
    node = memberships.over(node)
    pending += of_windows
    return Filter(node, joined("and", pending)) if pending else node


def _taken(
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
