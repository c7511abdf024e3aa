"""The query log's entries as JSON, and back. The log is authoritative: the catalog is the fold of its entries."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from headrace.algebra.windows.user_code import Code
from headrace.catalog.definitions import (
    Deduplication,
    FunctionDefinition,
    Progressing,
    QueryDefinition,
    RelationDefinition,
    StreamDefinition,
    TimeExpression,
    WindowDefinition,
)
from headrace.schema import Field, Schema, Type, array, struct


def type_to_json(kind: Type) -> Any:
    """A scalar type as its name, a parameterised one as a list that begins with it."""
    if kind.name == "DECIMAL":
        return [kind.name, kind.precision, kind.scale]
    if kind.name == "ARRAY" and kind.element is not None:
        return [kind.name, type_to_json(kind.element)]
    if kind.name == "STRUCT":
        return [kind.name, *([field.name, type_to_json(field.type)] for field in kind.fields)]
    return kind.name


def type_from_json(value: Any) -> Type:
    """The inverse."""
    if not isinstance(value, list):
        return Type(value)
    name, *inside = value
    if name == "ARRAY":
        return array(type_from_json(inside[0]))
    if name == "STRUCT":
        return struct(*(Field(field_name, type_from_json(kind)) for field_name, kind in inside))
    return Type(name, *inside)


def schema_to_json(schema: Schema) -> list[list[Any]]:
    """Columns as [name, type]."""
    return [[field.name, type_to_json(field.type)] for field in schema]


def schema_from_json(value: list[list[Any]]) -> Schema:
    """The inverse."""
    return Schema(tuple(Field(name, type_from_json(kind)) for name, kind in value))


def stream_to_json(stream: StreamDefinition) -> dict[str, Any]:
    """A stream definition."""
    return {
        "name": stream.name,
        "schema": schema_to_json(stream.schema),
        "using": stream.using,
        "options": dict(stream.options),
        "time": stream.time,
        "slack": stream.slack,
        "punctuated_by": stream.punctuated_by,
        "idle_timeout": stream.idle_timeout,
        "max_ahead": stream.max_ahead,
        "archive": stream.archive,
        "retain": stream.retain,
        "blocks": stream.blocks,
        **({} if stream.keep == 1 else {"keep": stream.keep}),
        **({"latency": stream.latency} if stream.latency else {}),
        **({} if stream.time_expression is None else {"time_expression": asdict(stream.time_expression)}),
        "progress": asdict(stream.progress),
        "deduplicate": None if stream.deduplicate is None else asdict(stream.deduplicate),
    }


def stream_from_json(value: Mapping[str, Any]) -> StreamDefinition:
    """The inverse."""
    fields = {
        "schema": schema_from_json(value["schema"]),
        "progress": _progressing(value.get("progress", {})),
    }
    if (once := value.get("deduplicate")) is not None:
        fields["deduplicate"] = Deduplication(tuple(once["keys"]), once["within"])
    if (computed := value.get("time_expression")) is not None:
        fields["time_expression"] = TimeExpression(**computed)
    return StreamDefinition(**{**value, **fields})


def _progressing(value: Mapping[str, Any]) -> Progressing:
    """Sequences come back as tuples."""
    fields: dict[str, Any] = {
        name: tuple(item) if isinstance(item, list) else item for name, item in value.items()
    }
    return Progressing(**fields)


def relation_to_json(relation: RelationDefinition) -> dict[str, Any]:
    """A relation definition."""
    return {
        "name": relation.name,
        "schema": schema_to_json(relation.schema),
        "using": relation.using,
        "options": dict(relation.options),
    }


def relation_from_json(value: Mapping[str, Any]) -> RelationDefinition:
    """The inverse."""
    return RelationDefinition(**{**value, "schema": schema_from_json(value["schema"])})


def query_to_json(query: QueryDefinition) -> dict[str, Any]:
    """A query definition; an owner and tags only where it has them."""
    document: dict[str, Any] = {
        "name": query.name,
        "text": query.text,
        "from_now": query.from_now,
        "paused": query.paused,
        "retain": query.retain,
        "continues": query.continues,
        **({} if query.materialize is None else {"materialize": query.materialize}),
        **({} if query.zone == "UTC" else {"zone": query.zone}),
        **({} if query.sharing else {"sharing": False}),
        **({} if (most := query.max_windows_per_row) is None else {"max_windows_per_row": most}),
    }
    settings = {"owner": query.owner, "tags": query.tags}
    return document | settings_to_json({name: setting for name, setting in settings.items() if setting})


def settings_to_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Owner, tags, retention: those that are given."""
    return {
        name: list(setting) if isinstance(setting, tuple) else setting for name, setting in settings.items()
    }


def settings_from_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse."""
    return {name: tuple(setting) if isinstance(setting, list) else setting for name, setting in value.items()}


def query_from_json(value: Mapping[str, Any]) -> QueryDefinition:
    """The inverse."""
    return QueryDefinition(**settings_from_json(value))


def function_to_json(function: FunctionDefinition) -> dict[str, Any]:
    """A function definition."""
    return {
        "name": function.name,
        "parameters": [type_to_json(kind) for kind in function.parameters],
        "result": type_to_json(function.result),
        "body": base64.b64encode(function.body).decode(),
        "by_row": function.by_row,
        "strict": function.strict,
        **({"fingerprint": function.fingerprint} if function.fingerprint else {}),
    }


def function_from_json(value: Mapping[str, Any]) -> FunctionDefinition:
    """The inverse."""
    return FunctionDefinition(
        value["name"],
        tuple(type_from_json(kind) for kind in value["parameters"]),
        type_from_json(value["result"]),
        _code(value),
        value["by_row"],
        value["strict"],
        value.get("fingerprint", ""),
    )


def window_to_json(window: WindowDefinition) -> dict[str, Any]:
    """A user's kind of window."""
    body = base64.b64encode(window.body).decode()
    return {"name": window.name, "body": body, "fingerprint": window.fingerprint}


def window_from_json(value: Mapping[str, Any]) -> WindowDefinition:
    """The inverse."""
    return WindowDefinition(value["name"], _code(value), value["fingerprint"])


def _code(value: Mapping[str, Any]) -> Code:
    """A user's registered code, not loaded."""
    return Code(base64.b64decode(value["body"]))
