"""What must a Python class say so that `[WINDOW name(args)]` can use it? The contract of user-defined windows.

A kind of window is three functions, as in the window papers, and all are functions of a row alone: which windows there are
must not depend on what other rows come (such windows are *context free*, so a window can be told once punctuation has passed
its end). `headrace.check_window` tries them against each other. Source: Li 2008, ch. 5 (windows, extent, wids).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class UserWindow(ABC):
    """A kind of window. Instances are made of the constants in `[WINDOW name(constants)]`, once a process.

    Times are microseconds since 1970 UTC. Windows are numbered by integers, in any way; a row may be in none, in one or in
    many, and a window's rows need not follow each other. `columns` are what stands after ON, as Arrow arrays. The same
    arguments must always give the same answer, in every process: no clock, no chance, nothing kept between calls.
    """

    @abstractmethod
    def wids(self, at: Ints, *columns: Any) -> tuple[Ints, Ints]:
        """Two arrays of one length, the (row, window) pairs: `row` counts from 0 in `at`, each pair comes once."""

    @abstractmethod
    def bounds(self, windows: Ints) -> tuple[Ints, Ints]:
        """Start and end of each window: start <= t < end for all of its rows. It is told when time has passed its end."""

    @abstractmethod
    def holds(self, window: int, at: int, *values: Any) -> bool:
        """The extent: is a row of this time (and these values after ON) in the window? Used for checks, not for speed."""


class LinearWindow(UserWindow):
    """Windows whose bounds are linear in their number: window n is [a*n + b, c*n + d), `starts = (a, b)`, `ends = (c, d)`.

    With a, c > 0 the windows of a row follow from the bounds alone: start <= t < end solved for n.
    """

    starts: tuple[int, int]
    ends: tuple[int, int]

    def wids(self, at: Ints, *columns: Any) -> tuple[Ints, Ints]:
        """The windows with (t - d) / c < n <= (t - b) / a."""
        del columns
        (a, b), (c, d) = self.starts, self.ends
        first, last = (at - d) // c + 1, (at - b) // a
        copies = np.maximum(last - first + 1, 0)
        row = np.repeat(np.arange(len(at)), copies)
        place = np.arange(len(row)) - np.repeat(np.cumsum(copies) - copies, copies)
        return row, first[row] + place

    def bounds(self, windows: Ints) -> tuple[Ints, Ints]:
        """The lines."""
        (a, b), (c, d) = self.starts, self.ends
        return a * windows + b, c * windows + d

    def holds(self, window: int, at: int, *values: Any) -> bool:
        """Start <= t < end."""
        del values
        (a, b), (c, d) = self.starts, self.ends
        return a * window + b <= at < c * window + d


__all__ = ["Ints", "LinearWindow", "UserWindow"]
