"""Arguments of aggregates as one structure (two numbers, a value with its row's place in the stream, or with another one),
and the hidden columns with a row's event time and position.

All are one structure, so that conditions, panes and shared aggregation treat them as any other argument. The row's
event time and position are columns that every row of a stream has and no query can name.
"""

from __future__ import annotations

from typing import Final

from headrace.algebra.expressions.expression import Call, Cast, Column, Expression, Literal
from headrace.schema import BIGINT, DOUBLE, Field, Type, struct

AT: Final = "#at"
"""A row's event time, in microseconds."""
POSITION: Final = "#position"
"""A row's position in its stream, by order of ingestion."""
PAIR: Final = "pair"
PLACED: Final = "placed"
CHOSEN: Final = "chosen"
STRUCTURES: Final = (PAIR, PLACED, CHOSEN)
"""Functions that make a structure of their arguments: a pair is NULL when one part is NULL, a chosen value when what it is chosen by is,
a placed value never.
"""


def at_of(alias: str) -> Column:
    """The event time of the rows of a stream."""
    return Column(f"{alias}.{AT}", BIGINT)


def seconds_of(alias: str) -> Expression:
    """The event time in seconds since 1970, as Spark casts a TIMESTAMP to a DOUBLE."""
    return Call("/", (Cast(at_of(alias), DOUBLE), Literal(1e6, DOUBLE)), DOUBLE)


def pair(first: Expression, second: Expression) -> Call:
    """Two values of a row; NULL when one of them is."""
    return Call(PAIR, (first, second), struct(Field("y", first.type), Field("x", second.type)))


def placed(value: Expression, alias: str) -> Call:
    """A value, NULL or not, with its row's place in the order of the stream."""
    parts = (value, at_of(alias), Column(f"{alias}.{POSITION}", BIGINT))
    return Call(PLACED, parts, _placed_type(value.type))


def chosen(value: Expression, by: Expression) -> Call:
    """A value, NULL or not, after the one by which MAX_BY and MIN_BY choose it; NULL when that one is."""
    return Call(CHOSEN, (by, value), struct(Field("by", by.type), Field("value", value.type)))


def timed(value: Expression, alias: str) -> Call:
    """A number with its event time; NULL when the number is NULL."""
    return pair(value, at_of(alias))


def _placed_type(kind: Type) -> Type:
    return struct(Field("value", kind), Field("at", BIGINT), Field("position", BIGINT))
