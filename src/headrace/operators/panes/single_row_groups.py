"""Recovery of the row of each group that has a single one, from the partials' cells into which it was folded.

A sum or an extreme of one number is that number. So if every argument is a number that is summed or compared, rows of
such groups are read from the cells they were folded into, without searching the input rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Expression
from headrace.operators.aggregates.aggregate_calls import Answer
from headrace.operators.aggregates.cell_table import Layout
from headrace.operators.base.group_codes import Ints
from headrace.operators.partials.encoding import PartialColumn, count_partial
from headrace.operators.partials.partial import Extreme, Sum
from headrace.schema import to_arrow


def read_back(layout: Layout, answer: Answer, ones: Ints | slice) -> list[pa.Array] | None:
    """The value of each of the layout's arguments, for groups of one row; None if a cell does not determine it.

    The two zeros of doubles are not distinguished: aggregates of them are equal.
    """
    columns = []
    for reader in _row_readers(layout):
        if reader is None:
            return None
        partial_column, counted, kind = reader
        parts = [part[ones] for part in answer.cells[partial_column]]
        values = parts[0] if len(parts) == 1 or not parts[1].any() else parts[0] + (parts[1] << 32)
        read = pa.array(values)
        number = answer.cells[counted]
        if number is not answer.cells[layout.partial_columns[0]]:  # some are NULL
            missing = number[0][ones] == 0
            read = pa.array(np.where(missing, 0, values), mask=missing)
        columns.append(read if read.type == kind else read.cast(kind))
    return columns


@lru_cache(maxsize=1024)  # called for each batch
def _row_readers(layout: Layout) -> tuple[tuple[PartialColumn, PartialColumn, pa.DataType] | None, ...]:
    """For each argument a partial whose cell of one row is the row's value, the one that counts, and the type."""
    return tuple(_row_reader(layout.partial_columns, argument) for argument in layout.arguments)


def _row_reader(
    partial_columns: Sequence[PartialColumn], argument: Expression
) -> tuple[PartialColumn, PartialColumn, pa.DataType] | None:
    kind = argument.type
    exact = ("double",) if kind.is_fractional else ("int", "limbs2") if kind.is_integer else ()
    counted = count_partial(argument)
    if counted not in partial_columns:
        return None
    for partial_column in partial_columns:
        if (
            partial_column.expression == argument
            and partial_column.encoding in exact
            and isinstance(partial_column.partial, Sum | Extreme)
        ):
            return partial_column, counted, to_arrow(kind)
    return None
