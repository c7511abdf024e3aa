"""Which aggregates depend on others of their group? `COUNT(*) FILTER (WHERE x > AVG(x))`.

The condition of such a call reads columns that other aggregates of the same node make; those stand before it. Its level is 1
where they are of rows alone, one more than theirs otherwise.
Source: Gehrke, Korn, Srivastava, "On computing correlated aggregates over continual data streams" (2001), section 2.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.expressions.expression import columns_of


def depends_on(call: AggregateCall, aggregates: Sequence[NamedAggregate]) -> frozenset[str]:
    """Names of the aggregates whose values the call's condition reads."""
    if call.condition is None:
        return frozenset()
    return columns_of(call.condition) & {item.name for item in aggregates}


def levels(aggregates: Sequence[NamedAggregate]) -> dict[str, int]:
    """The level of each aggregate: 0 where it depends on rows alone."""
    found: dict[str, int] = {}
    for item in aggregates:
        found[item.name] = 1 + max((found[name] for name in depends_on(item.call, aggregates)), default=-1)
    return found


def is_correlated(aggregates: Sequence[NamedAggregate]) -> bool:
    """True when one of them depends on another."""
    return any(levels(aggregates).values())
