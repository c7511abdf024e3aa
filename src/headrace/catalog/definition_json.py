"""Definitions, and single settings of a query, as the JSON that entries of the query log hold, and back. The log is
authoritative: the catalog is computed from its entries.

A definition is an object of its fields. Fields that came later are written unless they have their default, so that the log of a
definition without them stays as it was.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any, Final, TypeVar

from headrace.algebra.windows.user_code import Code
from headrace.catalog.definitions import (
    ActionDefinition,
    Deduplication,
    FunctionDefinition,
    JoinTree,
    Progressing,
    QueryDefinition,
    RelationDefinition,
    StreamConstraint,
    StreamDefinition,
    TimeExpression,
    WindowDefinition,
)
from headrace.catalog.reductions import Counted, Load, Reducer, Reduction
from headrace.schema import Field, Schema, Type, array, struct

_Definition = TypeVar(
    "_Definition", StreamDefinition, RelationDefinition, QueryDefinition, FunctionDefinition, WindowDefinition
)
_LATER: Final = {
    StreamDefinition: {
        "blocks_by",
        "constraints",
        "keep",
        "latency",
        "reduce",
        "reducers",
        "time_expression",
    },
    QueryDefinition: {
        "owner",
        "tags",
        "materialize",
        "zone",
        "sharing",
        "max_windows_per_row",
        "max_join_rows",
        "join_constraints",
        "spill",
        "join",
        "join_sizes",
        "join_trees",
        "actions",
    },
    FunctionDefinition: {"fingerprint"},
}
"""Fields that are written unless they have their default."""
_NEVER: Final = {"failure"}
"""Fields that other entries of the log set."""


def to_json(definition: _Definition) -> dict[str, Any]:
    """A definition as JSON values."""
    later = _LATER.get(type(definition), set())
    values = {field: getattr(definition, field.name) for field in fields(definition)}
    return {
        field.name: _plain(value)
        for field, value in values.items()
        if field.name not in _NEVER and not (field.name in later and value == field.default)
    }


def from_json(kind: type[_Definition], value: Mapping[str, Any]) -> _Definition:
    """The inverse."""
    return kind(**settings_from_json(value))


def settings_to_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Some fields of a definition."""
    return {name: _plain(value) for name, value in settings.items()}


def settings_from_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse."""
    return {name: _READ[name](item) if name in _READ else item for name, item in value.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Type):
        return _type_to_json(value)
    if isinstance(value, Schema):
        return [[field.name, _type_to_json(field.type)] for field in value]
    if isinstance(value, Code):
        return base64.b64encode(value).decode()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, ActionDefinition):
        return {name: item for name, item in asdict(value).items() if item or name != "files"}
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _type_to_json(kind: Type) -> Any:
    """A scalar type as its name, a parameterised one as a list that begins with it."""
    if kind.name == "DECIMAL":
        return [kind.name, kind.precision, kind.scale]
    if kind.name == "ARRAY" and kind.element is not None:
        return [kind.name, _type_to_json(kind.element)]
    if kind.name == "STRUCT":
        return [kind.name, *([field.name, _type_to_json(field.type)] for field in kind.fields)]
    return kind.name


def _type(value: Any) -> Type:
    if not isinstance(value, list):
        return Type(value)
    name, *inside = value
    if name == "ARRAY":
        return array(_type(inside[0]))
    if name == "STRUCT":
        return struct(*(Field(field_name, _type(kind)) for field_name, kind in inside))
    return Type(name, *inside)


def _clause(kind: type) -> Callable[[Any], Any]:
    """Reads the values of a clause; its sequences are tuples."""
    return lambda value: (
        None
        if value is None
        else kind(**{name: tuple(item) if isinstance(item, list) else item for name, item in value.items()})
    )


def _action(value: Mapping[str, Any]) -> ActionDefinition:
    return ActionDefinition(**{**value, "options": tuple((name, text) for name, text in value["options"])})


def _reduction(value: Any) -> Reduction | None:
    """A reduction; older versions had ages alone."""
    if value is None:
        return None
    parts: Mapping[str, Any] = {"ages": value} if isinstance(value, list) else value
    load, counted = parts.get("load"), parts.get("counted")
    return Reduction(
        tuple((age, share) for age, share in parts["ages"]),
        None if load is None else Load(**load),
        None if counted is None else Counted(**{**counted, "columns": tuple(counted["columns"])}),
    )


def reducer_from_json(value: Mapping[str, Any]) -> Reducer:
    """A reducer of a stream, from the values of an entry of the log."""
    reduction = _reduction(value["reduction"])
    assert reduction is not None
    return Reducer(value["name"], reduction)


def reducer_to_json(reducer: Reducer) -> dict[str, Any]:
    """The inverse."""
    return asdict(reducer)


def _join_tree(value: Mapping[str, Any]) -> JoinTree:
    return JoinTree(**{**value, "groups": tuple(map(tuple, value["groups"]))})


_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "schema": lambda value: Schema(tuple(Field(name, _type(kind)) for name, kind in value)),
    "progress": _clause(Progressing),
    "deduplicate": _clause(Deduplication),
    "time_expression": _clause(TimeExpression),
    "parameters": lambda value: tuple(map(_type, value)),
    "result": _type,
    "body": lambda value: Code(base64.b64decode(value)),
    "tags": tuple,
    "join_sizes": tuple,
    "join_trees": lambda value: tuple(map(_join_tree, value)),
    "reduce": _reduction,
    "reducers": lambda value: tuple(map(reducer_from_json, value)),
    "actions": lambda value: tuple(map(_action, value)),
    "constraints": lambda value: tuple(map(_clause(StreamConstraint), value)),
}
"""How a field is read, where its values are not those of JSON."""
