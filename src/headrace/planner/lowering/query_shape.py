"""`Shape`, a bound query as a record of its clauses, read from its tree.

The binder makes trees of one shape, bottom up: scan, filters under the window, window, joins with relations, memberships, WHERE,
bounds, aggregation, HAVING, ORDER BY and LIMIT, select list, DISTINCT, relation-to-stream. `Shape` names each.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.algebra.expressions.expression import Column, Expression, columns_of, conjuncts, transform
from headrace.algebra.query import (
    Aggregate,
    Bounds,
    Distinct,
    Emit,
    Filter,
    Join,
    Node,
    Project,
    Query,
    QueryScan,
    RelationScan,
    SemijoinColumn,
    SortKey,
    StreamScan,
    Top,
    UnionAll,
    Windowed,
)
from headrace.algebra.windows.window import Window, slides
from headrace.dataclass import dataclass
from headrace.errors import UnsupportedQuery


@dataclass(frozen=True, slots=True)
class Shape:
    """A query's clauses. Tuples are empty and fields None where a clause is absent.

    Conditions of WHERE on window bounds alone are in `having`: they choose windows, which are known when they close.
    """

    scan: StreamScan | QueryScan | UnionAll
    window: Window
    window_alias: str
    project: Project
    before: tuple[Expression, ...] = ()
    joins: tuple[Join, ...] = ()
    semijoin_columns: tuple[SemijoinColumn, ...] = ()
    where: tuple[Expression, ...] = ()
    bounds: Bounds | None = None
    aggregate: Aggregate | None = None
    having: tuple[Expression, ...] = ()
    top: Top | None = None
    distinct: bool = False
    emit: Emit | None = None

    @property
    def emits_changes(self) -> bool:
        """True for ISTREAM or DSTREAM: only the differences are emitted."""
        return self.emit is not None and self.emit.kind != "rstream"


def shape_of(query: Query) -> Shape:
    """The clauses of a query.

    Raises `UnsupportedQuery` for trees of another shape, with the reason.
    """
    parts = _Parts()
    node = query.root
    while not isinstance(node, StreamScan | QueryScan | UnionAll):
        node = parts.take(node)
    if parts.window is None or parts.project is None:
        raise UnsupportedQuery("a query needs a window over a stream and a select list")
    top = parts.top
    if top is not None and parts.top_reads_output:
        top = replace(top, order=_over_inputs(top.order, parts.project))
    of_windows = [factor for factor in parts.where if _reads_bounds_alone(factor, parts.window)]
    return Shape(
        scan=node,
        window=parts.window.window,
        window_alias=parts.window.alias,
        project=parts.project,
        before=tuple(parts.before),
        joins=tuple(reversed(parts.joins)),
        semijoin_columns=tuple(reversed(parts.marks)),
        where=tuple(factor for factor in parts.where if factor not in of_windows),
        bounds=parts.bounds,
        aggregate=parts.aggregate,
        having=(*of_windows, *parts.having),
        top=top,
        distinct=parts.distinct,
        emit=parts.emit,
    )


def _reads_bounds_alone(factor: Expression, window: Windowed) -> bool:
    """Whether a condition of WHERE reads window bounds alone: it chooses windows, and is tested when they close, as HAVING is."""
    columns = columns_of(factor)
    bounds = {f"{window.alias}.window_{part}" for part in ("start", "end", "id")}
    return bool(columns) and columns <= bounds and slides(window.window)


class _Parts:
    """Collects clauses on the way down; the position of a filter determines its clause."""

    def __init__(self) -> None:
        self.window: Windowed | None = None
        self.project: Project | None = None
        self.aggregate: Aggregate | None = None
        self.bounds: Bounds | None = None
        self.top: Top | None = None
        self.emit: Emit | None = None
        self.distinct = False
        self.top_reads_output = False
        self.before: list[Expression] = []
        self.where: list[Expression] = []
        self.having: list[Expression] = []
        self.joins: list[Join] = []
        self.marks: list[SemijoinColumn] = []
        self.filters: list[Expression] = []

    def take(self, node: Node) -> Node:
        match node:
            case Emit():
                self.emit = node
            case Distinct():
                self.distinct = True
            case Top():
                self.top, self.top_reads_output = node, self.project is None
            case Project() if self.project is None:
                self.project = node
            case Filter():
                (self.before if self.window else self.filters).extend(conjuncts(node.predicate))
            case Aggregate() if self.aggregate is None:
                self.aggregate = node
                self.having, self.filters = self.filters, []
            case Bounds():
                self.bounds = node
            case Join(left=left, right=RelationScan()):
                self.joins.append(node)
                self.where, self.filters = self.where + self.filters, []
                return left
            case SemijoinColumn():
                self.marks.append(node)
                self.where, self.filters = self.where + self.filters, []
            case Join():
                raise UnsupportedQuery(
                    "joins of two streams are not available yet", remedy="Join a stream with a relation."
                )
            case Windowed() if self.window is None:
                self.window = node
                self.where, self.filters = self.where + self.filters, []
            case _:
                raise UnsupportedQuery(
                    "derived tables are not available yet", remedy="Register the inner query under a name."
                )
        return node.source


def _over_inputs(order: tuple[SortKey, ...], project: Project) -> tuple[SortKey, ...]:
    """Sort keys over the select list's results, rewritten over its inputs."""
    named = {column.name: column.expression for column in project.columns}

    def of_input(node: Expression) -> Expression | None:
        return named.get(node.name) if isinstance(node, Column) else None

    return tuple(replace(key, expression=transform(key.expression, of_input)) for key in order)
