"""Sums of a column for every query at once, from bitmaps of the rows that they select: of integers by bit slices, of
doubles by matrix products; and the first and last row of each query, for extremes.

The least value of each word of 64 rows is subtracted, and counted as often as a query selects a row of the word. The
rest of an integer column is cut into bit slices, one bitmap per bit; its sum over the rows of a query is the sum of
popcount(query AND slice) times its weight: exact, and without ever unpacking a bitmap. If lanes are sorted by the
column a word spans few values, so few slices are left. Only doubles are unpacked: a matrix product per cell. Minima and
maxima are the first and last lane, if lanes are sorted by the value.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints
from headrace.operators.native import lanes as kernel
from headrace.operators.query_index.boxes.by_column import LANES, Words
from headrace.operators.query_index.matching.prepare import words_of
from headrace.operators.shared_aggregation.lanes import Block

_AT_ONCE: Final = 10
"""Slices whose weighted counts of a word of 64 rows fit 16 bits: 64 * (2^10 - 1) < 2^16."""
_HALF: Final = 32
_DIGIT: Final = 12
"""Bits of a word's least value that are weighted at once: 64 * (2^12 - 1) < 2^18, see `Block.sums`."""
_WORTH_IT: Final = 2
"""Slices that bases must save on average."""

Floats: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Short:
    """Integers less their minimum, in as few bytes as these take: less memory for random access."""

    numbers: np.ndarray
    least: int

    @staticmethod
    def of(values: Ints) -> Short:
        """The integers of an array, in its order."""
        if not len(values):
            return Short(np.empty(0, np.uint8), 0)
        least = int(values.min())
        kind = np.min_scalar_type(int(values.max()) - least)
        with np.errstate(over="ignore"):
            return Short((values - np.int64(least)).view(np.uint64).astype(kind), least)

    def taken(self, rows: np.ndarray) -> Short:
        """Those of some rows."""
        return Short(self.numbers[rows], self.least)


@dataclass(frozen=True, slots=True, eq=False)
class BitSlices:
    """An integer column in the order of lanes. A number is `least` plus the base of its word plus its bits in `slices`.

    `bases` are None if words have none; `widths` is how many slices the lanes of each word need.
    """

    least: int
    bases: Words | None
    widths: Ints
    slices: Words

    @staticmethod
    def compiled(values: Ints, row: np.ndarray, valid: Words) -> BitSlices:
        """What `of` gives, by the kernel: of the integers of a batch, the row in each lane and the valid lanes."""
        least = int(values.min()) if len(values) else 0
        by_lane, lowest, above, plain = kernel.numbers(values, row, valid, least)
        bases: Words | None = lowest
        if float((plain - above).mean() if len(plain) else 0) < _WORTH_IT:
            bases, above = None, plain
        return BitSlices(least, bases, above, kernel.slices(by_lane, bases, valid, int(above.max(initial=0))))

    @staticmethod
    def of(column: Short, valid: np.ndarray) -> BitSlices:
        """The bases and slices of the valid lanes; lanes that are not valid hold 0 in every slice."""
        by_word, there = column.numbers.reshape(-1, LANES), valid.reshape(-1, LANES)
        none = by_word.dtype.type(0)
        lowest = np.where(there, by_word, np.iinfo(by_word.dtype).max).min(
            axis=1, initial=np.iinfo(by_word.dtype).max
        )
        lowest[~there.any(axis=1)] = 0
        rest = np.where(there, by_word - lowest[:, None], none)
        widths = _widths(rest)
        plain = np.where(there, by_word, none)
        bases: Words | None = lowest.astype(np.uint64)
        if float((_widths(plain) - widths).mean()) < _WORTH_IT:
            bases, rest, widths = None, plain, _widths(plain)
        bits = range(int(widths.max(initial=0)))
        unit, flat = by_word.dtype.type(1), rest.reshape(-1)
        return BitSlices(
            column.least,
            bases,
            widths,
            _stacked([words_of((flat >> by_word.dtype.type(bit)) & unit) for bit in bits], len(widths)),
        )

    def of_block(self, block: Block) -> BlockBitSlices:
        """The parts that a block needs."""
        here = slice(block.low, block.high)
        width = min(int(self.widths[here].max()), len(self.slices))
        starts = [*range(0, min(width, _HALF), _AT_ONCE), *range(_HALF, width, _AT_ONCE)]
        groups = [
            (start, tuple(bit_slice[here] for bit_slice in self.slices[start:stop]))
            for start, stop in pairwise([*starts, width])
        ]
        bases = () if self.bases is None else tuple(_digits(self.bases[here], block))
        return BlockBitSlices(self.least, bases, tuple(groups))


@dataclass(frozen=True, slots=True, eq=False)
class BlockBitSlices:
    """An integer column of a block: the sum over rows is low + 2^32 high + least * (number of valid rows).

    `bases` are the digits of the words' bases, each with its weight, by word and cell as `Block.belongs`; `groups` the
    slices, some at a time, with the weight of the first.
    """

    least: int
    bases: tuple[tuple[int, Floats], ...]
    groups: tuple[tuple[int, tuple[Words, ...]], ...]

    def sums(self, queries: Words, block: Block, counts: Floats, valid: Ints) -> tuple[Ints, Ints]:
        """Sums per query and cell as (low, high), which means low + 2^32 high.

        `counts` and `valid` are the rows that count, by word and by cell.
        """
        low, high = valid * (self.least & 0xFFFFFFFF), valid * (self.least >> 32)
        for weight, digits in self.bases:
            _add(low, high, (counts @ digits).astype(np.int64), weight)
        held, ones = np.empty_like(queries), np.empty(queries.shape, np.uint8)
        for base, slices in self.groups:
            np.bitwise_count(np.bitwise_and(queries, slices[0], out=held), out=ones)
            total: npt.NDArray[np.unsignedinteger] = ones if len(slices) == 1 else ones.astype(np.uint16)
            for shift, bit_slice in enumerate(slices[1:], 1):
                np.bitwise_count(np.bitwise_and(queries, bit_slice, out=held), out=ones)
                total += np.left_shift(ones, shift, dtype=np.uint16)
            _add(low, high, block.sums(total.astype(np.float32)), base)
        return low, high


def _stacked(bitmaps: list[Words], words: int) -> Words:
    """Bitmaps one below the other: (bitmaps, words)."""
    stacked: Words = np.array(bitmaps, np.uint64).reshape(len(bitmaps), words)
    return stacked


def _widths(by_word: np.ndarray) -> Ints:
    """How many bits the greatest number of each word has; beyond 2^53 perhaps one too many."""
    greatest = by_word.max(axis=1, initial=0).astype(np.float64)
    widths: Ints = np.frexp(greatest)[1].astype(np.int64)
    return widths


def _digits(bases: Words, block: Block) -> Iterator[tuple[int, Floats]]:
    mask = np.uint64((1 << _DIGIT) - 1)
    for weight in range(0, int(bases.max()).bit_length(), _DIGIT):
        digit = ((bases >> np.uint64(weight)) & mask).astype(np.float32)
        yield weight, digit[:, None] * block.belongs


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
    result = np.empty((len(queries), len(block.begins)))
    ends = np.r_[block.begins[1:], block.high - block.low]
    for cell, (begin, end) in enumerate(zip(block.begins.tolist(), ends.tolist(), strict=True)):
        held = np.ascontiguousarray(queries[:, begin:end]).view(np.uint8)
        bits = np.unpackbits(held, axis=1, bitorder="little")
        result[:, cell] = bits.astype(np.float64) @ plain[begin * LANES : end * LANES]
    if plain is not values:
        _spoil(result, queries, values, block)
    return result


def _spoil(result: npt.NDArray[np.float64], queries: Words, values: np.ndarray, block: Block) -> None:
    """Add the infinities and NaNs, which a product with 0 would have spread to queries that do not select them."""
    for special in (np.inf, -np.inf, np.nan):
        mask = np.isnan(values) if np.isnan(special) else values == special
        if mask.any():
            there = block.sums(np.bitwise_count(queries & words_of(mask)).astype(np.float32)) > 0
            with np.errstate(invalid="ignore"):
                result[there] += special


def first_lanes(queries: Words, begins: Ints) -> Ints:
    """The first lane of each query in each cell; far beyond all lanes if it has none."""
    lowest = np.bitwise_count((queries & (~queries + np.uint64(1))) - np.uint64(1)).astype(np.int64)
    lanes = np.where(queries == 0, np.int64(2**62), lowest + np.arange(queries.shape[1]) * LANES)
    result: Ints = np.minimum.reduceat(lanes, begins, axis=1)
    return result


def last_lanes(queries: Words, begins: Ints) -> Ints:
    """The last lane of each query in each cell; -1 if it has none."""
    without_second = queries & ~(queries >> np.uint64(1))  # clears the bit below the top bit: no rounding up
    highest = np.frexp(without_second.astype(np.float64))[1].astype(np.int64) - 1
    lanes = np.where(queries == 0, np.int64(-1), highest + np.arange(queries.shape[1]) * LANES)
    result: Ints = np.maximum.reduceat(lanes, begins, axis=1)
    return result
