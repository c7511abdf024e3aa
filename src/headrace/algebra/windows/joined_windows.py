"""The built-in window class of joined rows, where the joined windows share one slide: the windows that end while all
rows of a combination are held.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.algebra.windows.user_windows import Ints, UserWindow


class JoinedWindows(UserWindow):
    """Window i ends at `anchor + i*slide`; it holds a row if it ends after the row's time and not after `until`, the only column.

    `length` is the maximum length of the joined windows.
    """

    def __init__(self, slide: int, anchor: int, length: int) -> None:
        self.slide, self.anchor, self.length = slide, anchor, length

    def wids(self, at: Ints, *columns: Any) -> tuple[Ints, Ints]:
        """(row, window) pairs."""
        until = columns[0].to_numpy(zero_copy_only=False)
        first, last = (at - self.anchor) // self.slide + 1, (until - self.anchor) // self.slide
        copies = np.maximum(last - first + 1, 0)
        row = np.repeat(np.arange(len(at)), copies)
        return row, np.arange(len(row)) - np.repeat(np.cumsum(copies) - copies, copies) + first[row]

    def bounds(self, windows: Ints) -> tuple[Ints, Ints]:
        """Start and end."""
        ends = self.anchor + windows * self.slide
        return ends - self.length, ends

    def holds(self, window: int, at: int, *values: Any) -> bool:
        """At < end <= until."""
        return bool(at < self.anchor + window * self.slide <= values[0])
