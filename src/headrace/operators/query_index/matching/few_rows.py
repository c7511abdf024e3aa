"""Matching of few rows: each is compared with each box, without tables or orders of the batch.

A batch of a push has tens of rows. To build the bitmaps of its ranks, or to sort it, costs more than all comparisons of such a
batch with a hundred boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.operators.base.group_codes import Ints
from headrace.operators.query_index.boxes.box_index import Part

MOST: Final = 1 << 14
"""Comparisons of a row and a box; of more, bitmaps cost less."""


def are_few(part: Part, rows: int) -> bool:
    """Whether all rows of a batch are compared with all boxes of a part, each of which accepts one range of every attribute."""
    return rows * part.boxes <= MOST and all(ranges.are_all for ranges in part.ranges)


def compared(part: Part, at: Sequence[Ints], rows: int) -> npt.NDArray[np.bool_]:
    """Which rows each query selects, of shape (queries, rows); `at[i]` are the rows' ranks among the cuts of attribute i."""
    held = np.ones((part.boxes, rows), bool)
    for ranges, ranks in zip(part.ranges, at, strict=True):
        held &= ranks < ranges.high[:, np.newaxis]
        if ranges.start_anywhere:
            held &= ranks >= ranges.low[:, np.newaxis]
    if part.boxes == part.queries:
        return held
    of_query: npt.NDArray[np.bool_] = np.logical_or.reduceat(held, part.starts[:-1], axis=0)
    return of_query
