"""Conversion of text cells to a column's type, as Spark reads CSV: a column at a time, with a mask of the failed cells.

Arrow converts a whole column when every cell is plain. Cells that it refuses are tidied in bulk (case, blanks, longer
fractions) and converted again; the rest is converted one by one. A cell's value does not depend on its neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_FLOOR, ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.connectors.records.options import Epoch, TextOptions
from headrace.operators.scalar.temporal.time_zones import instants_of
from headrace.operators.scalar.text.parse_times import read_timestamp
from headrace.schema import STAMP, Type, to_arrow
from headrace.time import SECOND
from headrace.zones import offset_of, rules_of

_DATE = r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})"
_MOMENT: Final = re.compile(
    _DATE
    + r"(?:[T ](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?\s*(Z|UTC|GMT|[+-]\d{1,2}(?::?\d{2})?(?::?\d{2})?)?)?)?)?"
)
_ZONED: Final = r"^\s*[+-]?\d{4,7}-\d{1,2}-\d{1,2}[T ]\d[\d:.]*\s*[^\s\d:.]"
"""A time of day, and after it more than digits: its zone."""
_DAY: Final = re.compile(_DATE + r"(?:[T ].*)?)?)?")


def convert(
    cells: pa.StringArray, kind: Type, options: TextOptions
) -> tuple[pa.Array, pa.BooleanArray | None]:
    """The column as `to_arrow(kind)` and, when any failed, a mask of the failed cells (null in the column)."""
    values, failed = _converted(cells, kind, options)
    if kind.name == "TIMESTAMP" and options.zone != "UTC" and options.timestamp_epoch is None:
        values = _shown_by_clocks(cells, values, options.zone)
        return (
            (values, failed)
            if options.timestamp_pattern is not None
            else _with_far_years(cells, values, failed, options.zone)
        )
    return values, failed


def _converted(
    cells: pa.StringArray, kind: Type, options: TextOptions
) -> tuple[pa.Array, pa.BooleanArray | None]:
    target = to_arrow(kind)
    if kind.name in ("STRING", "BINARY"):
        return cells.cast(target), None
    if (epoch := epoch_of(kind, options)) is not None:
        cells = _without_blanks(cells)
        values = _counted(cells, epoch, target)
        failed = pc.and_(pc.is_null(values), pc.is_valid(cells))
        return values, failed if pc.any(failed).as_py() else None
    quick = _QUICK.get(kind.name, _cast)
    pattern = _pattern_of(kind, options)
    if pattern is None and kind.name != "INTERVAL":
        try:
            return quick(cells, target), None
        except pa.ArrowInvalid:
            pass
    cells = _without_blanks(cells)
    if kind.name == "INTERVAL":  # has no form in CSV
        failed = pc.is_valid(cells)
        return pa.nulls(len(cells), target), failed if pc.any(failed).as_py() else None
    values = (
        _parsed_by_pattern(cells, pattern, target)
        if pattern is not None
        else _salvaged(cells, kind, target, options)
    )
    failed = pc.and_(pc.is_null(values), pc.is_valid(cells))
    return values, failed if pc.any(failed).as_py() else None


def epoch_of(kind: Type, options: TextOptions) -> Epoch | None:
    """The unit of a column whose instants are numbers; None where they are dates and times."""
    return {"TIMESTAMP": options.timestamp_epoch, "TIMESTAMP_NTZ": options.ntz_epoch}.get(kind.name)


def instants_counted(numbers: pa.Array, epoch: Epoch) -> pa.Array:
    """Microseconds of whole numbers; nanoseconds are rounded down.

    Raises `ArrowInvalid` where one does not fit into 64 bits.
    """
    if epoch == "nanos":
        if numbers.null_count:
            return pc.if_else(pc.is_null(numbers), None, instants_counted(numbers.fill_null(0), epoch))
        return pa.array(np.floor_divide(numbers.to_numpy(zero_copy_only=False), 1000))
    return pc.multiply_checked(numbers, _MICROS[epoch]) if epoch != "micros" else numbers


def _counted(cells: pa.StringArray, epoch: Epoch, target: pa.DataType) -> pa.Array:
    """Instants of a column of numbers; null where a cell is no number. Cells are converted one by one only where a bulk cast fails."""
    try:
        return instants_counted(_integers(cells, pa.int64()), epoch).cast(target)
    except pa.ArrowInvalid:
        return pa.array(
            [None if text is None else counted(text, epoch) for text in cells.to_pylist()], target
        )


def counted(text: str, epoch: Epoch) -> int | None:
    """Microseconds of a decimal number, rounded down; None for a text that is no number, or is beyond 64 bits."""
    trimmed = text.strip()
    if len(trimmed) > _LONGEST or not _NUMBER.fullmatch(trimmed):
        return None
    micros = int(
        (Decimal(trimmed) * (_MICROS[epoch] if epoch != "nanos" else Decimal("0.001"))).to_integral_value(
            ROUND_FLOOR
        )
    )
    return micros if -(1 << 63) <= micros < 1 << 63 else None


_MICROS: Final[dict[str, int]] = {"seconds": SECOND, "millis": 1000, "micros": 1}
_NUMBER: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,2})?")
_LONGEST: Final = 40


def _shown_by_clocks(cells: pa.StringArray, moments: pa.Array, zone: str) -> pa.Array:
    """Moments of cells without a zone, which were read as UTC, moved to the zone's clocks."""
    rules = rules_of(zone)
    assert rules is not None, zone
    shown = moments.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    meant = pa.array(instants_of(rules, shown)).cast(moments.type)
    silent = pc.and_(pc.is_valid(moments), pc.invert(pc.match_substring_regex(cells, _ZONED)))
    return pc.if_else(silent.fill_null(False), meant, moments)


def _with_far_years(
    cells: pa.StringArray, values: pa.Array, failed: pa.BooleanArray | None, zone: str
) -> tuple[pa.Array, pa.BooleanArray | None]:
    """Cells near the ends of 64 bits, and those that failed, read again in the zone: in UTC they may be beyond the ends."""
    numbers = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    again = (numbers > _FAR) | (numbers < -_FAR)
    if failed is not None:
        again |= failed.to_numpy(zero_copy_only=False)
    if not again.any():
        return values, failed
    texts = cells.filter(pa.array(again)).to_pylist()
    read = pa.array([None if text is None else instant(text, zone) for text in texts], values.type)
    values = pc.replace_with_mask(values, pa.array(again), read)
    missing = pc.and_(pa.array(again), pc.is_null(values))
    return values, missing if pc.any(missing).as_py() else None


_FAR: Final = 1 << 62


def _without_blanks(cells: pa.StringArray) -> pa.StringArray:
    """An empty quoted cell is the empty string in a STRING column, and null in any other."""
    return pc.if_else(pc.equal(pc.binary_length(cells), 0), None, cells)


def _cast(cells: pa.StringArray, target: pa.DataType) -> pa.Array:
    return cells.cast(target)


def _integers(cells: pa.StringArray, target: pa.DataType) -> pa.Array:
    _, places, data = cells.buffers()
    if data is not None and len(cells):
        bounds = np.frombuffer(places, np.int32)[[cells.offset, cells.offset + len(cells)]]
        text = np.frombuffer(data, np.uint8)[bounds[0] : bounds[1]]
        if ((text == ord("x")) | (text == ord("X"))).any():
            raise pa.ArrowInvalid("hexadecimal is no integer")
    return cells.cast(target)


def _booleans(cells: pa.StringArray, target: pa.DataType) -> pa.Array:
    lower = pc.utf8_lower(cells)
    if not pc.all(pc.is_in(lower, _TRUTH)).as_py():
        raise pa.ArrowInvalid("a cell is neither true nor false")
    return lower.cast(target)


def _moments(cells: pa.StringArray, target: pa.DataType) -> pa.Array:
    """All cells without a zone (the session's, UTC), or all with one; anything else raises."""
    naive = pa.timestamp("us")
    first = next((cell for cell in cells[:8].to_pylist() if cell), "")
    zoned = len(first) > 10 and (first[-1] == "Z" or "+" in first[10:] or "-" in first[10:])
    values = cells.cast(STAMP if zoned else naive)
    return values.cast(target) if values.type.tz == target.tz else values.cast(pa.int64()).cast(target)


_TRUTH: Final = pa.array(["true", "false", None])
_QUICK: Final[dict[str, Callable[[pa.StringArray, pa.DataType], pa.Array]]] = {
    "TINYINT": _integers,
    "SMALLINT": _integers,
    "INT": _integers,
    "BIGINT": _integers,
    "BOOLEAN": _booleans,
    "TIMESTAMP": _moments,
    "TIMESTAMP_NTZ": _moments,
}


def _pattern_of(kind: Type, options: TextOptions) -> str | None:
    return {
        "TIMESTAMP": options.timestamp_pattern,
        "TIMESTAMP_NTZ": options.ntz_pattern or options.timestamp_pattern,
        "DATE": options.date_pattern,
    }.get(kind.name)


def _parsed_by_pattern(cells: pa.StringArray, pattern: str, target: pa.DataType) -> pa.Array:
    moments = pc.strptime(cells, format=pattern, unit="us", error_is_null=True)
    if pa.types.is_timestamp(target):
        return moments.cast(pa.int64()).cast(target)
    return pc.floor_temporal(moments, unit="day").cast(target)


def _salvaged(cells: pa.StringArray, kind: Type, target: pa.DataType, options: TextOptions) -> pa.Array:
    """Plain cells in bulk, after tidying; the odd ones one by one; null where that fails too."""
    tidy = _TIDY.get(kind.name)
    tidied = tidy(cells) if tidy is not None else cells
    plain = pc.match_substring_regex(tidied, _PLAIN[_family(kind)])
    odd = np.flatnonzero(
        pc.and_(pc.invert(plain), pc.is_valid(cells)).fill_null(False).to_numpy(zero_copy_only=False)
    )
    quick = _QUICK.get(kind.name, _cast)
    try:
        values = quick(pc.if_else(plain, tidied, None), target)
    except pa.ArrowInvalid:  # out of range, or no day of any calendar: conversion cell by cell shows where
        odd = np.flatnonzero(pc.is_valid(cells).to_numpy(zero_copy_only=False))
        values = pa.nulls(len(cells), target)
    if not len(odd):
        return values
    one = _one_by_one(kind, options)
    salvaged = pa.array([one(text) for text in cells.take(pa.array(odd)).to_pylist()], target)
    mask = np.zeros(len(cells), np.bool_)
    mask[odd] = True
    return pc.replace_with_mask(values, pa.array(mask), salvaged)


def _family(kind: Type) -> str:
    return "INTEGER" if kind.is_integer else kind.name


_PLAIN: Final = {
    "INTEGER": r"^-?\d{1,18}$",
    "FLOAT": r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$",
    "DOUBLE": r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$",
    "DECIMAL": r"^\z.",
    "BOOLEAN": r"^(true|false)$",
    "DATE": r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])$",
    "TIMESTAMP": r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])[T ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?$",
    "TIMESTAMP_NTZ": r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])[T ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?$",
}


def _tidy_moments(cells: pa.StringArray) -> pa.StringArray:
    """Trimmed, UTC's name dropped, a fraction cut to microseconds as Spark does."""
    trimmed = pc.utf8_trim_whitespace(cells)
    trimmed = pc.replace_substring_regex(trimmed, r"(Z|\+00:?00)$", "")
    return pc.replace_substring_regex(trimmed, r"(\.\d{6})\d+$", r"\1")


_TIDY: Final[dict[str, Callable[[pa.StringArray], pa.StringArray]]] = {
    "FLOAT": pc.utf8_trim_whitespace,
    "DOUBLE": pc.utf8_trim_whitespace,
    "BOOLEAN": pc.utf8_lower,
    "DATE": pc.utf8_trim_whitespace,
    "TIMESTAMP": _tidy_moments,
    "TIMESTAMP_NTZ": _tidy_moments,
}


def _one_by_one(kind: Type, options: TextOptions) -> Callable[[str], Any]:
    if kind.is_integer:
        bits = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}[kind.name]
        return lambda text: integer(text, bits)
    if kind.is_fractional:
        return lambda text: fractional(text, options)
    if kind.name == "DECIMAL":
        return lambda text: exact(text, kind.precision, kind.scale)
    if kind.name == "DATE":
        return day
    if kind.name == "TIMESTAMP":
        return instant
    if kind.name == "TIMESTAMP_NTZ":
        return moment
    return lambda _text: None


def integer(text: str, bits: int) -> int | None:
    """Java's notation of an integer of that many bits."""
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        return None
    value = int(text)
    return value if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None


def fractional(text: str, options: TextOptions) -> float | None:
    """A number, or one of the names of NaN and the infinities."""
    trimmed = text.strip()
    special = {options.nan: "nan", options.infinity: "inf", options.minus_infinity: "-inf"}.get(trimmed)
    if special is None and not re.fullmatch(
        r"[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|nan|inf|infinity)", trimmed, re.IGNORECASE | re.ASCII
    ):
        return None
    return float(special or trimmed)


def exact(text: str, precision: int, scale: int) -> Decimal | None:
    """A decimal rounded half up to the scale; None when it has too many digits."""
    if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", text):
        return None
    try:
        value = Decimal(text).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
    except InvalidOperation:
        return None
    return value if len(value.as_tuple().digits) <= precision or not value else None


def day(text: str) -> date | None:
    """`2024-02-29`, `2024-2-9`, `2024-02`, `2024`; a time after it is ignored."""
    matched = _DAY.fullmatch(text.strip())
    if matched is None:
        return None
    try:
        return date(int(matched[1]), int(matched[2] or 1), int(matched[3] or 1))
    except ValueError:
        return None


def moment(text: str, default: str = "UTC") -> int | None:
    """Microseconds since the epoch of a timestamp as Spark casts it; `default` is the zone of a text without one."""
    matched = _MOMENT.fullmatch(text.strip())
    if matched is None:
        return None
    year, month, dayed, hour, minute, second, fraction, zone = matched.groups()
    try:
        at = datetime(
            int(year),
            int(month or 1),
            int(dayed or 1),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            tzinfo=UTC,
        )
    except ValueError:
        return None
    shown = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1) * SECOND
    ahead = offset_of(default, shown) if zone is None else _offset(zone)
    if ahead is None:
        return None
    return shown - ahead + int((fraction or "0").ljust(6, "0")[:6] or 0)


def instant(text: str, default: str = "UTC") -> int | None:
    """As `moment`, and in the other forms that CAST to TIMESTAMP reads: zones by name, years beyond four digits."""
    at = moment(text, default)
    return read_timestamp(text.strip(), default) if at is None else at


def _offset(zone: str) -> int | None:
    """Microseconds ahead of UTC; None for a whole day and more."""
    if zone in ("Z", "UTC", "GMT"):
        return 0
    digits = re.findall(r"\d{1,2}", zone)
    hours, minutes, seconds = (int(digit) for digit in (*digits, "0", "0")[:3])
    total = (hours * 3600 + minutes * 60 + seconds) * SECOND
    if hours > 23 or minutes > 59 or seconds > 59:
        return None
    return -total if zone[0] == "-" else total


def with_article(kind: Type) -> str:
    """`an INT`, `a DOUBLE`: a type in a sentence."""
    return f"{'an' if kind.name[0] in 'AEIOU' else 'a'} {kind}"
