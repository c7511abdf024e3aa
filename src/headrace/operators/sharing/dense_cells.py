"""Cells of several folds of the same conditions, added up in dense arrays: a row for each condition, a column for each
(pane, group). What a thousand conditions select of a batch is nearly all of these cells, batch after batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.aggregates.aggregate_calls import Answer
from headrace.operators.aggregates.cell_table import Gathered, Layout
from headrace.operators.base.block_codes import by_block_and_group
from headrace.operators.base.group_codes import Groups, Ints, group, picked
from headrace.operators.panes.pane_keys import pane_keys
from headrace.operators.panes.panes import Panes
from headrace.operators.partials.encoding import PartialColumn
from headrace.operators.partials.partial import Cells
from headrace.operators.shared_aggregation.query_cells import (
    MOST_EMPTY,
    DensePart,
    Part,
    QueryCells,
    picked_cells,
    without_rows,
)

_PORTION: Final = 1 << 18
_SMALL: Final = 1 << 18
"""The most cells of a dense array for a fold of few of them."""
_LEAST: Final = 1 << 12
"""The cells of a fold of a small batch stay as they are: it has no other to be added to."""


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """The (pane, group)s of a fold: number i is the pane that starts at `starts[i]` and the group `owner[i]` of those with these
    `keys`, whose rows at rest are in `slot_of_group`.
    """

    starts: Ints
    owner: Ints
    keys: tuple[pa.Array, ...]
    slot_of_group: np.ndarray

    def have_own_panes(self, panes: Panes) -> bool:
        """Whether no pane of these is made of several of the fold's."""
        own = panes.of_instants(self.starts)
        groups = Groups(self.owner, len(self.slot_of_group), ())
        return (
            len(own) < 2
            or self.starts[0] == self.starts[-1]
            or by_block_and_group(own, groups).number == len(own)
        )

    def columns_of(self, others: Pairs) -> Ints | None:
        """The number here of each of the others; None if one of them is not here. Texts are numbered as they occur."""
        if (
            np.array_equal(self.starts, others.starts)
            and np.array_equal(self.owner, others.owner)
            and all(own.equals(other) for own, other in zip(self.keys, others.keys, strict=True))
        ):
            return np.arange(len(self.starts))
        count = len(self.slot_of_group)
        groups = group(
            [pa.concat_arrays(both) for both in zip(self.keys, others.keys, strict=True)],
            count + len(others.slot_of_group),
        ).dense()
        starts = np.unique(self.starts)
        own = np.searchsorted(starts, self.starts) * groups.count + groups.codes[self.owner]
        start = np.minimum(np.searchsorted(starts, others.starts), len(starts) - 1)
        wanted = start * groups.count + groups.codes[count + others.owner]
        order = np.argsort(own)
        found = order[np.minimum(np.searchsorted(own[order], wanted), len(own) - 1)]
        is_here = (starts[start] == others.starts) & (own[found] == wanted)
        return found if is_here.all() else None


@dataclass(frozen=True, slots=True, eq=False)
class SparseFold:
    """The cells of one fold that have rows."""

    cells: QueryCells
    pairs: Pairs

    @property
    def rows(self) -> int:
        """Number of cells that have rows."""
        return self.cells.rows

    def add(self, pairs: Pairs, parts: Iterable[Part | DensePart]) -> bool:  # noqa: ARG002
        """False: it stays one fold."""
        return False

    def alone(self) -> list[DenseCells]:
        """None: it is rows."""
        return []

    def whole(self, layout: Layout, slots: int) -> DenseCells | None:
        """In arrays of its own, if they are small."""
        if slots * len(self.pairs.starts) > _SMALL:
            return None
        dense = DenseFold.of(layout, self.pairs, slots)
        self.add_to(dense.cells, np.arange(len(self.pairs.starts)))
        return dense.alone()[0]

    def sparse(self) -> SparseFold:
        """Itself."""
        return self

    def gathered(self) -> Gathered:
        """The cells by the keys of queries."""
        pairs, codes = self.pairs, self.cells.codes
        of_cell = pairs.owner[codes]
        by_key = Groups(of_cell, len(pairs.slot_of_group), pairs.keys)
        return Gathered(pairs.starts[codes], pairs.slot_of_group[of_cell], by_key, self.cells.answer)

    def table(self, layout: Layout) -> pa.Table:
        """The cells as a table, by the slots of their conditions first."""
        gathered = self.gathered()
        codes = pa.array(gathered.groups.codes)
        keys = [pa.array(self.cells.slots), *(key.take(codes) for key in self.pairs.keys)]
        return layout.table(gathered.blocks, keys, gathered.slots, gathered.answer)

    def add_to(self, whole: dict[PartialColumn, Cells], columns: Ints) -> None:
        """Combine its cells with those of the columns of its (pane, group)s."""
        cells = self.cells
        Part(cells.slots, cells.codes, cells.answer.cells).add_to(whole, columns)


@dataclass(slots=True, eq=False)
class DenseFold:
    """The cells of folds whose (pane, group)s are those of the first, of shape (slots, (pane, group)s); those without rows are the identity."""

    pairs: Pairs
    counts: Ints
    cells: dict[PartialColumn, Cells]

    @staticmethod
    def of(layout: Layout, pairs: Pairs, slots: int) -> DenseFold:
        """No rows."""
        shape = (slots, len(pairs.starts))
        cells = without_rows(layout.partial_columns, shape)
        return DenseFold(pairs, cells[layout.partial_columns[0]][0], cells)

    @staticmethod
    def fits(layout: Layout, pairs: Pairs, slots: int, rows: int) -> bool:
        """Whether arrays for a fold with so many cells that have rows would not be mostly empty, and no value needs a dictionary."""
        return rows >= _LEAST and layout.is_light and slots * len(pairs.starts) <= MOST_EMPTY * rows

    @property
    def rows(self) -> int:
        """Number of cells that have rows."""
        return int(np.count_nonzero(self.counts))

    def add(self, pairs: Pairs, parts: Iterable[Part | DensePart]) -> bool:
        """Combine the cells of another fold, if its (pane, group)s are among these; whether they are."""
        columns = self.pairs.columns_of(pairs)
        if columns is None:
            return False
        for part in parts:
            part.add_to(self.cells, columns)
        return True

    def alone(self) -> list[DenseCells]:
        """All of its cells, without a copy."""
        pairs = self.pairs
        return [
            DenseCells(pairs.starts, pairs.owner, pairs.keys, pairs.slot_of_group, self.counts, self.cells)
        ]

    def whole(self, layout: Layout, slots: int) -> DenseCells:  # noqa: ARG002
        """The same."""
        return self.alone()[0]

    def sparse(self) -> SparseFold:
        """The cells that have rows."""
        part = self._part().sparse()
        return SparseFold(QueryCells(part.slots, part.codes, Answer(part.cells)), self.pairs)

    def add_to(self, whole: dict[PartialColumn, Cells], columns: Ints) -> None:
        """Combine its cells with those of the columns of its (pane, group)s."""
        self._part().add_to(whole, columns)

    def _part(self) -> DensePart:
        return DensePart(np.arange(len(self.counts)), 0, self.counts, self.cells)


@dataclass(frozen=True, slots=True, eq=False)
class _Queries:
    """Queries of a family: the slots of their conditions, their numbers, and their slots at rest, -1 for those of their groups."""

    slots: Ints
    numbers: Ints
    routed: Ints


def _portions(panes: Ints, queries: int) -> Iterator[tuple[int, int]]:
    """Some columns at a time, of about `_PORTION` cells: those of some whole panes, or some of a pane. Arrays of all would be new memory
    each, and its first touch costs more than the work. `panes` are those of the columns, in order.
    """
    ends = [*(np.flatnonzero(np.diff(panes)) + 1).tolist(), len(panes)]
    low, most = 0, max(1, _PORTION // queries)
    for high in ends:
        if high - low >= most or high == ends[-1]:
            pieces = max(1, round((high - low) / most))
            cuts = [low + (high - low) * piece // pieces for piece in range(pieces + 1)]
            yield from pairwise(cuts)
            low = high


@dataclass(frozen=True, slots=True, eq=False)
class DenseCells:
    """Cells by the slot of the condition and (pane, group), in the order of panes, as `Pairs`; `counts` are rows."""

    starts: Ints
    owner: Ints
    keys: tuple[pa.Array, ...]
    slot_of_group: np.ndarray
    counts: Ints
    cells: Mapping[PartialColumn, Cells]

    @staticmethod
    def of(layout: Layout, folds: list[SparseFold | DenseFold], slots: int) -> list[DenseCells]:
        """The cells of all folds by ascending panes, in one array or in several of which none has a pane of another; none where they would
        be mostly empty, or values need a dictionary. Folds are given up as they are copied to one array.
        """
        if len(folds) == 1:
            return folds[0].alone()
        if not (folds and layout.is_light):
            return []
        folds.sort(key=lambda fold: fold.pairs.starts.item(0))
        spans = [fold.pairs.starts[[0, -1]].tolist() for fold in folds]
        if all(last < first for (_, last), (first, _) in pairwise(spans)):
            pairs, rows = sum(len(fold.pairs.starts) for fold in folds), sum(fold.rows for fold in folds)
            wholes = (
                [fold.whole(layout, slots) for fold in folds] if slots * pairs <= MOST_EMPTY * rows else []
            )
            if wholes and all(wholes):
                return [whole for whole in wholes if whole is not None]
        merged = DenseCells._merged(layout, folds, slots)
        return [] if merged is None else [merged]

    @staticmethod
    def _merged(layout: Layout, folds: list[SparseFold | DenseFold], slots: int) -> DenseCells | None:
        of_folds = [fold.pairs for fold in folds]
        entries = np.cumsum([0, *(len(of_fold.starts) for of_fold in of_folds)])
        first = np.cumsum([0, *(len(of_fold.slot_of_group) for of_fold in of_folds)])
        groups = group(
            [pa.concat_arrays(parts) for parts in zip(*(of_fold.keys for of_fold in of_folds), strict=True)],
            int(first[-1]),
        ).dense()
        owners = [
            groups.codes[of_fold.owner + low] for of_fold, low in zip(of_folds, first.tolist(), strict=False)
        ]
        pairs = by_block_and_group(
            np.concatenate([of_fold.starts for of_fold in of_folds]),
            Groups(np.concatenate(owners), groups.count, groups.keys),
        )
        if slots * pairs.number > MOST_EMPTY * sum(fold.rows for fold in folds):
            return None
        slot_of_group = np.zeros(groups.count, np.int16)
        slot_of_group[groups.codes] = np.concatenate([of_fold.slot_of_group for of_fold in of_folds])
        cells = without_rows(layout.partial_columns, (slots, pairs.number))
        folds.reverse()  # the memory of a fold is used again for what follows
        for low, high in pairwise(entries.tolist()):
            folds.pop().add_to(cells, pairs.codes[low:high])
        counts = cells[layout.partial_columns[0]][0]
        return DenseCells(pairs.blocks, pairs.group_indices, groups.keys, slot_of_group, counts, cells)

    @property
    def cells_by_slot(self) -> Ints:
        """How many cells of each condition have rows."""
        cells: Ints = np.count_nonzero(self.counts, axis=1)
        return cells

    @property
    def rows_by_slot(self) -> Ints:
        """How many rows each condition has accepted."""
        rows: Ints = self.counts.sum(axis=1)
        return rows

    def of_family(
        self, panes: Panes, slots: Ints, numbers: Ints, routed: Ints, layout: Layout
    ) -> pa.Table | None:
        """The cells of the queries whose conditions have these slots, as rows of their panes, in the order of panes; None if
        a pane of theirs is made of several. `routed` are the slots at rest of queries that have one, else -1.
        """
        own = panes.of_instants(self.starts)
        if by_block_and_group(own, Groups(self.owner, len(self.slot_of_group), ())).number < len(own):
            return None
        queries = _Queries(slots, numbers, routed)
        return pa.concat_tables(
            self._table(own, low, high, queries, layout) for low, high in _portions(own, len(slots))
        )

    def _table(self, own: Ints, low: int, high: int, queries: _Queries, layout: Layout) -> pa.Table:
        """The rows of columns [low, high)."""
        query, entry = np.nonzero(self.counts[queries.slots, low:high])
        entry += low
        are_several = own[low] < own[high - 1]
        if are_several:
            order = np.argsort(
                (own - own[low]).astype(np.min_scalar_type(int(np.ptp(own))))[entry], kind="stable"
            )
            query, entry = query[order], entry[order]
        owner = self.owner[entry]
        at_rest = self.slot_of_group[owner]
        if (queries.routed >= 0).any():
            routed = queries.routed[query]
            at_rest = np.where(routed >= 0, routed, at_rest)
        at = queries.slots[query] * len(own) + entry
        keys = [pa.array(queries.numbers[query]), *(picked(key, owner) for key in self.keys)]
        cells = picked_cells(self.cells, at)
        blocks = pane_keys(own)
        blocks = blocks[entry] if are_several else np.full(len(entry), blocks[low])
        return layout.table(blocks, keys, at_rest, Answer(cells))

    def gathered(self) -> tuple[Ints, Gathered]:
        """The slots of the conditions of the cells that have rows, and these cells."""
        slots, entry = np.nonzero(self.counts)
        at, owner = slots * self.counts.shape[1] + entry, self.owner[entry]
        cells = picked_cells(self.cells, at)
        groups = Groups(owner, len(self.slot_of_group), self.keys)
        return slots, Gathered(self.starts[entry], self.slot_of_group[owner], groups, Answer(cells))
