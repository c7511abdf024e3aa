"""The rows of a join's side in memory between epochs: pieces that are merged from the end, with the new number of each row, so
that references to rows stay right.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa

from headrace.operators.base.group_codes import Ints
from headrace.operators.rows.sorted_rows import Sorted
from headrace.time import Duration, Instant

Merged: TypeAlias = tuple[tuple[Sorted, ...], int, Ints]
"""Pieces; the number from which on rows have new ones; and of each of these the new number less that, -1 for rows that are gone."""


def merged_tail(pieces: tuple[Sorted, ...], range_: Duration | None, bound: Instant) -> Merged | None:
    """The pieces with the last two merged, without rows that end before the bound; None while the last is less than half of the one before.

    So the number of pieces follows the logarithm of the rows.
    """
    if len(pieces) < 2 or pieces[-2].rows > 2 * pieces[-1].rows:
        return None
    *others, one, other = pieces
    if not one.table.schema.equals(other.table.schema):
        return None
    hash_, at = (np.concatenate(both) for both in ((one.hash, other.hash), (one.at, other.at)))
    until = np.concatenate([one.until(), other.until()])
    order = np.lexsort((at, hash_))
    order = order[until[order] >= bound]
    numbers = np.full(len(hash_), -1)
    numbers[order] = np.arange(len(order))
    table = pa.concat_tables([one.table, other.table]).take(pa.array(order)).combine_chunks()
    start = sum(piece.rows for piece in others)
    merged = (Sorted.of(table, range_),) if len(order) else ()
    return (*others, *merged), start, numbers
