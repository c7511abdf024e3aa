"""Lowering of correlated aggregates, whose FILTER reads other aggregates of their group: the test for them, their
checks, and the step that groups the stored rows of a window when it is closed.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.algebra.expressions.aggregates import NamedAggregate
from headrace.algebra.expressions.correlated import depends_on, is_correlated
from headrace.algebra.query import Query
from headrace.algebra.windows.window import slides
from headrace.errors import UnsupportedQuery
from headrace.operators.aggregates.aggregate_calls import effective_argument
from headrace.operators.aggregates.group_by import Grouped
from headrace.operators.output.output_stage import Finish
from headrace.operators.output.regrouping import Regroup
from headrace.planner.lowering.query_shape import Shape


def has_correlated(shape: Shape) -> bool:
    """True when an aggregate depends on another one of its group."""
    return shape.aggregate is not None and is_correlated(shape.aggregate.aggregates)


def check_correlated(query: Query, shape: Shape) -> None:
    """Raises `UnsupportedQuery` where the answer needs rows that have expired or were never stored."""
    if query.emit_empty:
        raise UnsupportedQuery(
            "EMIT EMPTY is not available with an aggregate that depends on another one",
            remedy="Leave it out.",
        )
    if not slides(shape.window) and shape.aggregate is not None and not shape.aggregate.keys:
        raise UnsupportedQuery(
            "an aggregate that depends on another one needs GROUP BY or a window with SLIDE",
            remedy="Write for example FROM s [RANGE 10 MINUTES SLIDE 1 MINUTE].",
        )


def regrouping(finish: Finish, grouped: Grouped, window_alias: str) -> Finish:
    """The steps over the rows of a window: grouping first, then `finish`."""
    calls = tuple(_evaluated(item, grouped) for item in grouped.aggregates)
    bounds = tuple(f"{window_alias}.window_{part}" for part in ("start", "end", "id"))
    return replace(finish, regroup=Regroup(grouped.keys, calls, bounds))


def _evaluated(item: NamedAggregate, grouped: Grouped) -> NamedAggregate:
    """A condition on the row alone is evaluated before the row is stored, so that a row on which it fails is not."""
    if item.call.condition is None or depends_on(item.call, grouped.aggregates):
        return item
    return NamedAggregate(
        item.name, replace(item.call, argument=effective_argument(item.call), condition=None)
    )
