"""What thousands of aggregates that group alike ask of a shared fold, kept while queries come and go.

Compiling ten thousand conditions takes a second. So a worker keeps the last plans it made, and from the nearest of them
makes the next by what has changed: conditions that are new are added to its index, those nobody has any more are
dropped. Members are told apart as objects, which the runtime keeps while a query stays as it is.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from headrace.algebra.expressions import Call, Column, Expression, Named
from headrace.operators.family import number_of
from headrace.operators.grouping import Ints
from headrace.operators.pane_aggregate import PaneAggregate
from headrace.operators.pane_store import Layout
from headrace.operators.panes import Panes
from headrace.operators.query_index.index import QueryIndex
from headrace.operators.row_steps import Keep
from headrace.schema import BIGINT, BOOLEAN

_PREDICATE: Final = Named("__predicate", Column("__predicate", BIGINT))
_KEPT: Final = 16
_NEAR: Final = 0.5
"""A plan is made from another one when at most this part of its members is new."""
_SPARE_SLOTS: Final = 64


def predicate_of(member: PaneAggregate) -> Expression | None:
    """The condition of an aggregate whose steps are filters alone; None for all rows."""
    factors = tuple(step.predicate for step in member.steps if isinstance(step, Keep))
    if len(factors) < 2:
        return factors[0] if factors else None
    return Call("and", factors, BOOLEAN)


@dataclass(frozen=True)
class SharedPlan:
    """What the members of a shared fold ask for together. `slots[i]` is the place of member i's condition in the index."""

    members: tuple[PaneAggregate, ...]
    index: QueryIndex
    slots: Ints
    places: Mapping[int, int]
    """The place of each member, by its identity."""
    known: Mapping[Expression | None, int] = field(repr=False)
    """The slot of each condition in the index."""

    @cached_property
    def families(self) -> dict[str, Ints]:
        """The places of members by the name of their family."""
        found: dict[str, list[int]] = {}
        for place, member in enumerate(self.members):
            assert member.family is not None
            found.setdefault(member.family, []).append(place)
        return {family: np.array(places, np.int64) for family, places in found.items()}

    @cached_property
    def numbers(self) -> Ints:
        """The members' numbers."""
        return np.array([number_of(member.id) for member in self.members], np.int64)

    @cached_property
    def routed(self) -> Ints:
        """The slot to which all rows of a member go, -1 where each goes to its own."""
        slots = (-1 if each.single_slot is None else each.single_slot for each in self.members)
        return np.fromiter(slots, np.int16, len(self.members))

    @cached_property
    def layout(self) -> Layout:
        """The cells of all members: by condition, then by the keys they share."""
        feds = dict.fromkeys(fed for one in self._examples for fed in one.layouts[0].feds)
        return Layout((_PREDICATE, *self.members[0].keys), tuple(feds))

    @cached_property
    def combs(self) -> tuple[Panes, ...]:
        """The distinct panes of members."""
        return tuple(dict.fromkeys(one.panes for one in self._examples))

    @property
    def _examples(self) -> list[PaneAggregate]:
        """One member of each family: its windows and aggregates are those of all."""
        return [self.members[places[0]] for places in self.families.values()]

    @cached_property
    def arguments(self) -> tuple[Expression, ...]:
        """What is aggregated."""
        feds = (fed.expression for fed in self.layout.feds if fed.expression is not None)
        return tuple(dict.fromkeys(feds))

    @cached_property
    def inputs(self) -> tuple[Expression, ...]:
        """What is evaluated on each row: keys, then arguments."""
        return (*(key.expression for key in self.layout.keys[1:]), *self.arguments)


def plan_anew(members: tuple[PaneAggregate, ...]) -> SharedPlan:
    """The plan of members, all conditions compiled."""
    return _changed(SharedPlan((), QueryIndex(), np.empty(0, np.int64), {}, {}), members)


def plan_from(before: SharedPlan, members: tuple[PaneAggregate, ...]) -> SharedPlan:
    """The plan of members by what distinguishes them from those of another plan."""
    plan = _changed(before, members)
    if (
        plan.index.next_slot > 2 * len(plan.index) + _SPARE_SLOTS
    ):  # slots of dropped conditions are not given again
        return plan_anew(members)
    return plan


def _changed(before: SharedPlan, members: tuple[PaneAggregate, ...]) -> SharedPlan:
    own = np.full(len(members), -1, np.int64)
    wanted: dict[Expression | None, list[int]] = {}
    for place, member in enumerate(members):
        known = before.places.get(id(member))
        if known is not None:
            own[place] = before.slots[known]
        else:
            wanted.setdefault(predicate_of(member), []).append(place)
    new = [predicate for predicate in wanted if predicate not in before.known]
    first = before.index.next_slot
    slots = {**before.known, **{predicate: first + n for n, predicate in enumerate(new)}}
    for predicate, places in wanted.items():
        own[places] = slots[predicate]
    used = set(own.tolist())
    gone = [predicate for predicate, slot in before.known.items() if slot not in used]
    index = before.index.changed(
        {str(slots[predicate]): predicate for predicate in new}, [str(slots[each]) for each in gone]
    )
    for predicate in gone:
        del slots[predicate]
    return SharedPlan(members, index, own, {id(each): place for place, each in enumerate(members)}, slots)


class _Plans:
    """The plans that were used of late, by the identities of their members, which they keep alive."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, ...], SharedPlan] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, members: tuple[PaneAggregate, ...]) -> SharedPlan:
        key = tuple(map(id, members))
        with self._lock:
            plan = self._kept.get(key)
            if plan is None:
                plan = self._made(members, key)
                self._kept[key] = plan
            self._kept.move_to_end(key)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return plan

    def _made(self, members: tuple[PaneAggregate, ...], key: Iterable[int]) -> SharedPlan:
        wanted = set(key)
        for other in reversed(self._kept.values()):
            if len(wanted & other.places.keys()) >= _NEAR * max(len(wanted), len(other.members)):
                return plan_from(other, members)
        return plan_anew(members)


_plans: Final = _Plans()


def plan_of(members: tuple[PaneAggregate, ...]) -> SharedPlan:
    """The plan of members with equal keys, of which this process remembers some."""
    return _plans.of(members)
