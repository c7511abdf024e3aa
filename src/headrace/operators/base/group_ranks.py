"""Orders of rows by integers: the stable order by several columns, and the dense rank of each row in its group by
(time, position), from 1, where rows with equal positions share a rank and no rank is left out.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from headrace.operators.base.group_codes import Ints

_ROOM: Final = 63


def dense_ranks(codes: Ints, at: Ints, position: Ints) -> Ints:
    """The rank of each row among its code's, from 1, by (time, position); equal positions share a rank."""
    order = np.lexsort((position, at, codes))
    code, positions = codes[order], position[order]
    advances = np.r_[True, code[1:] != code[:-1]] if len(order) else np.zeros(0, bool)
    steps = advances | np.r_[True, positions[1:] != positions[:-1]] if len(order) else advances
    number = np.cumsum(steps)
    starts = np.flatnonzero(advances)
    number -= np.repeat(number[starts] - 1, np.diff(np.r_[starts, len(order)]))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = number
    return ranks


def stable_order(*columns: Ints) -> Ints:
    """The order of rows by the first column, then the next ones; equal rows stay as they are.

    Where a row's values and its number have room in one integer, that is sorted, which takes a fifth of the time.
    """
    rows = len(columns[0])
    packed, used = np.zeros(rows, np.int64), rows.bit_length()
    numbers = (1 << used) - 1
    for column in reversed(columns if rows else ()):
        least = int(column.min())
        bits = (int(column.max()) - least).bit_length()
        if used + bits > _ROOM:
            order: Ints = np.lexsort(columns[::-1])
            return order
        packed |= (column - least) << used
        used += bits
    packed |= np.arange(rows)
    packed.sort()
    return packed & numbers
