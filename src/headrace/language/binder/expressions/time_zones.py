"""Rewriting of a bound query, or of one expression, for its time zone: timestamps stay in UTC, and conversions are
added where the local time matters.

Fields, text, day and truncation of a time are those of the zone's local time; texts and days are read as local time.
Windows are in UTC, as in Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from headrace.algebra.expressions.expression import Call, Case, Cast, Column, Expression, Literal, transform
from headrace.algebra.query import Query, QueryScan
from headrace.schema import BOOLEAN, STRING, TIMESTAMP
from headrace.time import DAY

_CLOCK_FIELDS: Final = frozenset({"hour", "minute", "second"})
_CALENDAR: Final = ("DATE", "TIMESTAMP_NTZ")
_EXPRESSIONS: Final = (Column, Literal, Call, Cast, Case)


def in_zone(query: Query, zone: str) -> Query:
    """The query with every expression read in a time zone."""
    if zone == "UTC":
        return query
    rewritten = _everywhere(query, lambda expression: expression_in(expression, zone))
    assert isinstance(rewritten, Query)
    return rewritten


def expression_in(expression: Expression, zone: str) -> Expression:
    """One expression, read in a time zone."""
    return expression if zone == "UTC" else transform(expression, lambda part: _in_zone(part, zone))


def _in_zone(part: Expression, zone: str) -> Expression | None:
    match part:
        case Call(function=function, arguments=(at,)) if function in _CLOCK_FIELDS:
            return replace(part, arguments=(_local_time(at, zone),))
        case Call(function="date_trunc", arguments=(unit, at)):
            return replace(part, arguments=(unit, at, Literal(zone, STRING)))
        case Call(function="-", arguments=(one, other)) if one.type == other.type == TIMESTAMP:
            return replace(part, arguments=(_local_time(one, zone), _local_time(other, zone)))
        case Call(function="+" | "-", type=kind, arguments=(_, _)) if kind == TIMESTAMP:
            return _plus_days(part, zone)
        case Cast(argument=argument, type=kind) if argument.type == TIMESTAMP:
            clock = kind == STRING or kind.name in _CALENDAR
            return replace(part, argument=_local_time(argument, zone)) if clock else None
        case Cast(argument=argument, type=kind) if kind == TIMESTAMP:
            if argument.type == STRING:
                return _text_as_time(part, zone)
            return _from_local_time(part, zone) if argument.type.name in _CALENDAR else None
    return None


def _local_time(at: Expression, zone: str) -> Expression:
    return Call("from_utc_timestamp", (at, Literal(zone, STRING)), TIMESTAMP)


def _from_local_time(shown: Expression, zone: str) -> Expression:
    return Call("to_utc_timestamp", (shown, Literal(zone, STRING)), TIMESTAMP)


def _plus_days(sum_: Call, zone: str) -> Expression | None:
    """A constant interval of days keeps the local time of day; an interval from a column is exact time."""
    at, length = sorted(sum_.arguments, key=lambda part: part.type != TIMESTAMP)
    if not isinstance(length, Literal) or not isinstance(length.value, int) or abs(length.value) < DAY:
        return None
    rest = abs(length.value) % DAY * (-1 if length.value < 0 else 1)
    days = replace(length, value=length.value - rest)
    there = _from_local_time(replace(sum_, arguments=(_local_time(at, zone), days)), zone)
    return replace(sum_, arguments=(there, replace(length, value=rest))) if rest else there


def _text_as_time(cast: Cast, zone: str) -> Expression:
    moment = Call("to_timestamp_in", (cast.argument, Literal(zone, STRING)), TIMESTAMP)
    if not cast.safe:
        return moment
    means = Call("isnotnull", (cast,), BOOLEAN)
    return Case(((means, moment),), Literal(None, TIMESTAMP), TIMESTAMP)


def _everywhere(value: Any, change: Callable[[Expression], Expression]) -> Any:
    """The same immutable tree with its expressions changed; a part without expressions is not copied."""
    if isinstance(value, _EXPRESSIONS):
        return change(value)
    if isinstance(value, tuple):
        items = tuple(_everywhere(item, change) for item in value)
        return value if all(one is other for one, other in zip(items, value, strict=True)) else items
    if not is_dataclass(value) or isinstance(value, type):
        return value
    if isinstance(value, QueryScan) and value.registered:
        return value  # already in its own zone
    changed = {
        field.name: new
        for field in fields(value)
        if field.init and (new := _everywhere(old := getattr(value, field.name), change)) is not old
    }
    return replace(value, **changed) if changed else value
