"""Queries as trees of immutable nodes: what a query is, never how it runs.

Leaves are streams, relations and other queries. Below a `Project` columns carry internal names `alias.column`; a
`Windowed` node adds `alias.window_start`, `alias.window_end` and `alias.window_id` when its window slides. Every node
derives its schema from its children; a node that exists is a valid node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as Choice
from typing import TypeAlias

from headrace.algebra.expressions.aggregates import NamedAggregate
from headrace.algebra.expressions.expression import Call, Expression, Named
from headrace.algebra.windows.window import Delta, RowsSlide, Session, TupleSlide, Window, slides
from headrace.errors import UserError
from headrace.schema import BIGINT, BOOLEAN, TIMESTAMP, Field, Schema
from headrace.time import Duration, Instant


@dataclass(frozen=True, slots=True)
class StreamScan:
    """All rows of a stream, in the order (event time, position).

    `source` says which of its channels: its accepted rows, its late rows or its rejected ones. `table` holds the
    stream's own columns. When the stream stamps arrival times `time` is None.
    """

    name: str
    alias: str
    table: Schema
    time: str | None
    channel: Choice["rows", "late", "rejects"] = "rows"

    @property
    def schema(self) -> Schema:
        """The stream's columns as `alias.column`."""
        return _qualified(self.table, self.alias)


@dataclass(frozen=True, slots=True)
class RelationScan:
    """The version of a stored relation that is in force."""

    name: str
    alias: str
    table: Schema

    @property
    def schema(self) -> Schema:
        """The relation's columns as `alias.column`."""
        return _qualified(self.table, self.alias)


@dataclass(frozen=True, slots=True)
class QueryScan:
    """The results of another query as a stream; a window result's event time is window_end - 1 microsecond.

    `query` is None for one that is registered under `name`, and the query itself for a SELECT in FROM. A query that holds a
    relation is read as that: it is here itself, also when it is `registered`, under a `Changing` window.
    """

    name: str
    alias: str
    table: Schema
    query: Query | None = None
    registered: bool = False

    @property
    def is_named(self) -> bool:
        """True where `name` is that of a registered query."""
        return self.query is None or self.registered

    @property
    def schema(self) -> Schema:
        """The query's output columns as `alias.column`."""
        return _qualified(self.table, self.alias)


@dataclass(frozen=True, slots=True)
class UnionAll:
    """All rows of several streams as one stream, in the order (event time, which of them, position).

    Members have columns of the same types; `table` has the names that those of the first have. A row is late by what its
    own stream has promised; the union has come as far as the slowest. Members that are queries which hold relations are read as
    that: under a `Changing` window it is what they hold together. Source: Li 2008, section 8.2 (Meld).
    """

    inputs: tuple[StreamScan | QueryScan, ...]
    alias: str
    table: Schema
    time: str | None = None

    @property
    def name(self) -> str:
        """What it is called where streams have names; no user can write it."""
        return "@" + " UNION ALL ".join(member.name for member in self.inputs)

    @property
    def schema(self) -> Schema:
        """The columns as `alias.column`."""
        return _qualified(self.table, self.alias)


@dataclass(frozen=True, slots=True)
class Windowed:
    """Stream to relation. Below it only scans and filters of one stream (a filter below means: before the window)."""

    source: Node
    alias: str
    window: Window

    @property
    def schema(self) -> Schema:
        """The stream's columns and, when the window slides, its bounds and id."""
        if not slides(self.window):
            return self.source.schema
        added = (("window_start", TIMESTAMP), ("window_end", TIMESTAMP), ("window_id", BIGINT))
        return Schema(
            self.source.schema.fields + tuple(Field(f"{self.alias}.{name}", kind) for name, kind in added)
        )


@dataclass(frozen=True, slots=True)
class Bounds:
    """PSoup's `BEGIN b END e`: only rows with begin <= t <= end. A bound is an instant, or NOW minus a duration."""

    source: Node
    begin: Instant | Ago
    end: Instant | Ago

    @property
    def schema(self) -> Schema:
        """Unchanged."""
        return self.source.schema


@dataclass(frozen=True, slots=True)
class Ago:
    """`NOW - INTERVAL d`: an instant relative to the greatest committed event time of the query's streams."""

    duration: Duration = 0


@dataclass(frozen=True, slots=True)
class Filter:
    """The rows for which the predicate is true (neither false nor NULL)."""

    source: Node
    predicate: Expression

    def __post_init__(self) -> None:
        if self.predicate.type != BOOLEAN:
            raise UserError(f"a condition must be BOOLEAN, not {self.predicate.type}")

    @property
    def schema(self) -> Schema:
        """Unchanged."""
        return self.source.schema


@dataclass(frozen=True, slots=True)
class Join:
    """Pairs of rows for which the condition is true; LEFT keeps unmatched left rows with NULLs. NULL keys never match."""

    left: Node
    right: Node
    kind: Choice["inner", "left"]
    condition: Expression | None

    @property
    def schema(self) -> Schema:
        """Left columns, then right columns."""
        return Schema(self.left.schema.fields + self.right.schema.fields)


@dataclass(frozen=True, slots=True)
class SemijoinColumn:
    """`x IN (SELECT y FROM r WHERE c)` or EXISTS, as a column of truth: what a condition above may read.

    True where a row of `right` that meets `condition` passes `test` (`x = y`; None for EXISTS); else unknown where the test of
    one is unknown; else false. The condition may read the columns of `source` too.
    """

    source: Node
    right: RelationScan
    name: str
    condition: Expression | None
    test: Call | None

    @property
    def schema(self) -> Schema:
        """The source's columns and the truth."""
        return Schema((*self.source.schema.fields, Field(self.name, BOOLEAN)))


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One row per group (per window, when the window slides); without keys exactly one row over a relation.

    Window bounds (`alias.window_start` ...) of a sliding window below stay readable above: they are constant per window.
    """

    source: Node
    keys: tuple[Named, ...]
    aggregates: tuple[NamedAggregate, ...]

    @property
    def schema(self) -> Schema:
        """Keys, then aggregates, then the window's bounds where the window slides."""
        own = tuple(Field(key.name, key.expression.type) for key in self.keys)
        own += tuple(Field(item.name, item.call.type) for item in self.aggregates)
        for node in walk(self.source):
            if isinstance(node, Windowed) and slides(node.window):
                own += node.schema.fields[-3:]
        return Schema(own)


@dataclass(frozen=True, slots=True)
class Project:
    """One output column per expression; the names are what the user sees."""

    source: Node
    columns: tuple[Named, ...]

    @property
    def schema(self) -> Schema:
        """The named expressions."""
        return Schema(tuple(Field(column.name, column.expression.type) for column in self.columns))


@dataclass(frozen=True, slots=True)
class Distinct:
    """Each different row once."""

    source: Node

    @property
    def schema(self) -> Schema:
        """Unchanged."""
        return self.source.schema


@dataclass(frozen=True, slots=True)
class SortKey:
    """One ORDER BY item. Spark's default: NULLs first when ascending, last when descending."""

    expression: Expression
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True)
class Top:
    """The rows in ORDER BY order, the first `limit` of them (all when None), per window or per instant.

    Ties at the limit are cut by all output columns, ascending with nulls first, so that the answer is one.
    """

    source: Node
    order: tuple[SortKey, ...]
    limit: int | None

    @property
    def schema(self) -> Schema:
        """Unchanged."""
        return self.source.schema


@dataclass(frozen=True, slots=True)
class Emit:
    """Relation to stream: ISTREAM what is new against the previous instant or window, DSTREAM what is gone, RSTREAM all."""

    source: Node
    kind: Choice["istream", "dstream", "rstream"]

    @property
    def schema(self) -> Schema:
        """Unchanged."""
        return self.source.schema


Node: TypeAlias = (
    StreamScan
    | RelationScan
    | QueryScan
    | UnionAll
    | Windowed
    | Bounds
    | Filter
    | Join
    | SemijoinColumn
    | Aggregate
    | Project
    | Distinct
    | Top
    | Emit
)

Emission: TypeAlias = Choice["windows", "relation", "stream"]


@dataclass(frozen=True, slots=True)
class Revisions:
    """`WITH REVISIONS [FOR INTERVAL d]`: late rows at most `within` behind the punctuation enter too (None: however late)."""

    within: Duration | None = None

    def __post_init__(self) -> None:
        if self.within is not None and self.within < 0:
            raise UserError("rows cannot be late by less than nothing")


@dataclass(frozen=True, slots=True)
class Query:
    """A bound query.

    `emission`: "windows" streams each closed window once; "relation" holds at every instant; "stream" emits rows at
    their instants (a relation-to-stream operator at the root, or a select over a bare stream). With `revisions` windows
    that late rows change are told again, as what goes (-1) and what comes (+1). With `shedding` it may be answered from
    fewer rows than there are, and says how far that may be from the answer over all of them.
    """

    root: Node
    emission: Emission
    emit_empty: bool = False
    revisions: Revisions | None = None
    shedding: bool = False

    @property
    def schema(self) -> Schema:
        """The output columns."""
        return self.root.schema


def children(node: Node) -> tuple[Node, ...]:
    """The direct inputs, left to right."""
    match node:
        case StreamScan() | RelationScan() | QueryScan():
            return ()
        case UnionAll(inputs=members):
            return members
        case Join(left=left, right=right):
            return (left, right)
        case SemijoinColumn(source=source, right=right):
            return (source, right)
        case _:
            return (node.source,)


def walk(node: Node) -> list[Node]:
    """The node and all below it, parents first."""
    found, waiting = [], [node]
    while waiting:
        node = waiting.pop()
        found.append(node)
        waiting.extend(reversed(children(node)))
    return found


def derived_in(query: Query) -> tuple[tuple[QueryScan, Query], ...]:
    """The queries that stand in the FROM of a query themselves, in order; none when all it reads has a name."""
    scans = (node for node in walk(query.root) if isinstance(node, QueryScan))
    return tuple((scan, scan.query) for scan in scans if scan.query is not None)


def every_node(query: Query) -> list[Node]:
    """The nodes of a query and of the SELECTs in its FROM."""
    below = (node for _, inner in derived_in(query) for node in every_node(inner))
    return [*walk(query.root), *below]


def find_window(node: Node) -> Windowed | None:
    """The one Windowed node at or below `node`, looking through the left side of joins; None when there is none."""
    return next((below for below in walk(node) if isinstance(below, Windowed)), None)


def streams_of(query: Query) -> tuple[str, ...]:
    """Names of the streams it reads, each once, in order of appearance."""
    return tuple(dict.fromkeys(node.name for node in walk(query.root) if isinstance(node, StreamScan)))


def per_row_window(window: Window) -> bool:
    """True for windows of which each partition has its own."""
    return isinstance(window, RowsSlide | TupleSlide | Delta | Session)


def _qualified(table: Schema, alias: str) -> Schema:
    return Schema(tuple(Field(f"{alias}.{field.name}", field.type) for field in table))
