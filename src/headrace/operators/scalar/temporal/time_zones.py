"""Time zones: local time at an instant, the instant of a local time, and truncation of local times, with Java's answers
at clock changes.

A local time that the clocks skip is read with the offset before the change; one that occurs twice is its first occurrence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.operators.scalar.temporal.calendar import civil, days_of
from headrace.operators.scalar.values.datum import (
    Datum,
    Kernel,
    Numbers,
    Outcome,
    all_valid,
    build,
    column,
    failing,
    raw,
    rows_of,
)
from headrace.schema import TIMESTAMP, to_arrow
from headrace.time import DAY
from headrace.zones import Rules, rules_of

_KIND: Final = to_arrow(TIMESTAMP)
_MIDDLE: Final = 1 << 62
_FIRST: Final = -62_135_596_800_000_000
"""The year 1, before which no clock was changed."""
_REFERENCE_YEAR: Final = 2009
"""From here on the years of 28 have every calendar there is, and today's rules."""
_LAST: Final = 2_114_380_800_000_000
"""The year 2037, from which on a zone's file may have no rules: years are mapped to one of the 28 with the same calendar."""


def ahead(rules: Rules, instants: Numbers) -> Numbers:
    """The offset from UTC at each instant, in microseconds."""
    if isinstance(rules, int):
        return np.full(len(instants), rules, np.int64)
    held = np.maximum(instants, _FIRST)
    late = held >= _LAST
    if late.any():
        held[late] = _in_reference_year(held[late])
    shown = pc.local_timestamp(pa.array(held, pa.timestamp("us", rules)))
    distance: Numbers = shown.cast(pa.int64()).to_numpy(zero_copy_only=False) - held
    return distance


def _in_reference_year(instants: Numbers) -> Numbers:
    """The same day and time in the year of the 28 that begins on the same day of the week, and has the same length."""
    year, _, _ = civil(np.floor_divide(instants, DAY))
    same: Numbers = instants + (_STARTS[_calendar(year)] - _first_day(year)) * DAY
    return same


def _first_day(year: Numbers) -> Numbers:
    ones = np.ones_like(year)
    return days_of(year, ones, ones)


def _calendar(year: Numbers) -> Numbers:
    """0 to 13: the day of the week on which a year begins, and whether it is a leap year."""
    first = _first_day(year)
    number: Numbers = first % 7 * 2 + (_first_day(year + 1) - first - 365)
    return number


def _starts() -> Numbers:
    years = np.arange(_REFERENCE_YEAR, _REFERENCE_YEAR + 28)
    starts = np.zeros(14, np.int64)
    starts[_calendar(years)] = _first_day(years)
    return starts


_STARTS: Final = _starts()


def shown_at(rules: Rules, instants: Numbers) -> Numbers:
    """Local times, as microseconds since local 1970-01-01 00:00."""
    local: Numbers = instants + ahead(rules, instants)
    return local


def instants_of(rules: Rules, shown: Numbers) -> Numbers:
    """The instants of local times."""
    before, after = ahead(rules, shown - DAY), ahead(rules, shown + DAY)
    if np.array_equal(before, after):
        same: Numbers = shown - before
        return same
    later = (ahead(rules, shown - before) != before) & (ahead(rules, shown - after) == after)
    result: Numbers = shown - np.where(later, after, before)
    return result


def in_zone(change: Callable[[Rules, Numbers], Numbers]) -> Kernel:
    """The kernel of a function of (instant, zone) that may have many zones; an unknown one is an error of its row."""

    def kernel(data: Sequence[Datum]) -> Outcome:
        rows = rows_of(data)
        moments = np.broadcast_to(raw(data[0]), rows).astype(np.int64)
        zones = column(data[1], 1 if isinstance(data[1], pa.Scalar) else rows).dictionary_encode()
        codes = np.broadcast_to(pc.fill_null(zones.indices, -1).to_numpy(zero_copy_only=False), rows)
        values, is_known = np.zeros(rows, np.int64), codes < 0
        for code, zone in enumerate(zones.dictionary.to_pylist()):
            here, rules = codes == code, rules_of(zone)
            if rules is not None:
                values[here], is_known = change(rules, moments[here]), is_known | here
        failure = failing(~is_known, data, lambda _, zone: f"there is no time zone '{zone}'")
        beyond = (np.abs(moments) > _MIDDLE) & ((values < 0) != (moments < 0))
        failure = failure or failing(beyond, data, lambda at, zone: f"{at} in {zone} does not fit TIMESTAMP")
        return build(values, all_valid(data), _KIND), failure

    return kernel


def truncated(
    rules: Rules, instants: Numbers, start_of: Callable[[Numbers], Numbers | None]
) -> Numbers | None:
    """Starts of local units, on the same side of a clock change if they occur on both."""
    distance = ahead(rules, instants)
    start = start_of(instants + distance)
    if start is None:
        return None
    same: Numbers = start - distance
    moved = ahead(rules, same) != distance
    if moved.any():
        same[moved] = instants_of(rules, start[moved])
    return same
