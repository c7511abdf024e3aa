"""Panes that punctuation has passed, as windows are made from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa


@dataclass(slots=True)
class ClosedPanes:
    """Closed panes that some window to come may hold, with their blocks, and `spent` ones, which are needed now or never.

    A spent pane may lie in parts, in several tables. `ended` merges them and builds the blocks that ended among panes no window
    to come holds: also such as are of panes closed before, when nothing is spent.
    """

    lasting: Sequence[pa.Table]
    expired: Sequence[pa.Table] = ()
    ended: Callable[[], Sequence[pa.Table]] = tuple
    _blocks: list[pa.Table] | None = field(default=None, init=False)

    @property
    def panes(self) -> list[pa.Table]:
        """Every pane, some perhaps in parts, and some blocks."""
        return [*self.lasting, *self.expired]

    @property
    def blocks(self) -> list[pa.Table]:
        """Every pane as one, and every block of panes; made when first asked for."""
        if self._blocks is None:
            self._blocks = [*self.lasting, *self.ended()]
        return self._blocks
