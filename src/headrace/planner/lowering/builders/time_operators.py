"""Operators of windows of time and of bare streams, as the rules of `lower.py` build them: rows in windows, and rows passed
on; all but aggregates over panes.
"""

from __future__ import annotations

from headrace.algebra.windows.window import Landmark, TimeSlide, Unbounded
from headrace.errors import UnsupportedQuery
from headrace.operators.base.operator import Operator
from headrace.operators.panes.panes import Panes
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


def passing(lowering: Lowering) -> Operator:
    """A SELECT over a bare stream."""
    from headrace.operators.relations.pass_through import Passing  # noqa: PLC0415 - with the first such query

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
