"""Parser and binder of TIMESTAMP BY: the column that holds event times, or the expression that computes them from
the row.
"""

from __future__ import annotations

from typing import Final

from headrace.algebra.expressions.expression import Column, Expression, columns_of
from headrace.catalog.definitions import TimeExpression
from headrace.errors import Span, UserError, did_you_mean
from headrace.language.binder.expressions.expression_binder import bind_expression
from headrace.language.parser.expressions import expression
from headrace.language.syntax.cursor import Cursor
from headrace.schema import TIMESTAMP, TIMESTAMP_NTZ, Schema, Type

_INSTANTS: Final = (TIMESTAMP, TIMESTAMP_NTZ)


def event_time(cursor: Cursor, schema: Schema) -> str | TimeExpression:
    """Parse a column of event times, or an expression over the columns that computes them.

    Raises `UserError` for what is no TIMESTAMP, and for an expression that is the same for every row.
    """
    token = cursor.token
    if not _is_expression(cursor, schema):
        return _column(cursor.name("the column of event times"), schema, cursor, token.span)
    node = expression(cursor)
    text = cursor.text[node.span.start : node.span.end]
    try:
        bound = bind_time(TimeExpression(text, cursor.zone), schema)
    except UserError as error:
        if error.span is not None:
            error.span = Span(error.span.start + node.span.start, error.span.end + node.span.start)
        error.text = cursor.text
        raise
    if isinstance(bound, Column):
        return _column(bound.name, schema, cursor, node.span)
    if bound.type not in _INSTANTS:
        raise _no_timestamp(cursor, node.span, text, bound.type)
    if not columns_of(bound):
        raise cursor.error(
            f"the event time {text} is the same for every row",
            node.span,
            "Compute it from columns, or leave TIMESTAMP BY out to use the time of arrival.",
        )
    return TimeExpression(text, cursor.zone)


def bind_time(time: TimeExpression, schema: Schema) -> Expression:
    """The expression over the columns of a schema.

    Raises `UserError` for what is no expression over them.
    """
    return bind_expression(time.text, schema, time.zone)


def _is_expression(cursor: Cursor, schema: Schema) -> bool:
    """False for a single name, known or not; a column may be called like a keyword."""
    follows = cursor.ahead()
    if cursor.token.kind in ("name", "quoted"):
        continues = follows.kind == "sign" and follows.text not in (";", ")", ",")
        return continues or (cursor.at_any("CASE") and schema.find(cursor.token.text) is None)
    return cursor.at_sign("(")


def _column(name: str, schema: Schema, cursor: Cursor, at: Span) -> str:
    column = schema.find(name)
    if column is None:
        raise cursor.error(
            f"there is no column '{name}' for TIMESTAMP BY", at, did_you_mean(name, schema.names)
        )
    if column.type not in _INSTANTS:
        raise _no_timestamp(cursor, at, f"'{column.name}'", column.type)
    return column.name


def _no_timestamp(cursor: Cursor, at: Span, what: str, kind: Type) -> UserError:
    remedy = "Declare the column as TIMESTAMP, or leave TIMESTAMP BY out to use the time of arrival."
    if kind.is_numeric:
        number = what.strip("'")
        remedy = (
            f"Name its unit: TIMESTAMP BY timestamp_millis({number}), timestamp_seconds({number}) or "
            f"timestamp_micros({number})."
        )
    return cursor.error(f"the event time {what} is {kind}, not a TIMESTAMP", at, remedy)
