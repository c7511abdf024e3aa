"""The choice between synopses and exact answers for queries with approximate aggregates, and the rewritten query. The operators
with synopses: `builders/synopsis_operators.py`.

The exact answer is chosen where it takes no more memory: windows of few panes, windows without a beginning, queries that need
exact panes for another aggregate. An exact answer is within any bound, and its bound is 0. Sketches, whose size does not depend
on panes, are stored in panes with exact aggregates.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from fractions import Fraction
from typing import Final

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.expressions.approximation import exact, is_approximate, is_sketched
from headrace.algebra.expressions.correlated import is_correlated
from headrace.algebra.expressions.expression import Column, Expression, Literal, Named, transform
from headrace.algebra.expressions.shedding_estimates import weight_of
from headrace.algebra.query import Query
from headrace.algebra.windows.window import TimeRange, TimeSlide
from headrace.operators.panes.panes import Panes
from headrace.planner.lowering.group_comparisons import comparing
from headrace.planner.lowering.query_shape import Shape
from headrace.schema import BIGINT, DOUBLE, decimal

_COUNTED: Final = ("approx_count", "approx_sum")


def has_approximate(shape: Shape) -> bool:
    """True when an aggregate allows an error."""
    return any(is_approximate(item.call) for item in _items(shape))


def from_synopses(query: Query, shape: Shape) -> bool:
    """True when exponential histograms take less memory than exact panes."""
    if not has_approximate(shape):
        return False
    if not isinstance(shape.window, TimeSlide) or shape.bounds is not None or shape.emit is not None:
        return False
    if query.emit_empty or query.revisions is not None:
        return False
    if not all(item.call.function in _COUNTED for item in _items(shape)):
        return False
    from headrace.synopses.histograms.canonical_form import Form  # noqa: PLC0415 - with the first approximate count

    per_window = Panes.of(shape.window).per_window or 0
    return any(per_window > Form.within(_error(item)).first + 1 for item in _items(shape))


def at_every_instant(query: Query, shape: Shape) -> bool:
    """True for `[RANGE d]` with approximate aggregates alone."""
    if not isinstance(shape.window, TimeRange) or not shape.window.range or shape.bounds is not None:
        return False
    if query.revisions is not None or (shape.emit is not None and shape.emit.kind == "rstream"):
        return False
    return bool(_items(shape)) and all(item.call.function in _COUNTED for item in _items(shape))


def with_bounds(shape: Shape) -> Shape:
    """The query with the counts and sums of its aggregates, and for each bound a count that is always 0, as its column."""
    assert shape.aggregate is not None
    calls = tuple(
        NamedAggregate(
            item.name, exact(item.call) if item.call.part == "value" else _bound_count(shape, item)
        )
        for item in _items(shape)
    )
    return replace(shape, aggregate=replace(shape.aggregate, aggregates=calls))


def _bound_count(shape: Shape, bound: NamedAggregate) -> AggregateCall:
    """A count of NULLs, of a type that identifies the aggregate of the bound."""
    measures = list(dict.fromkeys(exact(item.call) for item in _items(shape)))
    nothing = Literal(None, decimal(measures.index(exact(bound.call)) + 1, 0))
    return AggregateCall("count", nothing, BIGINT)


def counting_exactly(shape: Shape, but: Collection[str] = ()) -> Shape:
    """The query with the exact counts and sums of its aggregates, also for bounds."""
    assert shape.aggregate is not None
    calls = tuple(
        item if item.name in but else NamedAggregate(item.name, exact(item.call)) for item in _items(shape)
    )
    return replace(shape, aggregate=replace(shape.aggregate, aggregates=calls))


def in_panes(shape: Shape) -> Shape:
    """The query with sketches of panes; exact where an aggregate needs rows anyway."""
    assert shape.aggregate is not None
    items: list[NamedAggregate] = []
    for item in _items(shape):
        compared = comparing(item, _items(shape)) if item.call.within is not None else None
        items.append(item if compared is None else compared)
    if is_correlated(items):
        return exactly(shape)
    sketched = replace(shape, aggregate=replace(shape.aggregate, aggregates=tuple(items)))
    return exactly(sketched, {item.name for item in items if item.call.against or is_sketched(item.call)})


def weighing(shape: Shape) -> Shape:
    """The query with percentiles of weighted rows: those of a sample that is sketched."""
    assert shape.aggregate is not None
    weight = weight_of(shape.scan.alias)
    items = (
        replace(item, call=replace(item.call, weight=weight)) if is_sketched(item.call) else item
        for item in _items(shape)
    )
    return replace(shape, aggregate=replace(shape.aggregate, aggregates=tuple(items)))


def exactly(shape: Shape, but: Collection[str] = ()) -> Shape:
    """The query with exact aggregates in place of approximate ones, `but` some, and 0 for their bounds."""
    bounds = {item.name for item in _items(shape) if item.call.part == "bound"}.difference(but)

    def without_bound(node: Expression) -> Expression | None:
        if not isinstance(node, Column) or node.name not in bounds:
            return None
        return Literal(0.0, DOUBLE) if node.type.is_fractional else Literal(0, BIGINT)

    def named(column: Named) -> Named:
        return Named(column.name, transform(column.expression, without_bound))

    top = shape.top
    if top is not None:
        order = (replace(key, expression=transform(key.expression, without_bound)) for key in top.order)
        top = replace(top, order=tuple(order))
    counting = counting_exactly(shape, but)
    assert counting.aggregate is not None
    read = tuple(item for item in counting.aggregate.aggregates if item.name not in bounds)
    return replace(
        counting,
        aggregate=replace(counting.aggregate, aggregates=read),
        project=replace(shape.project, columns=tuple(map(named, shape.project.columns))),
        having=tuple(transform(part, without_bound) for part in shape.having),
        top=top,
    )


def _items(shape: Shape) -> tuple[NamedAggregate, ...]:
    return () if shape.aggregate is None else shape.aggregate.aggregates


def _error(item: NamedAggregate) -> Fraction:
    assert item.call.within is not None
    return item.call.within
