"""How does an epoch plan of thousands of queries rest in files, when one query comes or goes at a time?

A plan is a small *head* and *segments*, which hold the operators. What is new goes into a segment of its own; segments of
like size are merged, so a registration writes what it adds and, now and then, what was added of late. All are named
by their content and never rewritten. They are pickles, private to the code that wrote them: the head says which that was. A worker reads the segments it has not seen, and keeps an operator it knows as the
same object: what it derived from it (a compiled index, a scanner's layout) stays good.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

import headrace
from headrace.operators.operator import Operator
from headrace.runtime import names
from headrace.runtime.messages import EpochPlan
from headrace.runtime.recent import Recent
from headrace.store.filesystem import Store

_GROWS_BY: Final = 4
"""A segment is merged into the one before it unless that one is more than so many times as large."""
_HEADS: Final = 8
_SEGMENTS: Final = 256
_OPERATORS: Final = 200_000

_ENDS: Final = b"\n"
"""What stands between the code that wrote a head and its pickle."""

_heads: Final[Recent[tuple[str, str], EpochPlan]] = Recent(_HEADS)
_segments: Final[Recent[tuple[str, str], Mapping[str, Operator]]] = Recent(_SEGMENTS)
_operators: Final[Recent[tuple[str, str], Operator]] = Recent(_OPERATORS)


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of operators, by their ids; some may be in the plan no more."""

    name: str
    operators: Mapping[str, Operator]


@dataclass(frozen=True, slots=True)
class _Head:
    """What a plan's own file holds: the plan without operators, its segments in order, and who of them is gone."""

    plan: EpochPlan
    segments: tuple[str, ...]
    gone: frozenset[str]


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan that rests in files. Of an operator that several segments hold, the last one's counts."""

    name: str
    segments: tuple[Segment, ...]
    operators: Mapping[str, Operator]

    @property
    def files(self) -> tuple[str, ...]:
        """The names of all files it needs."""
        return self.name, *(segment.name for segment in self.segments)


NO_PLAN: Final = SavedPlan("", (), {})
"""Before the first plan of a process is written."""


def save_plan(store: Store, plan: EpochPlan, before: SavedPlan) -> SavedPlan:
    """Write what of a plan is not in files of the plan `before` it; files of equal content that are there stay."""
    segments, known = list(before.segments), before.operators
    fresh = {id_: each for id_, each in plan.operators.items() if not _is_same(known.get(id_), each)}
    held = sum(len(segment.operators) for segment in segments) + len(fresh)
    if held > 2 * len(plan.operators):
        segments, fresh = [], dict(plan.operators)
    while fresh and segments and _GROWS_BY * len(fresh) >= len(segments[-1].operators):
        older = segments.pop().operators
        fresh = {id_: plan.operators[id_] for id_ in older if id_ in plan.operators} | fresh
    if fresh:
        data = pickle.dumps(tuple(fresh.values()), protocol=5)
        segments.append(Segment(_write(store, data), fresh))
    everyone = frozenset[str]().union(*(segment.operators.keys() for segment in segments))
    gone = everyone - plan.operators.keys()
    head = _Head(replace(plan, operators={}), tuple(segment.name for segment in segments), gone)
    name = _write(store, code() + _ENDS + pickle.dumps(head, protocol=5))
    return SavedPlan(name, tuple(segments), plan.operators)


def _is_same(known: Operator | None, now: Operator) -> bool:
    return known is now or known == now


def _write(store: Store, data: bytes) -> str:
    name = names.plan(hashlib.sha256(data).hexdigest()[:24])
    if not store.exists(name):
        store.put_if_absent(name, data)
    return name


@cache
def code() -> bytes:
    """Which code this is, by its sources."""
    digest, root = hashlib.sha256(), Path(headrace.__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:24].encode()


def is_readable(store: Store, name: str) -> bool:
    """Whether this code wrote the plan of that name: the operators of another may have other fields."""
    return bytes(store.read(name)).startswith(code() + _ENDS)


def read_afresh(store: Store, name: str) -> int:
    """Read all files of the plan of that name, whatever this process knows of them; how many operators are in force."""
    head: _Head = pickle.loads(store.read(name).partition(_ENDS)[2])
    found = {each.id for segment in head.segments for each in pickle.loads(store.read(segment))}
    return len(found - head.gone)


def load_plan(store: Store, name: str) -> EpochPlan:
    """The plan of that name."""
    key = (str(store.root), name)
    plan = _heads.get(key)
    if plan is None:
        head: _Head = pickle.loads(store.read(name).partition(_ENDS)[2])
        operators: dict[str, Operator] = {}
        for segment in head.segments:
            operators.update(_segment(store, segment))
        for id_ in head.gone:
            del operators[id_]
        plan = replace(head.plan, operators=operators)
        _heads.put(key, plan)
    return plan


def _segment(store: Store, name: str) -> Mapping[str, Operator]:
    key = (str(store.root), name)
    found = _segments.get(key)
    if found is None:
        found = dict(_as_known(str(store.root), pickle.loads(store.read(name))))
        _segments.put(key, found)
    return found


def _as_known(root: str, operators: Iterable[Operator]) -> Iterable[tuple[str, Operator]]:
    """Operators by id, each as the object by which this process knows it already."""
    for operator in operators:
        known = _operators.get((root, operator.id))
        if known is None or known != operator:
            _operators.put((root, operator.id), known := operator)
        yield operator.id, known


def forget() -> None:
    """Forget every plan, as a new worker has."""
    for kept in (_heads, _segments, _operators):
        kept.clear()
