"""Operators of relations at every instant, as the rules of `lower.py` build them: rows, or groups; and `logged`, for the
operator of a relation that other queries read. How long a row is valid follows from its window and BEGIN … END together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.algebra.expressions.expression import Column, Expression
from headrace.algebra.query import Ago, Bounds
from headrace.algebra.windows.window import Changing, Lasting, Rows, TimeRange
from headrace.operators.approximate.approximate_instants import ApproximateInstants
from headrace.operators.base.operator import Operator
from headrace.operators.relations.changelog_projection import ChangingRows
from headrace.operators.relations.instant_aggregate import InstantAggregate
from headrace.operators.relations.instant_rows import InstantRows, Validity
from headrace.operators.rows.row_state import Bounded
from headrace.planner.lowering.lowering_context import Lowering


def _validity(lowering: Lowering) -> tuple[Validity, Bounded]:
    """The validity of a row, by its window and `BEGIN ... END` together."""
    window = lowering.shape.window
    if isinstance(window, Rows):
        return Validity(count=window.count, partitions=len(lowering.partition)), Bounded()
    bounds = lowering.shape.bounds
    if isinstance(window, Lasting):
        return Validity(ends_given=True, partitions=1), Bounded() if bounds is None else _bounded(bounds)
    if isinstance(window, Changing):
        return Validity(by_changes=True, partitions=1), Bounded()
    ends = [window.range + 1] if isinstance(window, TimeRange) else []
    if bounds is None:
        return Validity(min(ends, default=None)), Bounded()
    if isinstance(bounds.begin, Ago):
        ends.append(bounds.begin.duration + 1)
    bounded = _bounded(bounds)
    return Validity(max(min(ends) - bounded.shift, 0) if ends else None), bounded


def _bounded(bounds: Bounds) -> Bounded:
    low = None if isinstance(bounds.begin, Ago) else bounds.begin
    if isinstance(bounds.end, Ago):
        return Bounded(low, None, bounds.end.duration)
    return Bounded(low, bounds.end)


def _hashable(expressions: Sequence[Expression]) -> bool:
    return all(expression.type.name not in ("STRUCT", "ARRAY", "MAP") for expression in expressions)


def instant_rows(lowering: Lowering) -> InstantRows | ChangingRows:
    """Rows at every instant. Equal result rows need one slot, since an insertion and a retraction cancel out."""
    columns, finish = lowering.stored()
    outputs, partition = lowering.outputs(), lowering.partition
    routing: tuple[int, ...] | None = None
    if finish.is_row_by_row and isinstance(lowering.shape.window, Rows):
        routing = tuple(range(len(partition))) if partition and set(partition) <= set(outputs) else None
    elif finish.is_row_by_row and _hashable(outputs):
        routing = tuple(len(partition) + columns.index(output) for output in dict.fromkeys(outputs))
    validity, bounded = _validity(lowering)
    rows, name = lowering.layout(columns, routing, bounded), lowering.shape.scan.name
    emit_mode, relations = lowering.emit_mode, lowering.relations
    if validity.by_changes and finish.is_row_by_row and not finish.distinct:
        return ChangingRows(
            lowering.id, lowering.name, name, rows, finish, emit_mode, relations, lowering.rule
        )
    rule = lowering.rule
    return InstantRows(lowering.id, lowering.name, name, validity, rows, finish, emit_mode, relations, rule)


def instant_aggregate(lowering: Lowering) -> InstantAggregate:
    """Groups at every instant."""
    grouped, partition = lowering.grouped, lowering.partition
    assert grouped is not None
    shape = lowering.shape
    shown = {
        column.expression.name for column in lowering.finish.columns if isinstance(column.expression, Column)
    }
    keys = {key.name for key in grouped.keys}
    by_group = bool(keys) and keys <= shown and not lowering.finish.needs_whole_window
    routing: tuple[int, ...] | None = None
    if by_group and not isinstance(shape.window, Rows):
        routing = tuple(len(partition) + index for index in range(len(grouped.keys)))
    elif by_group and partition and set(partition) <= {key.expression for key in grouped.keys}:
        routing = tuple(range(len(partition)))
    validity, bounded = _validity(lowering)
    return InstantAggregate(
        lowering.id,
        lowering.name,
        shape.scan.name,
        validity,
        lowering.layout(tuple(grouped.inputs()), routing, bounded),
        grouped,
        lowering.finish,
        lowering.emit_mode,
        lowering.relations,
        rule=lowering.rule,
    )


def logged(operator: Operator) -> Operator:
    """The operator of a relation that other queries read; they may read it at an instant after its own NOW."""
    if isinstance(operator, InstantRows | InstantAggregate | ChangingRows):
        return replace(operator, emit_mode="log").in_family()
    if isinstance(operator, ApproximateInstants):
        return replace(operator, exactly=replace(operator.exactly, emit_mode="log"))
    raise AssertionError(f"{type(operator).__name__} holds no relation")
