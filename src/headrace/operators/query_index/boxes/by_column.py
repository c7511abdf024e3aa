"""Column-major matching of a block of rows with many queries: one bitmap of rows per query, from cumulative bitmaps of
rows per attribute.

It indexes the batch instead of the queries (the other half of the duality of data and queries): for a block of rows and
an attribute, "rows of rank r or higher" is built for all ranks at once; a query's box (a set of values for each attribute) costs one XOR and one AND per attribute.
A block is sized so that its working set fits the second-level cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints
from headrace.operators.query_index.boxes.box_index import AttributeIndex, Part

Words: TypeAlias = npt.NDArray[np.uint64]
"""Bitmaps of rows, 64 a word, the first row in the lowest bit."""

LANES: Final = 64
BLOCK_WORDS: Final = 64
TILE_BOXES: Final = 512
_MANY_RUNS: Final = 48
_BITS: Final = np.left_shift(np.uint64(1), np.arange(LANES, dtype=np.uint64))


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """Queries [low, high) of a part matched with a block of rows: `words[i]` are the rows that query low + i selects."""

    low: int
    high: int
    words: Words


@dataclass(frozen=True, slots=True, eq=False)
class _BoxInterval:
    """The boxes [start, stop) of a tile that name an attribute, and their positions: as slices, or one by one."""

    index: int
    start: int
    stop: int
    local: Ints
    runs: tuple[tuple[int, int, int], ...] | None


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The tiles of a part's boxes; made once per part."""

    part: Part
    tiles: tuple[tuple[int, int, tuple[_BoxInterval, ...]], ...]


def planned(part: Part) -> Plan:
    """The tiles of a part: about `TILE_BOXES` boxes each, cut between queries."""
    tiles = []
    low = 0
    while low < part.queries:
        high = int(np.searchsorted(part.starts, part.starts[low] + TILE_BOXES, side="right")) - 1
        high = max(low + 1, high)
        tiles.append((low, high, tuple(_intervals(part, int(part.starts[low]), int(part.starts[high])))))
        low = high
    return Plan(part, tuple(tiles))


def _intervals(part: Part, low: int, high: int) -> Iterator[_BoxInterval]:
    for index, attribute in enumerate(part.attributes):
        start, stop = np.searchsorted(attribute.boxes, [low, high])
        if stop == start:
            continue
        local = attribute.boxes[start:stop] - low
        breaks = np.flatnonzero(np.diff(local) != 1) + 1
        edges = [0, *breaks.tolist(), len(local)]
        runs = None
        if len(edges) <= _MANY_RUNS:
            runs = tuple((int(local[a]), a, b) for a, b in pairwise(edges))
        yield _BoxInterval(index, int(start), int(stop), local, runs)


def tiles_of(plan: Plan, at: Sequence[Ints], mask: Words) -> Iterator[Tile]:
    """The tiles of one block: `at[i]` are the rows' ranks among the cuts of attribute i, padded to whole words.

    Rows whose bit is not in `mask` (one word per 64 rows) are selected by no query.
    """
    part, words = plan.part, len(mask)
    tables = [
        _cumulative(attribute, here, words) for attribute, here in zip(part.attributes, at, strict=True)
    ]
    for low, high, intervals in plan.tiles:
        start, stop = int(part.starts[low]), int(part.starts[high])
        held = np.empty((stop - start, words), np.uint64)
        held[:] = mask
        for interval in intervals:
            _narrow(held, interval, part.attributes[interval.index], *tables[interval.index])
        if stop - start > high - low:
            held = np.bitwise_or.reduceat(held, part.starts[low:high] - start, axis=0)
        yield Tile(low, high, held)


def _narrow(
    held: Words, interval: _BoxInterval, attribute: AttributeIndex, table: Words, renamed: Ints | None
) -> None:
    here = slice(interval.start, interval.stop)
    first, second = attribute.first[here], attribute.second[here]
    if renamed is not None:
        first, second = renamed[first], renamed[second]
    rows = table.take(first, axis=0)
    rows ^= table.take(second, axis=0)
    for boxes, bitmaps in attribute.more:
        low, high = np.searchsorted(boxes, [interval.start, interval.stop])
        picked = bitmaps[low:high] if renamed is None else renamed[bitmaps[low:high]]
        rows[boxes[low:high] - interval.start] ^= table.take(picked, axis=0)
    if interval.runs is None:
        held[interval.local] &= rows
        return
    for local, begin, end in interval.runs:
        held[local : local + end - begin] &= rows[begin:end]


def _cumulative(attribute: AttributeIndex, at: Ints, words: int) -> tuple[Words, Ints | None]:
    """The bitmaps of a block, and (if there are more bitmaps than rows) which of them each number means."""
    k, renamed = len(attribute.cuts), None
    if k > len(at):
        at, renamed, k = _renamed(attribute, at)
    table = np.zeros((k + 3, words), np.uint64)
    lanes = np.arange(len(at))
    np.add.at(table.reshape(-1), at.astype(np.int64) * words + (lanes >> 6), _BITS[lanes & 63])
    upward = table[k::-1]
    np.bitwise_or.accumulate(upward, axis=0, out=upward)
    return table, renamed


def _renamed(attribute: AttributeIndex, at: Ints) -> tuple[Ints, Ints, int]:
    """Only ranks that occur in the block, renumbered: new ranks, the new number of each bitmap, new number of cuts."""
    present = np.zeros(attribute.null + 1, bool)
    present[at] = True
    present[attribute.blank :] = False
    rank = np.cumsum(present) - present
    k = int(present.sum())
    rank[attribute.blank :] = [k + 1, k + 2]
    return rank[at], rank, k  # rows of rank r or higher: those of the next rank that occurs, or none
