"""Operators with exponential histograms, as the rules of `lower.py` build them: over windows, and at every instant. Each partial
has the smallest error of the aggregates that read it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from headrace.algebra.expressions.aggregates import NamedAggregate
from headrace.algebra.expressions.approximation import exact
from headrace.operators.aggregates import aggregate_calls
from headrace.operators.approximate.approximate_instants import ApproximateInstants
from headrace.operators.approximate.approximate_windows import ApproximateWindows
from headrace.operators.partials.encoding import PartialColumn
from headrace.operators.relations.instant_aggregate import InstantAggregate
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.synopses.histograms.canonical_form import Form

_PRESENCE: Final = Form(1, 1)
"""The error of a histogram that only decides whether there is any row; that is exact."""


def approximate_instants(
    answering: InstantAggregate, aggregates: tuple[NamedAggregate, ...], doubled: int | None = None
) -> ApproximateInstants:
    """The operator; `answering` answers the query of `with_bounds`, `aggregates` are the original ones. `doubled`: 0 if its errors may be
    doubled.
    """
    partial_columns = answering.grouped.layouts[0].partial_columns
    forms = _forms(aggregates)
    pairs = zip(answering.grouped.aggregates, aggregates, strict=True)
    bounds = {
        aggregate_calls.measure_of(item.call): aggregate_calls.measure_of(exact(was.call))
        for item, was in pairs
        if was.call.part == "bound"
    }
    chosen = tuple(
        None if partial_column in bounds else forms.get(partial_column, _PRESENCE)
        for partial_column in partial_columns
    )
    return ApproximateInstants(replace(answering, sums_up=False), chosen, bounds, doubled)


def approximate_windows(
    pane_aggregate: PaneAggregate, aggregates: tuple[NamedAggregate, ...], doubled: int | None = None
) -> ApproximateWindows:
    """The operator; `pane_aggregate` answers the same query exactly. `doubled`: 0 if its errors may be doubled."""
    strictest = _forms(aggregates)
    counting = replace(pane_aggregate, family=None)
    forms = tuple(
        strictest.get(partial_column, _PRESENCE) for partial_column in counting.layouts[0].partial_columns
    )
    return ApproximateWindows(counting, aggregates, forms, doubled)


def _forms(aggregates: tuple[NamedAggregate, ...]) -> dict[PartialColumn, Form]:
    """The smallest error of each partial."""
    strictest: dict[PartialColumn, Form] = {}
    for item in aggregates:
        partial_column, form = aggregate_calls.measure_of(exact(item.call)), _form(item)
        previous = strictest.get(partial_column)
        strictest[partial_column] = form if previous is None or form.first > previous.first else previous
    return strictest


def _form(item: NamedAggregate) -> Form:
    assert item.call.within is not None
    return Form.within(item.call.within)
