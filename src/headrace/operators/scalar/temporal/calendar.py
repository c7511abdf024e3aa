"""Proleptic Gregorian calendar on arrays of day numbers, for years far beyond the range of Arrow's own kernels."""

from __future__ import annotations

from typing import Final

import numpy as np

from headrace.operators.scalar.values.datum import Numbers

_EPOCH: Final = 719_468  # days from 0000-03-01 to 1970-01-01
_ERA: Final = 146_097  # days of 400 years


def civil(days: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Year, month and day of days since 1970-01-01."""
    shifted = days.astype(np.int64) + _EPOCH
    era = np.floor_divide(shifted, _ERA)
    of_era = shifted - era * _ERA
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted_month = (5 * of_year + 2) // 153
    month = np.where(shifted_month < 10, shifted_month + 3, shifted_month - 9)
    return year + era * 400 + (month <= 2), month, of_year - (153 * shifted_month + 2) // 5 + 1


def days_of(year: Numbers, month: Numbers, day: Numbers | int) -> Numbers:
    """Days since 1970-01-01 of a day that exists."""
    shifted = year - (month <= 2)
    era = np.floor_divide(shifted, 400)
    of_era = shifted - era * 400
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days: Numbers = era * _ERA + of_era * 365 + of_era // 4 - of_era // 100 + of_year - _EPOCH
    return days
