"""From recorded histories to operators and back: the bridge between the reference's rows and Arrow batches."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Call, Case, Cast, Column, Constants, Expression, Literal
from headrace.algebra.query import Query
from headrace.algebra.windows.window import CHANGE
from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import AT, Advance, Operator
from headrace.planner.lowering.lower import lower
from headrace.planner.lowering.query_shape import shape_of
from headrace.reference.history import History, RecordedStream, StreamRow
from headrace.schema import Schema, Type, to_arrow
from headrace.time import FOREVER
from tests.laws import strategies as some
from tests.operators.local_driver import DrivenState, DriveResult, drive


def array(values: Sequence[Any], kind: Type) -> pa.Array:
    """Arrow of the reference's values: TIMESTAMPs and INTERVALs are ints there."""
    if kind.name in ("TIMESTAMP", "TIMESTAMP_NTZ", "INTERVAL"):
        return pa.array(values, pa.int64()).view(to_arrow(kind))
    return pa.array(values, to_arrow(kind))


def table(rows: Sequence[Mapping[str, Any]], schema: Schema) -> pa.Table:
    """A relation."""
    return pa.table(
        [array([row[field.name] for row in rows], field.type) for field in schema], names=list(schema.names)
    )


def batch(rows: Sequence[StreamRow], schema: Schema) -> Batch:
    """One split."""
    return Batch(
        {field.name: array([row.values[field.name] for row in rows], field.type) for field in schema},
        np.array([row.at for row in rows], np.int64),
        np.array([row.position for row in rows], np.int64),
    )


def epochs(stream: RecordedStream) -> list[list[StreamRow]]:
    """The accepted rows of each epoch."""
    rows_of: list[list[StreamRow]] = [[] for _ in stream.punctuations]
    for row in stream.rows:
        if row.fate == "accepted":
            rows_of[row.epoch - 1].append(row)
    return rows_of


def plain(results: pa.Table | None, query: Query, changes: bool = False) -> list[Any]:
    """Result rows as the reference gives them: (instant, row), or (instant, sign, row)."""
    if results is None:
        return []
    columns = {}
    for field in query.schema:
        column = results.column(field.name).combine_chunks()
        assert column.type == to_arrow(field.type), (field, column.type)
        if field.type.name in ("TIMESTAMP", "TIMESTAMP_NTZ", "INTERVAL"):
            column = column.view(pa.int64())
        columns[field.name] = column.to_pylist()
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    instants = results.column(AT).to_pylist()
    if changes:
        return list(zip(instants, results.column(CHANGE).to_pylist(), rows, strict=True))
    return list(zip(instants, rows, strict=True))


def run(query: Query, history: History, schemas: Mapping[str, Schema], **how: Any) -> pa.Table | None:
    """The operator's results: see `driven`."""
    return driven(query, history, schemas, **how).results


def driven(
    query: Query,
    history: History,
    schemas: Mapping[str, Schema],
    *,
    splits: Sequence[Sequence[Sequence[StreamRow]]] | None = None,
    tasks: int | Sequence[int] = 1,
    final: bool = True,
    compact_after: Collection[int] | Mapping[int, int] = (),
    operator: Operator | None = None,
    keeping: Mapping[int, int] | None = None,
) -> DriveResult:
    """What the operator gives over the recorded stream it reads; `splits` cut each epoch (one split each when None)."""
    operator = operator or lower("q", query, "q")
    stream = history.streams[operator.stream]
    cut = splits if splits is not None else [[epoch] for epoch in epochs(stream)]
    batches = [
        [batch(part, schemas[operator.stream]).only(operator.columns) for part in parts] for parts in cut
    ]
    relations = {name: table(rows, schemas[name]) for name, rows in history.relations.items()}
    return drive(
        operator,
        batches,
        stream.punctuations,
        tasks,
        final=final,
        relations=relations,
        compact_after=compact_after,
        keeping=keeping,
    )


def coarsened(
    fine: Operator,
    history: History,
    cut: Sequence[Sequence[Sequence[StreamRow]]],
    levels: Sequence[int],
    tasks: Sequence[int],
    compactions: Mapping[int, int],
    *,
    final: bool = True,
    when_due: bool = False,
) -> tuple[pa.Table | None, list[int]]:
    """As a hub does: in each epoch scans, windows and merges have the error that was chosen for it; the results, and the bytes of state after
    each epoch.
    """
    state, stream, sizes = DrivenState(fine, {}, {}, when_due), history.streams["s"], list[int]()
    for number, (splits, punctuation) in enumerate(zip(cut, stream.punctuations, strict=True)):
        state.operator = fine.coarser(levels[number])
        batches = [batch(rows, some.SCHEMA).only(fine.columns) for rows in splits]
        state.epoch(number, batches, punctuation, tasks[number])
        if number in compactions:
            state.compact(compactions[number])
        sizes.append(sum(table.nbytes for run in state.runs for table in run.values()))
    if final:
        state.step([], Advance(state.emitted_to, FOREVER, state.max_event_time, final=True), state.tasks)
    return pa.concat_tables(state.results) if state.results else None, sizes


def described(query: Query) -> str:
    """The query in a line, for people."""
    shape = shape_of(query)
    parts = [
        f"{shape.window}",
        "SELECT " + ", ".join(f"{c.name}={scalar(c.expression)}" for c in shape.project.columns),
    ]
    parts += ["below " + scalar(part) for part in shape.before] + [
        "where " + scalar(part) for part in shape.where
    ]
    parts += [f"{join.kind} join" for join in shape.joins]
    if shape.aggregate is not None:
        parts.append("by " + ", ".join(scalar(key.expression) for key in shape.aggregate.keys))
        for item in shape.aggregate.aggregates:
            call, distinct = item.call, "distinct " if item.call.distinct else ""
            condition = f" filter {scalar(call.condition)}" if call.condition is not None else ""
            parts.append(f"{item.name}={call.function}({distinct}{scalar(call.argument)}){condition}")
    parts += ["having " + scalar(part) for part in shape.having]
    if shape.top is not None:
        keys = [f"{scalar(k.expression)} {k.descending} {k.nulls_first}" for k in shape.top.order]
        parts.append(f"top {shape.top.limit} by {keys}")
    parts += ["distinct"] if shape.distinct else []
    parts += [shape.emit.kind] if shape.emit else []
    return "\n  ".join([*parts, f"{query.emission} empty={query.emit_empty}"])


def scalar(expression: Expression | None) -> str:
    """An expression in brief."""
    match expression:
        case None:
            return "*"
        case Column(name=name):
            return name
        case Literal(value=value):
            return repr(value)
        case Constants():
            return repr(expression)
        case Call(function=function, arguments=arguments):
            return f"{function}({', '.join(scalar(part) for part in arguments)})"
        case Cast(argument=argument, type=kind):
            return f"cast({scalar(argument)} as {kind})"
        case Case():
            return "case"
