"""Sums and extremes of a column for every query at once, from bitmaps: numbers as planes of bits.

An integer column less its minimum is cut into bit planes, one bitmap a bit; the sum over the rows of a query is the sum of
popcount(query AND plane) times its weight: exact, and without ever unpacking a bitmap. Doubles are the one case that
unpacks: a matrix product a cell. Minima and maxima are the first and last lane, since lanes are sorted by the value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.operators.grouping import Ints
from headrace.operators.query_index.columns import LANES, Words
from headrace.operators.query_index.preparing import words_of
from headrace.operators.shared_aggregation.lanes import Block

_AT_ONCE: Final = 10
"""Planes whose weighted counts of a word of 64 rows still fit 16 bits: 64 * (2^10 - 1) < 2^16."""
_HALF: Final = 32


def sums_of_words(counts: npt.NDArray[np.unsignedinteger], begins: Ints) -> Ints:
    """Add up numbers per word over the words of each cell: (queries, words) to (queries, cells)."""
    if len(begins) == 1:
        whole: Ints = counts.sum(axis=1, dtype=np.int64)
        return whole[:, None]
    found: Ints = np.add.reduceat(counts, begins, axis=1, dtype=np.int64)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Planes:
    """An integer column of a block: the sum over rows is low + 2^32 high + least * (number of valid rows)."""

    least: int
    groups: tuple[tuple[int, tuple[Words, ...]], ...]

    @staticmethod
    def of(values: Ints, valid: np.ndarray) -> Planes:
        """Planes of the valid lanes, by groups that fit 16 bits: the weight of the group's first plane, and its planes."""
        if not valid.any():
            return Planes(0, ())
        held = values[valid]
        least, largest = int(held.min()), int(held.max())
        with np.errstate(over="ignore"):
            above = np.where(valid, values - np.int64(least), 0).view(np.uint64)
        width = (largest - least).bit_length()
        groups = []
        for edge, stop in ((0, min(width, _HALF)), (_HALF, width)):
            for base in range(edge, stop, _AT_ONCE):
                bits = range(base, min(stop, base + _AT_ONCE))
                groups.append((base, tuple(words_of((above >> np.uint64(b)) & np.uint64(1)) for b in bits)))
        return Planes(least, tuple(groups))

    def sums(self, queries: Words, begins: Ints, valid: Ints) -> tuple[Ints, Ints]:
        """Sums per query and cell as (low, high), to be read low + 2^32 high; `valid` counts the rows that count."""
        low, high = valid * (self.least & 0xFFFFFFFF), valid * (self.least >> 32)
        held, counts = np.empty_like(queries), np.empty(queries.shape, np.uint8)
        for base, planes in self.groups:
            np.bitwise_count(np.bitwise_and(queries, planes[0], out=held), out=counts)
            total: npt.NDArray[np.unsignedinteger] = counts if len(planes) == 1 else counts.astype(np.uint16)
            for place, plane in enumerate(planes[1:], 1):
                np.bitwise_count(np.bitwise_and(queries, plane, out=held), out=counts)
                total += np.left_shift(counts, place, dtype=np.uint16)
            sums = sums_of_words(total, begins)
            if base < _HALF:
                low += sums << base
            else:
                high += sums << (base - _HALF)
        return low, high


def sums_of_doubles(queries: Words, values: npt.NDArray[np.float64], block: Block) -> npt.NDArray[np.float64]:
    """Sums per query and cell; `values` by lane, 0 where a lane does not count."""
    finite = np.isfinite(values)
    plain = values if finite.all() else np.where(finite, values, 0.0)
    found = np.empty((len(queries), len(block.begins)))
    ends = np.r_[block.begins[1:], block.high - block.low]
    for cell, (begin, end) in enumerate(zip(block.begins.tolist(), ends.tolist(), strict=True)):
        held = np.ascontiguousarray(queries[:, begin:end]).view(np.uint8)
        bits = np.unpackbits(held, axis=1, bitorder="little")
        found[:, cell] = bits.astype(np.float64) @ plain[begin * LANES : end * LANES]
    if plain is not values:
        _spoil(found, queries, values, block.begins)
    return found


def _spoil(found: npt.NDArray[np.float64], queries: Words, values: np.ndarray, begins: Ints) -> None:
    """Add the infinities and NaNs, which a product with 0 would have spread to queries that do not want them."""
    for special in (np.inf, -np.inf, np.nan):
        mask = np.isnan(values) if np.isnan(special) else values == special
        if mask.any():
            there = sums_of_words(np.bitwise_count(queries & words_of(mask)), begins) > 0
            with np.errstate(invalid="ignore"):
                found[there] += special


def first_lanes(queries: Words, begins: Ints) -> Ints:
    """The first lane of each query in each cell; far beyond all lanes where it has none."""
    lowest = np.bitwise_count((queries & (~queries + np.uint64(1))) - np.uint64(1)).astype(np.int64)
    lanes = np.where(queries == 0, np.int64(2**62), lowest + np.arange(queries.shape[1]) * LANES)
    found: Ints = np.minimum.reduceat(lanes, begins, axis=1)
    return found


def last_lanes(queries: Words, begins: Ints) -> Ints:
    """The last lane of each query in each cell; -1 where it has none."""
    alone = queries & ~(queries >> np.uint64(1))  # the top bit stays and the one below goes: no rounding up
    highest = np.frexp(alone.astype(np.float64))[1].astype(np.int64) - 1
    lanes = np.where(queries == 0, np.int64(-1), highest + np.arange(queries.shape[1]) * LANES)
    found: Ints = np.maximum.reduceat(lanes, begins, axis=1)
    return found
