"""The CREATE statement of a definition."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from headrace.catalog.definitions import (
    ActionDefinition,
    QueryDefinition,
    RelationDefinition,
    StreamDefinition,
)
from headrace.language.parser.quoting import identifier, string
from headrace.schema import Schema
from headrace.time import DAY, render_duration


def render_stream(stream: StreamDefinition) -> str:
    """The CREATE STREAM of a definition."""
    options = dict(stream.options)
    if stream.retain is not None:
        options["retain"] = render_duration(stream.retain)
    if stream.max_ahead != DAY:
        options["maxAhead"] = render_duration(stream.max_ahead)
    if stream.archive != "copy":
        options["archive"] = stream.archive
    if stream.blocks != 1:
        options["blocks"] = str(stream.blocks)
    if stream.keep != 1:
        options["keep"] = f"{Decimal(repr(stream.keep)):f}"
    if stream.latency:
        options["latency"] = render_duration(stream.latency)
    text = f"CREATE STREAM {identifier(stream.name)} {_columns(stream.schema)} USING {identifier(stream.using)}{_options(options)}"
    if stream.time is not None:
        text += f" TIMESTAMP BY {identifier(stream.time)}"
    elif stream.time_expression is not None:
        text += f" TIMESTAMP BY {stream.time_expression.text}"
    if stream.slack:
        text += f" SLACK INTERVAL {render_duration(stream.slack)}"
    if stream.punctuated_by is not None:
        text += f" PUNCTUATED BY {stream.punctuated_by}"
    if stream.idle_timeout is not None:
        text += f" IDLE TIMEOUT INTERVAL {render_duration(stream.idle_timeout)}"
    return text


def render_relation(relation: RelationDefinition) -> str:
    """The CREATE RELATION of a definition."""
    using = identifier(relation.using)
    return f"CREATE RELATION {identifier(relation.name)} {_columns(relation.schema)} USING {using}{_options(relation.options)}"


def render_query(query: QueryDefinition) -> str:
    """The CREATE QUERY of a definition."""
    options = {} if query.retain is None else {"retain": render_duration(query.retain)}
    options |= {} if query.owner is None else {"owner": query.owner}
    options |= {} if query.sharing else {"sharing": "off"}
    if query.tags:
        options["tags"] = ", ".join(query.tags)
    if query.materialize is not None:
        options["materialize"] = query.materialize
    if query.max_windows_per_row is not None:
        options["maxWindowsPerRow"] = str(query.max_windows_per_row)
    if query.zone != "UTC":
        options["timeZone"] = query.zone
    clauses = f"{' FROM NOW' if query.from_now else ''}{_options(options)}"
    return f"CREATE QUERY {identifier(query.name)}{clauses} AS {query.text}{''.join(map(_action, query.actions))}"


def _action(action: ActionDefinition) -> str:
    verb = {"call": "CALL", "notify": "NOTIFY"}.get(action.kind, "WRITE TO")
    target = identifier(action.target) if action.kind == "stream" else string(action.target)
    return f" THEN {verb} {target}{_options(dict(action.options)).replace('OPTIONS', 'WITH', 1)}"


def _columns(schema: Schema) -> str:
    return "(" + ", ".join(f"{identifier(field.name)} {field.type}" for field in schema) + ")"


def _options(options: Mapping[str, str]) -> str:
    return (
        f" OPTIONS ({', '.join(f'{string(key)} {string(value)}' for key, value in options.items())})"
        if options
        else ""
    )
