"""The use of constraints of streams, declared or to be found: the join of windows that drops rows by them, in place of one without.

A promise of single values (UNIQUE, CLUSTERED, ORDERED) is used where the join's key is one whole number, whose hash is the value
itself, so no other value is taken for it; REFERENCES, which is about time alone, with any key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace

from headrace.adaptive.constraints.key_promises import KeyPromise
from headrace.adaptive.constraints.partner_delays import UNBOUNDED
from headrace.algebra.expressions.expression import Column
from headrace.catalog.definitions import StreamConstraint, StreamDefinition
from headrace.dataclass import dataclass
from headrace.operators.joins.constrained_join import ConstrainedJoin, Reference
from headrace.operators.joins.join_side import Side
from headrace.operators.joins.window_join import WindowJoin
from headrace.planner.joins.join_stage import JoinStage
from headrace.time import Duration


@dataclass(frozen=True, slots=True)
class _Keyed:
    """A side that reads one stream: the place in the key of each of the stream's columns that the key has."""

    stream: StreamDefinition
    places: Mapping[str, int]

    def place_of(self, columns: tuple[str, ...]) -> tuple[int, ...] | None:
        """The places of columns in the key; None if one is not there."""
        indexes = [self.places.get(column.lower()) for column in columns]
        return None if None in indexes else tuple(index for index in indexes if index is not None)


def constrained(
    stage: JoinStage,
    streams: Mapping[str, StreamDefinition],
    *,
    finds: bool = False,
    spill: Duration | None = 0,
) -> JoinStage:
    """The stage with a join that uses the constraints of its streams, and if it `finds` bounds on delays those; itself without any that
    concern its key. `spill`: the time between the rows of pairs up to which these are found whatever constraints hold, None: any.
    """
    operator = stage.operator
    read = [streams.get(name) for name, _ in stage.union.inputs]
    is_declared = any(stream is not None and stream.constraints for stream in read)
    if not isinstance(operator, WindowJoin) or not (is_declared or finds):
        return stage
    finds = finds and bool(operator.spec.sides[0].keys)
    keyed = [_keyed(side, stage, streams) for side in operator.spec.sides]
    exact = operator.spec.hashes_exactly
    promises = tuple(tuple(_promises(side)) if exact and side is not None else () for side in keyed)
    references = tuple(_references(keyed))
    if not any(promises) and not references and not finds:
        return stage
    arguments = {field.name: getattr(operator, field.name) for field in fields(operator)}
    spill = UNBOUNDED if spill is None else spill if operator.spec.sides[0].keys else 0
    signature = "" if finds or spill else operator.spec.signature  # what one query allows holds for no other
    arguments["spec"] = replace(operator.spec, signature=signature)
    join = ConstrainedJoin(
        **arguments, promises=promises, references=references, finds_bounds=finds, spill=spill
    )
    return replace(stage, operator=join)


def unconstrained(join: WindowJoin | None) -> WindowJoin | None:
    """The join, if it uses no constraints: these are about pairs, so an aggregate above it reads the pairs."""
    return None if isinstance(join, ConstrainedJoin) else join


def _keyed(side: Side, stage: JoinStage, streams: Mapping[str, StreamDefinition]) -> _Keyed | None:
    """The stream of a side, if it reads one alone."""
    if len(side.inputs) != 1:
        return None
    name, columns = stage.union.inputs[side.inputs[0]]
    stream = streams.get(name)
    if stream is None:
        return None
    renamed = {new: old.lower() for old, new in columns}
    keys = enumerate(side.keys)
    places = {
        renamed[key.name]: index for index, key in keys if isinstance(key, Column) and key.name in renamed
    }
    return _Keyed(stream, places)


def _promises(side: _Keyed) -> Iterator[KeyPromise]:
    for constraint in side.stream.constraints:
        if constraint.kind != "references" and side.place_of(constraint.columns) == (0,):
            yield KeyPromise(constraint.kind, constraint.within, _clause(side, constraint))


def _references(keyed: list[_Keyed | None]) -> Iterator[Reference]:
    """The references between sides whose columns are at the same places of the key."""
    for parent, side in enumerate(keyed):
        for constraint in () if side is None else side.stream.constraints:
            places = side.place_of(constraint.columns) if side and constraint.kind == "references" else None
            for child, other in enumerate(keyed):
                if places is None or other is None or child == parent or side is None:
                    continue
                is_meant = other.stream.name.lower() == constraint.stream.lower()
                if is_meant and other.place_of(constraint.others) == places:
                    yield Reference(parent, child, constraint.within, _clause(side, constraint))


def _clause(side: _Keyed, constraint: StreamConstraint) -> str:
    return f"{constraint} of {side.stream.name}"
