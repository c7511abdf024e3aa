"""Shared aggregation for conditions on group keys alone: rows are folded once into (pane, group)s, and a query's cells are those of
the groups that pass its condition.

A condition on the keys is true of all rows of a group or of none, so it is decided once a (pane, group) instead of once a row, and
the partials are copied instead of computed for each query. With a row for each group it costs what `pairs` costs.
Source: the rule by which a selection on grouping attributes commutes with grouping (Yan and Larson, Performing Group-By
before Join, 1994; Chaudhuri and Shim, Including Group-By in Query Optimization, 1994).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from headrace.operators.base.group_codes import Ints
from headrace.operators.partials.encoding import PartialColumn
from headrace.operators.partials.partial import Cells
from headrace.operators.query_index.boxes.by_column import tiles_of
from headrace.operators.query_index.matching.few_rows import are_few, compared
from headrace.operators.query_index.matching.prepare import Prepared, blocks, truths
from headrace.operators.query_index.matching.probe import pairs_of, probe
from headrace.operators.shared_aggregation.query_cells import MOST_EMPTY, DensePart, FoldInput, Part

_DENSE: Final = 1 << 12
"""Cells of a part from which it may be an array."""


def fold(batch: Prepared, number: int, fold_input: FoldInput) -> Iterator[Part | DensePart]:
    """The cells of one part's queries; the ranks of the part are those of (pane, group)s."""
    compiled, at, count = batch.parts[number], batch.at(number), fold_input.count
    part, slots = compiled.part, compiled.part.slots
    lives = ~np.isin(slots, list(batch.dead)) if batch.dead else np.ones(len(slots), bool)
    if are_few(part, count):
        yield from _selected(compared(part, at, count), slots, lives, 0, fold_input)
        return
    probes = probe(part, at, count)
    if searches_pay(part.boxes, count, probes.candidates):
        for codes, queries in pairs_of(part, probes):
            yield _picked(slots, lives, queries, codes, fold_input)
        return
    for low, high, here, mask in blocks(at, count):
        for tile in tiles_of(compiled.plan, here, mask):
            here_too = slice(tile.low, tile.high)
            selected = truths(tile.words, high - low)
            yield from _selected(selected, slots[here_too], lives[here_too], low, fold_input)


def searches_pay(boxes: int, count: int, candidates: int) -> bool:
    """Whether the pairs of searches cost less than those of bitmaps; nanoseconds as `strategy.chosen` has them."""
    return 22.0 * count + 40.0 * candidates < 100.0 * count + 134.0 * boxes * (count / 64) + 20.0 * candidates


def _selected(
    selected: npt.NDArray[np.bool_], slots: Ints, lives: np.ndarray, first: int, fold_input: FoldInput
) -> Iterator[Part | DensePart]:
    """The cells of queries that select some (pane, group)s from `first` on, by query; nothing where they select none."""
    if not lives.all():
        selected, slots = selected[lives], slots[lives]
    count = int(np.count_nonzero(selected))
    if count >= _DENSE and selected.size <= MOST_EMPTY * count:
        yield _dense(selected, slots, first, fold_input)
    elif count:
        queries, codes = np.nonzero(selected)
        yield _picked(slots, np.ones(len(slots), bool), queries, codes + first, fold_input)


def _picked(slots: Ints, lives: np.ndarray, queries: Ints, codes: Ints, fold_input: FoldInput) -> Part:
    """The cells of pairs of a query and a (pane, group), without those of queries that do not live."""
    if not lives.all():
        kept = lives[queries]
        queries, codes = queries[kept], codes[kept]
    return Part(slots[queries], codes, _each(fold_input, lambda part, _: part[codes]))


def _dense(selected: npt.NDArray[np.bool_], slots: Ints, first: int, fold_input: FoldInput) -> DensePart:
    """The same as arrays, where most pairs are selected."""
    here = slice(first, first + selected.shape[1])
    cells = _each(fold_input, lambda part, without: np.where(selected, part[here], without))
    return DensePart(slots, first, cells[fold_input.partial_columns[0]][0], cells)


def _each(
    fold_input: FoldInput, of: Callable[[npt.NDArray[Any], Any], npt.NDArray[Any]]
) -> dict[PartialColumn, Cells]:
    """What a function makes of each array of the cells of all (pane, group)s and the value of a cell without rows; of one array once."""
    made = dict[int, Cells]()
    for column, cells in fold_input.lifted.items():
        if id(cells) not in made:
            without = column.partial.identity((1,))
            made[id(cells)] = tuple(of(part, empty[0]) for part, empty in zip(cells, without, strict=True))
    return {column: made[id(cells)] for column, cells in fold_input.lifted.items()}
