"""A (row, window) pair for every window that each row is in, a bounded number of pairs at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from headrace.operators.base.group_codes import Ints

_MOST_COPIES: Final = 1_000_000


def repeated(low: Ints, high: Ints) -> Iterator[tuple[Ints, Ints]]:
    """(row, window) for every window in low..high of each row: whole windows, a bounded number of pairs at a time."""
    if not len(low):
        return
    first, last = int(low.min()), int(high.max())
    total = int((high - low + 1).sum())
    if total > _MOST_COPIES and last > first:
        middle = (first + last) // 2
        early, late = low <= middle, high > middle
        for part, least, greatest in (
            (early, low, np.minimum(high, middle)),
            (late, np.maximum(low, middle + 1), high),
        ):
            numbers = np.flatnonzero(part)
            for row, window in repeated(least[part], greatest[part]):
                yield numbers[row], window
        return
    copies = high - low + 1
    row = np.repeat(np.arange(len(low)), copies)
    yield row, np.arange(len(row)) - np.repeat(np.cumsum(copies) - copies, copies) + np.repeat(low, copies)
