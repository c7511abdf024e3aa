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
    instant,
    integer,
    moment,
    with_article,
)
from headrace.connectors.records.options import TextOptions
from headrace.schema import Type


class Misfit(Exception):
    """A value that is not of its column's type; the message names both."""


class Literal(str):
    """A number with a point or an exponent, as it was written."""

    __slots__ = ()


def value(raw: Any, kind: Type, options: TextOptions) -> Any:
    """The value as Arrow takes it; raises `Misfit`."""
    if raw is None:
        return None
    if kind.name == "STRING":
        return _text(
            raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False, separators=(",", ":"))
        )
    converted = (
        _scalar(raw, kind, options) if kind.name not in ("STRUCT", "ARRAY") else _nested(raw, kind, options)
    )
    if converted is None:
        raise Misfit(f"{_shown(raw)} is not {with_article(kind)}")
    return converted


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Misfit("half of a surrogate pair is no text") from None
    return text


def _scalar(raw: Any, kind: Type, options: TextOptions) -> Any:
    number = isinstance(raw, int | Literal) and not isinstance(raw, bool)
    if kind.name == "BOOLEAN":
        return raw if isinstance(raw, bool) else None
    if kind.is_integer:
        bits = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}[kind.name]
        return integer(str(raw), bits) if number and isinstance(raw, int) else None
    if kind.is_fractional:
        if isinstance(raw, float):
            return raw
        special = raw in (
            options.nan,
            options.infinity,
            options.minus_infinity,
            "NaN",
            "Infinity",
            "-Infinity",
            "+INF",
            "-INF",
        )
        return fractional(str(raw), options) if number or special else None
    if kind.name == "DECIMAL":
        return exact(str(raw), kind.precision, kind.scale) if number or isinstance(raw, str) else None
    if kind.name == "DATE":
        return _day(raw, kind, options) if isinstance(raw, str) else None
    if kind.name in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        return _moment(raw, kind, options)
    return None


def _moment(raw: Any, kind: Type, options: TextOptions) -> int | None:
    if (epoch := epoch_of(kind, options)) is not None:
        is_number = isinstance(raw, int | str) and not isinstance(raw, bool)
        return counted(str(raw), epoch) if is_number else None
    if isinstance(raw, int) and not isinstance(raw, bool):
        seconds = raw * 1_000_000
        return seconds if kind.name == "TIMESTAMP" and abs(seconds) < 1 << 62 else None
    if not isinstance(raw, str) or isinstance(raw, Literal):
        return None
    pattern = (
        options.timestamp_pattern
        if kind.name == "TIMESTAMP"
        else options.ntz_pattern or options.timestamp_pattern
    )
    if pattern is None:
        return instant(raw, options.zone) if kind.name == "TIMESTAMP" else moment(raw)
    return _by_pattern(raw, kind, options)


def _day(text: str, kind: Type, options: TextOptions) -> Any:
    if options.date_pattern is None:
        return day(text)
    return convert(pa.array([text]), kind, options)[0][0].as_py()


def _by_pattern(text: str, kind: Type, options: TextOptions) -> int | None:
    values, _ = convert(pa.array([text]), kind, options)
    micros: int | None = values.cast(pa.int64())[0].as_py()
    return micros


def _nested(raw: Any, kind: Type, options: TextOptions) -> Any:
    if kind.name == "ARRAY":
        assert kind.element is not None
        return [value(element, kind.element, options) for element in raw] if isinstance(raw, list) else None
    if not isinstance(raw, dict):
        return None
    return {field.name: value(raw.get(field.name), field.type, options) for field in kind.fields}


def _shown(raw: Any) -> str:
    shown = str(raw) if isinstance(raw, Literal) else json.dumps(raw, ensure_ascii=False, default=str)
    return shown.encode(errors="replace").decode()
