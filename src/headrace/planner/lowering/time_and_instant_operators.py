"""Operators of windows of time, of relations at every instant and of bare streams, as the rules of `lower.py` build
them.

Rows in windows, rows or groups at every instant, and rows passed on; all but aggregates over panes. How long a row is valid
follows from its window and BEGIN … END together.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.algebra.expressions.expression import Column, Expression
from headrace.algebra.query import Ago, Bounds
from headrace.algebra.windows.window import Changing, Landmark, Lasting, Rows, TimeRange, TimeSlide, Unbounded
from headrace.errors import UnsupportedQuery
from headrace.operators.base.operator import Operator
from headrace.operators.output.pass_through import Passing
from headrace.operators.panes.panes import Panes
from headrace.operators.relations.changelog_projection import ChangingRows
from headrace.operators.relations.instant_aggregate import InstantAggregate
from headrace.operators.relations.instant_rows import InstantRows, Validity
from headrace.operators.rows.row_state import Bounded
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.operators.time_windows.window_changelog import WindowChanges
from headrace.operators.time_windows.window_revisions import Revising
from headrace.operators.time_windows.window_rows import WindowRows
from headrace.planner.lowering.lowering_context import Lowering


def passes(lowering: Lowering) -> bool:
    """Whether it is a SELECT over a bare stream, which only adds rows, in any order."""
    shape = lowering.shape
    plain = shape.bounds is None and shape.aggregate is None and shape.top is None and not shape.distinct
    return plain and isinstance(shape.window, Unbounded) and lowering.emit_mode == "istream"


def passing(lowering: Lowering) -> Passing:
    """A SELECT over a bare stream."""
    columns, finish = lowering.stored()
    rows, stream = lowering.layout(columns, ()), lowering.shape.scan.name
    return Passing(lowering.id, lowering.name, stream, rows, finish, lowering.relations, lowering.rule)


def with_changes(lowering: Lowering, inner: PaneAggregate | WindowRows) -> Operator:
    """ISTREAM or DSTREAM over successive windows, or their revisions, if the query has them."""
    emit, revisions = lowering.shape.emit, lowering.query.revisions
    if emit is None or emit.kind == "rstream":
        if revisions is None:
            return inner
        return Revising(inner, inner.panes, revisions, inner.finish, lowering.slot)
    if revisions is not None:
        refuse_revisions(lowering)
    return WindowChanges(inner, inner.panes, emit.kind, inner.finish, lowering.slot)


def window_rows(lowering: Lowering) -> Operator:
    """Rows in windows of time."""
    shape = lowering.shape
    assert isinstance(shape.window, TimeSlide | Landmark)
    columns, finish = lowering.stored()
    changes = shape.emits_changes
    meets = finish.needs_whole_window or changes or lowering.query.revisions is not None
    routing: tuple[int, ...] | None = None if meets else ()
    if meets and not changes and lowering.query.revisions is None and finish.regroup is not None:
        alone = bool(finish.regroup.keys) and finish.limit is None and not finish.distinct
        routing = tuple(range(len(finish.regroup.keys))) if alone else None
    rows = WindowRows(
        id=lowering.id,
        query=lowering.name,
        stream=shape.scan.name,
        panes=Panes.of(shape.window),
        range=shape.window.range if isinstance(shape.window, TimeSlide) else None,
        bounds_prefix=f"{shape.window_alias}.",
        rows=lowering.layout(columns, routing),
        finish=finish,
        relations=lowering.relations,
        revisions=lowering.query.revisions,
        rule=lowering.rule,
    )
    return with_changes(lowering, rows)


def refuse_revisions(lowering: Lowering) -> Operator:  # noqa: ARG001
    """Raises `UnsupportedQuery` for a query WITH REVISIONS that is neither of windows of time nor a bare stream."""
    raise UnsupportedQuery(
        "WITH REVISIONS is not available for this query",
        remedy="Available are windows of time with SLIDE, sessions, and selects over a bare stream.",
    )


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
