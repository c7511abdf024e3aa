"""The minimum of a key's last w rows, and the minima of their panes, each a fifth of the window.

Source: Gehrke, Korn, Srivastava (2001), section 4: the minimum of a window, and the maximum of the minima of its panes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.baselines.rows.rows_by_key import Doubles, RowsByKey, running
from headrace.synopses.arrays import Ints

_PANES: Final = 5


@dataclass(slots=True)
class PaneMinima:
    """Per key the minimum of each closed pane of the window, pane q at `closed[key, q % panes]`, and of the open one."""

    pane: int
    """Rows in a pane."""
    closed: Doubles
    open: Doubles
    seen: Ints

    @staticmethod
    def empty(keys: int, window: int) -> PaneMinima:
        """No rows."""
        pane = max(window // _PANES, 1)
        closed, opened = np.full((keys, window // pane), np.inf), np.full(keys, np.inf)
        return PaneMinima(pane, closed, opened, np.zeros(keys, np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.closed.nbytes + self.open.nbytes + self.seen.nbytes

    def least(self) -> Doubles:
        """Per key the minimum of the window, of up to a pane more of rows; infinite without rows."""
        minima: Doubles = np.minimum(self.open, self.closed.min(axis=1))
        return minima

    def passed(self, rows: RowsByKey, x: Doubles, came: Ints, *, with_open: bool) -> tuple[Doubles, Doubles]:
        """Add a batch; returns after each row the minimum, and the maximum of the closed panes' minima.

        Without a closed pane that is the minimum itself. `came` is the number of each row within its key.
        """
        keys, last = rows.present, rows.offsets[1:] - 1
        lowest, ends = self._along(rows, x, came), came % self.pane == 0
        opened = np.where(ends, np.inf, lowest)
        least, greatest = opened.copy(), np.where(with_open & np.isfinite(opened), opened, -np.inf)
        owners, begins = rows.owners(), np.repeat(rows.offsets[:-1], rows.sizes)
        before, many = self.seen[owners], self.closed.shape[1]
        for back in range(1, many + 1):
            number = came // self.pane - back
            last_row = (
                begins + (number + 1) * self.pane - before - 1
            )  # the end of that pane, if in this batch
            here = lowest[np.maximum(last_row, 0)]
            value = np.where(last_row >= begins, here, self.closed[owners, number % many])
            least = np.where(number >= 0, np.minimum(least, value), least)
            greatest = np.where(number >= 0, np.maximum(greatest, value), greatest)
        closing = np.flatnonzero(ends)
        self.closed[owners[closing], (came[closing] // self.pane - 1) % many] = lowest[closing]
        self.open[keys], self.seen[keys] = opened[last], came[last]
        return least, np.where(np.isfinite(greatest), greatest, least)

    def _along(self, rows: RowsByKey, x: Doubles, came: Ints) -> Doubles:
        """The minimum so far of the pane of each row."""
        if not len(x):
            return x
        first = np.zeros(len(x), bool)
        first[rows.offsets[:-1]] = True
        starts = np.flatnonzero(first | ((came - 1) % self.pane == 0))
        seeds = np.where(first[starts], self.open[rows.owners()[starts]], np.inf)
        return running(np.minimum, x, np.r_[starts, len(x)], seeds)
