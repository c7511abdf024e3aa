"""Division of the rows of many queries into those of some queries at a time.

Windows of all queries at once would need arrays of all cells, in memory that a process touches for the first time, which takes
longer than the sums; those of some queries stay in the cache, and their memory is used again for the next ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.operators.aggregates.cell_table import FIRST_KEY
from headrace.operators.base.block_codes import counted
from headrace.operators.base.group_codes import Ints, ints

_ROWS_OF_A_RUN: Final = 1 << 8
"""Rows of a run in the order of queries, on average, from which on a run is cut instead of sorted."""


def query_portions(
    parts: Sequence[Sequence[pa.Table]], most: int
) -> Iterator[tuple[Sequence[pa.Table], ...]]:
    """Tables with the rows of some queries of each part, about `most` of them together: queries in order of their numbers, all rows of each.

    `k0` of a row is the number of its query. Rows of a pane are in order of its queries, as cells are made: they are
    slices, and of other tables copies.
    """
    rows = sum(table.num_rows for part in parts for table in part)
    if rows <= most:
        yield tuple(parts)
        return
    cuts = _cuts([table for part in parts for table in part], most)
    divided = [[_divided(table, cuts) for table in part] for part in parts]
    for index in range(len(cuts) - 1):
        yield tuple([piece for table in part for piece in table[index]] for part in divided)


def _cuts(tables: Sequence[pa.Table], most: int) -> Ints:
    """The first numbers of portions of about `most` rows, and one past the last number."""
    numbers, rows = counted(
        pa.chunked_array([chunk for table in tables for chunk in table[FIRST_KEY].chunks])
    )
    before = np.cumsum(rows) - rows
    return np.append(numbers[np.flatnonzero(np.diff(before // most, prepend=-1))], numbers[-1] + 1)


def _divided(table: pa.Table, cuts: Ints) -> list[list[pa.Table]]:
    """The rows between each two of the cuts."""
    numbers = ints(table, FIRST_KEY)
    ends = np.append(np.flatnonzero(numbers[1:] < numbers[:-1]) + 1, len(numbers))
    if len(ends) * _ROWS_OF_A_RUN > len(numbers):
        portion = np.searchsorted(cuts, numbers, "right").astype(np.min_scalar_type(len(cuts)))
        table = table.take(pa.array(np.argsort(portion, kind="stable")))
        sizes = np.bincount(portion, minlength=len(cuts))[1:]
        return [
            _slices(table, [stop - size], [stop])
            for stop, size in zip(np.cumsum(sizes).tolist(), sizes.tolist(), strict=True)
        ]
    begins = [0, *ends[:-1].tolist()]
    runs = [
        low + np.searchsorted(numbers[low:high], cuts)
        for low, high in zip(begins, ends.tolist(), strict=True)
    ]
    edges = np.array(runs).T.tolist()
    return [_slices(table, lows, highs) for lows, highs in pairwise(edges)]


def _slices(table: pa.Table, lows: Sequence[int], highs: Sequence[int]) -> list[pa.Table]:
    return [table.slice(low, high - low) for low, high in zip(lows, highs, strict=True) if low < high]
