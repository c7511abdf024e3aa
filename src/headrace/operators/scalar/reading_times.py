"""The texts of dates and timestamps beyond the usual ones: short fields, far years, zones."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from headrace.time import DAY, SECOND

_DATE: Final = r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
_DATE_TEXT: Final = re.compile(_DATE + r"(?:[ T].*)?)?)?", re.DOTALL)
_TIME: Final = r"(?:[ T]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?(.*))?)?)?"
_TIMESTAMP_TEXT: Final = re.compile(_DATE + _TIME + r")?)?", re.DOTALL)
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{1,2}))?(?::([0-9]{2}))?")
_SHORT: Final = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}
"""Java's old abbreviations of zones."""
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


def _day(found: re.Match[str]) -> int | None:
    year = int(found[2]) * (-1 if found[1] == "-" else 1)
    return days_from_civil(year, int(found[3] or 1), int(found[4] or 1))


def read_date(text: str) -> int | None:
    """Days since 1970-01-01, or None for what is not a date; anything may follow a space or `T`."""
    found = _DATE_TEXT.fullmatch(text)
    day = None if found is None else _day(found)
    return day if day is not None and -(2**31) <= day < 2**31 else None


def read_timestamp(text: str) -> int | None:
    """Microseconds since 1970 UTC, or None for what is not a timestamp.

    Spark also reads a time alone, as of today; that depends on the clock, so it is refused here.
    """
    found = _TIMESTAMP_TEXT.fullmatch(text)
    day = None if found is None else _day(found)
    if found is None or day is None:
        return None
    hour, minute, second = (int(found[group] or 0) for group in (5, 6, 7))
    if hour > 23 or minute > 59 or second > 59:
        return None
    local = (
        day * DAY + ((hour * 60 + minute) * 60 + second) * SECOND + int((found[8] or "")[:6].ljust(6, "0"))
    )
    offset = _offset((found[9] or "").strip(), local)
    instant = None if offset is None else local - offset
    return instant if instant is not None and -(2**63) <= instant < 2**63 else None


def _offset(zone: str, local: int) -> int | None:
    """What a zone is ahead of UTC, in microseconds; None for an unknown one."""
    if zone in ("", "Z", "UTC", "GMT", "UT"):
        return 0
    if (found := _OFFSET.fullmatch(zone)) is not None:
        seconds = int(found[2]) * 3600 + int(found[3] or 0) * 60 + int(found[4] or 0)
        if seconds > 18 * 3600 or int(found[3] or 0) > 59:
            return None
        return (seconds if found[1] == "+" else -seconds) * SECOND
    return _region_offset(zone, local)


def _region_offset(zone: str, local: int) -> int | None:
    try:
        rules: tzinfo = ZoneInfo(_SHORT.get(zone, zone))
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=local)
    except (ZoneInfoNotFoundError, ValueError, OSError, OverflowError):
        return None
    ahead = moment.replace(tzinfo=rules).utcoffset() or timedelta()
    return round(ahead / timedelta(microseconds=1))
