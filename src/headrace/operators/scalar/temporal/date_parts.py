"""Parts of dates and timestamps (in UTC), their truncation (in any zone), dates moved by days, and timestamps as counts
of seconds, milliseconds or microseconds since 1970 and back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.operators.scalar.numbers.math_functions import java_long
from headrace.operators.scalar.temporal.calendar import civil, days_of
from headrace.operators.scalar.temporal.time_zones import truncated
from headrace.operators.scalar.values.datum import (
    Bools,
    Datum,
    Failure,
    Kernel,
    Numbers,
    Outcome,
    all_valid,
    build,
    column,
    failing,
    raw,
    rows_of,
    valid,
)
from headrace.schema import Type, to_arrow
from headrace.time import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from headrace.zones import Rules, rules_of

_NEAR: Final = (-719_162, 2_932_896)  # the years 1 to 9999, where Arrow's own calendar is right


def _part(
    function: Callable[[Numbers], Numbers], arrow: Callable[[pa.Array], pa.Array] | None = None
) -> Kernel:
    """A number from the day; `arrow` is the faster kernel for usual years."""

    def kernel(data: Sequence[Datum]) -> Outcome:
        days, where = raw(data[0]), valid(data[0])
        if arrow is not None and len(days):
            held = days if where is None else np.where(where, days, 0)
            if held.min() >= _NEAR[0] and held.max() <= _NEAR[1]:
                return arrow(build(held, where, pa.date32())).cast(pa.int32()), None
        return build(function(days.astype(np.int64)).astype(np.int32), where, pa.int32()), None

    return kernel


def _day_of_year(days: Numbers) -> Numbers:
    year = civil(days)[0]
    number: Numbers = days - days_of(year, np.ones_like(year), 1) + 1
    return number


def _week(days: Numbers) -> Numbers:
    thursday: Numbers = days - (days + 3) % 7 + 3
    week: Numbers = (_day_of_year(thursday) - 1) // 7 + 1
    return week


def _clock(unit: int, modulus: int) -> Kernel:
    def kernel(data: Sequence[Datum]) -> Outcome:
        parts = np.floor_divide(raw(data[0]), unit) % modulus
        return build(parts.astype(np.int32), valid(data[0]), pa.int32()), None

    return kernel


PARTS: Final[dict[str, Kernel]] = {
    "year": _part(lambda days: civil(days)[0], pc.year),
    "month": _part(lambda days: civil(days)[1], pc.month),
    "day": _part(lambda days: civil(days)[2], pc.day),
    "quarter": _part(lambda days: (civil(days)[1] + 2) // 3, pc.quarter),
    "dayofyear": _part(_day_of_year, pc.day_of_year),
    "weekofyear": _part(_week, pc.iso_week),
    "dayofweek": _part(lambda days: (days + 4) % 7 + 1),
    "weekday": _part(lambda days: (days + 3) % 7),
    "unix_date": _part(lambda days: days),
    "hour": _clock(HOUR, 24),
    "minute": _clock(MINUTE, 60),
    "second": _clock(SECOND, 60),
}


def last_day(data: Sequence[Datum]) -> Outcome:
    """The last day of the month."""
    year, month, _ = civil(raw(data[0]))
    following = days_of(year + month // 12, month % 12 + 1, 1)
    return build(following - 1, valid(data[0]), pa.date32()), None


# ------------------------------------------------------------------------------------------------------ truncation

_CALENDAR_UNITS: Final = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "year"),
    "QUARTER": "quarter",
    **dict.fromkeys(("MONTH", "MM", "MON"), "month"),
    "WEEK": "week",
}
_CLOCK_UNITS: Final = {
    **dict.fromkeys(("DAY", "DD"), DAY),
    "HOUR": HOUR,
    "MINUTE": MINUTE,
    "SECOND": SECOND,
    "MILLISECOND": MILLISECOND,
    "MICROSECOND": 1,
}


def _start_of(unit: str, days: Numbers) -> Numbers:
    if unit == "week":
        monday: Numbers = days - (days + 3) % 7
        return monday
    year, month, _ = civil(days)
    first = {"year": np.ones_like(month), "quarter": (month - 1) // 3 * 3 + 1, "month": month}[unit]
    start: Numbers = days_of(year, first, 1)
    return start


def _truncated_day(unit: str, days: Numbers) -> Numbers | None:
    calendar_unit = _CALENDAR_UNITS.get(unit.upper())
    return None if calendar_unit is None else _start_of(calendar_unit, days)


def _truncated_instant(unit: str, micros: Numbers) -> Numbers | None:
    width = _CLOCK_UNITS.get(unit.upper())
    if width is not None:
        start: Numbers = micros - micros % width
        return start
    days = _truncated_day(unit, np.floor_divide(micros, DAY))
    return None if days is None else days * DAY


def _truncated_in(rules: Rules, unit: str, micros: Numbers) -> Numbers | None:
    return truncated(rules, micros, partial(_truncated_instant, unit))


def truncation(units_first: bool, result: Type, zone: str = "UTC") -> Kernel:
    """`date_trunc(unit, timestamp)` in a zone, or `trunc(date, unit)`; NULL for an unknown unit."""
    function = _truncated_instant if units_first else _truncated_day
    rules = rules_of(zone)
    if rules:
        function = partial(_truncated_in, rules)
    arrow = to_arrow(result)

    def kernel(data: Sequence[Datum]) -> Outcome:
        units, times = (data[0], data[1]) if units_first else (data[1], data[0])
        rows, where = rows_of(data), all_valid(data)
        moments = np.broadcast_to(raw(times), rows).astype(np.int64)
        values, is_known = np.zeros(rows, np.int64), np.zeros(rows, np.bool_)
        encoded = column(units, 1 if isinstance(units, pa.Scalar) else rows).dictionary_encode()
        codes = np.broadcast_to(pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False), rows)
        for code, unit in enumerate(encoded.dictionary.to_pylist()):
            here = codes == code
            starts = function(unit, moments[here])
            if starts is not None:
                values[here], is_known[here] = starts, True
        where = is_known if where is None else where & is_known
        beyond = where & (values > moments)  # wrapped around below the least instant
        failure = (
            Failure(beyond, lambda _: f"the start is before the least {result}") if beyond.any() else None
        )
        return build(values, where, arrow), failure

    return kernel


# ------------------------------------------------------------------------------------------------ counting from 1970


def since_epoch(unit: int) -> Kernel:
    """Whole units since 1970, rounded down."""

    def kernel(data: Sequence[Datum]) -> Outcome:
        return build(np.floor_divide(raw(data[0]), unit), valid(data[0]), pa.int64()), None

    return kernel


def cut_seconds(data: Sequence[Datum]) -> Outcome:
    """Whole seconds since 1970, truncated towards zero."""
    micros = raw(data[0])
    seconds = np.where(micros < 0, -(-micros // SECOND), micros // SECOND)
    return build(np.where(micros == -(2**63), -(2**63 // SECOND), seconds), valid(data[0]), pa.int64()), None


def instant_of(unit: int, argument: Type, result: Type) -> Kernel:
    """The instant a number of units after 1970; for doubles NULL if not finite, and clamped to the range."""
    arrow = to_arrow(result)

    def of_double(data: Sequence[Datum]) -> Outcome:
        numbers, where = raw(data[0]), valid(data[0])
        finite: Bools = np.isfinite(numbers)
        with np.errstate(all="ignore"):
            micros = java_long(numbers * float(unit))
        return build(micros, finite if where is None else finite & where, arrow), None

    def of_integer(data: Sequence[Datum]) -> Outcome:
        numbers: Any = raw(data[0])
        limit = (2**63 - 1) // unit
        wide = (numbers > limit) | (numbers < -limit)
        wide = wide if unit > 1 else np.zeros(len(numbers), np.bool_)
        failure = failing(wide, data, lambda value: f"{value} does not fit TIMESTAMP")
        return build(np.where(wide, 0, numbers) * unit, valid(data[0]), arrow), failure

    return of_double if argument.is_fractional else of_integer


def moved_days(sign: int) -> Kernel:
    """A date some days later (or earlier); beyond the ends of DATE it wraps around, as in Spark."""

    def kernel(data: Sequence[Datum]) -> Outcome:
        days = raw(data[0]).astype(np.int64) + sign * raw(data[1]).astype(np.int64)
        return build(
            np.broadcast_to(days, rows_of(data)).astype(np.int32), all_valid(data), pa.date32()
        ), None

    return kernel


def days_between(data: Sequence[Datum]) -> Outcome:
    """Days from the second date to the first."""
    days = raw(data[0]).astype(np.int64) - raw(data[1]).astype(np.int64)
    return build(np.broadcast_to(days, rows_of(data)).astype(np.int32), all_valid(data), pa.int32()), None
