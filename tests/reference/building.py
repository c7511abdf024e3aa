"""Short ways to write down streams and queries in the tests of the reference. Times and durations are in seconds."""

from __future__ import annotations

from typing import Any

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate, result_type
from headrace.algebra.expressions.expression import Call, Column, Expression, Literal, Named
from headrace.algebra.query import (
    Aggregate,
    Emission,
    Emit,
    Filter,
    Join,
    Node,
    Project,
    Query,
    RelationScan,
    SortKey,
    StreamScan,
    Top,
    Windowed,
)
from headrace.algebra.windows.window import Window, slides
from headrace.reference.history import History, record
from headrace.schema import BIGINT, BOOLEAN, DOUBLE, STRING, TIMESTAMP, Field, Schema, Type

SECOND = 1_000_000
TABLE = Schema((Field("k", STRING), Field("v", BIGINT), Field("at", TIMESTAMP)))
NAMES = Schema((Field("id", STRING), Field("name", STRING)))


def row(k: str | None, v: int | None, at: float) -> dict[str, Any]:
    return {"k": k, "v": v, "at": round(at * SECOND)}


def history(
    *epochs: list[dict[str, Any]], slack: float = 0, names: tuple[dict[str, Any], ...] = ()
) -> History:
    return History({"s": record(epochs, "at", round(slack * SECOND))}, {"names": names})


def once(*rows: dict[str, Any]) -> History:
    """All rows in one epoch: none is late."""
    return history(list(rows))


def windowed(window: Window, where: Expression | None = None, alias: str = "s") -> Windowed:
    scan: Node = StreamScan("s", alias, TABLE, "at")
    return Windowed(scan if where is None else Filter(scan, where), alias, window)


def col(name: str, kind: Type | None = None) -> Column:
    """A column of `s`, or any column when its type is given."""
    return Column(f"s.{name}", TABLE.field(name).type) if kind is None else Column(name, kind)


def number(value: int | None) -> Literal:
    return Literal(value, BIGINT)


def text(value: str | None) -> Literal:
    return Literal(value, STRING)


def compare(function: str, *arguments: Expression) -> Call:
    return Call(function, arguments, BOOLEAN)


def agg(
    function: str,
    argument: Expression | None = None,
    *,
    distinct: bool = False,
    where: Expression | None = None,
):
    kind = result_type(function, None if argument is None else argument.type)
    return AggregateCall(function, argument, kind, distinct, where)


def percentile(name: str, share: float, *, distinct: bool = False) -> AggregateCall:
    return AggregateCall("percentile", col(name), DOUBLE, distinct, share=share)


def heavy(name: str, share: float) -> AggregateCall:
    return AggregateCall("heavy_hitters", col(name), STRING, share=share)


def grouped(source: Node, keys: list[str], **aggregates: AggregateCall) -> Aggregate:
    return Aggregate(
        source,
        tuple(Named(key, col(key)) for key in keys),
        tuple(NamedAggregate(name, call) for name, call in aggregates.items()),
    )


def select(source: Node, *names: str) -> Project:
    """Columns by internal name; `s.` is dropped from what the user sees."""
    fields = {field.name: field.type for field in source.schema}
    return Project(
        source, tuple(Named(name.rpartition(".")[2], Column(name, fields[name])) for name in names)
    )


def query(root: Node, emission: Emission | None = None, *, emit_empty: bool = False) -> Query:
    """A query with the emission that its window and its root imply."""
    if emission is None:
        below = root
        while not isinstance(below, Windowed):
            below = below.left if isinstance(below, Join) else below.source
        emission = "windows" if slides(below.window) else "stream" if isinstance(root, Emit) else "relation"
    return Query(root, emission, emit_empty=emit_empty)


def count_of(
    window: Window, keys: list[str] | None = None, *, emit_empty: bool = False, kind=None, **more
) -> Query:
    """SELECT keys, COUNT(*) AS n FROM s [window] GROUP BY keys."""
    root: Node = grouped(windowed(window), keys or [], n=agg("count"), **more)
    root = select(root, *(keys or []), "n", *more)
    return query(root if kind is None else Emit(root, kind), emit_empty=emit_empty)


def top(source: Node, by: str, limit: int | None, *, descending: bool = False) -> Top:
    kind = source.schema.field(by).type
    return Top(source, (SortKey(Column(by, kind), descending, nulls_first=not descending),), limit)


def with_names(source: Node, kind: str) -> Join:
    names = RelationScan("names", "names", NAMES)
    return Join(source, names, kind, compare("=", col("k"), Column("names.id", STRING)))


def at(answer: list[tuple[int, dict[str, Any]]]) -> list[tuple[Any, ...]]:
    """(seconds, column values ...) for every emitted row."""
    return [(instant / SECOND, *values.values()) for instant, values in answer]
