"""Lane layout of a batch for shared aggregation by bitmaps: rows are ordered so that those of one pane and group are
whole words of 64 rows in every query's bitmap.

Rows are sorted by cell, within the cell by the values of a column if there is one; each cell starts at a new word of 64
lanes. Then a count is a sum of population counts over a run of words, whatever the query; the first and last lanes of a
query are its extremes; and the values of one word are so close to each other that a sum needs few of their bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints
from headrace.operators.native.lanes import lay
from headrace.operators.native.library import library
from headrace.operators.query_index.boxes.by_column import BLOCK_WORDS, LANES, Words

_SHORT: Final = 1 << 16
"""Ranges below this are sorted digit by digit: a tenth of the time."""
_LEAST_BITS: Final = 3
"""With fewer leading bits, sorting hardly brings similar values together."""


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """`row[lane]` is the row in a lane, 0 in empty ones, which are not in `mask`; cell c has words starts[c]..starts[c+1]."""

    row: npt.NDArray[np.uint32]
    mask: Words
    starts: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Some words of a layout: [low, high), with the cells in them and the word (from `low`) at which each begins.

    `belongs[word, i]` is 1 where a word is of cell i: numbers by word times it are sums by cell.
    """

    low: int
    high: int
    cells: Ints
    begins: Ints
    belongs: npt.NDArray[np.float32]

    @property
    def lanes(self) -> slice:
        """Its lanes."""
        return slice(self.low * LANES, self.high * LANES)

    def sums(self, numbers: npt.NDArray[np.float32]) -> Ints:
        """Add up whole numbers below 2^18 by word over the words of each cell: (queries, words) to (queries, cells).

        Exact: a block has at most 64 words, and floats of 32 bits hold whole numbers up to 2^24.
        """
        if len(self.begins) == self.high - self.low:
            return numbers.astype(np.int64)
        return (numbers @ self.belongs).astype(np.int64)


def laid_out(
    codes: Ints,
    count: int,
    values: np.ndarray | None = None,
    *,
    exact: bool = True,
    sizes: Ints | None = None,
    compiled: bool = True,
) -> Lanes:
    """Arrange rows by cell; within a cell by `values` (NaN last; not `exact`: approximately), or in input order.

    `sizes` are the rows of each cell, if they were counted already; `compiled`: by the kernel, where it was built.
    """
    spare = 16 - max(count - 1, 0).bit_length()
    if values is not None and not exact and values.dtype == np.int64 and spare < _LEAST_BITS:
        values = None
    sizes = np.bincount(codes, minlength=count) if sizes is None else sizes
    starts = np.r_[0, np.cumsum(-(-sizes // LANES))].astype(np.int64)
    by_counting = values is None or (values.dtype == np.int64 and not exact)
    if compiled and by_counting and library() is not None:
        row = lay(codes, starts, values, spare)
    else:
        row = _laid(_order(codes, count, values, spare, exact=exact), sizes, starts)
    return Lanes(row, _mask(sizes, starts), starts)


def _laid(order: Ints, sizes: Ints, starts: Ints) -> npt.NDArray[np.uint32]:
    """Rows in order, from a new word on in each cell."""
    first = np.r_[0, np.cumsum(sizes)[:-1]]
    row = np.zeros(int(starts[-1]) * LANES, np.uint32)
    row[np.arange(len(order)) + np.repeat(starts[:-1] * LANES - first, sizes)] = order
    return row


def _mask(sizes: Ints, starts: Ints) -> Words:
    """All lanes, but for those after the last row of each cell."""
    mask = np.full(int(starts[-1]), ~np.uint64(0))
    unfilled = np.flatnonzero(sizes % LANES)
    mask[starts[unfilled + 1] - 1] >>= (LANES - sizes[unfilled] % LANES).astype(np.uint64)
    return mask


def _order(codes: Ints, count: int, values: np.ndarray | None, spare: int, *, exact: bool) -> Ints:
    """The rows in the order of lanes."""
    narrow = codes.astype(np.uint16) if count <= _SHORT else codes
    if values is None:
        return np.argsort(narrow, kind="stable")
    if values.dtype == np.int64 and not exact:
        return np.argsort((narrow << np.uint16(spare)) | _leading(values, spare), kind="stable")
    order = _by_value(values)
    return order[np.argsort(narrow[order], kind="stable")]


def _by_value(values: np.ndarray) -> Ints:
    """The order of values."""
    if values.dtype == np.int64 and len(values) and int(values.max()) - int(values.min()) < _SHORT:
        values = _leading(values, 16)
    return np.argsort(values, kind="stable")


def _leading(values: Ints, bits: int) -> npt.NDArray[np.uint16]:
    """The leading bits of integers less their minimum."""
    if not len(values):
        return np.empty(0, np.uint16)
    low = int(values.min())
    width = (int(values.max()) - low).bit_length()
    with np.errstate(over="ignore"):
        above = (values - np.int64(low)).view(np.uint64) >> np.uint64(max(0, width - bits))
    return above.astype(np.uint16)


def words_needed(sizes: Ints) -> int:
    """The number of words of a layout, from the rows of each cell: rows / 64 and half a word for each cell."""
    return int((-(-sizes // LANES)).sum())


def blocks(lanes: Lanes, first: int, stop: int) -> Iterator[Block]:
    """The words of cells [first, stop) in blocks that fit the cache; a large cell may span several."""
    end = int(lanes.starts[stop])
    low = int(lanes.starts[first])
    while low < end:
        high = min(end, low + BLOCK_WORDS)
        begin = int(np.searchsorted(lanes.starts, low, side="right")) - 1
        last = int(np.searchsorted(lanes.starts, high, side="left"))
        cells = np.arange(begin, last)
        cells = cells[lanes.starts[cells + 1] > lanes.starts[cells]]
        begins = np.maximum(lanes.starts[cells], low) - low
        belongs = np.zeros((high - low, len(cells)), np.float32)
        belongs[np.arange(high - low), np.searchsorted(begins, np.arange(high - low), side="right") - 1] = 1
        yield Block(low, high, cells, begins, belongs)
        low = high
