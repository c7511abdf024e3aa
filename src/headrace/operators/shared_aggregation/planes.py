"""Sums and extremes of a column for every query at once, from bitmaps: numbers as planes of bits.

The least value of each word of 64 rows is taken out, and counted as often as a query wants a row of the word. What is
left of an integer column is cut into bit planes, one bitmap a bit; its sum over the rows of a query is the sum of
popcount(query AND plane) times its weight: exact, and without ever unpacking a bitmap. Where lanes are sorted by the column
a word spans few values, so few planes are left. Doubles are the one case that unpacks: a matrix product a cell. Minima and
maxima are the first and last lane, where lanes are sorted by the value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.operators.grouping import Ints
from headrace.operators.query_index.columns import LANES, Words
from headrace.operators.query_index.preparing import words_of
from headrace.operators.shared_aggregation.lanes import Block

_AT_ONCE: Final = 10
"""Planes whose weighted counts of a word of 64 rows still fit 16 bits: 64 * (2^10 - 1) < 2^16."""
_HALF: Final = 32
_DIGIT: Final = 12
"""Bits of a word's least value that are weighed at once: 64 * (2^12 - 1) < 2^18, see `Block.sums`."""
_WORTH_IT: Final = 2
"""Planes that must be saved for words to have least values of their own."""

Floats: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Planes:
    """An integer column of a block: the sum over rows is low + 2^32 high + least * (number of valid rows).

    `bases` are the digits of the words' least values above `least`, each with its weight, by word and cell as
    `Block.belongs`; `groups` the planes of what is left, some at a time, with the weight of the first.
    """

    least: int
    bases: tuple[tuple[int, Floats], ...]
    groups: tuple[tuple[int, tuple[Words, ...]], ...]

    @staticmethod
    def of(values: Ints, valid: np.ndarray, block: Block) -> Planes:
        """The bases and planes of the valid lanes."""
        if not valid.any():
            return Planes(0, (), ())
        held = values[valid]
        least, largest = int(held.min()), int(held.max())
        with np.errstate(over="ignore"):
            above = (values - np.int64(least)).view(np.uint64)
        bases, rest = _bases(above, valid, (largest - least).bit_length(), block)
        width = int(rest.max()).bit_length()
        groups = []
        for edge, stop in ((0, min(width, _HALF)), (_HALF, width)):
            for base in range(edge, stop, _AT_ONCE):
                bits = range(base, min(stop, base + _AT_ONCE))
                groups.append((base, tuple(words_of((rest >> np.uint64(b)) & np.uint64(1)) for b in bits)))
        return Planes(least, bases, tuple(groups))

    def sums(self, queries: Words, block: Block, counts: Floats, valid: Ints) -> tuple[Ints, Ints]:
        """Sums per query and cell as (low, high), to be read low + 2^32 high.

        `counts` and `valid` are the rows that count, by word and by cell.
        """
        low, high = valid * (self.least & 0xFFFFFFFF), valid * (self.least >> 32)
        for weight, digits in self.bases:
            _add(low, high, (counts @ digits).astype(np.int64), weight)
        held, ones = np.empty_like(queries), np.empty(queries.shape, np.uint8)
        for base, planes in self.groups:
            np.bitwise_count(np.bitwise_and(queries, planes[0], out=held), out=ones)
            total: npt.NDArray[np.unsignedinteger] = ones if len(planes) == 1 else ones.astype(np.uint16)
            for place, plane in enumerate(planes[1:], 1):
                np.bitwise_count(np.bitwise_and(queries, plane, out=held), out=ones)
                total += np.left_shift(ones, place, dtype=np.uint16)
            _add(low, high, block.sums(total.astype(np.float32)), base)
        return low, high


def _bases(
    above: npt.NDArray[np.uint64], valid: np.ndarray, width: int, block: Block
) -> tuple[tuple[tuple[int, Floats], ...], npt.NDArray[np.uint64]]:
    """The least values of words as weighed digits, and what is left of each valid lane; none where they save too little."""
    by_word = np.where(valid, above, np.iinfo(np.uint64).max).reshape(-1, LANES)
    least = np.where(valid.reshape(-1, LANES).any(axis=1), by_word.min(axis=1), np.uint64(0))
    rest = np.where(valid, above - np.repeat(least, LANES), np.uint64(0))
    if width - int(rest.max()).bit_length() < _WORTH_IT:
        return (), np.where(valid, above, np.uint64(0))
    mask = np.uint64((1 << _DIGIT) - 1)
    bases = []
    for weight in range(0, int(least.max()).bit_length(), _DIGIT):
        digit = ((least >> np.uint64(weight)) & mask).astype(np.float32)
        bases.append((weight, digit[:, None] * block.belongs))
    return tuple(bases), rest


def _add(low: Ints, high: Ints, sums: Ints, weight: int) -> None:
    """Add sums times 2^weight."""
    if weight < _HALF:
        low += sums << weight
    else:
        high += sums << (weight - _HALF)


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
        _spoil(found, queries, values, block)
    return found


def _spoil(found: npt.NDArray[np.float64], queries: Words, values: np.ndarray, block: Block) -> None:
    """Add the infinities and NaNs, which a product with 0 would have spread to queries that do not want them."""
    for special in (np.inf, -np.inf, np.nan):
        mask = np.isnan(values) if np.isnan(special) else values == special
        if mask.any():
            there = block.sums(np.bitwise_count(queries & words_of(mask)).astype(np.float32)) > 0
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
