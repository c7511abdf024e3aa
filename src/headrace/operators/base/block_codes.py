"""Which (block, group) pair is each row of? One numbering of panes and groups together, in the order of panes."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from headrace.operators.base.group_codes import Groups, Ints, compact

_MANY: Final = 8
"""So many rows a code, and counting them costs no more than seeing which codes there are."""


class Pairs(NamedTuple):
    """(block, group) pairs in the order of blocks: the code of each row, how many there are, block and group of each.

    `sizes` are the rows of each pair where they were counted on the way. Of one block codes are those of the groups, which may
    be places (`Groups.live`).
    """

    codes: Ints
    number: int
    blocks: Ints
    members: Ints
    sizes: Ints | None = None


def blocks_seen(blocks: Ints) -> int:
    """About how many blocks rows are of that follow each other in time, told by the first row and the last."""
    return abs(blocks.item(-1) - blocks.item(0)) + 1 if len(blocks) else 0


def by_block_and_group(blocks: Ints, groups: Groups) -> Pairs:
    """Number the (block, group) pairs that rows have."""
    if not len(blocks):
        return Pairs(blocks, 0, blocks, blocks)
    low, high = int(blocks.min()), int(blocks.max())
    if low == high:
        members = np.arange(groups.count)
        return Pairs(groups.codes, groups.count, np.full(groups.count, low), members, groups.sizes)
    groups = groups.dense()
    if high - low < 4 * len(blocks):
        distinct, local = None, blocks - low
        span = high - low + 1
    else:
        distinct, local = np.unique(blocks, return_inverse=True)
        span = len(distinct)
    local *= groups.count
    local += groups.codes
    codes, live, sizes = _numbered(local, span * groups.count)
    place, member = np.divmod(live, groups.count)
    found = place + low if distinct is None else distinct[place]
    if (np.diff(found) < 0).any():
        order = np.argsort(found, kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        codes, found, member = rank[codes], found[order], member[order]
    return Pairs(codes, len(live), found, member, sizes)


def _numbered(codes: Ints, span: int) -> tuple[Ints, Ints, Ints | None]:
    """Like `compact`; where there are many rows a code they are counted too, which costs no more."""
    if len(codes) < _MANY * span:
        return *compact(codes, span), None
    sizes = np.bincount(codes, minlength=span)
    live = np.flatnonzero(sizes)
    if len(live) == span:
        return codes, live, sizes
    rank = np.empty(span, np.int64)
    rank[live] = np.arange(len(live))
    return rank.take(codes), live, sizes.take(live)
