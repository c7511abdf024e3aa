"""The parser of lengths of time and instants: `INTERVAL 5 SECONDS`, `6.4 SECONDS` in a bracket, `NOW - INTERVAL '1 day'`."""

from __future__ import annotations

from decimal import Decimal

from headrace.algebra.query import Ago
from headrace.errors import Span, UserError
from headrace.language.parser.literals import (
    CALENDAR,
    FIELDS,
    UNIT_NAMES,
    date_of,
    in_range,
    instant_of,
    interval_fields,
    interval_text,
    span_of,
)
from headrace.language.syntax.cursor import Cursor
from headrace.time import DAY, HOUR, MINUTE, Duration, Instant

Fields = tuple[str, str]
"""First and last field of an interval, DAY to SECOND."""


def duration(cursor: Cursor, what: str) -> Duration:
    """Pass a length of time: with or without INTERVAL, or as text `'10 minutes'`.

    Raises `UserError` for anything else.
    """
    if cursor.at_word("INTERVAL"):
        return interval_literal(cursor)[0]
    if cursor.token.kind == "string":
        return _of_text(cursor)
    if cursor.token.kind != "number":
        raise cursor.expected(f"{what}, such as 10 MINUTES")
    return _amounts(cursor)[0]


def interval_literal(cursor: Cursor) -> tuple[Duration, Fields]:
    """Pass `INTERVAL …`; returns also the fields it was written with.

    Raises `UserError` for units of the calendar and for what is no interval.
    """
    cursor.expect("INTERVAL")
    if cursor.token.kind == "string":
        return _quoted(cursor)
    if cursor.token.kind == "number" or cursor.at_sign("-", "+"):
        return _amounts(cursor)
    raise cursor.expected("the amount of the INTERVAL, such as 5 SECONDS")


def _quoted(cursor: Cursor) -> tuple[Duration, Fields]:
    text, unit = cursor.token, cursor.ahead()
    if unit.upper not in UNIT_NAMES and unit.upper not in CALENDAR:
        length = _of_text(cursor)
        return length, _fields_of_text(text.text)
    cursor.advance()
    if cursor.ahead().upper == "TO":
        return _from_to(cursor, text.text, text.span)
    amount = text.text.strip()
    try:
        Decimal(amount)
    except ArithmeticError:
        raise cursor.error(f"'{amount[:30]}' is not a number of {unit.upper}", text.span) from None
    return _sized(cursor, amount, text.span), (_field(unit.text), _field(unit.text))


def _from_to(cursor: Cursor, text: str, start: Span) -> tuple[Duration, Fields]:
    first = cursor.advance().upper
    cursor.advance()
    last = cursor.token.upper
    if first not in FIELDS or last not in FIELDS or FIELDS.index(first) >= FIELDS.index(last):
        raise cursor.error(
            f"an interval cannot go from {first} to {cursor.described()}",
            cursor.token.span,
            "Go from a larger to a smaller one of DAY, HOUR, MINUTE and SECOND.",
        )
    cursor.advance()
    try:
        return interval_fields(text, first, last), (first, last)
    except UserError as error:
        raise cursor.error(error.message, start, error.remedy) from None


def _amounts(cursor: Cursor) -> tuple[Duration, Fields]:
    """`1 DAY 2 HOURS`, `-5 SECONDS`."""
    start, total, written = cursor.token.span, 0, []
    while True:
        first = cursor.token.span
        sign = "-" if cursor.accept_sign("-") else ""
        if not sign:
            cursor.accept_sign("+")
        if cursor.token.kind != "number":
            raise cursor.expected("the amount of the INTERVAL, such as 5 SECONDS")
        amount = cursor.advance().text
        if not amount.replace(".", "", 1).isdigit():
            raise cursor.error(
                f"'{amount[:30]}' is not a plain number",
                cursor.before.span,
                "Write for example 5 SECONDS or 6.4 SECONDS.",
            )
        written.append(_field(cursor.token.text))
        total += _sized(cursor, sign + amount, first)
        if not _at_amount(cursor):
            break
    try:
        return in_range(total), (min(written, key=FIELDS.index), max(written, key=FIELDS.index))
    except UserError as error:
        raise cursor.error(error.message, cursor.since(start), error.remedy) from None


def _at_amount(cursor: Cursor) -> bool:
    return cursor.token.kind == "number" and _is_unit(cursor.ahead().upper)


def _is_unit(word: str) -> bool:
    return word in UNIT_NAMES or word in CALENDAR


def _sized(cursor: Cursor, amount: str, start: Span) -> Duration:
    """An amount that has been passed, with the unit at the cursor."""
    if cursor.token.kind != "name":
        raise cursor.expected(f"a unit of time after {amount[:30]}")
    unit = cursor.token
    if not _is_unit(unit.upper):
        raise cursor.expected(
            f"a unit of time after {amount[:30]}",
            "Units are WEEK, DAY, HOUR, MINUTE, SECOND, MILLISECOND and MICROSECOND, also in the plural.",
        )
    cursor.advance()
    try:
        return span_of(amount, unit.text)
    except UserError as error:
        raise cursor.error(error.message, cursor.since(start), error.remedy) from None


def _of_text(cursor: Cursor) -> Duration:
    text = cursor.token
    try:
        length = interval_text(text.text)
    except UserError as error:
        raise cursor.error(error.message, text.span, error.remedy) from None
    cursor.advance()
    return length


def _fields_of_text(text: str) -> Fields:
    units = [word.strip("0123456789.,+-") for word in text.split()]
    fields = [_field(unit) for unit in units if _is_unit(unit.upper())]
    return min(fields, key=FIELDS.index), max(fields, key=FIELDS.index)


def _field(unit: str) -> str:
    """The field of an interval for a unit: weeks are days, milliseconds are seconds."""
    length = UNIT_NAMES.get(unit.upper(), 0)
    for name, size in (("DAY", DAY), ("HOUR", HOUR), ("MINUTE", MINUTE)):
        if length >= size:
            return name
    return "SECOND"


def instant(cursor: Cursor, what: str) -> Instant:
    """Pass a constant point in time: `TIMESTAMP '…'`, `DATE '…'` or the text alone.

    Raises `UserError` for anything else.
    """
    word = cursor.token.upper
    if word in ("TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "DATE"):
        cursor.advance()
    text = cursor.token
    if text.kind != "string":
        raise cursor.expected(f"{what}, such as TIMESTAMP '2023-11-14 22:13:20'")
    try:
        if word == "DATE":
            date_of(text.text)
        at = instant_of(text.text, zone=cursor.zone)
    except UserError as error:
        raise cursor.error(error.message, text.span, error.remedy) from None
    cursor.advance()
    return at


def bound(cursor: Cursor, what: str) -> Instant | Ago:
    """Pass one end of `BEGIN … END`: a constant point in time, NOW, or NOW minus an interval."""
    if not cursor.accept("NOW"):
        return instant(cursor, what)
    if cursor.accept_sign("("):
        cursor.expect_sign(")")
    if not cursor.accept_sign("-"):
        return Ago(0)
    start = cursor.token.span
    length = duration(cursor, "an interval before NOW")
    if length < 0:
        raise cursor.error("a bound cannot be after NOW", cursor.since(start))
    return Ago(length)
