"""`CUMULATE(TABLE s, DESCRIPTOR(t), step, size)`: windows with one start whose ends are a step later each, up to the size.

They have the contract of user windows, and need no registration.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.algebra.windows.user_windows import Ints, UserWindow
from headrace.errors import UserError


class Cumulate(UserWindow):
    """Window c·(size/step) + p is [start + c·size, start + c·size + (p + 1)·step), for p below size/step."""

    def __init__(self, step: int, size: int, start: int = 0) -> None:
        if step < 1 or size % step or not size:
            raise UserError(
                "the size of CUMULATE is a multiple of its step",
                remedy="Write for example INTERVAL 1 HOUR, INTERVAL 1 DAY.",
            )
        self.step, self.size, self.start, self.steps = step, size, start, size // step

    def wids(self, at: Ints, *columns: Any) -> tuple[Ints, Ints]:
        """A row is in the windows of its cycle that end after it."""
        del columns
        cycle, within = np.divmod(at - self.start, self.size)
        first = within // self.step
        copies = self.steps - first
        row = np.repeat(np.arange(len(at)), copies)
        step = np.arange(len(row)) - np.repeat(np.cumsum(copies) - copies, copies)
        return row, cycle[row] * self.steps + first[row] + step

    def bounds(self, windows: Ints) -> tuple[Ints, Ints]:
        """From the cycle's start to one step after it, two steps, …"""
        cycle, step = np.divmod(windows, self.steps)
        start = self.start + cycle * self.size
        return start, start + (step + 1) * self.step

    def holds(self, window: int, at: int, *values: Any) -> bool:
        """Start <= t < end."""
        del values
        cycle, step = divmod(window, self.steps)
        return 0 <= at - self.start - cycle * self.size < (step + 1) * self.step
