"""Where do delta windows begin? The rows of many partitions cut into frames by how far a value is from a frame's first.

For every row the first later one that leaves it is found by descending through powers of two of running extremes, all rows
at once; a frame's beginnings are then the rows met on the way from one to the next: one step a frame, not a row.
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
    data_punctuation = np.zeros(len(codes), bool)
    valued = np.flatnonzero(~np.isnan(values))
    carried = -1
    for low in range(0, len(valued), _AT_ONCE):
        rows = valued[low : low + _AT_ONCE]
        if carried >= 0 and codes[carried] == codes[rows[0]]:
            rows = np.r_[carried, rows]
        heads = _frame_starts(codes[rows], values[rows], threshold)
        fresh = heads[np.r_[False, codes[rows[heads[1:]]] == codes[rows[heads[:-1]]]]]
        data_punctuation[rows[fresh]] = True
        carried = int(rows[heads[-1]])
    return data_punctuation


def _frame_starts(codes: Ints, values: Doubles, threshold: float) -> Ints:
    """The places of every frame's first row, those of partitions' first frames too."""
    count = len(codes)
    after = np.minimum(_left(values, threshold), np.searchsorted(codes, codes, side="right")).tolist()
    found, place = [], 0
    while place < count:
        found.append(place)
        place = after[place]
    return np.array(found, np.int64)


def _left(values: Doubles, threshold: float) -> Ints:
    """For each place the first later one whose value is beyond the threshold; the length when there is none."""
    count = len(values)
    most, least = [values], [values]
    while 2 << len(most) <= 2 * count:
        step = 1 << (len(most) - 1)
        most.append(np.maximum(most[-1][:-step], most[-1][step:]))
        least.append(np.minimum(least[-1][:-step], least[-1][step:]))
    high, low = values + threshold, values - threshold
    place = np.arange(1, count + 1)
    for level in range(len(most) - 1, -1, -1):
        width = 1 << level
        reach = np.minimum(place, len(most[level]) - 1)
        within = (most[level][reach] <= high) & (least[level][reach] >= low) & (place + width <= count)
        place = np.where(within, place + width, place)
    return place
