"""Emission limits: the cap on what an operator emits in one step, and the instant up to which it may advance within the
cap, computed from the windows that have rows.

The number of non-empty windows is known before they are made: from the panes that have rows, or by arithmetic if
windows without rows are emitted too. An operator with more to emit advances a part of the way, and the rest in later
epochs. The emitted windows and their contents are the same; only the epoch differs.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints
from headrace.operators.base.operator import Advance
from headrace.operators.panes.panes import Panes
from headrace.time import BEGINNING, Instant

MOST_ROWS: Final = 1 << 20
FEWEST_WINDOWS: Final = 4096
HIGHEST_WINDOW: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class EmissionCap:
    """The most that a step may emit: about `rows` result rows, but never fewer than `windows` non-empty windows."""

    rows: int = MOST_ROWS
    windows: int = FEWEST_WINDOWS


def span(panes: Panes, advance: Advance, cap: EmissionCap) -> tuple[int, int] | None:
    """The last window emitted before and the last one below punctuation; None if they are few, or none is due."""
    if advance.punctuation == BEGINNING:
        return None
    due = panes.last_closed(advance.punctuation)
    if advance.emission_start == BEGINNING:
        return -HIGHEST_WINDOW, due
    emitted = panes.last_closed(advance.emission_start)
    return (emitted, due) if due - emitted > cap.windows else None


def emission_limit_over(
    panes: Panes, first: Ints, last: Ints, groups: int, most: int, cap: EmissionCap
) -> Instant | None:
    """Where to stop among windows of which item i fills first[i]..last[i], items ascending; None: no limit.

    `groups` is the number of rows that one window may have, `most` a bound of all rows.
    """
    starts = np.maximum(first, np.r_[first[:1], np.maximum.accumulate(last)[:-1] + 1])
    filled = np.cumsum(np.maximum(last - starts + 1, 0))
    if not len(filled) or filled[-1] <= cap.windows or min(int(filled[-1]) * groups, most) <= cap.rows:
        return None
    allowed = max(cap.windows, cap.rows // max(1, groups))
    if filled[-1] <= allowed:
        return None
    item = int(np.searchsorted(filled, allowed))
    window = int(last[item]) - (int(filled[item]) - allowed)
    return panes.anchor + window * panes.slide
