"""The calls of `lanes.c`: the order of a batch's rows in lanes, and the bit slices of its integers.

All arrays are made contiguous here and of the kind that the kernel reads; it checks nothing.
"""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from headrace.operators.base.group_codes import Ints
from headrace.operators.native.arrays import Arrays
from headrace.operators.native.library import library

_LANES = 64
_LONG = ctypes.c_int64
_POINTER = ctypes.c_void_p

Words = npt.NDArray[np.uint64]


class _Rows(ctypes.Structure):
    _fields_ = [
        *((name, _LONG) for name in ("count", "cells", "spare", "shift", "low")),
        ("codes", _POINTER),
        ("values", _POINTER),
    ]


def lay(codes: Ints, starts: Ints, values: Ints | None, spare: int) -> npt.NDArray[np.uint32]:
    """The row in each lane, 0 in empty ones: by cell, of which c has words starts[c]..starts[c+1], and within it by the
    `spare` leading bits of `values` less their minimum, or in input order.
    """
    loaded = library()
    assert loaded is not None
    held = Arrays()
    row = np.zeros(int(starts[-1]) * _LANES, np.uint32)
    low = shift = 0
    if values is None or not len(values):
        values, spare = None, 0
    else:
        low = int(values.min())
        shift = max(0, (int(values.max()) - low).bit_length() - spare)
    rows = _Rows(
        len(codes),
        len(starts) - 1,
        spare,
        shift,
        low,
        held.pointer(codes, np.int64),
        held.pointer(values, np.int64),
    )
    places = np.empty((len(starts) - 1) << spare, np.uint32)
    loaded.headrace_lay(
        ctypes.byref(rows), *(_address(held, array) for array in (starts.astype(np.int64), places, row))
    )
    return row


def numbers(values: Ints, row: np.ndarray, valid: Words, least: int) -> tuple[Words, Words, Ints, Ints]:
    """By lane the valid integers less `least`; by word the lowest of them, and how many bits the greatest has: of what
    exceeds the lowest, and as it is.
    """
    loaded = library()
    assert loaded is not None
    held, words = Arrays(), len(valid)
    result = (
        np.empty(words * _LANES, np.uint64),
        np.empty(words, np.uint64),
        np.empty(words, np.int64),
        np.empty(words, np.int64),
    )
    loaded.headrace_numbers(
        *(
            ctypes.c_void_p(held.pointer(array, kind))
            for array, kind in ((values, np.int64), (row, np.uint32), (valid, np.uint64))
        ),
        _LONG(words),
        _LONG(least),
        *(_address(held, array) for array in result),
    )
    return result


def slices(by_lane: Words, bases: Words | None, valid: Words, bits: int) -> Words:
    """The lowest bits of numbers less the base of their word, one bitmap a bit: (bits, words)."""
    loaded = library()
    assert loaded is not None
    held, result = Arrays(), np.empty((bits, len(valid)), np.uint64)
    loaded.headrace_slices(
        *(ctypes.c_void_p(held.pointer(array, np.uint64)) for array in (by_lane, bases, valid)),
        _LONG(len(valid)),
        _LONG(bits),
        _address(held, result),
    )
    return result


def picked(keys: np.ndarray, row: np.ndarray) -> np.ndarray:
    """The keys of the rows in lanes: numbers of 16 bits by the kernel, without a wide copy of `row`."""
    loaded = library()
    if loaded is None or keys.dtype != np.uint16:
        plain: np.ndarray = keys[row]
        return plain
    held, result = Arrays(), np.empty(len(row), np.uint16)
    loaded.headrace_pick(
        ctypes.c_void_p(held.pointer(keys, np.uint16)),
        ctypes.c_void_p(held.pointer(row, np.uint32)),
        _LONG(len(row)),
        _address(held, result),
    )
    return result


def _address(held: Arrays, array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(held.pointer(array, array.dtype.type))
