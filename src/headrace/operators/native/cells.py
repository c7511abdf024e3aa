"""The call of `cells.c`: cells of queries that are added to others, without the copies that numpy makes to select them."""

from __future__ import annotations

import ctypes

import numpy as np

from headrace.operators.base.group_codes import Ints
from headrace.operators.native.arrays import Arrays
from headrace.operators.native.library import library

_LONG = ctypes.c_int64


def add_rows(into: Ints, rows: Ints, first: int, numbers: Ints) -> None:
    """Add row i of `numbers` to row `rows[i]` of `into`, from column `first` on; no two of `rows` are equal.

    `into` is contiguous. Sums wrap around.
    """
    count, columns = numbers.shape
    loaded = library()
    if loaded is None or not (into.flags.c_contiguous and into.dtype == np.int64):
        into[rows, first : first + columns] += numbers
        return
    held = Arrays()
    whole = into.ctypes.data + first * into.itemsize
    places, added = (held.pointer(array, np.int64) for array in (rows, numbers))
    loaded.headrace_add_rows(
        ctypes.c_void_p(whole),
        _LONG(into.shape[1]),
        ctypes.c_void_p(places),
        _LONG(count),
        ctypes.c_void_p(added),
        _LONG(columns),
    )
