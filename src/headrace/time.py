"""Instants and durations as whole microseconds: their types, units and limits, their rendering as text, and the wall
clock (`now`).

An instant is a number of microseconds since 1970-01-01T00:00:00Z, a duration a number of microseconds; both are plain
`int` so that they travel in numpy arrays. Nothing below `runtime` asks a clock: time is an argument.
"""

from __future__ import annotations

import time as _clock
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

Instant: TypeAlias = int
Duration: TypeAlias = int
Clock: TypeAlias = Callable[[], Instant]

MICROSECOND: Final = 1
MILLISECOND: Final = 1_000
SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
WEEK: Final = 7 * DAY

UNITS: Final[dict[str, Duration]] = {
    "MICROSECOND": MICROSECOND,
    "MILLISECOND": MILLISECOND,
    "SECOND": SECOND,
    "MINUTE": MINUTE,
    "HOUR": HOUR,
    "DAY": DAY,
    "WEEK": WEEK,
}

BEGINNING: Final[Instant] = -(2**63)
"""Below every instant: the punctuation of a stream of which nothing is known."""
FOREVER: Final[Instant] = 2**63 - 1
"""Above every instant: the end of a row that never expires, the punctuation of an ended stream."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS_OF_400_YEARS: Final = 146_097


def now() -> Instant:
    """The wall clock; only `runtime` and the command line may call it."""
    return _clock.time_ns() // 1000


def render_instant(at: Instant) -> str:
    """`2023-11-14T22:13:20Z`, with six fraction digits only if they are not zero.

    >>> render_instant(1_700_000_000_000_000)
    '2023-11-14T22:13:20Z'
    >>> render_instant(-1)
    '1969-12-31T23:59:59.999999Z'
    """
    if at == BEGINNING:
        return "-infinity"
    if at == FOREVER:
        return "infinity"
    try:
        return (EPOCH + timedelta(microseconds=at)).replace(tzinfo=None).isoformat() + "Z"
    except OverflowError:
        days, rest = divmod(at, DAY)
        clock = (EPOCH + timedelta(microseconds=rest)).replace(tzinfo=None).isoformat()
        return f"{render_date(days)}{clock[10:]}Z"


def render_date(days: int) -> str:
    """The date so many days after 1970-01-01: the year has four digits, before 0000 and after 9999 a sign and all its digits.

    >>> render_date(0), render_date(2_932_897), render_date(-719_529)
    ('1970-01-01', '+10000-01-01', '-0001-12-31')
    """
    cycles, day = divmod(days, _DAYS_OF_400_YEARS)
    near = EPOCH.date() + timedelta(days=day)
    year = near.year + 400 * cycles
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{near.month:02d}-{near.day:02d}"


def render_duration(length: Duration) -> str:
    """The largest unit that divides it: `10 MINUTES`, `1 SECOND`, `1500 MILLISECONDS`.

    >>> render_duration(90 * SECOND), render_duration(DAY)
    ('90 SECONDS', '1 DAY')
    """
    for name in ("DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"):
        if length % UNITS[name] == 0 and (length or name == "SECOND"):
            amount = length // UNITS[name]
            return f"{amount} {name}" + ("" if amount == 1 else "S")
    raise AssertionError("a microsecond divides every duration")
