"""What is asked of a shared fold, and what comes out: the partials of every query, pane and group that has rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Expression
from headrace.operators.aggregates.aggregate_calls import Answer
from headrace.operators.base.group_codes import Ints
from headrace.operators.partials import encoding as at_rest
from headrace.operators.partials.encoding import Fed
from headrace.operators.partials.partial import Argument, Cells, Column, concatenate


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """Rows by cell, and what is aggregated.

    `codes[row]` in 0..count-1 is the row's (pane, group), as `block_groups.by_block_and_group` numbers them; `arguments`
    the batch's values for each partial. The first of `feds` counts rows.
    """

    codes: Ints
    count: int
    feds: tuple[Fed, ...]
    arguments: Mapping[Fed, Argument]
    dictionaries: Mapping[Fed, pa.Array]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.codes)


def asked(feds: Sequence[Fed], arguments: Mapping[Expression, pa.Array], codes: Ints, count: int) -> Asked:
    """From evaluated arguments, as `grouped.lift` takes them."""
    ready: dict[Fed, Argument] = {}
    dictionaries: dict[Fed, pa.Array] = {}
    for fed in feds:
        values = arguments[fed.expression] if fed.expression is not None else None
        if (dictionary := at_rest.dictionary_of(fed, values)) is not None:
            dictionaries[fed] = dictionary
        ready[fed] = at_rest.argument(fed, values, dictionaries.get(fed))
    assert feds[0] == at_rest.rows_fed()
    return Asked(codes, count, tuple(feds), ready, dictionaries)


@dataclass(frozen=True, slots=True, eq=False)
class QueryCells:
    """Cells that have rows: cell i is of the query in slot `slots[i]` and of (pane, group) `codes[i]`.

    Each (slot, code) occurs once. `answer` goes into `Layout.table` as it is, per query or with the query as a key.
    """

    slots: Ints
    codes: Ints
    answer: Answer

    @property
    def rows(self) -> int:
        """Number of cells."""
        return len(self.slots)


def gathered(parts: Sequence[tuple[Ints, Ints, Mapping[Fed, Cells]]], question: Asked) -> QueryCells:
    """One answer of (slots, codes, cells) parts whose cells are distinct."""
    cells = {fed: concatenate([part[2][fed] for part in parts], fed.partial) for fed in question.feds}
    empty = np.empty(0, np.int64)
    return QueryCells(
        np.concatenate([empty, *(part[0] for part in parts)]),
        np.concatenate([empty, *(part[1] for part in parts)]),
        Answer(cells, question.dictionaries),
    )


def occupied(
    dense: Mapping[Fed, Cells], slots: Ints, first: int, question: Asked
) -> tuple[Ints, Ints, Mapping[Fed, Cells]]:
    """The cells that have rows, of dense ones of shape (queries, cells from `first` on)."""
    query, cell = np.nonzero(dense[question.feds[0]][0])
    picked: dict[Fed, Cells] = {fed: tuple(part[query, cell] for part in dense[fed]) for fed in question.feds}
    return slots[query], cell.astype(np.int64) + first, picked


def taken(argument: Argument, rows: Ints) -> Argument:
    """An argument for some of its rows, possibly repeated."""
    values: Column = argument.values[rows] if len(argument.values) else argument.values
    return Argument(values, None if argument.valid is None else argument.valid[rows])
