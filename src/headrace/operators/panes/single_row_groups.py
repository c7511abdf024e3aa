"""What was the row of a group that has one row only?

A sum or an extreme of one number is that number. So where every argument is a number that is summed or compared, rows of such
groups are read from the cells they were folded into, and need not be looked for among the others of their epoch.
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
    """The value of each of the layout's arguments, of groups of one row; None where a cell does not tell it.

    Of doubles the two zeros are one: what is made of them is the same.
    """
    found = []
    for told in _row_readers(layout):
        if told is None:
            return None
        partial_column, counted, kind = told
        parts = [part[ones] for part in answer.cells[partial_column]]
        values = parts[0] if len(parts) == 1 or not parts[1].any() else parts[0] + (parts[1] << 32)
        read = pa.array(values)
        number = answer.cells[counted]
        if number is not answer.cells[layout.partial_columns[0]]:  # some are NULL
            missing = number[0][ones] == 0
            read = pa.array(np.where(missing, 0, values), mask=missing)
        found.append(read if read.type == kind else read.cast(kind))
    return found


@lru_cache(maxsize=1024)  # asked for each batch
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
