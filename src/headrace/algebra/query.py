"""Queries as trees of immutable nodes: what a query is, never how it runs.

Leaves are streams, relations and other queries. Below a `Project` columns carry internal names `alias.column`; a
`Windowed` node adds `alias.window_start`, `alias.window_end` and `alias.window_id` when its window slides. Every node
derives its schema from its children; a node that exists is a valid node.
"""

from __future__ import annotations

from typing import Literal as Choice
from typing import TypeAlias

from headrace.algebra.expressions.aggregates import NamedAggregate
from headrace.algebra.expressions.expression import Call, Expression, Named
from headrace.algebra.quality_of_service import QualityOfService
from headrace.algebra.windows.window import Delta, RowsSlide, Session, TupleSlide, Window, slides
from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.schema import BIGINT, BOOLEAN, TIMESTAMP, Field, Schema
from headrace.time import Duration, Instant


class _Source:
    """A leaf: a table whose rows are read under an alias."""

    __slots__ = ()
    table: Schema
    alias: str

    @property
    def children(self) -> tuple[Node, ...]:
        """None."""
        return ()

    @property
    def schema(self) -> Schema:
        """The table's columns as `alias.column`."""
        return Schema(tuple(Field(f"{self.alias}.{field.name}", field.type) for field in self.table))


class _Unary:
    """A node with one input."""

    __slots__ = ()
    source: Node

    @property
    def children(self) -> tuple[Node, ...]:
        """Its only input."""
        return (self.source,)


class _Passing(_Unary):
    """A node with the columns of its input."""

    __slots__ = ()

    @property
    def schema(self) -> Schema:
        """Those of the input."""
        return self.source.schema


@dataclass(frozen=True, slots=True)
class StreamScan(_Source):
    """All rows of a stream, in the order (event time, position).

    `channel` is one of: accepted rows, late rows or rejected ones. `table` has the
    stream's columns. `time` is None when the stream stamps arrival times. `reducer` is the lower-case name of the reducer whose copy of the
    archive is read, "" for the archive itself.
    """

    name: str
    alias: str
    table: Schema
    time: str | None
    channel: Choice["rows", "late", "rejects"] = "rows"
    reducer: str = ""


@dataclass(frozen=True, slots=True)
class RelationScan(_Source):
    """The version of a stored relation that is in force."""

    name: str
    alias: str
    table: Schema


@dataclass(frozen=True, slots=True)
class QueryScan(_Source):
    """The results of another query as a stream; a window result's event time is window_end - 1 microsecond.

    `query` is None for one that is registered under `name`, and the query itself for a SELECT in FROM. A query that is a
    relation is read as one: `query` is it, also when `registered`, under a `Changing` window. With `time` the event time of a
    row is its value of that column, which is the time of a side of a join.
    """

    name: str
    alias: str
    table: Schema
    query: Query | None = None
    registered: bool = False
    time: str | None = None

    @property
    def is_named(self) -> bool:
        """True where `name` is that of a registered query."""
        return self.query is None or self.registered


@dataclass(frozen=True, slots=True)
class UnionAll(_Source):
    """All rows of several streams as one stream, in the order (event time, number of the stream, position).

    The inputs have columns of the same types; `table` has the names of the first. A row is late by the punctuation of its
    stream; the punctuation of the union is the minimum. Inputs that are relations are read under a `Changing` window as one
    relation. Source: Li 2008, section 8.2 (Meld).
    """

    inputs: tuple[StreamScan | QueryScan, ...]
    alias: str
    table: Schema
    time: str | None = None

    @property
    def children(self) -> tuple[Node, ...]:
        """The inputs."""
        return self.inputs

    @property
    def name(self) -> str:
        """Its name where streams have names; no user can write it."""
        return "@" + " UNION ALL ".join(member.name for member in self.inputs)


@dataclass(frozen=True, slots=True)
class Windowed(_Unary):
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
class Bounds(_Passing):
    """PSoup's `BEGIN b END e`: only rows with begin <= t <= end. A bound is an instant, or NOW minus a duration."""

    source: Node
    begin: Instant | Ago
    end: Instant | Ago


@dataclass(frozen=True, slots=True)
class Ago:
    """`NOW - INTERVAL d`: an instant relative to the greatest committed event time of the query's streams."""

    duration: Duration = 0


@dataclass(frozen=True, slots=True)
class Filter(_Passing):
    """The rows for which the predicate is true (neither false nor NULL)."""

    source: Node
    predicate: Expression

    def __post_init__(self) -> None:
        if self.predicate.type != BOOLEAN:
            raise UserError(f"a condition must be BOOLEAN, not {self.predicate.type}")


JoinKind: TypeAlias = Choice["inner", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True, slots=True)
class Join:
    """Pairs of rows for which the condition is true. NULL keys never match.

    `left`, `right` and `full` add the rows of a side (of both) without a pair, with NULLs. `semi` is the left rows with
    a pair, each as often as on the left, and `anti` those without one.
    """

    left: Node
    right: Node
    kind: JoinKind
    condition: Expression | None

    @property
    def children(self) -> tuple[Node, ...]:
        """Left, then right."""
        return (self.left, self.right)

    @property
    def schema(self) -> Schema:
        """Left columns, then right columns; `semi` and `anti` have only the left ones."""
        if self.kind in ("semi", "anti"):
            return self.left.schema
        return Schema(self.left.schema.fields + self.right.schema.fields)


@dataclass(frozen=True, slots=True)
class SemijoinColumn:
    """`x IN (SELECT y FROM r WHERE c)` or EXISTS, as a column of truth for a condition above.

    True where a row of `right` that satisfies `condition` satisfies `test` (`x = y`; None for EXISTS); else unknown where a test
    is unknown; else false. The condition may read the columns of `source` too.
    """

    source: Node
    right: RelationScan
    name: str
    condition: Expression | None
    test: Call | None

    @property
    def children(self) -> tuple[Node, ...]:
        """The source, then the relation that it reads."""
        return (self.source, self.right)

    @property
    def schema(self) -> Schema:
        """The source's columns and the truth."""
        return Schema((*self.source.schema.fields, Field(self.name, BOOLEAN)))


@dataclass(frozen=True, slots=True)
class Aggregate(_Unary):
    """One row per group (per window, when the window slides); without keys exactly one row over a relation.

    Window bounds (`alias.window_start` ...) of a sliding window below stay readable above: they are constant per window.
    """

    source: Node
    keys: tuple[Named, ...]
    aggregates: tuple[NamedAggregate, ...]

    @property
    def schema(self) -> Schema:
        """Keys, then aggregates, then the window's bounds where the window slides."""
        fields = tuple(Field(key.name, key.expression.type) for key in self.keys)
        fields += tuple(Field(item.name, item.call.type) for item in self.aggregates)
        for node in walk(self.source):
            if isinstance(node, Windowed) and slides(node.window):
                fields += node.schema.fields[-3:]
        return Schema(fields)


@dataclass(frozen=True, slots=True)
class Project(_Unary):
    """One output column per expression, with the names of the answer."""

    source: Node
    columns: tuple[Named, ...]

    @property
    def schema(self) -> Schema:
        """The named expressions."""
        return Schema(tuple(Field(column.name, column.expression.type) for column in self.columns))


@dataclass(frozen=True, slots=True)
class Distinct(_Passing):
    """The distinct rows."""

    source: Node


@dataclass(frozen=True, slots=True)
class SortKey:
    """One ORDER BY item. Spark's default: NULLs first when ascending, last when descending."""

    expression: Expression
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True)
class Top(_Passing):
    """The rows in ORDER BY order, the first `limit` of them (all when None), per window or per instant.

    Ties at the limit are cut by all output columns, ascending with nulls first, so that the answer is unique.
    """

    source: Node
    order: tuple[SortKey, ...]
    limit: int | None


@dataclass(frozen=True, slots=True)
class Emit(_Passing):
    """Relation to stream: ISTREAM insertions, DSTREAM retractions since the previous instant or window, RSTREAM all rows."""

    source: Node
    kind: Choice["istream", "dstream", "rstream"]


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
    """`WITH REVISIONS [FOR INTERVAL d]`: late rows enter up to `within` below the punctuation (None: without limit)."""

    within: Duration | None = None

    def __post_init__(self) -> None:
        if self.within is not None and self.within < 0:
            raise UserError("rows cannot be late by less than 0")


@dataclass(frozen=True, slots=True)
class Query:
    """A bound query.

    `emission`: "windows" streams each closed window once; "relation" holds at every instant; "stream" emits rows at
    their instants (a relation-to-stream operator at the root, or a select over a bare stream). With `revisions` windows
    that late rows change are emitted again, as retractions (-1) and insertions (+1). With `shedding` it may be answered from
    a part of the rows, with an error bound; with `repair` these answers are corrected later, in the same form, or with `settles`, as
    another query reads it, emitted once they are exact. `quality`: what its answers are worth by delay and by loss, of rows and of which.
    """

    root: Node
    emission: Emission
    emit_empty: bool = False
    revisions: Revisions | None = None
    shedding: bool = False
    quality: QualityOfService | None = None
    repair: bool = False
    settles: bool = False

    @property
    def has_alternatives(self) -> bool:
        """Whether it is answered exactly, or from sketches in an overload."""
        return self.quality is not None and self.quality.sketches is not None

    @property
    def retracts_windows(self) -> bool:
        """Whether windows that were emitted may be emitted again, as retractions and insertions."""
        return self.emission == "windows" and (
            self.revisions is not None or (self.repair and not self.settles)
        )

    @property
    def schema(self) -> Schema:
        """The output columns."""
        return self.root.schema


def walk(node: Node) -> list[Node]:
    """The node and all below it, parents first."""
    nodes, waiting = [], [node]
    while waiting:
        node = waiting.pop()
        nodes.append(node)
        waiting.extend(node.children[::-1])
    return nodes


def derived_in(query: Query) -> tuple[tuple[QueryScan, Query], ...]:
    """The SELECTs in the FROM of a query, in order; empty when all its sources have names."""
    scans = (node for node in walk(query.root) if isinstance(node, QueryScan))
    return tuple((scan, scan.query) for scan in scans if scan.query is not None)


def every_node(query: Query) -> list[Node]:
    """The nodes of a query and of the SELECTs in its FROM."""
    nodes = walk(query.root)
    below = (node.query for node in nodes if isinstance(node, QueryScan) and node.query is not None)
    return [*nodes, *(inner for derived in below for inner in every_node(derived))]


def find_window(node: Node) -> Windowed | None:
    """The only Windowed node at or below `node`, through the left side of joins; None without one."""
    return next((below for below in walk(node) if isinstance(below, Windowed)), None)


def per_row_window(window: Window) -> bool:
    """True for windows that each partition has separately."""
    return isinstance(window, RowsSlide | TupleSlide | Delta | Session)
