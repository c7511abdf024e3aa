"""Dense rank of each row in its group by (time, position), from 1: rows with equal positions share a rank, and no rank
is left out.
"""

from __future__ import annotations

import numpy as np

from headrace.operators.base.group_codes import Ints


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
