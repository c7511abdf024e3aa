"""What thousands of aggregates that group alike ask of a shared fold, kept while queries come and go."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from headrace.algebra.expressions.expression import Column, Expression, Named
from headrace.operators.aggregates.cell_table import Layout
from headrace.operators.base.group_codes import Ints
from headrace.operators.families.family import number_of
from headrace.operators.panes.panes import Panes
from headrace.operators.query_index.predicate_index import Conditions, Plans, none_yet
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.schema import BIGINT

_PREDICATE: Final = Named("__predicate", Column("__predicate", BIGINT))


@dataclass(frozen=True)
class SharedPlan(Conditions[PaneAggregate]):
    """What the members of a shared fold ask for together."""

    @cached_property
    def families(self) -> dict[str, Ints]:
        """The places of members by the name of their family."""
        found: dict[str, list[int]] = {}
        for place, member in enumerate(self.queries):
            assert member.family is not None
            found.setdefault(member.family, []).append(place)
        return {family: np.array(places, np.int64) for family, places in found.items()}

    @cached_property
    def numbers(self) -> Ints:
        """The members' numbers."""
        return np.array([number_of(member.id) for member in self.queries], np.int64)

    @cached_property
    def routed(self) -> Ints:
        """The slot to which all rows of a member go, -1 where each goes to its own."""
        slots = (-1 if each.single_slot is None else each.single_slot for each in self.queries)
        return np.fromiter(slots, np.int16, len(self.queries))

    @cached_property
    def layout(self) -> Layout:
        """The cells of all members: by condition, then by the keys they share."""
        partial_columns = dict.fromkeys(
            partial_column for one in self._examples for partial_column in one.layouts[0].partial_columns
        )
        return Layout((_PREDICATE, *self.queries[0].keys), tuple(partial_columns))

    @cached_property
    def combs(self) -> tuple[Panes, ...]:
        """The distinct panes of members."""
        return tuple(dict.fromkeys(one.panes for one in self._examples))

    @property
    def _examples(self) -> list[PaneAggregate]:
        """One member of each family: its windows and aggregates are those of all."""
        return [self.queries[places[0]] for places in self.families.values()]

    @cached_property
    def arguments(self) -> tuple[Expression, ...]:
        """What is aggregated."""
        partial_columns = (
            partial_column.expression
            for partial_column in self.layout.partial_columns
            if partial_column.expression is not None
        )
        return tuple(dict.fromkeys(partial_columns))

    @cached_property
    def inputs(self) -> tuple[Expression, ...]:
        """What is evaluated on each row: keys, then arguments."""
        return (*(key.expression for key in self.layout.keys[1:]), *self.arguments)


def rebuilt_plan(queries: tuple[PaneAggregate, ...]) -> SharedPlan:
    """The plan of members, all conditions compiled."""
    return none_yet(SharedPlan).rebuilt(queries)


def plan_from(before: SharedPlan, queries: tuple[PaneAggregate, ...]) -> SharedPlan:
    """The plan of members by what distinguishes them from those of another plan."""
    return before.changed(queries)


_plans: Final = Plans(none_yet(SharedPlan))


def plan_of(queries: tuple[PaneAggregate, ...]) -> SharedPlan:
    """The plan of members with equal keys, of which this process remembers some."""
    return _plans.of(queries)
