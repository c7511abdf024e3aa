"""Shared aggregation of a batch by bitmaps: the rows that each query selects are words of a bitmap, from which counts,
sums and extremes are made without visiting single rows.

The cost is queries times words, whatever the predicates; one pass over the batch, and one more for each further column
with MIN or MAX (lanes are sorted by one column at a time).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints
from headrace.operators.partials.encoding import PartialColumn
from headrace.operators.partials.partial import Cells, Count, Extreme, Sum
from headrace.operators.query_index.boxes.by_column import LANES, Tile, Words, tiles_of
from headrace.operators.query_index.index import Compiled
from headrace.operators.query_index.matching.prepare import Prepared, words_of
from headrace.operators.shared_aggregation.bit_slices import (
    BitSlices,
    BlockBitSlices,
    Floats,
    Short,
    first_lanes,
    last_lanes,
    sums_of_doubles,
)
from headrace.operators.shared_aggregation.lanes import Block, Lanes, blocks, laid_out
from headrace.operators.shared_aggregation.query_cells import FoldInput, occupied

_CELLS: Final = 1 << 22
"""Cells of all queries that are held at once."""


def takes(partial_columns: Sequence[PartialColumn]) -> bool:
    """Whether all partials can be made from bitmaps: not those whose deviations or times need the rows."""
    return all(
        isinstance(partial_column.partial, Count | Sum | Extreme) for partial_column in partial_columns
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Column:
    """One partial in the order of lanes: its `number` in the input, and what is aggregated.

    `valid` are the rows that count, None if all do; partials of one `kind` count the same rows; `slices` of integer
    sums, `values` of doubles and extremes.
    """

    partial_column: PartialColumn
    number: int
    kind: int
    valid: Words | None
    slices: tuple[BitSlices, ...]
    values: np.ndarray | None


@dataclass(frozen=True, slots=True, eq=False)
class _Pass:
    """A layout of the batch and what is aggregated over it, in the order of lanes.

    `at` are the ranks of the part's attributes. `lane_of` a row is set if single rows are patched.
    """

    lanes: Lanes
    at: list[np.ndarray]
    columns: list[_Column]
    lane_of: Ints | None


def fold(
    batch: Prepared, number: int, fold_input: FoldInput
) -> Iterator[tuple[Ints, Ints, Mapping[PartialColumn, Cells]]]:
    """The cells of one part's queries, some (pane, group)s at a time."""
    compiled = batch.parts[number]
    slots = compiled.part.slots
    live = ~np.isin(slots, np.array(sorted(batch.dead), np.int64))
    passes = [_laid(batch, number, fold_input, partial_columns) for partial_columns in _passes(fold_input)]
    step = max(1, _CELLS // max(len(slots), 1))
    for first in range(0, fold_input.count, step):
        stop = min(fold_input.count, first + step)
        dense = [
            partial_column.partial.identity((len(slots), stop - first))
            for partial_column in fold_input.partial_columns
        ]
        for pass_ in passes:
            for block in blocks(pass_.lanes, first, stop):
                columns = _Block(pass_, block)
                for tile in _tiles(compiled, batch, pass_, block):
                    columns.add(tile, dense, first)
        dense[0][0][~live] = 0
        yield occupied(dict(zip(fold_input.partial_columns, dense, strict=True)), slots, first, fold_input)


def _passes(fold_input: FoldInput) -> list[tuple[PartialColumn, ...]]:
    """Counts, sums and the extremes of one column together; extremes of every other column separately."""
    additive = tuple(
        partial_column
        for partial_column in fold_input.partial_columns
        if not isinstance(partial_column.partial, Extreme)
    )
    extremes: dict[object, tuple[PartialColumn, ...]] = {}
    for partial_column in fold_input.partial_columns:
        if isinstance(partial_column.partial, Extreme):
            extremes[partial_column.expression] = (
                *extremes.get(partial_column.expression, ()),
                partial_column,
            )
    first, *others = list(extremes.values()) or [()]
    return [(*additive, *first), *others]


def _laid(
    batch: Prepared, number: int, fold_input: FoldInput, partial_columns: tuple[PartialColumn, ...]
) -> _Pass:
    values, exact = _sorting(fold_input, partial_columns)
    lanes = laid_out(fold_input.codes, fold_input.count, values, exact=exact)
    real = np.unpackbits(lanes.mask.view(np.uint8), bitorder="little").view(bool)
    lane_of = None
    if batch.patches:
        lane_of = np.empty(fold_input.rows, np.int64)
        there = np.flatnonzero(real)
        lane_of[lanes.row[there]] = there
    at = [
        ranks.astype(np.min_scalar_type(attribute.null))[lanes.row]
        for attribute, ranks in zip(batch.parts[number].part.attributes, batch.at[number], strict=True)
    ]
    kinds: dict[object, int] = {}
    return _Pass(
        lanes,
        at,
        [_column(partial_column, fold_input, lanes, real, kinds) for partial_column in partial_columns],
        lane_of,
    )


def _sorting(
    fold_input: FoldInput, partial_columns: Sequence[PartialColumn]
) -> tuple[np.ndarray | None, bool]:
    """The values that sort the lanes of a cell, and whether exactly: the column of extremes, else that of a sum."""
    for partial_column in partial_columns:
        if isinstance(partial_column.partial, Extreme):
            return fold_input.arguments[partial_column].values, True
    for partial_column in partial_columns:
        if isinstance(partial_column.partial, Sum) and partial_column.partial.integer:
            return _integers(partial_column, fold_input.arguments[partial_column].values)[-1], False
    return None, False


def _column(
    partial_column: PartialColumn,
    fold_input: FoldInput,
    lanes: Lanes,
    real: np.ndarray,
    kinds: dict[object, int],
) -> _Column:
    argument, counted, valid = fold_input.arguments[partial_column], real, None
    if argument.valid is not None:
        counted = real & argument.valid[lanes.row]
        valid = words_of(counted)
    kind = kinds.setdefault(None if valid is None else partial_column.expression, len(kinds))
    slices: tuple[BitSlices, ...] = ()
    values = None
    if isinstance(partial_column.partial, Sum) and partial_column.partial.integer:
        columns = (
            Short.of(integers).taken(lanes.row) for integers in _integers(partial_column, argument.values)
        )
        slices = tuple(BitSlices.of(integers, counted) for integers in columns)
    elif not isinstance(partial_column.partial, Count):
        values = argument.values[lanes.row]
        values = np.where(counted, values, 0.0) if isinstance(partial_column.partial, Sum) else values
    return _Column(
        partial_column, fold_input.partial_columns.index(partial_column), kind, valid, slices, values
    )


def _integers(partial_column: PartialColumn, values: np.ndarray) -> list[Ints]:
    """The integers that are summed separately: limbs, those of a BIGINT as one number."""
    if partial_column.encoding == "limbs2":
        return [(values[:, 1] << 32) | values[:, 0]]
    return [values] if values.ndim == 1 else [values[:, limb] for limb in range(values.shape[1])]


def _tiles(compiled: Compiled, batch: Prepared, pass_: _Pass, block: Block) -> Iterator[Tile]:
    here = [ranks[block.lanes].astype(np.int64) for ranks in pass_.at]
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

    def __init__(self, pass_: _Pass, block: Block) -> None:
        self._block, self._words = block, slice(block.low, block.high)
        self._columns = [
            (column, [slices.of_block(block) for slices in column.slices]) for column in pass_.columns
        ]

    def add(self, tile: Tile, dense: Sequence[Cells], first: int) -> None:
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
        column: _Column,
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
