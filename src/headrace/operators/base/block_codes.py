"""Dense codes (0, 1, …) of rows by (block, group) pair, in the order of blocks; a block is an integer such as a pane,
an interval of panes, or an instant.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.operators.base.group_codes import Groups, Ints, compact, flat

_MANY: Final = 8
"""From this many rows per code on, counting rows costs no more than marking which codes occur."""
_MOST_MARKED: Final = 8
"""Combinations of values for each row, up to which those that occur are marked."""
_FEW_MARKED: Final = 1 << 12
"""Combinations that are marked however few the rows are."""
_FEW: Final = 1 << 12
"""Numbers that are sorted as fast as they are counted."""


class Pairs(NamedTuple):
    """(block, group) pairs in the order of blocks: the code of each row, the number of pairs, block and group of each.

    `sizes` are the rows of each pair if they were counted already. With one block, codes are those of the groups, which
    may be sparse (`Groups.live`).
    """

    codes: Ints
    number: int
    blocks: Ints
    group_indices: Ints
    sizes: Ints | None = None


def blocks_seen(blocks: Ints) -> int:
    """Estimate of how many blocks time-ordered rows cover, from the first row and the last."""
    return abs(blocks.item(-1) - blocks.item(0)) + 1 if len(blocks) else 0


def by_block_and_group(blocks: Ints, groups: Groups) -> Pairs:
    """Number the (block, group) pairs that have rows."""
    if not len(blocks):
        return Pairs(blocks, 0, blocks, blocks)
    some = blocks[:1] if blocks.strides == (0,) else blocks
    low, high = int(some.min()), int(some.max())
    if low == high:
        group_indices = np.arange(groups.count)
        return Pairs(groups.codes, groups.count, np.full(groups.count, low), group_indices, groups.sizes)
    groups = groups.dense()
    if high - low < 4 * len(blocks):
        distinct, local = None, blocks - low
        span = high - low + 1
        if span * groups.count > 4 * len(blocks):  # perhaps since there are gaps between the blocks
            local, held = compact(local, span)
            distinct, span = held + low, len(held)
    else:
        distinct, local = np.unique(blocks, return_inverse=True)
        span = len(distinct)
    local *= groups.count
    local += groups.codes
    codes, live, sizes = _numbered(local, span * groups.count)
    block, group_index = np.divmod(live, groups.count)
    pair_blocks = block + low if distinct is None else distinct[block]
    if (np.diff(pair_blocks) < 0).any():
        order = np.argsort(pair_blocks, kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        codes, pair_blocks, group_index = rank[codes], pair_blocks[order], group_index[order]
    return Pairs(codes, len(live), pair_blocks, group_index, sizes)


def are_distinct(table: pa.Table) -> bool | None:
    """Whether no two rows are equal, of integers whose ranges have few combinations; None of other rows. Copies no column."""
    bounds = [bounds_of(column) for column in table.columns]
    ranges = [of_column for of_column in bounds if of_column is not None]
    combinations = math.prod(high - low + 1 for low, high in ranges)
    if len(ranges) < len(bounds) or combinations > max(_FEW_MARKED, _MOST_MARKED * table.num_rows):
        return None
    present = np.zeros(combinations, bool)
    for batch in table.to_batches():
        codes = np.zeros(batch.num_rows, np.int64)
        for column, (low, high) in zip(batch.columns, ranges, strict=True):
            codes *= high - low + 1
            codes += column.to_numpy()
            codes -= low
        present[codes] = True
    return bool(np.count_nonzero(present) == table.num_rows)


def bounds_of(column: pa.ChunkedArray) -> tuple[int, int] | None:
    """The least and the greatest of integers, without a copy; None of other values, of NULLs and of no rows."""
    if not pa.types.is_signed_integer(column.type) or column.null_count or not len(column):
        return None
    least, greatest = pc.min_max(column).values()
    return least.as_py(), greatest.as_py()


def counted(column: pa.ChunkedArray) -> tuple[Ints, Ints]:
    """The distinct integers of a column without NULLs, ascending, and the rows of each.

    Many in a narrow range are counted chunk by chunk: a column of many chunks is not copied.
    """
    if len(column) <= _FEW:
        return _counted_few(flat(column).to_numpy())
    bounds = bounds_of(column)
    if bounds is None or bounds[1] - bounds[0] >= len(column):
        values, rows = np.unique(flat(column).to_numpy(), return_counts=True)
        return values, rows
    least, greatest = bounds
    counts = np.zeros(greatest - least + 1, np.int64)
    for chunk in column.chunks if len(counts) * column.num_chunks <= len(column) else [flat(column)]:
        counts += np.bincount(chunk.to_numpy() - least, minlength=len(counts))
    present = np.flatnonzero(counts)
    return present + least, counts[present]


def _counted_few(values: Ints) -> tuple[Ints, Ints]:
    """The same of few integers: mostly all are equal, since most tables are of one query."""
    if len(values) and values.item(0) == values.item(-1) and (values == values[0]).all():
        return values[:1].copy(), np.array([len(values)])
    ordered = np.sort(values)
    differs = np.ones(len(values) + 1, bool)
    np.not_equal(ordered[1:], ordered[:-1], out=differs[1:-1])
    edges = differs.nonzero()[0]
    return ordered[edges[:-1]], edges[1:] - edges[:-1]


def _numbered(codes: Ints, span: int) -> tuple[Ints, Ints, Ints | None]:
    """Like `compact`; with many rows per code it also counts them, at no extra cost."""
    if len(codes) < _MANY * span:
        return *compact(codes, span), None
    sizes = np.bincount(codes, minlength=span)
    live = np.flatnonzero(sizes)
    if len(live) == span:
        return codes, live, sizes
    rank = np.empty(span, np.int64)
    rank[live] = np.arange(len(live))
    return rank.take(codes), live, sizes.take(live)
