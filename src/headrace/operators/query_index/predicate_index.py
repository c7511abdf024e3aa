"""The conditions of thousands of queries over one stream as one index, kept while queries come and go.

Compiling ten thousand conditions takes a second. So a worker keeps the last indexes it made, and from the nearest of them
makes the next by what has changed: conditions that are new are added, those nobody has any more are dropped. Members are
told apart as objects, which the runtime keeps while a query stays as it is.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import numpy as np

from headrace.algebra.expressions.expression import Expression, conjunction
from headrace.operators.base.group_codes import Ints
from headrace.operators.query_index.index import QueryIndex
from headrace.operators.rows.row_pipeline import RowFilter

_KEPT: Final = 16
_NEAR: Final = 0.5
"""An index is made from another one when at most this part of its members is new."""
_SPARE_SLOTS: Final = 64


class Conditioned(Protocol):
    """Somebody with conditions on a stream's rows."""

    @property
    def steps(self) -> Sequence[Any]:
        """What is done to rows first; the filters among it are the conditions."""
        ...


_Member = TypeVar("_Member")


def predicate_of(query: Conditioned) -> Expression | None:
    """The condition of a member whose steps are filters alone; None for all rows."""
    factors = tuple(step.predicate for step in query.steps if isinstance(step, RowFilter))
    return conjunction(factors) if factors else None


@dataclass(frozen=True)
class Conditions(Generic[_Member]):
    """The conditions of members in one index. `slots[i]` is the place of member i's condition in it."""

    queries: tuple[_Member, ...]
    index: QueryIndex
    slots: Ints
    places: Mapping[int, int]
    """The place of each member, by its identity."""
    known: Mapping[Expression | None, int] = field(repr=False)
    """The slot of each condition in the index."""

    @staticmethod
    def condition_of(query: Any) -> Expression | None:
        """What the index is asked for a member."""
        return predicate_of(query)

    def rebuilt(self, queries: tuple[_Member, ...]) -> Self:
        """The plan of members, all conditions compiled."""
        return _changed(none_yet(type(self)), queries)

    def changed(self, queries: tuple[_Member, ...]) -> Self:
        """The plan of members by what distinguishes them from those of this one."""
        plan = _changed(self, queries)
        if (
            plan.index.next_slot > 2 * len(plan.index) + _SPARE_SLOTS
        ):  # slots of the dropped are not given again
            return plan.rebuilt(queries)
        return plan


_Plan = TypeVar("_Plan", bound=Conditions[Any])


def none_yet(kind: type[_Plan]) -> _Plan:
    """A plan of no members."""
    return kind((), QueryIndex(), np.empty(0, np.int64), {}, {})


def _changed(before: _Plan, queries: tuple[Any, ...]) -> _Plan:
    own = np.full(len(queries), -1, np.int64)
    wanted: dict[Expression | None, list[int]] = {}
    for place, query in enumerate(queries):
        known = before.places.get(id(query))
        if known is not None:
            own[place] = before.slots[known]
        else:
            wanted.setdefault(before.condition_of(query), []).append(place)
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
    whose = {id(each): place for place, each in enumerate(queries)}
    return replace(before, queries=queries, index=index, slots=own, places=whose, known=slots)


class Plans(Generic[_Plan]):
    """The plans that were used of late, by the identities of their members, which they keep alive."""

    def __init__(self, none: _Plan) -> None:
        self._none = none
        self._kept: OrderedDict[tuple[int, ...], _Plan] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, queries: tuple[Any, ...]) -> _Plan:
        """The plan of members, made by what is new where one like it is there."""
        key = tuple(map(id, queries))
        with self._lock:
            plan = self._kept.get(key)
            if plan is None:
                plan = self._made(queries, key)
                self._kept[key] = plan
            self._kept.move_to_end(key)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return plan

    def _made(self, queries: tuple[Any, ...], key: Iterable[int]) -> _Plan:
        wanted = set(key)
        for other in reversed(self._kept.values()):
            if len(wanted & other.places.keys()) >= _NEAR * max(len(wanted), len(other.queries)):
                return other.changed(queries)
        return self._none.rebuilt(queries)
