"""Beginnings of delta frames: partitions cut where a value is beyond the threshold from the frame's first value.

For every row the first later one beyond the threshold is found by descending through powers of two of running extremes, for
all rows at once; the beginnings of frames are then the rows visited from one to the next: one step per frame, not per row.
Source: delta frames (Grossniklaus, Maier, Miller, Moorthy, Tufte 2016), tumbling, against the first value.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.operators.base.group_codes import Ints

Doubles = npt.NDArray[np.float64]
_AT_ONCE: Final = 1 << 16


def beginnings(codes: Ints, values: Doubles, threshold: float) -> np.ndarray:
    """Which rows begin a frame after another one of their partition; rows are sorted by partition, then order.

    Rows without a value (NaN) begin none. A partition's first row is not marked.
    """
    begins = np.zeros(len(codes), bool)
    valued = np.flatnonzero(~np.isnan(values))
    carried = -1
    for low in range(0, len(valued), _AT_ONCE):
        rows = valued[low : low + _AT_ONCE]
        if carried >= 0 and codes[carried] == codes[rows[0]]:
            rows = np.r_[carried, rows]
        starts = _frame_starts(codes[rows], values[rows], threshold)
        fresh = starts[np.r_[False, codes[rows[starts[1:]]] == codes[rows[starts[:-1]]]]]
        begins[rows[fresh]] = True
        carried = int(rows[starts[-1]])
    return begins


def _frame_starts(codes: Ints, values: Doubles, threshold: float) -> Ints:
    """The index of every frame's first row, including partitions' first frames."""
    count = len(codes)
    after = np.minimum(_first_beyond(values, threshold), np.searchsorted(codes, codes, side="right")).tolist()
    starts, row = [], 0
    while row < count:
        starts.append(row)
        row = after[row]
    return np.array(starts, np.int64)


def _first_beyond(values: Doubles, threshold: float) -> Ints:
    """For each row the first later one whose value is beyond the threshold; the length if there is none."""
    count = len(values)
    most, least = [values], [values]
    while 2 << len(most) <= 2 * count:
        step = 1 << (len(most) - 1)
        most.append(np.maximum(most[-1][:-step], most[-1][step:]))
        least.append(np.minimum(least[-1][:-step], least[-1][step:]))
    high, low = values + threshold, values - threshold
    next_row = np.arange(1, count + 1)
    for level in range(len(most) - 1, -1, -1):
        width = 1 << level
        index = np.minimum(next_row, len(most[level]) - 1)
        within = (most[level][index] <= high) & (least[level][index] >= low) & (next_row + width <= count)
        next_row = np.where(within, next_row + width, next_row)
    return next_row
