"""Input of a shared fold (rows by pane and group, and arguments of partials), and its output: the partials of every
query, pane and group that has rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Expression
from headrace.dataclass import dataclass
from headrace.operators.aggregates.aggregate_calls import Answer
from headrace.operators.base.group_codes import Ints, as_int64, picked
from headrace.operators.native.cells import add_rows
from headrace.operators.partials import encoding as at_rest
from headrace.operators.partials.encoding import PartialColumn
from headrace.operators.partials.partial import Argument, Cells, Column, Count, concatenate

MOST_EMPTY: Final = 4
"""Dense arrays have at most so many elements for each cell that has rows."""


@dataclass(frozen=True, eq=False)
class FoldInput:
    """Rows by cell, and what is aggregated.

    `codes[row]` in 0..count-1 is the row's (pane, group), as `block_codes.by_block_and_group` numbers them; `arguments`
    the batch's values for each partial, `values` those of each expression. The first of `partial_columns` counts rows.
    """

    codes: Ints
    count: int
    partial_columns: tuple[PartialColumn, ...]
    arguments: Mapping[PartialColumn, Argument]
    dictionaries: Mapping[PartialColumn, pa.Array]
    values: Mapping[Expression, pa.Array]
    keys: Mapping[Expression, pa.Array] = field(default_factory=dict)
    """The group keys whose values are known, by group; `owner` is the group of each (pane, group)."""
    owner: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.codes)

    def key(self, expression: Expression) -> pa.Array | None:
        """The value of a group key in each (pane, group); None where the expression is no key."""
        values = self.keys.get(expression)
        return None if values is None else picked(values, self.owner)

    @cached_property
    def lifted(self) -> dict[PartialColumn, Cells]:
        """The cells of all rows, by (pane, group); counts of all rows are one array."""
        every: Cells = (self.sizes,)
        with np.errstate(all="ignore"):
            return {
                column: every
                if isinstance(column.partial, Count) and self.valid(column) is None
                else column.partial.lift(self.arguments[column], self.codes, self.count)
                for column in self.partial_columns
            }

    @cached_property
    def sizes(self) -> Ints:
        """The rows of each cell."""
        return np.bincount(self.codes, minlength=self.count)

    def valid(self, partial_column: PartialColumn) -> np.ndarray | None:
        """Which rows a partial counts; None for all."""
        expression = partial_column.expression
        if expression is None or not self.values[expression].null_count:
            return None
        return self.arguments[partial_column].valid

    def integers(self, partial_column: PartialColumn) -> list[Ints]:
        """The integers of an exact sum that are summed separately: limbs, those of a BIGINT as one number."""
        if partial_column.encoding in ("int", "limbs2") and partial_column.expression is not None:
            return [as_int64(self.values[partial_column.expression])]
        values = self.arguments[partial_column].values
        return [values] if values.ndim == 1 else [values[:, limb] for limb in range(values.shape[1])]


class _Arguments(Mapping[PartialColumn, Argument]):
    """The values of partials as `lift` takes them, each made on first use: bitmaps need none of most."""

    def __init__(
        self,
        partial_columns: Sequence[PartialColumn],
        values: Mapping[Expression, pa.Array],
        dictionaries: Mapping[PartialColumn, pa.Array],
    ) -> None:
        self._partial_columns, self._values, self._dictionaries = partial_columns, values, dictionaries
        self._ready = dict[PartialColumn, Argument]()

    def __getitem__(self, partial_column: PartialColumn) -> Argument:
        if partial_column not in self._ready:
            values = None if partial_column.expression is None else self._values[partial_column.expression]
            self._ready[partial_column] = at_rest.argument(
                partial_column, values, self._dictionaries.get(partial_column)
            )
        return self._ready[partial_column]

    def __iter__(self) -> Iterator[PartialColumn]:
        return iter(self._partial_columns)

    def __len__(self) -> int:
        return len(self._partial_columns)


def fold_input_of(
    partial_columns: Sequence[PartialColumn],
    arguments: Mapping[Expression, pa.Array],
    codes: Ints,
    count: int,
    keys: Mapping[Expression, pa.Array] | None = None,
    owner: Ints | None = None,
) -> FoldInput:
    """The input from evaluated arguments, as `aggregate_calls.lift` takes them; `keys` and `owner` as in `FoldInput`."""
    dictionaries: dict[PartialColumn, pa.Array] = {}
    for partial_column in partial_columns:
        values = arguments[partial_column.expression] if partial_column.expression is not None else None
        if (dictionary := at_rest.dictionary_of(partial_column, values)) is not None:
            dictionaries[partial_column] = dictionary
    assert partial_columns[0] == at_rest.rows_partial()
    ready = _Arguments(partial_columns, arguments, dictionaries)
    fold_input = FoldInput(codes, count, tuple(partial_columns), ready, dictionaries, arguments)
    return fold_input if keys is None or owner is None else replace(fold_input, keys=keys, owner=owner)


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


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Cells of some queries that have rows: cell i is of the query in slot `slots[i]` and of (pane, group) `codes[i]`."""

    slots: Ints
    codes: Ints
    cells: Mapping[PartialColumn, Cells]

    @property
    def rows(self) -> int:
        """Number of cells."""
        return len(self.slots)

    def sparse(self) -> Part:
        """Itself."""
        return self

    def add_to(self, whole: dict[PartialColumn, Cells], columns: Ints) -> None:
        """Combine its cells with those of shape (slots, columns); the column of each code is given."""
        of_cell = columns[self.codes]
        for partial_column, parts in _arrays_of(whole, self.cells):
            at = self.slots * parts[0].shape[1] + of_cell
            flat = tuple(part.reshape(-1) for part in parts)
            with np.errstate(all="ignore"):
                combined = partial_column.partial.combine(
                    tuple(part.take(at) for part in flat), self.cells[partial_column]
                )
            for part, values in zip(flat, combined, strict=True):
                part[at] = values


@dataclass(frozen=True, slots=True, eq=False)
class DensePart:
    """Cells of the queries in `slots` and of (pane, group)s from `first` on, in arrays of that shape; some may have no rows.

    `counts` are the rows of each cell. A cell without rows is the identity.
    """

    slots: Ints
    first: int
    counts: Ints
    cells: Mapping[PartialColumn, Cells]

    @property
    def rows(self) -> int:
        """Number of cells that have rows."""
        return int(np.count_nonzero(self.counts))

    def sparse(self) -> Part:
        """The cells that have rows."""
        query, cell = np.nonzero(self.counts)
        picked: dict[PartialColumn, Cells] = {
            partial_column: tuple(part[query, cell] for part in parts)
            for partial_column, parts in self.cells.items()
        }
        return Part(self.slots[query], cell.astype(np.int64) + self.first, picked)

    def add_to(self, whole: dict[PartialColumn, Cells], columns: Ints) -> None:
        """Combine its cells with those of shape (slots, columns); the column of each code is given."""
        own = columns[self.first : self.first + self.counts.shape[1]]
        in_order = len(own) and own[-1] - own[0] == len(own) - 1 and bool((np.diff(own) == 1).all())
        for partial_column, parts in _arrays_of(whole, self.cells):
            partial, added = partial_column.partial, self.cells[partial_column]
            if in_order and partial.subtracts:
                for part, numbers in zip(parts, added, strict=True):
                    add_rows(part, self.slots, int(own[0]), numbers)
                continue
            at = np.ix_(self.slots, own)
            with np.errstate(all="ignore"):
                combined = partial.combine(tuple(part[at] for part in parts), added)
            for part, values in zip(parts, combined, strict=True):
                part[at] = values


def without_rows(
    partial_columns: Sequence[PartialColumn], shape: tuple[int, ...]
) -> dict[PartialColumn, Cells]:
    """Cells of this shape before the first row; all counts are one array, as long as equal numbers are added to them."""
    counts = Count().identity(shape)
    return {
        column: counts if isinstance(column.partial, Count) else column.partial.identity(shape)
        for column in partial_columns
    }


def _arrays_of(
    whole: dict[PartialColumn, Cells], added: Mapping[PartialColumn, Cells]
) -> Iterable[tuple[PartialColumn, Cells]]:
    """The cells that others are added to, each array once. Counts to which other numbers are added get one of their own."""
    first: dict[int, PartialColumn] = {}
    for column, parts in whole.items():
        original = first.setdefault(id(parts[0]), column)
        if original is not column and not _are_same(added[original][0], added[column][0]):
            whole[column] = tuple(part.copy() for part in parts)
            first[id(whole[column][0])] = column
    return [(column, whole[column]) for column in first.values()]


def _are_same(one: np.ndarray, other: np.ndarray) -> bool:
    return one is other or np.array_equal(one, other)


def picked_cells(cells: Mapping[PartialColumn, Cells], at: Ints) -> dict[PartialColumn, Cells]:
    """Cells at these places of flat arrays; what is one array stays one."""
    arrays = {id(part): part for parts in cells.values() for part in parts}
    picked = {number: part.reshape(-1).take(at) for number, part in arrays.items()}
    return {column: tuple(picked[id(part)] for part in parts) for column, parts in cells.items()}


def gathered(parts: Sequence[Part | DensePart], fold_input: FoldInput) -> QueryCells:
    """One answer of parts whose cells are distinct."""
    sparse = [part.sparse() for part in parts]
    cells = {
        partial_column: concatenate([part.cells[partial_column] for part in sparse], partial_column.partial)
        for partial_column in fold_input.partial_columns
    }
    empty = np.empty(0, np.int64)
    return QueryCells(
        np.concatenate([empty, *(part.slots for part in sparse)]),
        np.concatenate([empty, *(part.codes for part in sparse)]),
        Answer(cells, fold_input.dictionaries),
    )


def dense_part(
    slots: Ints, first: int, cells: Mapping[PartialColumn, Cells], fold_input: FoldInput, without: np.ndarray
) -> Part | DensePart:
    """The part of these queries, except those of which `without` is true; only the cells that have rows if they are few."""
    if without.any():
        kept = np.flatnonzero(~without)
        slots = slots[kept]
        cells = {
            partial_column: tuple(part[kept] for part in parts) for partial_column, parts in cells.items()
        }
    part = DensePart(slots, first, cells[fold_input.partial_columns[0]][0], cells)
    return part if part.counts.size <= MOST_EMPTY * part.rows else part.sparse()


def taken(argument: Argument, rows: Ints) -> Argument:
    """An argument for some of its rows, possibly repeated."""
    values: Column = argument.values[rows] if len(argument.values) else argument.values
    return Argument(values, None if argument.valid is None else argument.valid[rows])
