"""Shared aggregation by bitmaps in the compiled kernel: what `bitmaps` does block by block in numpy, in one call.

A word of 64 rows costs a query 1 to 4 ns instead of 12, by the instruction set, and the call keeps no lock of Python's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.operators.base.group_codes import Ints
from headrace.operators.native import bitmaps as kernel
from headrace.operators.native.library import library
from headrace.operators.partials.partial import Cells, Count, Extreme
from headrace.operators.query_index.boxes.cut_ranks import Ranks
from headrace.operators.query_index.index import Compiled
from headrace.operators.shared_aggregation.bitmap_passes import Pass, PassColumn

_HALF = 0xFFFFFFFF


def takes(pass_: Pass) -> bool:
    """Whether the kernel can fold a pass: it was built, and boxes decide all rows."""
    return library() is not None and pass_.lane_of is None


def add(
    compiled: Compiled,
    ranks: Sequence[Ranks],
    pass_: Pass,
    cells: range,
    dense: Sequence[Cells],
    width: int | None = None,
) -> None:
    """Combine the partials of the cells into `dense`, by number of partial, shape (queries, cells); `ranks` are
    those of the part's attributes by row.
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
    for column, of_column in zip(pass_.columns, totals, strict=True):
        before, mine = dense[column.number], [next(left) for _ in of_column]
        for whole, part in zip(before, _cells(column, before, counted[column.kind], mine), strict=True):
            whole[:] = part


def _totals(column: PassColumn) -> list[kernel.Total]:
    if column.slices:
        return [kernel.Total(column.kind, part.slices, part.widths, part.bases) for part in column.slices]
    if isinstance(column.partial_column.partial, Count | Extreme):
        return []
    return [kernel.Total(column.kind, doubles=column.values)]


def _cells(
    column: PassColumn, before: Cells, counted: kernel.Counted, sums: Sequence[tuple[np.ndarray, ...]]
) -> Cells:
    partial = column.partial_column.partial
    if isinstance(partial, Count):
        return (before[0] + counted.counts,)
    if isinstance(partial, Extreme):
        return partial.combine(before, (_extreme(partial, column, counted),))
    if not column.slices:
        return (before[0] + sums[0][0],)
    halves = [
        _with_least(part.least, counted.counts, *of) for part, of in zip(column.slices, sums, strict=True)
    ]
    if column.partial_column.encoding == "limbs2":
        ((low, high),) = halves
        return before[0] + low, before[1] + high
    return tuple(part + low + (high << 32) for part, (low, high) in zip(before, halves, strict=True))


def _with_least(least: int, counts: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    return low + counts * (least & _HALF), high + counts * (least >> 32)


def _extreme(partial: Extreme, column: PassColumn, counted: kernel.Counted) -> np.ndarray:
    assert column.values is not None
    lanes = counted.last if partial.largest else counted.first
    assert lanes is not None
    values = column.values[np.maximum(lanes, 0)] if len(column.values) else np.zeros(lanes.shape)
    return np.where(lanes < 0, partial.identity((1,))[0][0], values)
