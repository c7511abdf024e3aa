"""Shared aggregation from bitmaps: every query's rows as words, aggregated without looking at single rows.

The cost is queries times words, whatever the predicates hold; one pass over the batch, and one more for each further
column whose MIN or MAX is wanted (lanes are sorted by one column at a time).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace.operators.cells import Fed
from headrace.operators.grouping import Ints
from headrace.operators.partials import Argument, Cells, Count, Extreme, Moments, Sum
from headrace.operators.query_index.columns import LANES, Tile, Words, tiles_of
from headrace.operators.query_index.index import Compiled
from headrace.operators.query_index.preparing import Prepared, words_of
from headrace.operators.shared_aggregation.cells_of_queries import Asked, occupied
from headrace.operators.shared_aggregation.lanes import Block, Lanes, blocks, laid_out
from headrace.operators.shared_aggregation.planes import (
    Floats,
    Planes,
    first_lanes,
    last_lanes,
    sums_of_doubles,
)

_CELLS: Final = 1 << 22
"""Cells of all queries that are held at once."""

Dense = Mapping[Fed, Cells]


def takes(feds: Sequence[Fed]) -> bool:
    """Whether all partials can be made from bitmaps: not moments, whose deviations need the rows."""
    return not any(isinstance(fed.partial, Moments) for fed in feds)


@dataclass(frozen=True, slots=True, eq=False)
class _Pass:
    """A layout of the batch and what is aggregated over it; `lane_of` a row is known when single rows are patched."""

    lanes: Lanes
    at: list[Ints]
    feds: tuple[Fed, ...]
    lane_of: Ints | None


def fold(batch: Prepared, number: int, question: Asked) -> Iterator[tuple[Ints, Ints, Dense]]:
    """The cells of one part's queries, some (pane, group)s at a time."""
    compiled = batch.parts[number]
    slots = compiled.part.slots
    live = ~np.isin(slots, np.array(sorted(batch.dead), np.int64))
    passes = [_laid(batch, number, question, feds) for feds in _passes(question)]
    step = max(1, _CELLS // max(len(slots), 1))
    for first in range(0, question.count, step):
        stop = min(question.count, first + step)
        dense = {fed: fed.partial.identity((len(slots), stop - first)) for fed in question.feds}
        for one in passes:
            for block in blocks(one.lanes, first, stop):
                columns = _Columns(one, block, question)
                for tile in _tiles(compiled, batch, one, block):
                    columns.add(tile, dense, first)
        dense[question.feds[0]][0][~live] = 0
        yield occupied(dense, slots, first, question)


def _passes(question: Asked) -> list[tuple[Fed, ...]]:
    """Counts, sums and the extremes of one column together; extremes of every other column by themselves."""
    additive = tuple(fed for fed in question.feds if not isinstance(fed.partial, Extreme))
    extremes: dict[object, tuple[Fed, ...]] = {}
    for fed in question.feds:
        if isinstance(fed.partial, Extreme):
            extremes[fed.expression] = (*extremes.get(fed.expression, ()), fed)
    first, *others = list(extremes.values()) or [()]
    return [(*additive, *first), *others]


def _laid(batch: Prepared, number: int, question: Asked, feds: tuple[Fed, ...]) -> _Pass:
    extreme = next((fed for fed in feds if isinstance(fed.partial, Extreme)), None)
    total = next((fed for fed in feds if isinstance(fed.partial, Sum) and fed.partial.integer), None)
    values = None
    if extreme is not None:
        values = question.arguments[extreme].values
    elif total is not None:
        values = _whole(total, question.arguments[total].values)
    lanes = laid_out(question.codes, question.count, values, exact=extreme is not None)
    lane_of = None
    if batch.patches:
        lane_of = np.empty(question.rows, np.int64)
        real = np.flatnonzero(np.unpackbits(lanes.mask.view(np.uint8), bitorder="little"))
        lane_of[lanes.row[real]] = real
    return _Pass(lanes, [one[lanes.row] for one in batch.at[number]], feds, lane_of)


def _whole(fed: Fed, values: np.ndarray) -> Ints:
    """Integers that arrive as limbs, as one number each; of decimals the highest limb."""
    if fed.encoding == "limbs2":
        return (values[:, 1] << 32) | values[:, 0]
    return values if values.ndim == 1 else values[:, -1]


def _tiles(compiled: Compiled, batch: Prepared, one: _Pass, block: Block) -> Iterator[Tile]:
    here = [places[block.lanes] for places in one.at]
    for tile in tiles_of(compiled.plan, here, one.lanes.mask[block.low : block.high]):
        if one.lane_of is not None:
            _patch(tile, compiled.part.slots, batch, one.lane_of, block)
        yield tile


def _patch(tile: Tile, slots: Ints, batch: Prepared, lane_of: Ints, block: Block) -> None:
    for place in np.flatnonzero(np.isin(slots[tile.low : tile.high], list(batch.patches))):
        rows, true = batch.patches[int(slots[tile.low + place])]
        lanes = lane_of[rows] - block.low * LANES
        inside = (lanes >= 0) & (lanes < (block.high - block.low) * LANES)
        bit = np.left_shift(np.uint64(1), (lanes[inside] & 63).astype(np.uint64))
        words, wanted = lanes[inside] >> 6, true[inside]
        np.bitwise_or.at(tile.words[place], words, bit)
        np.bitwise_xor.at(tile.words[place], words[~wanted], bit[~wanted])


class _Columns:
    """The columns of a block as planes, each made once for all tiles."""

    def __init__(self, one: _Pass, block: Block, question: Asked) -> None:
        self.feds, self.block = one.feds, block
        self.rows = one.lanes.row[block.lanes]
        mask = one.lanes.mask[block.low : block.high]
        self.real = np.unpackbits(mask.view(np.uint8), bitorder="little").view(bool)
        self.valid: dict[Fed, Words | None] = {}
        self.kinds: dict[Fed, int] = {}
        """Feds of one number count the same rows."""
        known: dict[object, int] = {}
        self.planes: dict[Fed, list[Planes]] = {}
        self.values: dict[Fed, np.ndarray] = {}
        for fed in self.feds:
            self._prepare(fed, question.arguments[fed])
            counted = None if self.valid[fed] is None else fed.expression
            self.kinds[fed] = known.setdefault(counted, len(known))

    def _prepare(self, fed: Fed, argument: Argument) -> None:
        counted = self.real
        self.valid[fed] = None
        if argument.valid is not None:
            counted = self.real & argument.valid[self.rows]
            self.valid[fed] = words_of(counted)
        if isinstance(fed.partial, Count):
            return
        values = argument.values[self.rows]
        if not isinstance(fed.partial, Sum):
            self.values[fed] = values
        elif not fed.partial.integer:
            self.values[fed] = np.where(counted, values, 0.0)
        elif values.ndim == 1 or fed.encoding == "limbs2":
            self.planes[fed] = [Planes.of(_whole(fed, values), counted, self.block)]
        else:
            limbs = [values[:, limb] for limb in range(values.shape[1])]
            self.planes[fed] = [Planes.of(limb, counted, self.block) for limb in limbs]

    def add(self, tile: Tile, dense: Dense, first: int) -> None:
        """Combine the block's partials of a tile's queries into theirs."""
        cells = self.block.cells - first
        narrow = slice(int(cells[0]), int(cells[-1]) + 1)
        where: slice | Ints = narrow if narrow.stop - narrow.start == len(cells) else cells
        counts: dict[int, tuple[Floats, Ints]] = {}
        for fed in self.feds:
            for into, part in zip(
                dense[fed], self._cells(fed, tile.words, dense, where, tile, counts), strict=True
            ):
                into[tile.low : tile.high, where] = part

    def _cells(
        self,
        fed: Fed,
        words: Words,
        dense: Dense,
        where: slice | Ints,
        tile: Tile,
        counts: dict[int, tuple[Floats, Ints]],
    ) -> Cells:
        before = tuple(part[tile.low : tile.high, where] for part in dense[fed])
        valid = self.valid[fed]
        key = self.kinds[fed]
        if key not in counts:
            held = words if valid is None else words & valid
            by_word = np.bitwise_count(held).astype(np.float32)
            counts[key] = by_word, self.block.sums(by_word)
        by_word, by_cell = counts[key]
        if isinstance(fed.partial, Count):
            return (before[0] + by_cell,)
        if isinstance(fed.partial, Extreme):
            held = words if valid is None else words & valid
            return fed.partial.combine(before, (self._extreme(fed, fed.partial, held),))
        if fed in self.planes:
            return self._sums(fed, words, before, by_word, by_cell)
        return (before[0] + sums_of_doubles(words, self.values[fed], self.block),)

    def _sums(self, fed: Fed, words: Words, before: Cells, counts: Floats, valid: Ints) -> Cells:
        sums = [planes.sums(words, self.block, counts, valid) for planes in self.planes[fed]]
        if fed.encoding == "limbs2":
            ((low, high),) = sums
            return before[0] + low, before[1] + high
        return tuple(part + low + (high << 32) for part, (low, high) in zip(before, sums, strict=True))

    def _extreme(self, fed: Fed, partial: Extreme, held: Words) -> np.ndarray:
        lanes = (last_lanes if partial.largest else first_lanes)(held, self.block.begins)
        none = (lanes < 0) | (lanes >= len(self.rows))
        picked = self.values[fed][np.where(none, 0, lanes)]
        return np.where(none, partial.identity((1,))[0][0], picked)
