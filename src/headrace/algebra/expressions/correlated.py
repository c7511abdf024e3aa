"""Dependencies of correlated aggregates, whose FILTER reads others of their group: which aggregates a call reads,
and the level that follows: `COUNT(*) FILTER (WHERE x > AVG(x))` has level 1.

The condition of such a call reads columns of other aggregates of the same node, which precede it. Its level is 1 where
they depend on rows alone, else one more than theirs.
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
    level_of: dict[str, int] = {}
    for item in aggregates:
        level_of[item.name] = 1 + max(
            (level_of[name] for name in depends_on(item.call, aggregates)), default=-1
        )
    return level_of


def is_correlated(aggregates: Sequence[NamedAggregate]) -> bool:
    """True when one of them depends on another."""
    return any(levels(aggregates).values())
