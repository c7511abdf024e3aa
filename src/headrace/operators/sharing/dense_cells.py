"""Cells of several folds of the same conditions, added up in dense arrays: a row for each condition, a column for each
(pane, group). What a thousand conditions select of a batch is nearly all of these cells, batch after batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.aggregates.aggregate_calls import Answer
from headrace.operators.aggregates.cell_table import Gathered, Layout
from headrace.operators.base.block_codes import by_block_and_group
from headrace.operators.base.group_codes import Groups, Ints, group
from headrace.operators.panes.pane_keys import pane_keys
from headrace.operators.panes.panes import Panes
from headrace.operators.partials.encoding import PartialColumn
from headrace.operators.partials.partial import Cells
from headrace.operators.shared_aggregation.query_cells import QueryCells

_MOST: Final = 4
"""Dense arrays have at most so many elements for each cell of the folds."""


@dataclass(frozen=True, slots=True, eq=False)
class FoldedCells:
    """The cells of one fold; (pane, group) number i is the pane that starts at `starts[i]` and the group `owner[i]` of those
    with these `keys`, whose rows at rest are in `slot_of_group`.
    """

    cells: QueryCells
    starts: Ints
    owner: Ints
    keys: tuple[pa.Array, ...]
    slot_of_group: np.ndarray

    def gathered(self) -> Gathered:
        """The cells by the keys of queries."""
        of_cell = self.owner[self.cells.codes]
        by_key = Groups(of_cell, len(self.slot_of_group), self.keys)
        return Gathered(self.starts[self.cells.codes], self.slot_of_group[of_cell], by_key, self.cells.answer)

    def table(self, layout: Layout) -> pa.Table:
        """The cells as a table, by the slots of their conditions first."""
        gathered = self.gathered()
        codes = pa.array(gathered.groups.codes)
        keys = [pa.array(self.cells.slots), *(key.take(codes) for key in self.keys)]
        return layout.table(gathered.blocks, keys, gathered.slots, gathered.answer)


@dataclass(frozen=True, slots=True, eq=False)
class DenseCells:
    """Cells by the slot of the condition and (pane, group), in the order of panes, as `FoldedCells`; `counts` are rows."""

    starts: Ints
    owner: Ints
    keys: tuple[pa.Array, ...]
    slot_of_group: np.ndarray
    counts: Ints
    cells: Mapping[PartialColumn, Cells]

    @staticmethod
    def of(layout: Layout, folds: Sequence[FoldedCells], slots: int) -> DenseCells | None:
        """The cells of all folds; None where dense arrays would be mostly empty, or values need a dictionary."""
        if not layout.is_light:
            return None
        entries = np.cumsum([0, *(len(fold.starts) for fold in folds)])
        first = np.cumsum([0, *(len(fold.slot_of_group) for fold in folds)])
        groups = group(
            [pa.concat_arrays(parts) for parts in zip(*(fold.keys for fold in folds), strict=True)],
            int(first[-1]),
        ).dense()
        owners = [groups.codes[fold.owner + low] for fold, low in zip(folds, first.tolist(), strict=False)]
        pairs = by_block_and_group(
            np.concatenate([fold.starts for fold in folds]),
            Groups(np.concatenate(owners), groups.count, groups.keys),
        )
        if slots * pairs.number > _MOST * sum(fold.cells.rows for fold in folds):
            return None
        slot_of_group = np.zeros(groups.count, np.int16)
        slot_of_group[groups.codes] = np.concatenate([fold.slot_of_group for fold in folds])
        cells = {
            column: column.partial.identity((slots * pairs.number,)) for column in layout.partial_columns
        }
        for fold, low, high in zip(folds, entries[:-1].tolist(), entries[1:].tolist(), strict=True):
            at = fold.cells.slots * pairs.number + pairs.codes[low:high][fold.cells.codes]
            _add(cells, fold.cells.answer, at)
        shaped = {
            column: tuple(part.reshape(slots, pairs.number) for part in parts)
            for column, parts in cells.items()
        }
        counts = shaped[layout.partial_columns[0]][0]
        return DenseCells(pairs.blocks, pairs.group_indices, groups.keys, slot_of_group, counts, shaped)

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
        query, entry = np.nonzero(self.counts[slots])
        order = np.argsort(
            (own - own.min()).astype(np.min_scalar_type(int(np.ptp(own))))[entry], kind="stable"
        )
        query, entry = query[order], entry[order]
        owner = self.owner[entry]
        at_rest = np.where(routed[query] >= 0, routed[query], self.slot_of_group[owner])
        at = slots[query] * len(own) + entry
        keys = [pa.array(numbers[query]), *(key.take(pa.array(owner)) for key in self.keys)]
        cells = {
            column: tuple(part.reshape(-1).take(at) for part in self.cells[column])
            for column in layout.partial_columns
        }
        return layout.table(pane_keys(own[entry]), keys, at_rest, Answer(cells))

    def gathered(self) -> tuple[Ints, Gathered]:
        """The slots of the conditions of the cells that have rows, and these cells."""
        slots, entry = np.nonzero(self.counts)
        at, owner = slots * self.counts.shape[1] + entry, self.owner[entry]
        cells = {
            column: tuple(part.reshape(-1).take(at) for part in parts) for column, parts in self.cells.items()
        }
        groups = Groups(owner, len(self.slot_of_group), self.keys)
        return slots, Gathered(self.starts[entry], self.slot_of_group[owner], groups, Answer(cells))


def _add(cells: Mapping[PartialColumn, Cells], answer: Answer, at: Ints) -> None:
    """Combine cells with those at distinct indices."""
    for column, parts in cells.items():
        before = tuple(part.take(at) for part in parts)
        with np.errstate(all="ignore"):
            combined = column.partial.combine(before, answer.cells[column])
        for part, values in zip(parts, combined, strict=True):
            part[at] = values
