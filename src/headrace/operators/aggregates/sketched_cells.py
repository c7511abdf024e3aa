"""Conversion of exact panes into sketches: the distinct values of each group, as often as they occurred, become the sketch that their
rows would have become; partials that both have stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headrace.operators.aggregates.aggregate_calls import Answer, lift
from headrace.operators.aggregates.cell_table import Layout, gather, merge, merge_gathered
from headrace.operators.aggregates.group_by import Grouped, nothing
from headrace.operators.base.block_codes import by_block_and_group
from headrace.operators.base.group_codes import flat, group, picked
from headrace.operators.partials.encoding import PartialColumn, rows_partial
from headrace.operators.partials.synopsis_partial import Synopsis


def sketched(grouped: Grouped, layout: Layout, stores: Sequence[Sequence[pa.Table]]) -> pa.Table:
    """A table of `layout`, by block and group; `stores` are tables of the stores of `grouped`, in their order."""
    plain, *histograms = stores
    tables = [_plain(grouped.layouts[0], layout, plain)] if plain else []
    for number, histogram in enumerate(histograms, start=1):
        of_argument = tuple(
            column
            for column in layout.partial_columns
            if isinstance(column.partial, Synopsis)
            and column.expression == grouped.distinct_arguments[number - 1]
        )
        if histogram and of_argument:
            tables.append(_of_values(grouped.layouts[number], layout, of_argument, histogram))
    return merge(layout, tables)


def _plain(exact: Layout, layout: Layout, tables: Sequence[pa.Table]) -> pa.Table:
    """The partials of both layouts; sketches are empty."""
    rows = gather(exact, tables)
    blank = nothing(layout.partial_columns, rows.rows)
    cells = {column: rows.answer.cells.get(column, blank.cells[column]) for column in layout.partial_columns}
    answer = Answer(cells, {**blank.dictionaries, **rows.answer.dictionaries})
    return merge_gathered(layout, replace(rows, answer=answer))


def _of_values(
    exact: Layout, layout: Layout, sketches: Sequence[PartialColumn], tables: Sequence[pa.Table]
) -> pa.Table:
    """Sketches of values; other partials are empty. A value is taken as often as it occurred."""
    whole = pa.concat_tables(tables)
    times = gather(exact, tables).answer.cells[rows_partial()][0]
    source = pa.array(np.repeat(np.arange(whole.num_rows), times))
    blocks, slots, *keys, values = (
        flat(column).take(source) for column in whole.columns[: 2 + len(exact.keys)]
    )
    groups = group(keys, len(source))
    pairs = by_block_and_group(blocks.to_numpy(), groups)
    argument = sketches[0].expression
    assert argument is not None
    ones = pa.repeat(pa.scalar(1.0), len(source))
    weights = {column.weight: ones for column in sketches if column.weight is not None}
    answer = lift(sketches, {argument: values, **weights}, pairs.codes, pairs.number)
    blank = nothing(layout.partial_columns, pairs.number)
    of_pairs = np.empty(pairs.number, np.int16)
    of_pairs[pairs.codes] = slots.to_numpy()
    return layout.table(
        pairs.blocks,
        [picked(key, pairs.group_indices) for key in groups.keys],
        of_pairs,
        Answer({**blank.cells, **answer.cells}, blank.dictionaries),
    )
