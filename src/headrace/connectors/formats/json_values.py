"""One JSON value as a value of a column's type, by Spark's rules for JSON."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from headrace.connectors.formats.text_values import (
    convert,
    counted,
    day,
    epoch_of,
    exact,
    fractional,
    integer,
    moment,
)
from headrace.connectors.records.options import TextOptions
from headrace.schema import Type


class Misfit(Exception):
    """A value that is not of its column's type; the message says which."""


class Literal(str):
    """A number with a point or an exponent, as it was written."""

    __slots__ = ()


def value(found: Any, kind: Type, options: TextOptions) -> Any:
    """The value as Arrow takes it; raises `Misfit`."""
    if found is None:
        return None
    if kind.name == "STRING":
        return (
            found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, separators=(",", ":"))
        )
    converted = (
        _scalar(found, kind, options)
        if kind.name not in ("STRUCT", "ARRAY")
        else _nested(found, kind, options)
    )
    if converted is None:
        raise Misfit(f"{_shown(found)} is not {'an' if kind.name[0] in 'AEIOU' else 'a'} {kind}")
    return converted


def _scalar(found: Any, kind: Type, options: TextOptions) -> Any:
    number = isinstance(found, int | Literal) and not isinstance(found, bool)
    if kind.name == "BOOLEAN":
        return found if isinstance(found, bool) else None
    if kind.is_integer:
        bits = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}[kind.name]
        return integer(str(found), bits) if number and isinstance(found, int) else None
    if kind.is_fractional:
        if isinstance(found, float):
            return found
        special = found in (
            options.nan,
            options.infinity,
            options.minus_infinity,
            "NaN",
            "Infinity",
            "-Infinity",
            "+INF",
            "-INF",
        )
        return fractional(str(found), options) if number or special else None
    if kind.name == "DECIMAL":
        return exact(str(found), kind.precision, kind.scale) if number or isinstance(found, str) else None
    if kind.name == "DATE":
        return _day(found, kind, options) if isinstance(found, str) else None
    if kind.name in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        return _moment(found, kind, options)
    return None


def _moment(found: Any, kind: Type, options: TextOptions) -> int | None:
    if (epoch := epoch_of(kind, options)) is not None:
        return (
            counted(str(found), epoch)
            if isinstance(found, int | str) and not isinstance(found, bool)
            else None
        )
    if isinstance(found, int) and not isinstance(found, bool):
        seconds = found * 1_000_000
        return seconds if kind.name == "TIMESTAMP" and abs(seconds) < 1 << 62 else None
    if not isinstance(found, str) or isinstance(found, Literal):
        return None
    pattern = (
        options.timestamp_pattern
        if kind.name == "TIMESTAMP"
        else options.ntz_pattern or options.timestamp_pattern
    )
    if pattern is None:
        return moment(found, options.zone if kind.name == "TIMESTAMP" else "UTC")
    return _by_pattern(found, kind, options)


def _day(found: str, kind: Type, options: TextOptions) -> Any:
    if options.date_pattern is None:
        return day(found)
    return convert(pa.array([found]), kind, options)[0][0].as_py()


def _by_pattern(found: str, kind: Type, options: TextOptions) -> int | None:
    values, _ = convert(pa.array([found]), kind, options)
    found_at: int | None = values.cast(pa.int64())[0].as_py()
    return found_at


def _nested(found: Any, kind: Type, options: TextOptions) -> Any:
    if kind.name == "ARRAY":
        assert kind.element is not None
        return [value(each, kind.element, options) for each in found] if isinstance(found, list) else None
    if not isinstance(found, dict):
        return None
    return {field.name: value(found.get(field.name), field.type, options) for field in kind.fields}


def _shown(found: Any) -> str:
    return str(found) if isinstance(found, Literal) else json.dumps(found, ensure_ascii=False, default=str)
