"""Rewriting of RSTREAM over `[NOW]` joined with changing relations: the pairs of each instant become a stream of an
inner query, read under `[NOW]`.

A pair with a row of `[NOW]` holds at the time of that row alone. With that time among its columns it is inserted once and
differs from equal pairs of other instants, so the insertions, at instants that all sources have passed, are the pairs of
each instant as often as there are. What is above the join reads this stream as it would read a stream of rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from headrace.algebra.expressions.expression import Column, Expression, Named, columns_of
from headrace.algebra.expressions.series import at_of
from headrace.algebra.query import Emit, Join, Node, Project, Query, QueryScan, Windowed, walk
from headrace.algebra.rewriting import expressions_of, rewritten
from headrace.algebra.windows.window import TimeRange, slides

_PAIRS: Final = "@now"
_TIME: Final = "#now"
"""The column of the time of the row of `[NOW]`."""


def with_pairs_of_now(query: Query) -> Query:
    """The query over the stream of its pairs, if it is such an RSTREAM; else the query itself."""
    top = next((node for node in walk(query.root) if _joins_changes(node)), None)
    if not isinstance(query.root, Emit) or query.root.kind != "rstream" or not isinstance(top, Join):
        return query
    now = next(window for window in kept_windows(top) if window.window == TimeRange(0))
    inside = {id(node) for node in walk(top)}
    above = [item for node in walk(query.root) if id(node) not in inside for item in expressions_of(node)]
    read = frozenset[str]().union(*map(columns_of, above))
    columns = tuple(
        Named(field.name, Column(field.name, field.type)) for field in top.schema if field.name in read
    )
    pairs = Project(top, (*columns, Named(_TIME, at_of(now.alias))))
    inner = Query(Emit(pairs, "istream"), "stream")
    scan = QueryScan(_PAIRS, _PAIRS, inner.schema, inner)
    stream = Windowed(scan, _PAIRS, TimeRange(0))

    def renamed(node: Expression) -> Expression | None:
        is_of_pair = isinstance(node, Column) and node.name in top.schema.names
        return Column(f"{_PAIRS}.{node.name}", node.type) if isinstance(node, Column) and is_of_pair else None

    return replace(query, root=rewritten(query.root, renamed, lambda node: stream if node is top else None))


def _joins_changes(node: Node) -> bool:
    return isinstance(node, Join) and isinstance(node.right, Windowed) and not _slides(node)


def _slides(join: Join) -> bool:
    return any(isinstance(node, Windowed) and slides(node.window) for node in walk(join))


def kept_windows(node: Node) -> list[Windowed]:
    """The windows of a chain of joins without whose rows the chain has none, left to right."""
    if isinstance(node, Windowed):
        return [node]
    assert isinstance(node, Join)
    left = [] if node.kind in ("right", "full") else kept_windows(node.left)
    right = kept_windows(node.right) if node.kind in ("inner", "right") else []
    return [*left, *right]
