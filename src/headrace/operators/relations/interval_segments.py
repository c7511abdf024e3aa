"""Elementary intervals of every group, between two changes of its rows, and the cells of each from a segment tree,
without inverses.

Between two events of a group (an insertion, a retraction) its aggregate is constant: that is an elementary interval. A
row covers a run of intervals; one segment tree over the intervals of all groups stores every row in O(log) nodes, then
cells are pushed down to the leaves. Only `Partial.combine` is needed, so extremes and NaN expire as rows do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.dataclass import dataclass
from headrace.operators.aggregates.aggregate_calls import Answer
from headrace.operators.base.group_codes import Ints
from headrace.operators.output.changelog import Span
from headrace.operators.partials.encoding import PartialColumn
from headrace.operators.partials.partial import Cells
from headrace.time import FOREVER


@dataclass(frozen=True, slots=True)
class Intervals:
    """Elementary intervals of all groups, sorted by group and start; each lasts until the next of its group (or without
    end).
    """

    group: Ints
    start: Ints
    instants: Ints

    @property
    def count(self) -> int:
        """Number of intervals."""
        return len(self.group)

    def ends(self) -> Ints:
        """The end of each interval."""
        if not self.count:
            return self.start
        follows = np.r_[self.group[1:] == self.group[:-1], False]
        return np.where(follows, np.r_[self.start[1:], FOREVER], FOREVER)

    def is_last(self) -> np.ndarray:
        """Which intervals are the last of their group."""
        last: np.ndarray = np.r_[self.group[1:] != self.group[:-1], True] if self.count else np.zeros(0, bool)
        return last

    def cover(self, groups: Ints, begin: Ints, end: Ints) -> tuple[Ints, Ints]:
        """The run of intervals [low, high) that each row of a group covers."""
        width = len(self.instants) + 1
        keys = self.group * width + np.searchsorted(self.instants, self.start)
        low = np.searchsorted(keys, groups * width + np.searchsorted(self.instants, begin))
        high = np.searchsorted(keys, groups * width + np.searchsorted(self.instants, end))
        return low, high


def intervals_of(groups: Ints, begin: Ints, end: Ints, span: Span) -> Intervals:
    """The intervals that events within `span` start; `groups` are those of the rows."""
    held = begin < end
    codes = np.concatenate([groups[held], groups[held]])
    at = np.concatenate([begin[held], end[held]])
    within = span.holds(at)
    codes, at = codes[within], at[within]
    instants = np.unique(at)
    width = len(instants) + 1
    keys = np.unique(codes * width + np.searchsorted(instants, at))
    group, index = np.divmod(keys, width)
    return Intervals(group, instants[index] if len(keys) else index, instants)


def spread(
    partial_columns: Sequence[PartialColumn], answer: Answer, low: Ints, high: Ints, count: int
) -> Answer:
    """The cells of `count` intervals, each the combination of all cells whose run [low, high) contains it."""
    size = 1 << max(count - 1, 0).bit_length()
    node, source = _nodes(low, high, size)
    cells: dict[PartialColumn, Cells] = {}
    with np.errstate(all="ignore"):
        for partial_column in partial_columns:
            cells_of_nodes = tuple(part[source] for part in answer.cells[partial_column])
            tree = partial_column.partial.reduce(cells_of_nodes, node, 2 * size)
            level = tuple(part[1:2] for part in tree)
            width = 1
            while width < size:
                width *= 2
                below = tuple(part[width : 2 * width] for part in tree)
                level = partial_column.partial.combine(
                    tuple(np.repeat(part, 2, axis=0) for part in level), below
                )
            cells[partial_column] = tuple(part[:count] for part in level)
    return Answer(cells, answer.dictionaries)


def _nodes(low: Ints, high: Ints, size: int) -> tuple[Ints, Ints]:
    """The tree nodes (root 1, leaves size..2*size-1) that make up each run, and the run of each."""
    left, right, source = low + size, high + size, np.arange(len(low))
    nodes: list[Ints] = []
    owners: list[Ints] = []
    while len(source):
        open_ = left < right
        left, right, source = left[open_], right[open_], source[open_]
        odd_left, odd_right = (left & 1).astype(bool), (right & 1).astype(bool)
        nodes += [left[odd_left], right[odd_right] - 1]
        owners += [source[odd_left], source[odd_right]]
        left, right = (left + 1) >> 1, right >> 1
    return np.concatenate([np.empty(0, np.int64), *nodes]), np.concatenate([np.empty(0, np.int64), *owners])
