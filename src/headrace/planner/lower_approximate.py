"""Which queries with approximate aggregates are answered from synopses, and which exactly?

Exactly where that takes no more memory: windows of few panes, windows without a beginning, queries that need exact panes
for another aggregate. An exact answer is within any bound, and its bound is 0.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.algebra.aggregates import NamedAggregate
from headrace.algebra.approximation import exact, is_approximate
from headrace.algebra.expressions import Column, Expression, Literal, Named, transform
from headrace.algebra.query import Query
from headrace.algebra.windows import TimeSlide
from headrace.operators import aggregation
from headrace.operators.approximate_windows import ApproximateWindows
from headrace.operators.pane_aggregate import PaneAggregate
from headrace.operators.panes import Panes
from headrace.planner.shape import Shape
from headrace.schema import BIGINT
from headrace.synopses.canonical import Form


def has_approximate(shape: Shape) -> bool:
    """True when an aggregate may be answered within a bound."""
    return any(is_approximate(item.call) for item in _items(shape))


def from_synopses(query: Query, shape: Shape) -> bool:
    """True when synopses are worth their error."""
    if not isinstance(shape.window, TimeSlide) or shape.bounds is not None or shape.emit is not None:
        return False
    if query.emit_empty or query.revisions is not None:
        return False
    if not all(is_approximate(item.call) for item in _items(shape)):
        return False
    per_window = Panes.of(shape.window).per_window or 0
    return any(per_window > _form(item).first + 1 for item in _items(shape))


def counting_exactly(shape: Shape) -> Shape:
    """The query with what is counted and added for its aggregates, for bounds too."""
    assert shape.aggregate is not None
    calls = tuple(NamedAggregate(item.name, exact(item.call)) for item in _items(shape))
    return replace(shape, aggregate=replace(shape.aggregate, aggregates=calls))


def exactly(shape: Shape) -> Shape:
    """The query with exact aggregates in place of approximate ones, and 0 for their bounds."""
    bounds = {item.name for item in _items(shape) if item.call.part == "bound"}

    def without_bound(node: Expression) -> Expression | None:
        return Literal(0, BIGINT) if isinstance(node, Column) and node.name in bounds else None

    def named(column: Named) -> Named:
        return Named(column.name, transform(column.expression, without_bound))

    top = shape.top
    if top is not None:
        order = (replace(key, expression=transform(key.expression, without_bound)) for key in top.order)
        top = replace(top, order=tuple(order))
    return replace(
        counting_exactly(shape),
        project=replace(shape.project, columns=tuple(map(named, shape.project.columns))),
        having=tuple(transform(part, without_bound) for part in shape.having),
        top=top,
    )


def approximate_windows(
    pane_aggregate: PaneAggregate, asked: tuple[NamedAggregate, ...]
) -> ApproximateWindows:
    """The operator; `pane_aggregate` answers the same query exactly."""
    wanted: dict[object, Form] = {}
    for item in asked:
        fed, form = aggregation.measure_of(exact(item.call)), _form(item)
        known = wanted.get(fed)
        wanted[fed] = form if known is None or form.first > known.first else known
    presence = Form(1, 1)
    counting = replace(pane_aggregate, family=None)
    forms = tuple(wanted.get(fed, presence) for fed in counting.layouts[0].feds)
    return ApproximateWindows(counting, asked, forms)


def _items(shape: Shape) -> tuple[NamedAggregate, ...]:
    return () if shape.aggregate is None else shape.aggregate.aggregates


def _form(item: NamedAggregate) -> Form:
    assert item.call.within is not None
    return Form.within(item.call.within)
