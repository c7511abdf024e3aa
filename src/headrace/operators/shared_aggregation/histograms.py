"""Shared aggregation of a batch for queries with conditions on one attribute each: a histogram over the attribute's
ranks, its running sums, and a look-up for each query.

A query's rows are the XOR of nested sets "rank r or higher", so its count is an alternating sum of as many running sums
as its domain has flips: one for a threshold, two for a range. A batch costs its rows once, whatever the number of
queries. For counts and integer sums only: doubles must not be subtracted, extremes cannot be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from headrace.algebra.expressions.expression import Expression
from headrace.operators.base.group_codes import Ints
from headrace.operators.native.histograms import RankedRows
from headrace.operators.native.library import library
from headrace.operators.partials.encoding import PartialColumn
from headrace.operators.partials.partial import Cells, Column, Count, Sum
from headrace.operators.query_index.boxes.box_index import AttributeIndex
from headrace.operators.query_index.boxes.cut_ranks import Ranks
from headrace.operators.query_index.matching.prepare import Prepared
from headrace.operators.shared_aggregation.pairs import fold_patched
from headrace.operators.shared_aggregation.query_cells import DensePart, FoldInput, Part, dense_part

_CELLS: Final = 1 << 22


def takes(batch: Prepared, number: int, partial_columns: Sequence[PartialColumn]) -> bool:
    """Whether the part's queries name one attribute each and all partials can be subtracted exactly."""
    exact = all(
        isinstance(partial_column.partial, Count)
        or (isinstance(partial_column.partial, Sum) and partial_column.partial.integer)
        for partial_column in partial_columns
    )
    return exact and batch.parts[number].of_one_attribute


def table_size(batch: Prepared, number: int, fold_input: FoldInput) -> int:
    """Cells of the histograms, which are summed in addition to the rows."""
    return sum(attribute.null + 1 for attribute in batch.parts[number].part.attributes) * fold_input.count


def fold(batch: Prepared, number: int, fold_input: FoldInput) -> Iterator[Part | DensePart]:
    """The cells of one part's queries."""
    part = batch.parts[number].part
    special = np.array(sorted({*batch.dead, *batch.patches}), np.int64)
    everywhere = np.ones(part.queries, bool)
    for attribute, ranks in zip(part.attributes, batch.ranks[number], strict=True):
        everywhere[attribute.boxes] = False
        running = _running(attribute, ranks, fold_input)
        step = max(1, _CELLS // max(fold_input.count, 1))
        for low in range(0, len(attribute.boxes), step):
            some = np.arange(low, min(low + step, len(attribute.boxes)))
            tables = {id(table): table for tables in running.values() for table in tables}
            found = {key: _looked_up(attribute, some, table) for key, table in tables.items()}
            dense = {
                partial_column: tuple(found[id(table)] for table in running[partial_column])
                for partial_column in fold_input.partial_columns
            }
            slots = part.slots[attribute.boxes[some]]
            yield dense_part(slots, 0, dense, fold_input, np.isin(slots, special))
    slots = part.slots[everywhere]
    slots = slots[~np.isin(slots, special)]
    if len(slots):
        yield _of_all_rows(slots, fold_input)
    yield from fold_patched(batch, number, fold_input)


def _running(attribute: AttributeIndex, ranks: Ranks, fold_input: FoldInput) -> dict[PartialColumn, Cells]:
    """(ranks, cells) of each partial: at row r the sum over ranks r and higher; at `blank` zero, at `null` the NULLs."""
    tables = (_compiled if library() is not None else _lifted)(attribute.null + 1, ranks, fold_input)
    for table in {id(part): part for parts in tables.values() for part in parts}.values():
        upward = table[attribute.blank - 1 :: -1]
        np.add.accumulate(upward, axis=0, out=upward)
    return tables


def _lifted(count: int, ranks: Ranks, fold_input: FoldInput) -> dict[PartialColumn, Cells]:
    """The partials of the rows of each of `count` ranks and cell."""
    cells = ranks.of(slice(None)).astype(np.int64) * fold_input.count + fold_input.codes
    lifted = {
        column: column.partial.lift(fold_input.arguments[column], cells, count * fold_input.count)
        for column in fold_input.partial_columns
    }
    return {
        column: tuple(part.reshape(count, fold_input.count) for part in parts)
        for column, parts in lifted.items()
    }


def _compiled(count: int, ranks: Ranks, fold_input: FoldInput) -> dict[PartialColumn, Cells]:
    """The same in the compiled kernel, which makes no wide copy of ranks and cells; counts of the same rows are one table."""
    tables: dict[PartialColumn, Cells] = {}
    counts: dict[Expression | None, Cells] = {}
    for column in fold_input.partial_columns:
        valid = fold_input.valid(column)
        rows = RankedRows(ranks.keys, ranks.table, fold_input.codes, count, fold_input.count, valid)
        if isinstance(column.partial, Count):
            counted = None if valid is None else column.expression
            if counted not in counts:
                counts[counted] = (rows.counts(),)
            tables[column] = counts[counted]
        elif column.encoding == "limbs2":
            tables[column] = rows.halves(*fold_input.integers(column))
        else:
            tables[column] = tuple(map(rows.sums, fold_input.integers(column)))
    return tables


def _looked_up(attribute: AttributeIndex, some: Ints, table: Column) -> Column:
    """(queries, cells): the alternating sums of the bitmaps' totals; NULLs, which are outside, are always added."""
    totals = table.take(attribute.first[some], axis=0)
    sign = -1
    rest = [(np.arange(len(attribute.boxes)), attribute.second), *attribute.more]
    for boxes, bitmaps in rest:
        low, high = np.searchsorted(boxes, [some[0], some[-1] + 1])
        numbers = bitmaps[low:high]
        signs = np.where(numbers == attribute.null, 1, sign)[:, None]
        totals[boxes[low:high] - some[0]] += signs * table.take(numbers, axis=0)
        sign = -sign
    return totals


def _of_all_rows(slots: Ints, fold_input: FoldInput) -> Part | DensePart:
    """Queries that name no attribute select every row: one fold, repeated."""
    cells = {
        partial_column: partial_column.partial.lift(
            fold_input.arguments[partial_column], fold_input.codes, fold_input.count
        )
        for partial_column in fold_input.partial_columns
    }
    dense = {
        partial_column: tuple(
            np.broadcast_to(part, (len(slots), fold_input.count)) for part in cells[partial_column]
        )
        for partial_column in cells
    }
    return dense_part(slots, 0, dense, fold_input, np.zeros(len(slots), bool))
