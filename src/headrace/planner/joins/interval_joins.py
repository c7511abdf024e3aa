"""Rewriting of a join of two bare streams within a distance, `a.t BETWEEN b.t - INTERVAL … AND b.t + INTERVAL …`:
how long each side's rows are stored, derived from its conditions.

The conditions on the difference of the two event times bound how much younger the rows are with which a row can still be
joined. The answer is that of the join without a bound: the conditions are still tested.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from headrace.algebra.expressions.expression import Call, Column, Expression, Literal, conjuncts
from headrace.algebra.query import Aggregate, Filter, Join, Node, Query, StreamScan, Windowed, walk
from headrace.algebra.rewriting import rewritten
from headrace.algebra.windows.window import Unbounded
from headrace.schema import INTERVAL
from headrace.time import Duration

_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def with_intervals(query: Query) -> Query:
    """The query with the state of its two bare streams bounded by the conditions on their times, if there are any."""
    joins = [node for node in walk(query.root) if isinstance(node, Join) and isinstance(node.right, Windowed)]
    if len(joins) != 1 or joins[0].kind != "inner":
        return query
    (join,) = joins
    left, right = join.left, join.right
    if not (_is_bare(left) and _is_bare(right)):
        return query
    factors = [] if join.condition is None else list(conjuncts(join.condition))
    factors += _where(query.root)
    bounded = replace(join, left=_bounded(left, right, factors), right=_bounded(right, left, factors))
    if bounded == join:
        return query
    return replace(
        query, root=rewritten(query.root, lambda _: None, lambda node: bounded if node is join else None)
    )


def _is_bare(node: Node) -> bool:
    return isinstance(node, Windowed) and isinstance(node.window, Unbounded) and _time(node) is not None


def _time(node: Node) -> str | None:
    """The column that is the event time of a stream's rows."""
    scan = node.source if isinstance(node, Windowed) else None
    return f"{scan.alias}.{scan.time}" if isinstance(scan, StreamScan) and scan.time is not None else None


def _where(root: Node) -> list[Expression]:
    filters = [node for node in walk(root) if isinstance(node, Filter)]
    below = [node for node in filters if not any(isinstance(inner, Aggregate) for inner in walk(node))]
    return [factor for node in below for factor in conjuncts(node.predicate)]


def _bounded(node: Node, other: Node, factors: list[Expression]) -> Node:
    """The source, with the greatest difference between the time of a row that it is joined with and its own."""
    time, other_time = _time(node), _time(other)
    bounds = [bound for factor in factors if (bound := _after(factor, time, other_time)) is not None]
    if not bounds:
        return node
    assert isinstance(node, Windowed)
    return replace(node, window=Unbounded(max(min(bounds), 0)))


def _after(factor: Expression, time: str | None, other: str | None) -> Duration | None:
    """The greatest `other - time` that a comparison of the two times allows; None if it bounds it not."""
    if not (isinstance(factor, Call) and factor.function in _MIRRORED):
        return None
    left, right = (_shifted(side) for side in factor.arguments)
    if left is None or right is None:
        return None
    sign = factor.function
    if (left[0], right[0]) == (time, other):  # time + l < other + r is other + r > time + l
        left, right, sign = right, left, _MIRRORED[sign]
    if (left[0], right[0]) != (other, time) or sign not in ("<", "<=", "="):
        return None
    return right[1] - left[1]


def _shifted(side: Expression) -> tuple[str, Duration] | None:
    """(column, distance) of a column plus or minus constant intervals."""
    match side:
        case Column(name=name):
            return name, 0
        case Call(function="+" | "-" as sign, arguments=(inner, Literal(value=int() as length, type=kind))):
            below = _shifted(inner) if kind == INTERVAL else None
            return None if below is None else (below[0], below[1] + (length if sign == "+" else -length))
        case _:
            return None
