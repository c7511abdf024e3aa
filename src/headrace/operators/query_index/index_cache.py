"""Cache of query indexes in a worker: for a set of queries, the index of their conditions and the slot of each query in
it, derived from the index of a similar set by what was added and dropped.

Compiling ten thousand conditions takes a second. So a worker caches the last indexes it made, and derives the next one
from the nearest of them: new conditions are added, and those without a query are dropped. Queries are compared by
identity: the runtime keeps the object while a query does not change.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import numpy as np

from headrace.algebra.expressions.expression import Expression, conjunction
from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints
from headrace.operators.query_index.index import QueryIndex
from headrace.operators.rows.row_pipeline import RowFilter

_KEPT: Final = 16
_NEAR: Final = 0.5
"""An index is derived from another one if at most this share of its queries is new."""
_SPARE_SLOTS: Final = 64


class Conditioned(Protocol):
    """An object with conditions on a stream's rows."""

    @property
    def steps(self) -> Sequence[Any]:
        """The row steps; the filters among them are the conditions."""
        ...


_Query = TypeVar("_Query")


def predicate_of(query: Conditioned) -> Expression | None:
    """The condition of a query whose steps are filters only; None for all rows."""
    factors = tuple(step.predicate for step in query.steps if isinstance(step, RowFilter))
    return conjunction(factors) if factors else None


@dataclass(frozen=True)
class Conditions(Generic[_Query]):
    """The conditions of queries in one index. `slots[i]` is the slot of query i's condition in it."""

    queries: tuple[_Query, ...]
    index: QueryIndex
    slots: Ints
    indices: Mapping[int, int]
    """The index of each query, by its identity."""
    slot_of: Mapping[Expression | None, int] = field(repr=False)
    """The slot of each condition in the index."""

    @staticmethod
    def condition_of(query: Any) -> Expression | None:
        """The condition of a query in the index."""
        return predicate_of(query)

    def rebuilt(self, queries: tuple[_Query, ...]) -> Self:
        """The plan of these queries, with all conditions compiled."""
        return _changed(none_yet(type(self)), queries)

    def changed(self, queries: tuple[_Query, ...]) -> Self:
        """The plan of these queries, derived from this one by what differs."""
        plan = _changed(self, queries)
        if (
            plan.index.next_slot > 2 * len(plan.index) + _SPARE_SLOTS
        ):  # slots of dropped conditions are not reused
            return plan.rebuilt(queries)
        return plan


_Plan = TypeVar("_Plan", bound=Conditions[Any])


def none_yet(kind: type[_Plan]) -> _Plan:
    """A plan without queries."""
    return kind((), QueryIndex(), np.empty(0, np.int64), {}, {})


def _changed(before: _Plan, queries: tuple[Any, ...]) -> _Plan:
    query_slots = np.full(len(queries), -1, np.int64)
    pending: dict[Expression | None, list[int]] = {}
    for index, query in enumerate(queries):
        previous = before.indices.get(id(query))
        if previous is not None:
            query_slots[index] = before.slots[previous]
        else:
            pending.setdefault(before.condition_of(query), []).append(index)
    slots, first, new = dict(before.slot_of), before.index.next_slot, dict[str, Expression | None]()
    for predicate, indices_of_predicate in pending.items():
        slot = slots.setdefault(predicate, first + len(new))  # a hash goes through all of a condition
        if slot == first + len(new):
            new[str(slot)] = predicate
        query_slots[indices_of_predicate] = slot
    used = set(query_slots.tolist())
    unused = [predicate for predicate, slot in before.slot_of.items() if slot not in used]
    changed_index = before.index.changed(new, [str(slots.pop(predicate)) for predicate in unused])
    indices = {id(predicate): index for index, predicate in enumerate(queries)}
    return replace(
        before, queries=queries, index=changed_index, slots=query_slots, indices=indices, slot_of=slots
    )


class Plans(Generic[_Plan]):
    """Cache of the last used plans, by the identities of their queries, which it keeps alive."""

    def __init__(self, none: _Plan) -> None:
        self._none = none
        self._kept: OrderedDict[tuple[int, ...], _Plan] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, queries: tuple[Any, ...]) -> _Plan:
        """The plan of these queries, derived from a similar one if there is one."""
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
        identities = set(key)
        for other in reversed(self._kept.values()):
            if len(identities & other.indices.keys()) >= _NEAR * max(len(identities), len(other.queries)):
                return other.changed(queries)
        return self._none.rebuilt(queries)
