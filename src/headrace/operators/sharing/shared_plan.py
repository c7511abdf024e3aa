"""Plans of `shared_predicates`: the conditions, partials and panes of thousands of aggregates with the same grouping,
updated as queries are added and dropped.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np

from headrace.algebra.expressions.expression import Column, Expression, Named
from headrace.dataclass import dataclass
from headrace.operators.aggregates.cell_table import Layout
from headrace.operators.base.group_codes import Ints
from headrace.operators.families.numbering import number_of
from headrace.operators.panes.panes import Panes
from headrace.operators.query_index.index_cache import Conditions, Plans, none_yet
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.schema import BIGINT

_PREDICATE: Final = Named("__predicate", Column("__predicate", BIGINT))


@dataclass(frozen=True)
class SharedPlan(Conditions[PaneAggregate]):
    """The conditions, partials and panes of the queries of a shared fold."""

    @cached_property
    def families(self) -> dict[str, Ints]:
        """The indices of queries by the name of their family."""
        by_family: dict[str, list[int]] = {}
        for index, query in enumerate(self.queries):
            assert query.family is not None
            by_family.setdefault(query.family, []).append(index)
        return {family: np.array(indices, np.int64) for family, indices in by_family.items()}

    @cached_property
    def numbers(self) -> Ints:
        """The queries' numbers."""
        return np.array([number_of(query.id) for query in self.queries], np.int64)

    @cached_property
    def routed(self) -> Ints:
        """The slot to which all rows of a query are routed, -1 if each is routed by its keys."""
        slots = (-1 if query.single_slot is None else query.single_slot for query in self.queries)
        return np.fromiter(slots, np.int16, len(self.queries))

    @cached_property
    def layout(self) -> Layout:
        """The cells of all queries: by condition, then by the keys they share."""
        partial_columns = dict.fromkeys(
            partial_column for query in self._examples for partial_column in query.layouts[0].partial_columns
        )
        return Layout((_PREDICATE, *self.queries[0].keys), tuple(partial_columns))

    @cached_property
    def combs(self) -> tuple[Panes, ...]:
        """The distinct panes of the queries."""
        return tuple(dict.fromkeys(query.panes for query in self._examples))

    @property
    def _examples(self) -> list[PaneAggregate]:
        """One query of each family: its windows and aggregates are those of all."""
        return [self.queries[indices[0]] for indices in self.families.values()]

    @cached_property
    def arguments(self) -> tuple[Expression, ...]:
        """The aggregated expressions."""
        partial_columns = (
            partial_column.expression
            for partial_column in self.layout.partial_columns
            if partial_column.expression is not None
        )
        return tuple(dict.fromkeys(partial_columns))

    @cached_property
    def key_expressions(self) -> tuple[Expression, ...]:
        """The expressions of the keys that all queries share."""
        return tuple(key.expression for key in self.queries[0].keys)

    @cached_property
    def inputs(self) -> tuple[Expression, ...]:
        """What is evaluated on each row: keys, then arguments."""
        return (*(key.expression for key in self.layout.keys[1:]), *self.arguments)


_plans: Final = Plans(none_yet(SharedPlan))


def plan_of(queries: tuple[PaneAggregate, ...]) -> SharedPlan:
    """The plan of queries with equal keys; this process caches some."""
    return _plans.of(queries)
