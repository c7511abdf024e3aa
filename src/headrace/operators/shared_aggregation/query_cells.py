"""Input of a shared fold (rows by pane and group, and arguments of partials), and its output: the partials of every
query, pane and group that has rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Expression
from headrace.dataclass import dataclass
from headrace.operators.aggregates.aggregate_calls import Answer
from headrace.operators.base.group_codes import Ints
from headrace.operators.partials import encoding as at_rest
from headrace.operators.partials.encoding import PartialColumn
from headrace.operators.partials.partial import Argument, Cells, Column, concatenate


@dataclass(frozen=True, slots=True, eq=False)
class FoldInput:
    """Rows by cell, and what is aggregated.

    `codes[row]` in 0..count-1 is the row's (pane, group), as `block_codes.by_block_and_group` numbers them; `arguments`
    the batch's values for each partial. The first of `partial_columns` counts rows.
    """

    codes: Ints
    count: int
    partial_columns: tuple[PartialColumn, ...]
    arguments: Mapping[PartialColumn, Argument]
    dictionaries: Mapping[PartialColumn, pa.Array]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.codes)


def fold_input_of(
    partial_columns: Sequence[PartialColumn],
    arguments: Mapping[Expression, pa.Array],
    codes: Ints,
    count: int,
) -> FoldInput:
    """The input from evaluated arguments, as `aggregate_calls.lift` takes them."""
    ready: dict[PartialColumn, Argument] = {}
    dictionaries: dict[PartialColumn, pa.Array] = {}
    for partial_column in partial_columns:
        values = arguments[partial_column.expression] if partial_column.expression is not None else None
        if (dictionary := at_rest.dictionary_of(partial_column, values)) is not None:
            dictionaries[partial_column] = dictionary
        ready[partial_column] = at_rest.argument(partial_column, values, dictionaries.get(partial_column))
    assert partial_columns[0] == at_rest.rows_partial()
    return FoldInput(codes, count, tuple(partial_columns), ready, dictionaries)


@dataclass(frozen=True, slots=True, eq=False)
class QueryCells:
    """Cells that have rows: cell i is of the query in slot `slots[i]` and of (pane, group) `codes[i]`.

    Each (slot, code) occurs once. `answer` is passed to `Layout.table` unchanged, per query or with the query as a key.
    """

    slots: Ints
    codes: Ints
    answer: Answer

    @property
    def rows(self) -> int:
        """Number of cells."""
        return len(self.slots)


def gathered(
    parts: Sequence[tuple[Ints, Ints, Mapping[PartialColumn, Cells]]], fold_input: FoldInput
) -> QueryCells:
    """One answer of (slots, codes, cells) parts whose cells are distinct."""
    cells = {
        partial_column: concatenate([part[2][partial_column] for part in parts], partial_column.partial)
        for partial_column in fold_input.partial_columns
    }
    empty = np.empty(0, np.int64)
    return QueryCells(
        np.concatenate([empty, *(part[0] for part in parts)]),
        np.concatenate([empty, *(part[1] for part in parts)]),
        Answer(cells, fold_input.dictionaries),
    )


def occupied(
    dense: Mapping[PartialColumn, Cells], slots: Ints, first: int, fold_input: FoldInput
) -> tuple[Ints, Ints, Mapping[PartialColumn, Cells]]:
    """The cells that have rows, of dense ones of shape (queries, cells from `first` on)."""
    query, cell = np.nonzero(dense[fold_input.partial_columns[0]][0])
    picked: dict[PartialColumn, Cells] = {
        partial_column: tuple(part[query, cell] for part in dense[partial_column])
        for partial_column in fold_input.partial_columns
    }
    return slots[query], cell.astype(np.int64) + first, picked


def taken(argument: Argument, rows: Ints) -> Argument:
    """An argument for some of its rows, possibly repeated."""
    values: Column = argument.values[rows] if len(argument.values) else argument.values
    return Argument(values, None if argument.valid is None else argument.valid[rows])
