"""The calls of `histograms.c`: how many rows each rank of an attribute and cell has, and the sums of their integers.

All arrays are made contiguous here and of the kind that the kernel reads; it checks nothing.
"""

from __future__ import annotations

import ctypes

import numpy as np

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints
from headrace.operators.native.arrays import Arrays
from headrace.operators.native.library import library

_LONG = ctypes.c_int64
_POINTER = ctypes.c_void_p
_HALF = 32
"""Bits."""


class _Ranked(ctypes.Structure):
    _fields_ = [
        *((name, _LONG) for name in ("count", "cells")),
        *((name, _POINTER) for name in ("keys", "table", "ranks", "codes", "valid")),
    ]


@dataclass(frozen=True, slots=True, eq=False)
class RankedRows:
    """Rows by rank, below `ranks`, and cell, below `cells`: `codes` are cells; a rank is `table[keys[row]]`, or without a
    table `keys[row]`. Those that are not `valid` are left out; None: all are.
    """

    keys: np.ndarray
    table: np.ndarray | None
    codes: Ints
    ranks: int
    cells: int
    valid: np.ndarray | None

    def counts(self) -> Ints:
        """The rows of each (rank, cell)."""
        counts = np.zeros((self.ranks, self.cells), np.int64)
        held = Arrays()
        _library().headrace_count(ctypes.byref(self._structure(held)), _address(held, counts))
        return counts

    def sums(self, numbers: Ints) -> Ints:
        """The sum of the rows of each (rank, cell), which wraps around."""
        return self._sums(numbers, None)

    def halves(self, numbers: Ints) -> tuple[Ints, Ints]:
        """The sums of the lower 32 bits of each number, and of the others."""
        high = np.zeros((self.ranks, self.cells), np.int64)
        are_low = not len(numbers) or (int(numbers.min()) >= 0 and int(numbers.max()) >> _HALF == 0)
        return self._sums(numbers, None if are_low else high), high

    def _sums(self, numbers: Ints, high: Ints | None) -> Ints:
        low = np.zeros((self.ranks, self.cells), np.int64)
        held = Arrays()
        _library().headrace_sum(
            ctypes.byref(self._structure(held)),
            ctypes.c_void_p(held.pointer(numbers, np.int64)),
            _address(held, low),
            None if high is None else _address(held, high),
        )
        return low

    def _structure(self, held: Arrays) -> _Ranked:
        plain = self.table is None
        return _Ranked(
            len(self.codes),
            self.cells,
            None if plain else held.pointer(self.keys, np.uint16),
            held.pointer(self.table, np.uint32),
            held.pointer(self.keys, np.uint32) if plain else None,
            held.pointer(self.codes, np.int64),
            held.pointer(self.valid, np.uint8),
        )


def _library() -> ctypes.CDLL:
    loaded = library()
    assert loaded is not None
    return loaded


def _address(held: Arrays, array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(held.pointer(array, array.dtype.type))
