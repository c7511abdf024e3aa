"""Record of the closed panes of an epoch, from which its windows are made: those that a later window may hold, expired
ones, and their blocks (merged intervals of panes), which are built on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

import pyarrow as pa

from headrace.dataclass import dataclass


@dataclass(slots=True)
class ClosedPanes:
    """Closed panes that a later window may hold, with their blocks, and `expired` ones, which only windows of this step
    hold.

    An expired pane may be in several tables. `ended` merges them and builds the blocks that ended among panes that no
    later window holds, also of panes closed before if none is expired.
    """

    lasting: Sequence[pa.Table]
    expired: Sequence[pa.Table] = ()
    ended: Callable[[], Sequence[pa.Table]] = tuple
    _blocks: list[pa.Table] | None = field(default=None, init=False)

    @property
    def panes(self) -> list[pa.Table]:
        """Every pane, some perhaps in several tables, and some blocks."""
        return [*self.lasting, *self.expired]

    @property
    def blocks(self) -> list[pa.Table]:
        """Every pane in one table, and every block of panes; built on first use."""
        if self._blocks is None:
            self._blocks = [*self.lasting, *self.ended()]
        return self._blocks
