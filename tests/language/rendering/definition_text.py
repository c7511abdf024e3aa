"""The CREATE statement of a definition."""

from __future__ import annotations

from decimal import Decimal

from headrace.catalog.definitions import RelationDefinition, StreamDefinition
from headrace.language.parser.quoting import identifier
from headrace.language.statements.create_text import options_text
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
    if stream.blocks_by is not None:
        options["blocksBy"] = stream.blocks_by
    if stream.keep != 1:
        options["keep"] = f"{Decimal(repr(stream.keep)):f}"
    if stream.latency:
        options["latency"] = render_duration(stream.latency)
    text = f"CREATE STREAM {identifier(stream.name)} {_columns(stream.schema)} USING {identifier(stream.using)}{options_text(options)}"
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
    return f"CREATE RELATION {identifier(relation.name)} {_columns(relation.schema)} USING {using}{options_text(relation.options)}"


def _columns(schema: Schema) -> str:
    return "(" + ", ".join(f"{identifier(field.name)} {field.type}" for field in schema) + ")"
