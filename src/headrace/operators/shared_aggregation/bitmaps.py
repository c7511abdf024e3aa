"""Shared aggregation of a batch by bitmaps: the rows that each query selects are words of a bitmap, from which counts,
sums and extremes are made without visiting single rows.

The cost is queries times words, whatever the predicates; one pass over the batch, and one more for each further column
with MIN or MAX (lanes are sorted by one column at a time).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from headrace.operators.base.group_codes import Ints
from headrace.operators.partials.encoding import PartialColumn
from headrace.operators.partials.partial import Cells, Count, Extreme, Sum
from headrace.operators.query_index.boxes.by_column import LANES, Tile, Words, tiles_of
from headrace.operators.query_index.matching.prepare import Prepared
from headrace.operators.shared_aggregation import compiled_bitmaps
from headrace.operators.shared_aggregation.bit_slices import (
    BlockBitSlices,
    Floats,
    first_lanes,
    last_lanes,
    sums_of_doubles,
)
from headrace.operators.shared_aggregation.bitmap_passes import Pass, PassColumn
from headrace.operators.shared_aggregation.lanes import Block, blocks
from headrace.operators.shared_aggregation.query_cells import DensePart, FoldInput, Part, dense_part

_CELLS: Final = 1 << 22
"""Cells of all queries that are held at once."""


def takes(partial_columns: Sequence[PartialColumn]) -> bool:
    """Whether all partials can be made from bitmaps: not those whose deviations or times need the rows."""
    return all(
        isinstance(partial_column.partial, Count | Sum | Extreme) for partial_column in partial_columns
    )


def fold(
    batch: Prepared, number: int, fold_input: FoldInput, laid_passes: Sequence[Pass]
) -> Iterator[Part | DensePart]:
    """The cells of one part's queries, some (pane, group)s at a time; `laid_passes` are those of the batch."""
    compiled = batch.parts[number]
    slots = compiled.part.slots
    dead = np.isin(slots, np.array(sorted(batch.dead), np.int64))
    ranks = batch.ranks[number]
    step = max(1, _CELLS // max(len(slots), 1))
    for first in range(0, fold_input.count, step):
        cells = range(first, min(fold_input.count, first + step))
        dense: dict[int, Cells] = {}
        for pass_ in laid_passes:
            if compiled_bitmaps.takes(pass_):
                dense |= compiled_bitmaps.of_pass(compiled, ranks, pass_, cells)
            else:
                at = [here.of(pass_.lanes.row) for here in ranks]
                dense |= of_pass(batch, number, at, pass_, cells)
        of_column = {column: dense[at] for at, column in enumerate(fold_input.partial_columns)}
        yield dense_part(slots, first, of_column, fold_input, dead)


def of_pass(
    batch: Prepared, number: int, at: Sequence[np.ndarray], pass_: Pass, cells: range
) -> dict[int, Cells]:
    """What `compiled_bitmaps.of_pass` makes, in numpy, for part `number`; `at` are its ranks by lane."""
    shape = (batch.parts[number].part.queries, len(cells))
    dense = {column.number: column.partial_column.partial.identity(shape) for column in pass_.columns}
    for block in blocks(pass_.lanes, cells.start, cells.stop):
        columns = _Block(pass_, block)
        for tile in _tiles(batch, number, at, pass_, block):
            columns.add(tile, dense, cells.start)
    return dense


def _tiles(
    batch: Prepared, number: int, at: Sequence[np.ndarray], pass_: Pass, block: Block
) -> Iterator[Tile]:
    compiled, here = batch.parts[number], [ranks[block.lanes] for ranks in at]
    for tile in tiles_of(compiled.plan, here, pass_.lanes.mask[block.low : block.high]):
        if pass_.lane_of is not None:
            _patch(tile, compiled.part.slots, batch, pass_.lane_of, block)
        yield tile


def _patch(tile: Tile, slots: Ints, batch: Prepared, lane_of: Ints, block: Block) -> None:
    for index in np.flatnonzero(np.isin(slots[tile.low : tile.high], list(batch.patches))):
        rows, true = batch.patches[int(slots[tile.low + index])]
        lanes = lane_of[rows] - block.low * LANES
        inside = (lanes >= 0) & (lanes < (block.high - block.low) * LANES)
        bit = np.left_shift(np.uint64(1), (lanes[inside] & 63).astype(np.uint64))
        words, selected = lanes[inside] >> 6, true[inside]
        np.bitwise_or.at(tile.words[index], words, bit)
        np.bitwise_xor.at(tile.words[index], words[~selected], bit[~selected])


class _Block:
    """The columns of a block, each sliced once for all tiles."""

    def __init__(self, pass_: Pass, block: Block) -> None:
        self._block, self._words = block, slice(block.low, block.high)
        self._columns = [
            (column, [slices.of_block(block) for slices in column.slices]) for column in pass_.columns
        ]

    def add(self, tile: Tile, dense: Mapping[int, Cells], first: int) -> None:
        """Combine the block's partials of a tile's queries into `dense`."""
        cells = self._block.cells - first
        narrow = slice(int(cells[0]), int(cells[-1]) + 1)
        where: slice | Ints = narrow if narrow.stop - narrow.start == len(cells) else cells
        counts: dict[int, tuple[Words, Floats, Ints]] = {}
        for column, slices in self._columns:
            if column.kind not in counts:
                held = tile.words if column.valid is None else tile.words & column.valid[self._words]
                by_word = np.bitwise_count(held).astype(np.float32)
                counts[column.kind] = held, by_word, self._block.sums(by_word)
            into = dense[column.number]
            before = tuple(part[tile.low : tile.high, where] for part in into)
            for whole, part in zip(
                into, self._cells(column, slices, tile.words, before, counts[column.kind]), strict=True
            ):
                whole[tile.low : tile.high, where] = part

    def _cells(
        self,
        column: PassColumn,
        slices: Sequence[BlockBitSlices],
        words: Words,
        before: Cells,
        counted: tuple[Words, Floats, Ints],
    ) -> Cells:
        held, by_word, by_cell = counted
        partial = column.partial_column.partial
        if isinstance(partial, Count):
            return (before[0] + by_cell,)
        if slices:
            sums = [part.sums(words, self._block, by_word, by_cell) for part in slices]
            if column.partial_column.encoding == "limbs2":
                ((low, high),) = sums
                return before[0] + low, before[1] + high
            return tuple(part + low + (high << 32) for part, (low, high) in zip(before, sums, strict=True))
        assert column.values is not None
        values = column.values[self._block.lanes]
        if isinstance(partial, Extreme):
            return partial.combine(before, (self._extreme(partial, values, held),))
        return (before[0] + sums_of_doubles(words, values, self._block),)

    def _extreme(self, partial: Extreme, values: np.ndarray, held: Words) -> np.ndarray:
        lanes = (last_lanes if partial.largest else first_lanes)(held, self._block.begins)
        none = (lanes < 0) | (lanes >= len(values))
        return np.where(none, partial.identity((1,))[0][0], values[np.where(none, 0, lanes)])
