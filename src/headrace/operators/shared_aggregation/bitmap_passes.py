"""What is aggregated in one pass over a batch by bitmaps: the rows in the order of lanes, and the columns of partials in
that order. Counts, sums and the extremes of one column share a pass, since lanes are sorted by one column at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints
from headrace.operators.native.lanes import picked
from headrace.operators.native.library import library
from headrace.operators.partials.encoding import PartialColumn
from headrace.operators.partials.partial import Count, Extreme, Sum
from headrace.operators.query_index.boxes.by_column import Words
from headrace.operators.query_index.matching.prepare import Prepared, words_of
from headrace.operators.shared_aggregation.bit_slices import BitSlices, Short
from headrace.operators.shared_aggregation.lanes import Lanes, laid_out
from headrace.operators.shared_aggregation.query_cells import FoldInput


@dataclass(frozen=True, slots=True, eq=False)
class PassColumn:
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
class Pass:
    """A layout of the batch and what is aggregated over it, in the order of lanes, for all parts of the index.

    `lane_of` a row is set if single rows are patched. `keys` are those of attributes that were read, in the order of lanes,
    by the identity of the array, which the batch keeps alive.
    """

    lanes: Lanes
    columns: list[PassColumn]
    lane_of: Ints | None
    keys: dict[int, np.ndarray]

    def by_lane(self, keys: np.ndarray) -> np.ndarray:
        """The keys, or ranks, of an attribute in the order of lanes: made once for all parts that name it."""
        if id(keys) not in self.keys:
            self.keys[id(keys)] = picked(keys, self.lanes.row)
        return self.keys[id(keys)]


def passes(fold_input: FoldInput) -> list[tuple[PartialColumn, ...]]:
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


def laid(
    batch: Prepared,
    fold_input: FoldInput,
    partial_columns: tuple[PartialColumn, ...],
    *,
    compiled: bool = True,
) -> Pass:
    """The batch laid out for these partials; `compiled`: by the kernels, where they were built."""
    values, exact = _sorting(fold_input, partial_columns)
    lanes = laid_out(
        fold_input.codes, fold_input.count, values, exact=exact, sizes=fold_input.sizes, compiled=compiled
    )
    lane_of = None
    if batch.patches:
        lane_of = np.empty(fold_input.rows, np.int64)
        there = np.flatnonzero(_truths(lanes.mask))
        lane_of[lanes.row[there]] = there
    kinds: dict[object, int] = {}
    return Pass(
        lanes,
        [
            _column(partial_column, fold_input, lanes, kinds, compiled=compiled)
            for partial_column in partial_columns
        ],
        lane_of,
        {},
    )


def _truths(words: Words) -> np.ndarray:
    """A bitmap as truth values by lane."""
    return np.unpackbits(words.view(np.uint8), bitorder="little").view(bool)


def _sorting(
    fold_input: FoldInput, partial_columns: Sequence[PartialColumn]
) -> tuple[np.ndarray | None, bool]:
    """The values that sort the lanes of a cell, and whether exactly: the column of extremes, else that of a sum."""
    for partial_column in partial_columns:
        if isinstance(partial_column.partial, Extreme):
            return fold_input.arguments[partial_column].values, True
    for partial_column in partial_columns:
        if isinstance(partial_column.partial, Sum) and partial_column.partial.integer:
            return fold_input.integers(partial_column)[-1], False
    return None, False


def _column(
    partial_column: PartialColumn,
    fold_input: FoldInput,
    lanes: Lanes,
    kinds: dict[object, int],
    *,
    compiled: bool,
) -> PassColumn:
    valid, there = None, fold_input.valid(partial_column)
    if there is not None:
        valid = words_of(there[lanes.row]) & lanes.mask
    counted = lanes.mask if valid is None else valid
    kind = kinds.setdefault(None if valid is None else partial_column.expression, len(kinds))
    slices: tuple[BitSlices, ...] = ()
    values = None
    if isinstance(partial_column.partial, Sum) and partial_column.partial.integer:
        columns = fold_input.integers(partial_column)
        if compiled and library() is not None:
            slices = tuple(BitSlices.compiled(integers, lanes.row, counted) for integers in columns)
        else:
            shorts = (Short.of(integers).taken(lanes.row) for integers in columns)
            slices = tuple(BitSlices.of(integers, _truths(counted)) for integers in shorts)
    elif not isinstance(partial_column.partial, Count):
        values = fold_input.arguments[partial_column].values[lanes.row]
        values = (
            np.where(_truths(counted), values, 0.0) if isinstance(partial_column.partial, Sum) else values
        )
    return PassColumn(
        partial_column, fold_input.partial_columns.index(partial_column), kind, valid, slices, values
    )
