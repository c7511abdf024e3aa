"""Aggregates of windows that end at rows, for every group at once: the windows that hold each row, and *bins*, the
intervals of successive windows in which a group's aggregate does not change.

A cell at x counts in the windows that end in [x, x + range): it opens a bin at x and one at x + range. Between two
neighbouring bins of a group every window has the same aggregate, that of the bin with the greatest id at or below its
end; so a window reads one bin, and nothing is ever subtracted. Bins between two ends that close now are one.
Source: Li 2008, fig. 6-7, where a new bin must start from the bin at or (repaired) *equal* to its id, and (repaired)
the last bin below punctuation must stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.aggregates.aggregate_calls import Answer
from headrace.operators.aggregates.cell_table import Gathered, Layout, WindowCells, gather, select
from headrace.operators.base.group_codes import Ints, flat, group
from headrace.operators.relations.interval_segments import spread
from headrace.operators.window_assembly.window_pairs import repeated
from headrace.time import Duration


@dataclass(frozen=True, slots=True)
class Ends:
    """Ends of windows, in order of time per partition: instants, partition codes, and the partitions' values."""

    at: Ints
    codes: Ints
    keys: tuple[pa.Array, ...]

    @property
    def count(self) -> int:
        """Number of windows."""
        return len(self.at)

    @property
    def is_last(self) -> np.ndarray:
        """Which are the last of their partition."""
        last: np.ndarray = np.r_[self.codes[1:] != self.codes[:-1], True] if self.count else np.zeros(0, bool)
        return last


@dataclass(frozen=True, slots=True)
class Bins:
    """Non-empty bins: the windows [low, high) that read each, its group's keys, its cells."""

    low: Ints
    high: Ints
    keys: tuple[pa.Array, ...]
    answer: Answer


def windows_holding(
    ends: Ends, keys: Sequence[pa.Array], at: Ints, length: Ints | Duration
) -> tuple[Ints, Ints]:
    """The windows [low, high) that hold each row: those of its partition that end at t with at <= t < at + length.

    `length` is that of all rows, or of each.
    """
    rows = len(at)
    both = [
        pa.concat_arrays([flat(row_partition), flat(key)])
        for row_partition, key in zip(ends.keys, keys, strict=True)
    ]
    codes = group(both, ends.count + rows).codes if both else np.zeros(ends.count + rows, np.int64)
    partition = np.full(int(codes.max(initial=-1)) + 1, -1, np.int64)
    partition[codes[: ends.count]] = ends.codes
    row_partition = partition[codes[ends.count :]]
    moments = np.unique(ends.at)
    width = len(moments) + 1
    end_keys = ends.codes * width + np.searchsorted(moments, ends.at)
    low = np.searchsorted(end_keys, row_partition * width + np.searchsorted(moments, at))
    high = np.searchsorted(end_keys, row_partition * width + np.searchsorted(moments, at + length))
    return low, np.where(row_partition < 0, low, high)


def bins_of(
    layout: Layout,
    tables: Sequence[pa.Table],
    ends: Ends,
    length_of: Callable[[Sequence[pa.Array]], Ints | Duration],
    partitions: int,
) -> Bins:
    """The bins of every group; the first `partitions` keys of the layout are the partition, its blocks instants.

    `length_of` gives the length of the windows of each cell's partition.
    """
    cells = gather(layout, tables)
    parts = [key.take(pa.array(cells.groups.codes)) for key in cells.groups.keys[:partitions]]
    low, high = windows_holding(ends, parts, cells.blocks, length_of(parts))
    return bins_between(layout, cells, low, high, ends.count)


def bins_between(layout: Layout, cells: Gathered, low: Ints, high: Ints, count: int) -> Bins:
    """The bins of cells that are each in the windows [low, high), out of `count`."""
    inside = np.flatnonzero(low < high)
    codes, low, high = cells.groups.codes[inside], low[inside], high[inside]
    width = count + 1
    ids = np.unique(np.concatenate([codes * width + low, codes * width + high]))
    first, stop = np.searchsorted(ids, codes * width + low), np.searchsorted(ids, codes * width + high)
    answer = spread(layout.partial_columns, select(cells.answer, inside), first, stop, len(ids))
    full = np.flatnonzero(answer.cells[layout.partial_columns[0]][0] > 0)
    groups, start = np.divmod(ids[full], width)
    end = ids[np.minimum(full + 1, len(ids) - 1)] % width
    keys = tuple(key.take(pa.array(groups)) for key in cells.groups.keys)
    return Bins(start, end, keys, select(answer, full))


def cells_of(bins: Bins) -> WindowCells:
    """Every window with the groups it holds: each reads its bin."""
    pairs = list(repeated(bins.low, bins.high - 1))
    empty = np.empty(0, np.int64)
    bin_of = np.concatenate([empty, *(bin_ for bin_, _ in pairs)])
    windows = np.concatenate([empty, *(window for _, window in pairs)])
    picked = pa.array(bin_of)
    return WindowCells(windows, tuple(key.take(picked) for key in bins.keys), select(bins.answer, bin_of))
