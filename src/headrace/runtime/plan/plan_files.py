"""Files of an epoch plan, written and read: a change of one query among thousands writes only what it adds, and each
process reads a file once (cache).

A plan is a small *head* and *segments*, which hold the operators. New operators are written to a new segment; segments of
similar size are merged, so a registration writes what it adds and, now and then, what was added recently. All are named
by their content and never rewritten. They are sealed JSON of `store/files/values.py`, so reading one runs no code; the code
of users' functions and windows is in files that the head lists. The head also names the classes that the plan is made of, with a digest
of their fields.
A worker reads only new segments, and an operator equal to one that it has read before stays the same object, so that
values derived from it (a compiled index, a scanner's layout) stay valid.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from headrace.dataclass import dataclass
from headrace.errors import CorruptStore, OtherVersion
from headrace.runtime.home import file_names
from headrace.runtime.home.lru_cache import Recent
from headrace.runtime.messages.epoch_plan import EpochPlan, PlannedOperator
from headrace.runtime.plan.plan_classes import codec
from headrace.store.files.envelope import seal, unseal
from headrace.store.files.filesystem import MissingFile, Store
from headrace.store.files.values import Encoded

_GROWS_BY: Final = 4
"""A segment is merged into the previous one unless that one is more than this many times as large."""
_HEADS: Final = 8
_SEGMENTS: Final = 256
_OPERATORS: Final = 200_000

_HEAD: Final = "plan"
_SEGMENT: Final = "plan segment"
_VERSION: Final = 1
_UNSEALED: Final = re.compile(rb"[0-9a-f]{24}\n\x80|\x80[\x04\x05]")
"""The first bytes of plans that older versions wrote, which had no format."""
_REMEDY: Final = "use the version that wrote it, or start this one as the home's writer, which makes its plan from the catalog"

_heads: Final[Recent[tuple[str, str], EpochPlan]] = Recent(_HEADS)
_coarser: Final[Recent[tuple[str, str, tuple[tuple[str, int], ...]], EpochPlan]] = Recent(_HEADS)
_segments: Final[Recent[tuple[str, str], Mapping[str, PlannedOperator]]] = Recent(_SEGMENTS)
_operators: Final[Recent[tuple[str, str], PlannedOperator]] = Recent(_OPERATORS)


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of operators, by their ids; some may have left the plan. `code` are the files of users' code it needs, `classes`
    the stored names of what it is made of.
    """

    name: str
    operators: Mapping[str, PlannedOperator]
    code: tuple[str, ...] = ()
    classes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan in files. Of an operator that is in several segments, the last one is in force."""

    name: str
    segments: tuple[Segment, ...]
    operators: Mapping[str, PlannedOperator]
    code: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """The names of all files it needs, its head first."""
        return self.name, *(segment.name for segment in self.segments), *self.code


NO_PLAN: Final = SavedPlan("", (), {})
"""The value before the first plan of a process is written."""


def save_plan(store: Store, plan: EpochPlan, before: SavedPlan) -> SavedPlan:
    """Write the parts of a plan that are not in files of the previous plan `before`; existing files of equal content are reused."""
    segments, previous = list(before.segments), before.operators
    new = {id_: planned for id_, planned in plan.planned.items() if not _is_same(previous.get(id_), planned)}
    operators_stored = sum(len(segment.operators) for segment in segments) + len(new)
    if operators_stored > 2 * len(plan.planned):
        segments, new = [], dict(plan.planned)
    while new and segments and _GROWS_BY * len(new) >= len(segments[-1].operators):
        merged = segments.pop().operators
        new = {id_: plan.planned[id_] for id_ in merged if id_ in plan.planned} | new
    if new:
        operators = codec().encode(tuple(new.values()))
        code = _write_code(store, operators)
        name = _write(store, seal(_SEGMENT, _VERSION, {"operators": operators.body}))
        segments.append(Segment(name, new, code, operators.names))
    stored = frozenset[str]().union(*(segment.operators.keys() for segment in segments))
    rest = codec().encode(replace(plan, planned={}))
    code = tuple(
        dict.fromkeys([*_write_code(store, rest), *(file for segment in segments for file in segment.code)])
    )
    made_of = rest.names.union(*(segment.classes for segment in segments))
    head = {
        "classes": sorted(made_of),
        "schema": codec().schema(made_of),
        "plan": rest.body,
        "segments": [segment.name for segment in segments],
        "gone": sorted(stored - plan.planned.keys()),
        "code": list(code),
    }
    return SavedPlan(_write(store, seal(_HEAD, _VERSION, head)), tuple(segments), plan.planned, code)


def _is_same(previous: PlannedOperator | None, planned: PlannedOperator) -> bool:
    return previous is planned or previous == planned


def _write(store: Store, data: bytes) -> str:
    return _put(store, file_names.plan(hashlib.sha256(data).hexdigest()[:24]), data)


def _write_code(store: Store, encoded: Encoded) -> tuple[str, ...]:
    return tuple(_put(store, file_names.code(digest), data) for digest, data in encoded.apart.items())


def _put(store: Store, name: str, data: bytes) -> str:
    """Write a file named by its content; a damaged one is replaced."""
    if store.exists(name):
        if bytes(store.read(name)) == data:
            return name
        store.delete(name)
    store.put_if_absent(name, data)
    return name


def is_readable(store: Store, name: str) -> bool:
    """Whether the plan of that name exists, and its writer knew the classes that it is made of with the same fields."""
    try:
        head = _unsealed(store, name, _HEAD)
        return "classes" in head and bool(head["schema"] == codec().schema(head["classes"]))
    except (CorruptStore, OtherVersion, MissingFile):
        return False


def _unsealed(store: Store, name: str, kind: str) -> Mapping[str, Any]:
    data = bytes(store.read(name))
    if _UNSEALED.match(data):
        raise OtherVersion(f"the {kind} '{name}' was written by an older version of headrace: {_REMEDY}")
    body = unseal(kind, _VERSION, data, name)
    if not isinstance(body, dict):
        raise CorruptStore(f"the {kind} '{name}' is damaged: it holds {type(body).__name__}")
    return body


def _decoded(store: Store, name: str, body: Any) -> Any:
    try:
        return codec().decode(body, lambda digest: bytes(store.read(file_names.code(digest))))
    except OtherVersion as error:
        raise OtherVersion(f"the plan '{name}' cannot be read: {error}: {_REMEDY}") from None
    except MissingFile:
        raise
    except CorruptStore as error:
        raise CorruptStore(f"the plan '{name}' is damaged: {error}") from error


def read_afresh(store: Store, name: str) -> int:
    """Read all files of a plan without the caches; returns the number of its operators."""
    head = _unsealed(store, name, _HEAD)
    _decoded(store, name, head["plan"])
    operators = {
        planned.operator.id for segment in head["segments"] for planned in _operators_of(store, segment)
    }
    return len(operators - set(head["gone"]))


def load_plan(store: Store, name: str) -> EpochPlan:
    """The plan of that name. Raises `OtherVersion` or `CorruptStore` for one that cannot be read."""
    key = (str(store.root), name)
    plan = _heads.get(key)
    if plan is None:
        head = _unsealed(store, name, _HEAD)
        operators: dict[str, PlannedOperator] = {}
        for segment in head["segments"]:
            operators.update(_segment(store, segment))
        for id_ in head["gone"]:
            del operators[id_]
        plan = replace(_decoded(store, name, head["plan"]), planned=operators)
        _heads.put(key, plan)
    return plan


def plan_in_force(store: Store, name: str, doubled: Mapping[str, int]) -> EpochPlan:
    """The plan of that name, where synopses of some operators have their error doubled so often; raises as `load_plan`."""
    plan = load_plan(store, name)
    if not doubled:
        return plan
    key = (str(store.root), name, tuple(sorted(doubled.items())))
    made = _coarser.get(key)
    if made is None:
        coarser = {
            id_: replace(plan.planned[id_], operator=plan.operators[id_].coarser(times))
            for id_, times in doubled.items()
            if id_ in plan.planned
        }
        made = replace(plan, planned={**plan.planned, **coarser})
        _coarser.put(key, made)
    return made


def _segment(store: Store, name: str) -> Mapping[str, PlannedOperator]:
    key = (str(store.root), name)
    operators = _segments.get(key)
    if operators is None:
        operators = dict(_shared(str(store.root), _operators_of(store, name)))
        _segments.put(key, operators)
    return operators


def _operators_of(store: Store, segment: str) -> tuple[PlannedOperator, ...]:
    operators: tuple[PlannedOperator, ...] = _decoded(
        store, segment, _unsealed(store, segment, _SEGMENT)["operators"]
    )
    return operators


def _shared(root: str, operators: Iterable[PlannedOperator]) -> Iterable[tuple[str, PlannedOperator]]:
    """Operators by id; one equal to an operator that this process has read before is that same object."""
    for planned in operators:
        key = root, planned.operator.id
        shared = _operators.get(key)
        if shared != planned:
            if shared is not None and shared.operator == planned.operator:
                shared = replace(planned, operator=shared.operator)
            else:
                shared = planned
            _operators.put(key, shared)
        yield planned.operator.id, shared


def clear_caches() -> None:
    """Empty the caches of plans, as in a new worker."""
    for cache in (_heads, _coarser, _segments, _operators):
        cache.clear()
