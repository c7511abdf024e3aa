"""EXPLAIN lines of an aggregate over panes: its window and cost, its partials and groups, the size of its sketches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.algebra.expressions.expression_text import show
from headrace.operators.aggregates.synopsis_calls import uses_synopses
from headrace.operators.base.operator import QUERY_NUMBER
from headrace.operators.output.display import argument, keys, steps_up
from headrace.operators.panes.adaptive_panes import EVERY_ROW, partial_bytes, row_bytes, sparse_group_limit
from headrace.operators.panes.window_cost_model import MOST_WINDOWS, cost, rows_for_panes_to_pay
from headrace.operators.partials.encoding import PartialColumn
from headrace.operators.partials.synopsis_partial import Synopsis
from headrace.time import render_duration

if TYPE_CHECKING:
    from headrace.operators.time_windows.pane_aggregate import PaneAggregate


def lines(operator: PaneAggregate) -> Iterator[str]:
    """From the answer down to the steps below the panes."""
    panes = operator.panes
    finish = operator.finish
    if finish.limit is not None:
        order = ", ".join(show(key.expression) + (" DESC" if key.descending else "") for key in finish.order)
        yield f"first {finish.limit} rows of each window{f' by {order}' if order else ''}"
    for predicate in finish.having:
        yield f"keep groups where {show(predicate)}"
    yield f"{window(operator)} (context free), combined from dyadic blocks"
    if panes.per_window is not None and panes.per_window > 1:
        yield from _costs(operator)
    cut = "" if not panes.cut else f", cut at {render_duration(panes.cut)}"
    yield f"pane partials: {panes.per_slide} a slide{cut}; {', '.join(partials(operator))}"
    yield from _synopses(operator)
    yield from _sparse_groups(operator)
    yield routed(operator)
    if operator.family is not None:
        yield "stores its panes with those of queries that differ only in conditions, columns and the window's range"
    if operator.sheds:
        yield "answered from the rows that the stream keeps, maybe fewer than there are (WITH SHEDDING)"
    if operator.has_own_panes:
        of_sketches = "WITH QOS its error is its own, or " if uses_synopses(operator.aggregates) else ""
        why = "WITH QOS its share of the rows is its own" if operator.sheds else f"{of_sketches}sharing 'off'"
        yield f"shares its panes with no query ({why})"
    yield from steps_up(operator.steps)


def state_label(operator: PaneAggregate) -> str:
    """Its window, its keys and its partials, in a line."""
    groups = tuple(key for key in operator.keys if key.name != QUERY_NUMBER)
    by = f" by {keys(groups)}" if groups else ""
    return f"{window(operator)}{by}: {', '.join(partials(operator))}"


def routed(operator: PaneAggregate) -> str:
    """`group by auction (routed by group)`."""
    where = "to one slot" if operator.single_slot is not None else "by group"
    return f"group by {keys(operator.keys)} (routed {where})"


def _sparse_groups(operator: PaneAggregate) -> Iterator[str]:
    """Whether sparse groups are stored as rows, or when they would be."""
    layout = operator.layouts[0]
    most = sparse_group_limit(layout)
    if not operator.adapts or operator.family is None or not most:
        return
    sizes = f"{row_bytes(layout)} bytes a row, {partial_bytes(layout)} a partial"
    sparse = f"groups of at most {most} {'row' if most == 1 else 'rows'} in a pane"
    if operator.row_layout_limit is not None and operator.row_layout_limit >= EVERY_ROW:
        yield f"rows are not folded into panes as they come: too few share a group's pane ({sizes})"
    elif operator.row_layout_limit is not None:
        yield f"{sparse} are stored as rows, since many are that small ({sizes})"
    else:
        yield f"{sparse} are stored as rows when many are that small ({sizes})"


def _costs(operator: PaneAggregate) -> Iterator[str]:
    """Estimates of the cost model for windows that close alone and for many that close together, and when panes pay."""
    subtracts = all(
        partial_column.partial.subtracts
        for layout in operator.layouts
        for partial_column in layout.partial_columns
    )
    for windows in (1, MOST_WINDOWS):
        costs = cost(operator.panes, windows)
        rolled = (
            f"{costs.differences:,.0f} as differences" if subtracts else f"{costs.rolling:,.0f} rolled over"
        )
        ways = f"{costs.each:,.0f} from each pane, {costs.blocks:,.0f} from blocks, {rolled}"
        together = "1 window alone" if windows == 1 else f"{windows} windows together"
        yield f"  cells a group, {together}: {ways}: {costs.least(subtracts=subtracts)}"
    yield f"  panes pay from {rows_for_panes_to_pay(operator.panes):.1f} rows of a group in a window on"


def window(operator: PaneAggregate) -> str:
    """`window every 10 SECONDS of 6 panes`."""
    panes, lengths = operator.panes, operator.lengths
    if lengths is not None:
        extent = f"{lengths.panes.min()} to {lengths.panes.max()} panes"
    elif panes.per_window is None:
        extent = "all panes"
    else:
        extent = "1 pane" if panes.per_window == 1 else f"{panes.per_window} panes"
    return f"window every {render_duration(panes.slide)} of {extent}"


def partials(operator: PaneAggregate) -> list[str]:
    """The partials of each pane: `count(*)`, `sum(price)`."""
    return [
        f"{_kind(partial_column)}({argument(partial_column)})"
        for layout in operator.layouts
        for partial_column in layout.partial_columns
    ]


def _kind(partial_column: PartialColumn) -> str:
    partial = partial_column.partial
    if partial_column.encoding == "squares":
        return "squares"
    return type(partial.kind if isinstance(partial, Synopsis) else partial).__name__.lower()


def _synopses(operator: PaneAggregate) -> Iterator[str]:
    """A line for each synopsis: its size for a group in a pane of many rows."""
    for partial_column in operator.layouts[0].partial_columns:
        if isinstance(partial_column.partial, Synopsis) and partial_column.expression is not None:
            size = partial_column.partial.kind.full_bytes
            yield f"synopsis {_kind(partial_column)}({show(partial_column.expression)}): at most about {size:,} bytes a group and pane"


def sketch_bytes(operator: PaneAggregate) -> dict[str, int]:
    """Maximum bytes of each sketch, for one group in one pane."""
    return {
        f"{type(partial_column.partial.kind).__name__.lower()}({argument(partial_column)})": partial_column.partial.kind.full_bytes
        for partial_column in operator.layouts[0].partial_columns
        if isinstance(partial_column.partial, Synopsis)
    }
