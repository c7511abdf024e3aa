"""Blocks of aggregate state under `[RANGE r]`: cells of single instants combined by aligned intervals of time, so that
an epoch reads few rows for all that holds throughout it; and when the next cell expires or block ends.

From one epoch to the next few rows enter the window and few leave it; those between do neither. Their cells are combined in
*blocks*: aligned intervals of r/256, r/64, r/16 and r/4, each made once, when punctuation has passed its end. So an epoch
reads a few rows per group from blocks, and single cells only at the edges. Only `combine` is needed: nothing is subtracted,
so extremes, NaN and sums of doubles expire as rows do (decision D11 for windows that do not slide).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.aggregates.cell_table import KEY, Layout, gather, reduce_answer
from headrace.operators.base.block_codes import by_block_and_group
from headrace.operators.base.due import settles
from headrace.operators.base.group_codes import Ints, ints
from headrace.operators.base.operator import Sections
from headrace.operators.families.extents import Extents, within
from headrace.operators.output.changelog import Span
from headrace.time import BEGINNING, FOREVER, Instant

SECTION: Final = "live"
FINEST: Final = 256
FEW: Final = 64
"""Rows that are not combined: reading them again costs less. So a block has so many rows, or one for each group."""
FAN: Final = 4
LEVELS: Final = 4


@dataclass(frozen=True, slots=True)
class IntervalBlocks:
    """The blocks of one store of cells under `[RANGE r]`, where r is the extent of each query.

    The key of a block's row is the earliest instant of its cells: when the first of them expires.
    """

    layout: Layout
    extents: Extents
    store: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Sections of the levels, finest first."""
        return tuple(
            f"{SECTION}{level}_{self.store}" for level in range(LEVELS) if self._is_useful(level).any()
        )

    def widths(self, level: int) -> Ints:
        """The length of a block of a level, for each query."""
        widths: Ints = np.maximum(2, self.extents.values // FINEST) * FAN**level
        return widths

    def _is_useful(self, level: int) -> np.ndarray:
        useful: np.ndarray = 2 * self.widths(level) <= self.extents.values
        return useful

    def edges(self, cells: Sequence[pa.Table], span: Span) -> list[pa.Table]:
        """Cells that enter or leave within a span; `cells` in order of instants."""
        oldest, expired = (
            _before(span.emitted_to, self.extents.values),
            _before(span.limit, self.extents.values),
        )
        is_short = expired >= span.emitted_to
        limit = np.full(self.extents.count, span.limit)
        return [
            *within(cells, oldest, np.where(is_short, span.limit, expired), self.extents),
            *within(cells, np.where(is_short, span.limit, span.emitted_to), limit, self.extents),
        ]

    def throughout(
        self, sections: Sequence[Sections], cells: Sequence[pa.Table], span: Span
    ) -> list[pa.Table]:
        """Rows that together are the cells that hold at every instant of a span; `cells` in order of instants."""
        low = _before(span.limit, self.extents.values)
        is_short = low >= span.emitted_to
        first, last = np.where(is_short, 0, low), np.where(is_short, 0, span.emitted_to)
        if are_few(cells, times=4):
            return within(cells, first, last, self.extents)
        tables: list[pa.Table] = []
        for level, start, stop in self.cover(first, last):
            source = cells if level is None else _of(sections, f"{SECTION}{level}_{self.store}")
            tables += within(source, start, stop, self.extents)
        return tables

    def cover(self, low: Ints, high: Ints) -> Iterator[tuple[int | None, Ints, Ints]]:
        """Intervals (level or None for single cells, start, stop) whose disjoint union is [low, high), for each query.

        >>> one = Extents(np.zeros(1, int), np.array([512]), np.zeros(1, int))
        >>> cover = IntervalBlocks(Layout((), ()), one).cover(np.array([7]), np.array([75]))
        >>> [(level, start.item(), stop.item()) for level, start, stop in cover if start < stop]
        [(None, 7, 8), (None, 74, 75), (0, 72, 74), (1, 8, 32), (1, 64, 72), (2, 32, 64)]
        """
        width = self.widths(0)
        first, stop = (low + width - 1) // width, high // width
        is_open = self._is_useful(0) & (first < stop)
        yield None, low, np.where(is_open, first * width, high)
        yield None, np.where(is_open, stop * width, high), high
        for level in range(LEVELS):
            if not is_open.any():
                return
            width = self.widths(level)
            inner, end = (first + FAN - 1) // FAN, stop // FAN
            is_useful_above = self._is_useful(level + 1) if level + 1 < LEVELS else np.zeros(len(low), bool)
            is_last = is_open & (~is_useful_above | (inner >= end))
            is_open &= ~is_last
            upto = np.where(is_last, stop, inner * FAN)
            some = is_last | is_open
            yield level, np.where(some, first * width, 0), np.where(some, upto * width, 0)
            yield level, np.where(is_open, end * FAN * width, 0), np.where(is_open, stop * width, 0)
            first, stop = inner, end

    def completed(
        self, sections: Sequence[Sections], cells: Sequence[pa.Table], span: Span
    ) -> dict[str, pa.Table]:
        """The blocks of each level that end in a span, without those of which a part has expired by its end."""
        new_blocks: dict[str, pa.Table] = {}
        below, lengths = list(cells), self.extents.values
        oldest = _before(span.limit, lengths)
        for level, name in enumerate(self.names):
            width = self.widths(level)
            first = np.maximum(
                np.maximum(span.emitted_to, _before(oldest, width)) // width, -(-oldest // width)
            )
            stop = np.where(self._is_useful(level), span.limit // width, first)
            ended = within(below, first * width, stop * width, self.extents)
            if ended:
                new_blocks[name] = self._summed(ended, width)
            below = [*_of(sections, name), *([new_blocks[name]] if name in new_blocks else [])]
        return new_blocks

    def next_end(self, cells: Sequence[pa.Table], punctuation: Instant) -> Instant:
        """When the first block ends that has a cell and is not complete; `cells` in order of instants."""
        due = FOREVER
        for level in range(LEVELS if punctuation != BEGINNING else 0):  # there all cells wait
            width = self.widths(level)
            start = punctuation // width * width
            stop = np.where(self._is_useful(level), punctuation, start)
            for table in within(cells, start, stop, self.extents):
                due = min(due, int((start + width)[self.extents.places(table)].min()))
        return due

    def _summed(self, tables: Sequence[pa.Table], widths: Ints) -> pa.Table:
        """The rows of some blocks, in order of instants: one for each group, or all of them while they are few."""
        if are_few(tables):
            return in_order(tables)
        rows = gather(self.layout, tables)
        width = widths[self.extents.places(pa.concat_tables(tables))]
        codes, count, _, group_index, _ = by_block_and_group(rows.blocks // width, rows.groups)
        earliest = np.full(count, np.iinfo(np.int64).max)
        np.minimum.at(earliest, codes, rows.blocks)
        slots = np.zeros(count, np.int16)
        slots[codes] = rows.slots
        keys = [key.take(pa.array(group_index)) for key in rows.groups.keys]
        answer = reduce_answer(self.layout, rows.answer, codes, count)
        table = self.layout.table(earliest, keys, slots, answer)
        return table.take(pa.array(np.argsort(earliest, kind="stable")))


def are_few(tables: Sequence[pa.Table], *, times: int = 1) -> bool:
    """Whether cells are so few, or some times as many, that to read them again costs less than to combine them, or to find blocks."""
    rows: int = sum(table.num_rows for table in tables)
    return rows <= times * FEW


def in_order(tables: Sequence[pa.Table]) -> pa.Table:
    """Cells of some tables in order of instants, without combining those of one instant and group."""
    whole = pa.concat_tables(tables)
    keys = ints(whole, KEY)
    if (keys[1:] >= keys[:-1]).all():
        return whole
    return whole.take(pa.array(np.argsort(keys, kind="stable")))


def next_expiry(cells: pa.Table, extents: Extents, punctuation: Instant) -> Instant:
    """When the first of the cells that hold at the punctuation expires; `cells` in order of instants."""
    start = int(np.searchsorted(ints(cells, KEY), _before(punctuation, extents.values).min()))
    is_uniform = (extents.values == extents.values[0]).all()
    holding = cells.slice(start, 1) if is_uniform else cells.slice(start)
    return settles(ints(holding, KEY) + extents.of_rows(holding), punctuation)


def _before(instants: Ints | Instant, lengths: Ints) -> Ints:
    """Instants less lengths, not below the beginning of time."""
    before: Ints = np.maximum(instants, BEGINNING + lengths) - lengths
    return before


def store_of(section: str) -> int:
    """The number of the store whose cells a section of blocks combines."""
    return int(section.rpartition("_")[2])


def _of(sections: Sequence[Sections], name: str) -> list[pa.Table]:
    return [section[name] for section in sections if name in section]
