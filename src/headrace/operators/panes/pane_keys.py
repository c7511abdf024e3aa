"""Keys of panes and of blocks of panes in the state of windowed aggregates: their encoding as sortable integers, the
rows of a table between two keys, and the blocks that together cover an interval of panes.

A *block* (level, j) covers the 2^level closed panes [j*2^level, (j+1)*2^level). Any run of panes is a union of at most
two blocks per level, so a window costs O(log panes), needs no inverse, and blocks serve all windows (decision D11).
Blocks are written once, in the epoch in which punctuation passes their last pane: a delta, never a rewrite. State rows:
`__key` (block number and level in one sortable integer), `__slot`, the group's keys, the partials' columns. Open panes
are rows of level 0 in their own section; several runs may hold parts of one. A sparse group of a block may be stored as
its rows instead (`adaptive_panes`): such tables have the arguments' values in place of partials.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.operators.aggregates.cell_table import KEY
from headrace.operators.base.group_codes import Ints, ints
from headrace.operators.panes.panes import HIGHEST

_BITS: Final = 57
_LEVEL: Final = 1 << _BITS
_MIDDLE: Final = 1 << 56


def block_key(level: int, block: int) -> int:
    """One integer that sorts by level, then block."""
    return level * _LEVEL + block + _MIDDLE


_ABOVE: Final = block_key(0, HIGHEST)
"""No key of level 0 is so large, and all of higher levels are larger."""


def pane_keys(panes: Ints) -> Ints:
    """The keys of level-0 blocks."""
    if panes.strides == (0,):
        return np.broadcast_to(panes[:1] + _MIDDLE, len(panes))
    return panes + _MIDDLE


def levels_and_blocks(keys: Ints) -> tuple[Ints, Ints]:
    """The level and the number of the block of each key; the inverse of `block_key`."""
    levels = keys >> _BITS
    return levels, keys - levels * _LEVEL - _MIDDLE


def levels_of(table: pa.Table) -> range:
    """The levels of the blocks of a sorted table, from the first row's to the last row's."""
    if not table.num_rows:
        return range(0)
    keys = ints(table, KEY)
    return range(keys.item(0) >> _BITS, (keys.item(-1) >> _BITS) + 1)


def between(tables: Iterable[pa.Table], low: int, high: int) -> list[pa.Table]:
    """The rows of each sorted table with low <= key < high, without copying."""
    result = []
    for table in tables:
        if table.num_rows:
            keys = ints(table, KEY)
            first, last = keys.item(0), keys.item(-1)
            if low <= first and last < high:
                result.append(table)
                continue
            if first >= high or last < low:
                continue
            start, stop = np.searchsorted(keys, [low, high])
            if stop > start:
                result.append(table.slice(start, stop - start))
    return result


def parted(tables: Iterable[pa.Table], border: int) -> tuple[list[pa.Table], list[pa.Table]]:
    """The rows of each sorted table below a key, and the others, without copying."""
    below, others = [], []
    for table in tables:
        if table.num_rows:
            keys = ints(table, KEY)
            if keys.item(-1) < border:
                below.append(table)
            elif keys.item(0) >= border:
                others.append(table)
            else:
                start = int(np.searchsorted(keys, border))
                below.append(table.slice(0, start))
                others.append(table.slice(start))
    return below, others


def at_keys(tables: Iterable[pa.Table], keys: Iterable[int]) -> list[pa.Table]:
    """The rows of the given blocks in each sorted table, without copying; with one search a table."""
    edges = np.array([(key, key + 1) for key in sorted(keys)], np.int64).ravel()
    result = []
    for table in tables:
        bounds = ints(table, KEY).searchsorted(edges).tolist()
        rows = zip(bounds[::2], bounds[1::2], strict=True)
        result += [table.slice(start, stop - start) for start, stop in rows if start < stop]
    return result


def cover(first: int, stop: int, top: int) -> list[tuple[int, int]]:
    """The blocks (level, j) of at most level `top` whose disjoint union is the panes [first, stop).

    >>> cover(1, 8, 5)
    [(0, 1), (1, 1), (2, 1)]
    """
    blocks = []
    while first < stop:
        level = min(
            ((first & -first).bit_length() - 1) if first else top, (stop - first).bit_length() - 1, top
        )
        blocks.append((level, first >> level))
        first += 1 << level
    return blocks


def covers(first: Ints, stop: Ints, tops: Ints) -> tuple[Ints, Ints]:
    """`cover` of many intervals: the keys of blocks, and for each the index of its interval."""
    keys, owners = [first[:0]], [first[:0]]
    owner = np.arange(len(first))
    level = 0
    while len(owner):
        at_top = tops == level
        copies = np.where(at_top, stop - first, first & 1)
        last = ~at_top & ((stop & 1) == 1)
        left = np.repeat(np.arange(len(owner)), copies)
        step = np.arange(len(left)) - np.repeat(np.cumsum(copies) - copies, copies)
        keys += [first[left] + step + block_key(level, 0), stop[last] - 1 + block_key(level, 0)]
        owners += [owner[left], owner[last]]
        above = ~at_top & (first + copies < stop - last)
        first, stop = (first + copies)[above] >> 1, (stop - last)[above] >> 1
        owner, tops, level = owner[above], tops[above], level + 1
    return np.concatenate(keys), np.concatenate(owners)


def extent(tables: Sequence[pa.Table]) -> tuple[int, int] | None:
    """The least and greatest pane among rows of level 0 (tables sorted by key, which begin with that level)."""
    least = greatest = None
    for table in tables:
        if not table.num_rows:
            continue
        keys = ints(table, KEY)
        first, last = keys.item(0), keys.item(-1)
        if first >= _ABOVE:
            continue
        if last >= _ABOVE:
            last = keys.item(keys.searchsorted(_ABOVE) - 1)
        least = first if least is None or first < least else least
        greatest = last if greatest is None or last > greatest else greatest
    if least is None or greatest is None:
        return None
    return least - block_key(0, 0), greatest - block_key(0, 0)
