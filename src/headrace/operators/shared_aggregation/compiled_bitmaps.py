"""Shared aggregation by bitmaps in the compiled kernel: what `bitmaps` does block by block in numpy, in one call.

A word of 64 rows costs a query 1 to 4 ns instead of 12, by the instruction set, and the call keeps no lock of Python's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from headrace.operators.base.group_codes import Ints
from headrace.operators.native import bitmaps as kernel
from headrace.operators.native.library import library
from headrace.operators.partials.partial import Cells, Count, Extreme
from headrace.operators.query_index.boxes.cut_ranks import Ranks
from headrace.operators.query_index.index import Compiled
from headrace.operators.shared_aggregation.bitmap_passes import Pass, PassColumn

_HALF: Final = 0xFFFFFFFF


def takes(pass_: Pass) -> bool:
    """Whether the kernel can fold a pass: it was built, and boxes decide all rows."""
    return library() is not None and pass_.lane_of is None


def of_pass(
    compiled: Compiled, ranks: Sequence[Ranks], pass_: Pass, cells: range, width: int | None = None
) -> dict[int, Cells]:
    """The partials of a pass by their number, each of shape (queries, cells); `ranks` are those of the part's attributes by
    row. Counts of the same rows are one array.
    """
    kinds: dict[int, kernel.Kind] = {}
    totals = [_totals(column) for column in pass_.columns]
    for column in pass_.columns:
        ends = isinstance(column.partial_column.partial, Extreme)
        known = kinds.get(column.kind)
        kinds[column.kind] = kernel.Kind(column.valid, ends or (known is not None and known.ends))
    lanes = pass_.lanes
    counted, sums = kernel.fold(
        lanes.mask,
        lanes.starts,
        cells,
        [
            (pass_.by_lane(here.keys), here.table, attribute.blank - 1)
            for here, attribute in zip(ranks, compiled.part.attributes, strict=True)
        ],
        compiled.factors,
        [kinds[number] for number in range(len(kinds))],
        [total for of_column in totals for total in of_column],
        width,
    )
    left = iter(sums)
    return {
        column.number: _cells(column, counted[column.kind], [next(left) for _ in of_column])
        for column, of_column in zip(pass_.columns, totals, strict=True)
    }


def _totals(column: PassColumn) -> list[kernel.Total]:
    if column.slices:
        return [kernel.Total(column.kind, part.slices, part.widths, part.bases) for part in column.slices]
    if isinstance(column.partial_column.partial, Count | Extreme):
        return []
    return [kernel.Total(column.kind, doubles=column.values)]


def _cells(column: PassColumn, counted: kernel.Counted, sums: Sequence[tuple[np.ndarray, ...]]) -> Cells:
    partial = column.partial_column.partial
    if isinstance(partial, Count):
        return (counted.counts,)
    if isinstance(partial, Extreme):
        return (_extreme(partial, column, counted),)
    if not column.slices:
        return sums[0]
    for part, halves in zip(column.slices, sums, strict=True):
        _add_least(part.least, counted.counts, *halves)
    if column.partial_column.encoding == "limbs2":
        return sums[0]
    return tuple(np.add(low, high << 32, out=low) for low, high in sums)


def _add_least(least: int, counts: Ints, low: Ints, high: Ints) -> None:
    """Add the number by which all rows were lowered; most are of a column that begins at zero."""
    for half, of_least in ((low, least & _HALF), (high, least >> 32)):
        if of_least:
            np.add(half, counts * of_least, out=half)


def _extreme(partial: Extreme, column: PassColumn, counted: kernel.Counted) -> np.ndarray:
    assert column.values is not None
    lanes = counted.last if partial.largest else counted.first
    assert lanes is not None
    values = column.values[np.maximum(lanes, 0)] if len(column.values) else np.zeros(lanes.shape)
    return np.where(lanes < 0, partial.identity((1,))[0][0], values)
