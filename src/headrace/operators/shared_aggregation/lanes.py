"""How are rows laid out so that the rows of one cell are whole words of every query's bitmap?

Rows are sorted by cell (and, for MIN and MAX, by value within the cell); each cell starts at a new word of 64 lanes. Then
a count is a sum of population counts over a run of words, whatever the query.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headrace.operators.grouping import Ints
from headrace.operators.query_index.columns import BLOCK_WORDS, LANES, Words
from headrace.operators.query_index.preparing import words_of


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """`row[lane]` is the row in a lane, 0 in empty ones, which are not in `mask`; cell c has words starts[c]..starts[c+1]."""

    row: Ints
    mask: Words
    starts: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Some words of a layout: [low, high), with the cells in them and the word (from `low`) at which each begins."""

    low: int
    high: int
    cells: Ints
    begins: Ints

    @property
    def lanes(self) -> slice:
        """Its lanes."""
        return slice(self.low * LANES, self.high * LANES)


def laid_out(codes: Ints, count: int, values: np.ndarray | None = None) -> Lanes:
    """Lay out rows by cell; within a cell by `values` (NaN last), or as they come."""
    order = np.arange(len(codes)) if values is None else np.argsort(values, kind="stable")
    narrow = codes.astype(np.uint16) if count <= 1 << 16 else codes
    order = order[np.argsort(narrow[order], kind="stable")]
    rows = np.bincount(codes, minlength=count)
    starts = np.r_[0, np.cumsum(-(-rows // LANES))].astype(np.int64)
    first = np.r_[0, np.cumsum(rows)[:-1]]
    lane = np.arange(len(codes)) + np.repeat(starts[:-1] * LANES - first, rows)
    row = np.zeros(int(starts[-1]) * LANES, np.int64)
    row[lane] = order
    real = np.zeros(len(row), bool)
    real[lane] = True
    return Lanes(row, words_of(real), starts)


def words_needed(codes: Ints, count: int) -> int:
    """How many words a layout would have: rows / 64 and half a word for each cell."""
    return int((-(-np.bincount(codes, minlength=count) // LANES)).sum())


def blocks(lanes: Lanes, first: int, stop: int) -> Iterator[Block]:
    """The words of cells [first, stop) in blocks that fit the cache; a large cell may go over several."""
    end = int(lanes.starts[stop])
    low = int(lanes.starts[first])
    while low < end:
        high = min(end, low + BLOCK_WORDS)
        begin = int(np.searchsorted(lanes.starts, low, side="right")) - 1
        last = int(np.searchsorted(lanes.starts, high, side="left"))
        cells = np.arange(begin, last)
        cells = cells[lanes.starts[cells + 1] > lanes.starts[cells]]
        yield Block(low, high, cells, np.maximum(lanes.starts[cells], low) - low)
        low = high
