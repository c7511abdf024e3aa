"""Lengths of windows over the same panes, by query of a family; the level of blocks that each length is worth; and the
panes and blocks that a query still needs.

Windows with equal slides, anchors and cuts are made of the same panes and end at the same instants, whatever their ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints
from headrace.operators.panes.panes import Panes
from headrace.time import Duration

Window: TypeAlias = tuple[int, Panes, Duration]
"""A query's number, the panes of its windows, and their range in microseconds."""

_LEAST_PANES_FOR_BLOCKS: Final = 8


def top_level(per_window: int | None) -> int:
    """The highest level of blocks worth storing for windows of so many panes (None: a landmark)."""
    return 0 if per_window is None or per_window < _LEAST_PANES_FOR_BLOCKS else per_window.bit_length() - 1


@dataclass(frozen=True, slots=True, eq=False)
class WindowLengths:
    """By query, in the order of `numbers`: panes in a window, the highest level of their blocks, the range in microseconds.

    All windows have the panes of `grid`, the longest of them.
    """

    grid: Panes
    numbers: Ints
    panes: Ints
    tops: Ints
    ranges: Ints

    @staticmethod
    def of(windows: Sequence[Window]) -> WindowLengths | None:
        """The lengths of windows over the same panes; None if they are equal, or have no beginning."""
        distinct = {panes for _, panes, _ in windows}
        lengths = {panes: panes.per_window or 0 for panes in distinct}
        if len(distinct) < 2 or not all(lengths.values()):
            return None
        numbers = np.array([number for number, _, _ in windows], np.int64)
        panes = np.array([lengths[panes] for _, panes, _ in windows], np.int64)
        tops = np.array([top_level(length) for length in panes.tolist()], np.int64)
        ranges = np.array([range_ for _, _, range_ in windows], np.int64)
        order = np.argsort(numbers)
        longest = max(distinct, key=lengths.__getitem__)
        return WindowLengths(longest, numbers[order], panes[order], tops[order], ranges[order])

    def each(self) -> Iterator[tuple[Panes, Duration, Ints]]:
        """The panes of windows of each length, their range, and the numbers of its queries."""
        grid = self.grid
        for length in np.unique(self.panes).tolist():
            places = np.flatnonzero(self.panes == length)
            back = -(-length // grid.per_slide)
            yield replace(grid, back=back), int(self.ranges[places[0]]), self.numbers[places]

    @property
    def distinct(self) -> int:
        """How many lengths there are."""
        return len(np.unique(self.panes))

    def places(self, numbers: Ints) -> Ints:
        """The index of the query of each of these numbers: of any query, if it was dropped or all windows are equal."""
        places: Ints = np.minimum(np.searchsorted(self.numbers, numbers), max(0, len(self.numbers) - 1))
        return places

    def still_needed(self, numbers: Ints, levels: Ints, blocks: Ints, window: int) -> np.ndarray:
        """Which of these blocks `window` of the block's query, or a later one, may be made of."""
        places = self.places(numbers)
        first = self.grid.stop(window) - self.panes[places]
        needed: np.ndarray = (blocks >= first >> levels) & (levels <= self.tops[places])
        return needed
