"""Time zones by the names that Java accepts (`Europe/Berlin`, `PST`, `+02:00`), and a zone's offset from UTC at an
instant or at a time that its clocks show.
"""

from __future__ import annotations

import re
from datetime import timedelta
from functools import lru_cache
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from headrace.time import DAY, EPOCH, SECOND, Duration, Instant

_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{1,2}))?(?::([0-9]{2}))?")
_FIRST: Final = -62_135_596_800_000_000 + DAY
_LAST: Final = 253_402_300_800_000_000 - DAY
"""The years 1 to 9999, which Python can represent."""
_CYCLE: Final = 146_097 * DAY
"""400 years, after which days of the week and the rules for moving clocks repeat."""
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

Rules: TypeAlias = Duration | str
"""The offset from UTC of clocks that are never moved, else the region they are in."""


@lru_cache(maxsize=1000)
def rules_of(zone: str) -> Rules | None:
    """The rules of `UTC`, `Z`, `+02:00`, `GMT-5`, `Europe/Berlin` or `PST`; None for what is no zone."""
    if zone in ("Z", "UTC", "GMT", "UT", "Etc/UTC"):
        return 0
    if (offset := _OFFSET.fullmatch(zone)) is not None:
        seconds = int(offset[2]) * 3600 + int(offset[3] or 0) * 60 + int(offset[4] or 0)
        if seconds > 18 * 3600 or int(offset[3] or 0) > 59:
            return None
        return (seconds if offset[1] == "+" else -seconds) * SECOND
    name = _SHORT.get(zone, zone)
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
    return name


def offset_of(zone: str, shown: int) -> Duration | None:
    """The offset from UTC of clocks that show a time (in microseconds since they showed 1970); None for no zone.

    Of a time that clocks skip or show twice, it is the offset before they were moved.
    """
    rules = rules_of(zone)
    if rules is None or isinstance(rules, int):
        return rules
    beyond = max(0, (shown - _LAST) // _CYCLE + 1)
    try:
        moment = EPOCH + timedelta(microseconds=max(shown - beyond * _CYCLE, _FIRST))
        ahead = moment.replace(tzinfo=ZoneInfo(rules)).utcoffset() or timedelta()
    except (OSError, OverflowError, ValueError):
        return None
    return round(ahead / timedelta(microseconds=1))


def ahead_of(zone: str, at: Instant) -> Duration:
    """The offset from UTC of the clocks of an existing zone at an instant."""
    rules = rules_of(zone)
    assert rules is not None, zone
    if isinstance(rules, int):
        return rules
    held = min(max(at, _FIRST), _LAST)
    ahead = (EPOCH + timedelta(microseconds=held)).astimezone(ZoneInfo(rules)).utcoffset() or timedelta()
    return round(ahead / timedelta(microseconds=1))
