"""Blocks of cells of `[RANGE r]`, combined by intervals of time, for what holds throughout a span of instants.

From one epoch to the next few rows enter the window and few leave it; those between do neither. Their cells are combined in
*blocks*: aligned intervals of r/256, r/64, r/16 and r/4, each made once, when punctuation has passed its end. So an epoch
reads a few rows per group from blocks, and single cells only at the edges. Only `combine` is needed: nothing is subtracted,
so extremes, NaN and sums of doubles expire as rows do (decision D11 for windows that do not slide).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.operators.aggregates.cell_table import Layout, gather, reduce_answer
from headrace.operators.base.block_codes import by_block_and_group
from headrace.operators.base.group_codes import Ints
from headrace.operators.base.operator import Sections
from headrace.operators.output.changelog import Span
from headrace.operators.panes.pane_keys import between
from headrace.time import BEGINNING, Duration

SECTION: Final = "live"
FINEST: Final = 256
FAN: Final = 4
LEVELS: Final = 4


@dataclass(frozen=True, slots=True)
class IntervalBlocks:
    """The blocks of one store of cells under `[RANGE length]`.

    The key of a block's row is the earliest instant of its group in it: when the first of its cells expires.
    """

    layout: Layout
    length: Duration
    store: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Sections of the levels, finest first."""
        useful = (level for level in range(LEVELS) if 2 * self.width(level) <= self.length)
        return tuple(f"{SECTION}{level}_{self.store}" for level in useful)

    def width(self, level: int) -> Duration:
        """The length of a block of a level."""
        return int(max(2, self.length // FINEST) * FAN**level)

    def within(self, sections: Sequence[Sections], cells: Sequence[pa.Table], span: Span) -> list[pa.Table]:
        """Cells that enter or leave within a span, and those that hold throughout, combined."""
        oldest, expired = (
            max(span.emitted_to - self.length, BEGINNING),
            max(span.limit - self.length, BEGINNING),
        )
        if expired >= span.emitted_to:
            return between(cells, oldest, span.limit)
        return [
            *between(cells, oldest, expired),
            *self.throughout(sections, cells, span),
            *between(cells, span.emitted_to, span.limit),
        ]

    def throughout(
        self, sections: Sequence[Sections], cells: Sequence[pa.Table], span: Span
    ) -> list[pa.Table]:
        """Rows that together are the cells that hold at every instant of a span; `cells` in order of instants."""
        low, high = max(span.limit - self.length, BEGINNING), span.emitted_to
        tables: list[pa.Table] = []
        for level, start, stop in self.cover(low, high):
            source = cells if level is None else _of(sections, self.names[level])
            tables += between(source, start, stop)
        return tables

    def cover(self, low: int, high: int) -> Iterator[tuple[int | None, int, int]]:
        """Intervals (level or None for single cells, start, stop) whose disjoint union is [low, high).

        >>> list(IntervalBlocks(Layout((), ()), 512).cover(7, 75))
        [(None, 7, 8), (None, 74, 75), (0, 72, 74), (1, 8, 32), (1, 64, 72), (2, 32, 64)]
        """
        if not self.names:
            yield None, low, max(low, high)
            return
        width = self.width(0)
        first, stop = -(-low // width), high // width
        if first >= stop:
            yield None, low, max(low, high)
            return
        if low < first * width:
            yield None, low, first * width
        if stop * width < high:
            yield None, stop * width, high
        levels = len(self.names)
        for level in range(levels):
            width = self.width(level)
            inner, end = -(-first // FAN), stop // FAN
            if level == levels - 1 or inner >= end:
                yield level, first * width, stop * width
                return
            if first < inner * FAN:
                yield level, first * width, inner * FAN * width
            if end * FAN < stop:
                yield level, end * FAN * width, stop * width
            first, stop = inner, end

    def completed(
        self, sections: Sequence[Sections], cells: Sequence[pa.Table], span: Span
    ) -> dict[str, pa.Table]:
        """The blocks of each level that end in a span, without those of which a part has expired by its end."""
        made: dict[str, pa.Table] = {}
        below = list(cells)
        for level, name in enumerate(self.names):
            width = self.width(level)
            first = max(span.emitted_to // width, -((self.length - span.limit) // width))
            stop = span.limit // width
            ended = between(below, first * width, stop * width) if first < stop else []
            if ended:
                made[name] = self._summed(ended, width)
            below = [*_of(sections, name), *([made[name]] if name in made else [])]
        return made

    def _summed(self, tables: Sequence[pa.Table], width: Duration) -> pa.Table:
        rows = gather(self.layout, tables)
        codes, count, _, group_index, _ = by_block_and_group(rows.blocks // width, rows.groups)
        earliest = np.full(count, np.iinfo(np.int64).max)
        np.minimum.at(earliest, codes, rows.blocks)
        slots = np.zeros(count, np.int16)
        slots[codes] = rows.slots
        keys = [key.take(pa.array(group_index)) for key in rows.groups.keys]
        answer = reduce_answer(self.layout, rows.answer, codes, count)
        table = self.layout.table(earliest, keys, slots, answer)
        return table.take(pa.array(_order(earliest)))


def store_of(section: str) -> int:
    """The number of the store whose cells a section of blocks combines."""
    return int(section.rpartition("_")[2])


def _order(keys: Ints) -> Ints:
    order: Ints = np.argsort(keys, kind="stable")
    return order


def _of(sections: Sequence[Sections], name: str) -> list[pa.Table]:
    return [section[name] for section in sections if name in section]
