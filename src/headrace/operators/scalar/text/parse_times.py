"""Parsing of one text as a date or a timestamp, in every form that is accepted: short fields, far years, zones."""

from __future__ import annotations

import re
from typing import Final

from headrace.time import DAY, SECOND
from headrace.zones import offset_of

_DATE: Final = r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
_DATE_TEXT: Final = re.compile(_DATE + r"(?:[ T].*)?)?)?", re.DOTALL)
_TIME: Final = r"(?:[ T]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?(.*))?)?)?"
_TIMESTAMP_TEXT: Final = re.compile(_DATE + _TIME + r")?)?", re.DOTALL)
_ERA_DAYS: Final = 146_097
_EPOCH_OF_ERA: Final = 719_468
_MONTHS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def days_from_civil(year: int, month: int, day: int) -> int | None:
    """Days since 1970-01-01 in the proleptic Gregorian calendar; None for a day that does not exist."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not (1 <= month <= 12 and 1 <= day <= _MONTHS[month - 1] + (month == 2 and leap)):
        return None
    shifted = year - (month <= 2)
    era, of_era = divmod(shifted, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * _ERA_DAYS + of_era * 365 + of_era // 4 - of_era // 100 + of_year - _EPOCH_OF_ERA


def _day(match: re.Match[str]) -> int | None:
    year = int(match[2]) * (-1 if match[1] == "-" else 1)
    return days_from_civil(year, int(match[3] or 1), int(match[4] or 1))


def read_date(text: str) -> int | None:
    """Days since 1970-01-01, or None if it is not a date; anything may follow a space or `T`."""
    match = _DATE_TEXT.fullmatch(text)
    day = None if match is None else _day(match)
    return day if day is not None and -(2**31) <= day < 2**31 else None


def read_timestamp(text: str, default: str = "UTC") -> int | None:
    """Microseconds since 1970 UTC, or None if it is not a timestamp; `default` is the zone of a text without one.

    Spark also reads a time without date, as of today; that depends on the clock, so it is not accepted here.
    """
    match = _TIMESTAMP_TEXT.fullmatch(text)
    day = None if match is None else _day(match)
    if match is None or day is None:
        return None
    hour, minute, second = (int(match[group] or 0) for group in (5, 6, 7))
    if hour > 23 or minute > 59 or second > 59:
        return None
    local = (
        day * DAY + ((hour * 60 + minute) * 60 + second) * SECOND + int((match[8] or "")[:6].ljust(6, "0"))
    )
    offset = offset_of((match[9] or "").strip() or default, local)
    instant = None if offset is None else local - offset
    return instant if instant is not None and -(2**63) <= instant < 2**63 else None
