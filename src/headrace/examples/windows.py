"""Examples of user-defined kinds of windows: calendar months, the same hour of several days, shifts."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.algebra.windows.user_windows import LinearWindow, UserWindow
from headrace.errors import UserError

_HOUR = 3_600_000_000
Ints = npt.NDArray[np.int64]


class Months(UserWindow):
    """`[WINDOW months(n)]`: the calendar months of UTC, each with the n - 1 before it; numbered from January 1970."""

    def __init__(self, months: int = 1) -> None:
        if months < 1:
            raise UserError("a window of months has at least one")
        self.months = months

    def wids(self, at: Ints, *columns: Any) -> tuple[Ints, Ints]:
        """A row of month m is in the windows that end with m, m + 1, …, m + n - 1."""
        del columns
        month = at.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)
        rows = np.repeat(np.arange(len(at)), self.months)
        return rows, month[rows] + np.tile(np.arange(self.months), len(at))

    def bounds(self, windows: Ints) -> tuple[Ints, Ints]:
        """From the first of one month to the first of another."""
        return _first_of(windows - self.months + 1), _first_of(windows + 1)

    def holds(self, window: int, at: int, *values: Any) -> bool:
        """Whether the row's calendar month is in the window."""
        del values
        month = int(np.datetime64(at, "us").astype("datetime64[M]").astype(np.int64))
        return window - self.months < month <= window


def _first_of(months: Ints) -> Ints:
    return months.astype("datetime64[M]").astype("datetime64[us]").astype(np.int64)


class SameHour(UserWindow):
    """`[WINDOW same_hour(n)]`: an hour together with the same hour of the n - 1 days before. Its rows do not follow each other.

    The window that ends with hour h of all time (numbered from 1970) holds the hours h, h - 24, …, h - 24·(n - 1).
    """

    def __init__(self, days: int) -> None:
        if days < 1:
            raise UserError("a window of the same hour has at least one day")
        self.days = days

    def wids(self, at: Ints, *columns: Any) -> tuple[Ints, Ints]:
        """A row of hour h is in the windows h, h + 24, …"""
        del columns
        rows = np.repeat(np.arange(len(at)), self.days)
        return rows, at[rows] // _HOUR + 24 * np.tile(np.arange(self.days), len(at))

    def bounds(self, windows: Ints) -> tuple[Ints, Ints]:
        """From the first hour's start to the last one's end."""
        return (windows - 24 * (self.days - 1)) * _HOUR, (windows + 1) * _HOUR

    def holds(self, window: int, at: int, *values: Any) -> bool:
        """Whether the row's hour is in the window; the hours between are not."""
        del values
        days, rest = divmod(window - at // _HOUR, 24)
        return rest == 0 and 0 <= days < self.days


class Shifts(LinearWindow):
    """`[WINDOW shifts(length, every, start)]` in microseconds: window n is [start + n·every, start + n·every + length)."""

    def __init__(self, length: int, every: int, start: int = 0) -> None:
        if length < 1 or every < 1:
            raise UserError("a shift has a length, and they begin one after the other")
        self.starts, self.ends = (every, start), (every, start + length)
