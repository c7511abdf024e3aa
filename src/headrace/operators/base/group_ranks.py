"""Orders of rows by integers: the stable order by several columns, and the dense rank of each row in its group by
(time, position), from 1, where rows with equal positions share a rank and no rank is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.dataclass import dataclass
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


@dataclass(frozen=True, slots=True, eq=False)
class StableOrder:
    """Rows by index in an order, the columns in that order, and which rows differ from the one before in some column."""

    rows: Ints
    columns: tuple[Ints, ...]
    begins: npt.NDArray[np.bool_]


def stable_order(*columns: Ints) -> StableOrder:
    """The order of rows by the first column, then the next ones; equal rows stay as they are.

    Where a row's values and its number have room in one integer, that is sorted, which takes a fifth of the time; the values in order are bits of the sorted integers.
    """
    rows = len(columns[0])
    packed, used = np.zeros(rows, np.int64), rows.bit_length()
    numbers = (1 << used) - 1
    parts = list[tuple[int, int]]()
    for column in reversed(columns if rows else ()):
        least = int(column.min())
        bits = (int(column.max()) - least).bit_length()
        if used + bits > _ROOM:
            return _by_columns(columns)
        packed |= (column - least) << used
        used += bits
        parts.append((least, bits))
    packed |= np.arange(rows)
    packed.sort()
    order = packed & numbers
    packed >>= rows.bit_length()
    begins = _differs(packed)
    ordered = list[Ints]()
    for least, bits in parts:
        ordered.append((packed & ((1 << bits) - 1)) + least)
        packed >>= bits
    return StableOrder(order, tuple(reversed(ordered)) if rows else columns, begins)


def _by_columns(columns: Sequence[Ints]) -> StableOrder:
    """The same for values of any width."""
    order: Ints = np.lexsort(columns[::-1])
    ordered = tuple(column[order] for column in columns)
    return StableOrder(order, ordered, np.logical_or.reduce([_differs(column) for column in ordered]))


def _differs(values: Ints) -> npt.NDArray[np.bool_]:
    """Which values are not equal to the one before."""
    differs = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=differs[1:])
    return differs
