"""Kinds of windows as users write them, for the laws: rows that do not follow each other, and windows by a column's value."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from headrace.algebra.windows.user_windows import UserWindow
from headrace.time import SECOND

TICK: Final = SECOND
"""Generated times, ranges and slides are whole ticks, give or take a microsecond."""


class Striped(UserWindow):
    """Window n holds the ticks n, n + 2, …, n + 2(k - 1): every other one."""

    def __init__(self, ticks: int) -> None:
        self.ticks = ticks

    def wids(self, at: Any, *columns: Any) -> Any:
        rows = np.repeat(np.arange(len(at)), self.ticks)
        return rows, at[rows] // TICK - 2 * np.tile(np.arange(self.ticks), len(at))

    def bounds(self, windows: Any) -> Any:
        return windows * TICK, (windows + 2 * self.ticks - 1) * TICK

    def holds(self, window: int, at: int, *values: Any) -> bool:
        offset, rest = divmod(at // TICK - window, 2)
        return rest == 0 and 0 <= offset < self.ticks


class Lasting(UserWindow):
    """Tumbling windows of so many ticks; a row of value v is in its own and the v after it, at most two."""

    def __init__(self, ticks: int) -> None:
        self.length = ticks * TICK

    def wids(self, at: Any, *columns: Any) -> Any:
        (values,) = columns
        more = np.clip([value or 0 for value in values.to_pylist()], 0, 2).astype(np.int64)
        rows = np.repeat(np.arange(len(at)), more + 1)
        offset = np.arange(len(rows)) - np.repeat(np.cumsum(more + 1) - more - 1, more + 1)
        return rows, at[rows] // self.length + offset

    def bounds(self, windows: Any) -> Any:
        return (windows - 2) * self.length, (windows + 1) * self.length

    def holds(self, window: int, at: int, *values: Any) -> bool:
        return 0 <= window - at // self.length <= min(max(values[0] or 0, 0), 2)
