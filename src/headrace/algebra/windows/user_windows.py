"""The base classes, and so the contract, of user-defined windows: the Python class of `[WINDOW name(args)]`.

A kind of window is three functions, as in the window papers: the windows of a row, the bounds of a window, and whether a window
holds a row. None may depend on other rows (such windows are *context free*, so one can be emitted when punctuation has passed its
end).
`headrace.check_window` tests them against each other. Source: Li 2008, ch. 5 (windows, extent, wids).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class UserWindow(ABC):
    """A kind of window. An instance is made of the constants in `[WINDOW name(constants)]`, once per process.

    Times are microseconds since 1970 UTC. Windows have integers as numbers, in any order; a row may be in none, in one or in
    many, and a window's rows need not be adjacent. `columns` are the expressions after ON, as Arrow arrays. The same
    arguments must always give the same result, in every process: no clock, no random numbers, no state between calls.
    """

    @abstractmethod
    def wids(self, at: Ints, *columns: Any) -> tuple[Ints, Ints]:
        """Two arrays of equal length, the distinct (row, window) pairs: `row` is an index into `at`."""

    @abstractmethod
    def bounds(self, windows: Ints) -> tuple[Ints, Ints]:
        """Start and end of each window: start <= t < end for all of its rows. Punctuation at its end emits it."""

    @abstractmethod
    def holds(self, window: int, at: int, *values: Any) -> bool:
        """The extent: whether a row of this time (and these values after ON) is in the window. Used for checks only."""


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
        offset = np.arange(len(row)) - np.repeat(np.cumsum(copies) - copies, copies)
        return row, first[row] + offset

    def bounds(self, windows: Ints) -> tuple[Ints, Ints]:
        """The bounds by the two linear functions."""
        (a, b), (c, d) = self.starts, self.ends
        return a * windows + b, c * windows + d

    def holds(self, window: int, at: int, *values: Any) -> bool:
        """Start <= t < end."""
        del values
        (a, b), (c, d) = self.starts, self.ends
        return a * window + b <= at < c * window + d


__all__ = ["Ints", "LinearWindow", "UserWindow"]
