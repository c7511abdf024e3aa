"""Conversion of the text of numbers, intervals, dates and timestamps to values; and of values to the text that Spark
shows in names of columns.

Numbers are typed as in Spark: 1 is INT or the next integer type that holds it, 1.5 DECIMAL, 1e3 DOUBLE. Zones default to
UTC, the session's zone.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Final

from headrace.algebra.expressions.expression import Value
from headrace.errors import UserError
from headrace.schema import BIGINT, DOUBLE, FLOAT, INT, SMALLINT, TINYINT, Type, decimal
from headrace.time import DAY, EPOCH, HOUR, MICROSECOND, MINUTE, SECOND, UNITS, Duration, Instant
from headrace.zones import ahead_of, offset_of

UNIT_NAMES: Final[dict[str, Duration]] = {
    **UNITS,
    **{f"{name}S": length for name, length in UNITS.items()},
    **dict.fromkeys(("S", "SEC", "SECS"), SECOND),
    **dict.fromkeys(("MIN", "MINS", "M"), MINUTE),
    **dict.fromkeys(("H", "HR", "HRS"), HOUR),
    **dict.fromkeys(("MS", "MSEC", "MSECS"), UNITS["MILLISECOND"]),
    **dict.fromkeys(("US", "USEC", "USECS"), MICROSECOND),
    "D": DAY,
}
"""Every spelling of a unit of time."""

CALENDAR: Final = frozenset({"MONTH", "MONTHS", "YEAR", "YEARS", "QUARTER", "QUARTERS"})
"""Units whose length depends on the date."""

LONGEST: Final[Duration] = 4_000 * 365 * DAY
"""No interval is longer: twice it after 1970 is still before the year 10000."""

_INTEGERS: Final = ((INT, 32), (BIGINT, 64))
_SUFFIXES: Final = {"Y": (TINYINT, 8), "S": (SMALLINT, 16), "L": (BIGINT, 64)}


def number(written: str, *, negative: bool = False) -> tuple[Value, Type, str]:
    """Value, type and Spark's column name of an unsigned number, negated when `negative`.

    Raises `UserError` when the type of the suffix does not hold it.
    """
    upper, sign = written.upper(), "-" if negative else ""
    if upper.endswith("BD"):
        return _decimal(sign + upper[:-2])
    if upper[-1] in "DF" and "." not in upper[-1]:
        kind = DOUBLE if upper[-1] == "D" else FLOAT
        return _fractional(sign + upper[:-1], kind)
    if upper[-1] in _SUFFIXES:
        kind, bits = _SUFFIXES[upper[-1]]
        return _integer(sign + upper[:-1], kind, bits)
    if "E" in upper:
        return _fractional(sign + upper, DOUBLE)
    if "." in upper:
        return _decimal(sign + upper)
    if len(upper) <= 19:
        for kind, bits in _INTEGERS:
            if -(2 ** (bits - 1)) <= int(sign + upper) < 2 ** (bits - 1):
                return _integer(sign + upper, kind, bits)
    return _decimal(sign + upper)


def _integer(written: str, kind: Type, bits: int) -> tuple[Value, Type, str]:
    if not written.lstrip("-").isdigit():
        raise UserError(f"{written} is not a whole number, so it cannot be {kind}")
    if len(written) > 20 or not -(2 ** (bits - 1)) <= int(written) < 2 ** (bits - 1):
        raise UserError(
            f"{_short(written)} does not fit {kind}", remedy="Write it with the suffix BD, as a DECIMAL."
        )
    return int(written), kind, str(int(written))


def _fractional(written: str, kind: Type) -> tuple[Value, Type, str]:
    value = float(written)
    if value in (float("inf"), float("-inf")):
        raise UserError(f"{_short(written)} does not fit {kind}")
    return value, kind, java_double(value)


def java_double(value: float) -> str:
    """A double as Java prints it, which is its name in Spark's columns: 1000.0, 1.0E10."""
    text = repr(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return text if "e" not in text else format(Decimal(text), "f")
    sign, digits, exponent = Decimal(text).normalize().as_tuple()
    assert isinstance(exponent, int)
    body = "".join(map(str, digits))
    return f"{'-' if sign else ''}{body[0]}.{body[1:] or '0'}E{exponent + len(body) - 1}"


def _decimal(written: str) -> tuple[Value, Type, str]:
    try:
        value = Decimal(written)
    except InvalidOperation:
        raise UserError(f"{_short(written)} is not a number") from None
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale)
    if precision > 38:
        raise UserError(
            f"{_short(written)} needs {precision} digits and DECIMAL holds 38",
            remedy="Write it as a DOUBLE, with an exponent.",
        )
    value = value.quantize(Decimal(1).scaleb(-scale)) if exponent > 0 else value
    return value, decimal(max(precision, 1), scale), format(value, "f")


def _short(written: str) -> str:
    return written if len(written) <= 30 else written[:29] + "…"


def span_of(amount: str, unit: str) -> Duration:
    """The length of `amount` `unit`s: `span_of("6.4", "SECONDS")`.

    Raises `UserError` for units of the calendar, unknown units, and parts of a microsecond.
    """
    upper = unit.upper()
    if upper in CALENDAR:
        raise UserError(
            f"{upper} has no fixed length",
            remedy="Use DAY (24 hours) or WEEK: INTERVAL 30 DAYS instead of a month.",
        )
    if upper not in UNIT_NAMES:
        raise UserError(
            f"'{unit}' is not a unit of time",
            remedy="Units are WEEK, DAY, HOUR, MINUTE, SECOND, MILLISECOND and MICROSECOND, also in the plural.",
        )
    value = Decimal(amount)
    if value and not -30 < value.adjusted() < 30:
        raise UserError(f"an interval of {_short(amount)} {upper} is out of range")
    exact = value * UNIT_NAMES[upper]
    if exact != exact.to_integral_value():
        raise UserError(f"{_short(amount)} {upper} is not a whole number of microseconds")
    return in_range(int(exact))


def in_range(length: Duration) -> Duration:
    """The duration itself; raises `UserError` when it is beyond 4000 years."""
    if abs(length) > LONGEST:
        raise UserError("an interval cannot be longer than 4000 years")
    return length


_PART: Final = re.compile(r"\s*([+-]?)\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]+)\s*,?")


def interval_text(text: str) -> Duration:
    """The length of `1 day 2 hours`, `-5 seconds`, `90 min`.

    Raises `UserError` for anything else.
    """
    body = re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE)
    at, total, count = 0, 0, 0
    while match := _PART.match(body, at):
        sign, amount, unit = match.groups()
        length = span_of(amount, unit)
        total += -length if sign == "-" else length
        at, count = match.end(), count + 1
    if not count or body[at:].strip():
        raise UserError(
            f"'{_short(text)}' is not an interval",
            remedy="Write for example '1 DAY' or '2 hours 30 minutes'.",
        )
    return in_range(total)


FIELDS: Final = ("DAY", "HOUR", "MINUTE", "SECOND")


def interval_fields(text: str, first: str, last: str) -> Duration:
    """The length of `INTERVAL '1 02:03:04.5' DAY TO SECOND`.

    Raises `UserError` when the text does not have those fields.
    """
    names = FIELDS[FIELDS.index(first) : FIELDS.index(last) + 1]
    pattern = {"DAY": r"([0-9]{1,9})", "SECOND": r"([0-9]{1,12}(?:\.[0-9]{1,6})?)"}
    separators = {"DAY": " ", "HOUR": ":", "MINUTE": ":"}
    expression = "".join(
        pattern.get(name, r"([0-9]{1,12})") + (separators[name] if name != last else "") for name in names
    )
    match = re.fullmatch(rf"\s*([+-]?){expression}\s*", text)
    if match is None:
        raise UserError(f"'{_short(text)}' does not have the fields {first} TO {last}")
    length = sum(span_of(amount, name) for name, amount in zip(names, match.groups()[1:], strict=True))
    return in_range(-length if match.group(1) == "-" else length)


_DATE: Final = re.compile(r"\s*([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})\s*")
_TIMESTAMP: Final = re.compile(
    r"\s*([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:[T ]\s*([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{1,9}))?)?)?)?\s*(\S*)\s*"
)


def date_of(text: str) -> date:
    """The day of `2023-11-14`; raises `UserError` for anything else."""
    if match := _DATE.fullmatch(text):
        try:
            return date(*map(int, match.groups()))
        except ValueError:
            pass
    raise UserError(f"'{_short(text)}' is not a date", remedy="Write for example DATE '2023-11-14'.")


def instant_of(text: str, *, zone: str = "UTC", zoned: bool = True) -> Instant:
    """The instant of `2023-11-14 22:13:20.5`, with `Z`, an offset or a zone's name at the end unless not `zoned`.

    `zone` is that of a text without one. Raises `UserError` for anything else. Digits below a microsecond are cut, as in Spark.
    """
    match = _TIMESTAMP.fullmatch(text)
    if match is not None and (zoned or not match.group(8)):
        year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
        try:
            shown = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
            local = (shown - EPOCH) // timedelta(microseconds=1)
            offset = offset_of(_as_java(match.group(8)) or zone, local)
            if offset is not None:
                return local - offset + int((match.group(7) or "").ljust(6, "0")[:6])
        except (ValueError, OverflowError):
            pass
    raise UserError(
        f"'{_short(text)}' is not a timestamp", remedy="Write for example TIMESTAMP '2023-11-14 22:13:20'."
    )


def _as_java(zone: str) -> str:
    """`utc+2` as `UTC+2`: offsets may be written in lower case; names of regions may not."""
    return zone.upper() if re.match(r"(?:z|utc|gmt|ut)\b", zone, re.IGNORECASE) else zone


def shown_instant(at: Instant, zone: str = "UTC") -> str:
    """`2023-11-14 22:13:20.5`: Spark's text of a timestamp in a column's name, in a time zone."""
    text = (EPOCH + timedelta(microseconds=at + ahead_of(zone, at))).replace(tzinfo=None).isoformat(" ")
    return text.rstrip("0") if "." in text else text


def shown_interval(length: Duration, fields: tuple[str, str]) -> str:
    """`INTERVAL '1 02' DAY TO HOUR`: Spark's text of an interval of these fields in a column's name."""
    first, last = fields
    names = FIELDS[FIELDS.index(first) : FIELDS.index(last) + 1]
    rest, written = abs(length), ""
    for index, name in enumerate(names):
        if name == "SECOND":
            seconds, micros = divmod(rest, SECOND)
            fraction = f"{micros:06d}".rstrip("0")
            text = f"{seconds:02d}" + (f".{fraction}" if fraction else "")
        else:
            amount, rest = divmod(rest, UNITS[name])
            text = str(amount) if name == "DAY" else f"{amount:02d}"
        written += text if not index else (" " if names[index - 1] == "DAY" else ":") + text
    sign = "-" if length < 0 else ""
    return f"INTERVAL '{sign}{written}' " + (first if first == last else f"{first} TO {last}")
