"""The operators `+ - * /` on dates, timestamps and durations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.operators.scalar.numbers import arithmetic as integers
from headrace.operators.scalar.temporal.date_parts import moved_days
from headrace.operators.scalar.values.datum import (
    Datum,
    Kernel,
    Numbers,
    Outcome,
    all_valid,
    build,
    failing,
    raw,
    rows_of,
    valid,
)
from headrace.schema import BIGINT, Type, to_arrow
from headrace.time import DAY


def arithmetic(symbol: str, arguments: tuple[Type, ...], result: Type) -> Kernel:
    """`+ - * /` with a point in time or a duration; computed on microseconds, or days for DATE."""
    if symbol in ("*", "/"):
        return _scaled(symbol, arguments, result)
    if result.name == "DATE":
        return _days(symbol, arguments)
    exact = integers.additive(symbol, BIGINT)
    unit = DAY if result.name == "INTERVAL" and arguments[0].name == "DATE" else 1

    def kernel(data: Sequence[Datum]) -> Outcome:
        numbers = [_number(datum, unit) for datum in data]
        values, failure = exact(numbers)
        return build(raw(values), all_valid(data), to_arrow(result)), failure

    return kernel


def _days(symbol: str, arguments: tuple[Type, ...]) -> Kernel:
    moved = moved_days(1 if symbol == "+" else -1)
    return moved if arguments[0].name == "DATE" else lambda data: moved(data[::-1])


def _number(datum: Datum, unit: int) -> Datum:
    values = raw(datum) if unit == 1 else raw(datum).astype(np.int64) * unit
    array = build(values, valid(datum), pa.int64())
    return array if isinstance(datum, pa.Array) else array[0]


def _scaled(symbol: str, arguments: tuple[Type, ...], result: Type) -> Kernel:
    """A duration times or by a number: exact for integers, through doubles for doubles, halves away from zero."""

    def kernel(data: Sequence[Datum]) -> Outcome:
        numbers = [_number(datum, 1) if datum.type != pa.float64() else datum for datum in data]
        if any(kind.is_fractional for kind in arguments):
            return _scaled_by_double(symbol, numbers, result)
        if symbol == "*":
            values, failure = integers.additive("*", BIGINT)(numbers)
            return build(raw(values), all_valid(data), to_arrow(result)), failure
        return _divided_by_integer(numbers, result)

    return kernel


def _scaled_by_double(symbol: str, numbers: Sequence[Datum], result: Type) -> Outcome:
    left, right = (raw(number).astype(np.float64) for number in numbers)
    zero = (right == 0) & (symbol == "/")
    with np.errstate(all="ignore"):
        exact = _half_away(left * right if symbol == "*" else left / np.where(zero, 1.0, right))
        fits = (np.abs(exact) < 2.0**63) | (exact == -(2.0**63))
    values = np.where(fits, exact, 0.0).astype(np.int64)

    def describe(left: float, right: float) -> str:
        return (
            "division by zero"
            if symbol == "/" and right == 0
            else f"{left} {symbol} {right} does not fit {result}"
        )

    failure = failing(zero | ~fits, numbers, describe)
    return build(np.broadcast_to(values, rows_of(numbers)), all_valid(numbers), to_arrow(result)), failure


def _half_away(values: Numbers) -> Numbers:
    with np.errstate(all="ignore"):
        down = np.trunc(values)
        return np.where(np.abs(values - down) >= 0.5, down + np.sign(values), down)


def _divided_by_integer(numbers: Sequence[Datum], result: Type) -> Outcome:
    left, right = (raw(number) for number in numbers)
    zero, least = right == 0, (left == np.iinfo(np.int64).min) & (right == -1)
    divisor: Any = np.where(zero | least, 1, right)
    rest = np.fmod(left, divisor)
    whole = (left - rest) // divisor
    up = np.abs(rest) >= np.abs(divisor) - np.abs(rest)
    values = whole + np.where(up & (rest != 0), np.where((left < 0) == (divisor < 0), 1, -1), 0)

    def describe(micros: int, by: int) -> str:
        return "division by zero" if by == 0 else f"{micros} microseconds / {by} does not fit INTERVAL"

    where = all_valid(numbers)
    return build(np.broadcast_to(values, rows_of(numbers)), where, to_arrow(result)), failing(
        zero | least, numbers, describe
    )
