"""Distances in event time between rows of one stream by key: of a row from the first one with its value, and from the first one with a larger value.

The largest is the bound with which the stream is clustered, or ordered, by the key. `NONE` is the distance of a row without such another.
Source: Babu (2005), sections 6.2, 6.7 and 6.8, with event time in place of arrival counters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
NONE: Final = -(1 << 62)
"""No distance: below all others."""


def from_first(values: Ints, at: Ints, before: Sequence[tuple[Ints, Ints]]) -> Ints:
    """For each row how far another one of its value is before it, or if it came out of order after it; `NONE` if it is the only one.

    Rows, and those of each part of `before`, are in order of (value, time). Rows that came together are compared with the first alone.

    >>> from_first(np.array([1, 1, 2, 3]), np.array([5, 7, 5, 5]), [(np.array([2, 2]), np.array([1, 9]))])[[1, 2]].tolist()
    [2, 4]
    """
    begins = np.append(True, values[1:] != values[:-1])[: len(values)]
    first = at[np.flatnonzero(begins)][np.cumsum(begins) - 1]
    distance = np.where(begins, NONE, at - first)
    for known, times in before:
        if not len(known):
            continue
        low, high = np.searchsorted(known, values), np.searchsorted(known, values, "right")
        oldest, newest = times[np.minimum(low, len(known) - 1)], times[np.maximum(high - 1, 0)]
        apart = np.maximum(at - oldest, newest - at)
        distance = np.where(low < high, np.maximum(distance, apart), distance)
    return distance


def from_larger(values: Ints, at: Ints, seen: tuple[Ints, Ints]) -> Ints:
    """For each row how far the first row `seen` (values, times) with a larger value is before it; `NONE` if none is before it.

    >>> from_larger(np.array([5, 8, 9]), np.array([7, 7, 7]), (np.array([6, 9, 7]), np.array([4, 2, 8]))).tolist()[:2]
    [5, 5]
    """
    order = np.argsort(seen[0], kind="stable")
    earliest = np.minimum.accumulate(seen[1][order][::-1])[::-1]  # of a row with this value or a larger one
    larger = np.searchsorted(seen[0][order], values, "right")
    since = np.append(earliest, np.iinfo(np.int64).max)[larger]
    return np.where(since < at, at - np.minimum(since, at), NONE)
