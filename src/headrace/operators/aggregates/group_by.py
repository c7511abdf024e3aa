"""GROUP BY with its aggregates: the state tables that it needs, rows folded into them by pane and group, and the key
and aggregate columns of groups from their cells.

Plain aggregates share one store of partials by group. Each argument of DISTINCT, of a percentile or of MODE has an
additional store whose groups include the distinct value: the histogram of the argument.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.aggregates import BY_VALUE, AggregateCall, NamedAggregate
from headrace.algebra.expressions.expression import Column, Expression, Named, columns_of
from headrace.algebra.expressions.expression_text import show
from headrace.dataclass import dataclass
from headrace.operators.aggregates import aggregate_calls
from headrace.operators.aggregates.aggregate_calls import Answer, lift
from headrace.operators.aggregates.cell_table import Layout, WindowCells, fresh_slots
from headrace.operators.aggregates.holistic import Histogram, lower_by_value
from headrace.operators.base.block_codes import blocks_seen, by_block_and_group
from headrace.operators.base.group_codes import Ints, flat, group, picked
from headrace.operators.base.made_once import MadeOnce
from headrace.operators.partials import encoding as at_rest
from headrace.operators.partials.encoding import PartialColumn


@dataclass(frozen=True, slots=True)
class Grouped:
    """Group keys and aggregates."""

    keys: tuple[Named, ...]
    aggregates: tuple[NamedAggregate, ...]

    def display(self) -> Iterator[str]:
        """As EXPLAIN shows it among an operator's settings."""
        yield f"group by {', '.join(show(key.expression) for key in self.keys) or 'nothing'}"
        calls = (
            f"{a.call.function}({show(a.call.argument) if a.call.argument else '*'})" for a in self.aggregates
        )
        yield f"aggregates: {', '.join(calls)}"

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """The stores: the plain one, then one for each distinct argument."""
        return _known_layouts.of((self.keys, self.aggregates), lambda: _layouts(self))

    @property
    def distinct_arguments(self) -> tuple[Expression, ...]:
        """Arguments of aggregates that need the distinct values, each once."""
        calls = [item.call for item in self.aggregates if aggregate_calls.needs_values(item.call)]
        return tuple(
            dict.fromkeys(
                argument for call in calls if (argument := aggregate_calls.effective_argument(call))
            )
        )

    @property
    def arguments(self) -> tuple[Expression, ...]:
        """Everything that is aggregated, each expression once."""
        partial_columns = [
            partial_column for layout in self.layouts for partial_column in layout.partial_columns
        ]
        read = [
            part
            for partial_column in partial_columns
            for part in (partial_column.expression, partial_column.weight)
            if part is not None
        ]
        return tuple(dict.fromkeys([*read, *self.distinct_arguments]))

    def inputs(self) -> list[Expression]:
        """What is evaluated on each row: keys, then arguments."""
        return [*(key.expression for key in self.keys), *self.arguments]

    def reads(self) -> frozenset[str]:
        """The columns that keys and arguments read."""
        return frozenset().union(*(columns_of(expression) for expression in self.inputs()))


_known_layouts: Final[MadeOnce[tuple[Layout, ...]]] = MadeOnce(4096)


@lru_cache(maxsize=1024)
def _layouts(grouped: Grouped) -> tuple[Layout, ...]:
    plain = [item.call for item in grouped.aggregates if not aggregate_calls.needs_values(item.call)]
    stores = [Layout(grouped.keys, aggregate_calls.partials_of(plain))]
    histograms = (Named("__value", argument) for argument in grouped.distinct_arguments)
    return (*stores, *(Layout((*grouped.keys, value), (at_rest.rows_partial(),)) for value in histograms))


def fold(
    grouped: Grouped, blocks: Ints, values: Sequence[pa.Array], slot: int | None, *, beside: bool = False
) -> list[pa.Table]:
    """One table per store: rows folded by (block, group); `values` are those of `inputs`.

    Groups belong to their own slots, or all to `slot`. With `beside` the plain store is left out.
    """
    keys = list(values[: len(grouped.keys)])
    arguments = dict(zip(grouped.arguments, values[len(keys) :], strict=True))
    folded = []
    for number, layout in enumerate(grouped.layouts):
        if beside and not number:
            continue
        store_keys = [*keys, arguments[grouped.distinct_arguments[number - 1]]] if number else keys
        groups = group(store_keys, len(blocks), small=0, placed=layout.is_light, blocks=blocks_seen(blocks))
        codes, count, pair_blocks, group_index, sizes = by_block_and_group(blocks, groups)
        live = groups.live if codes is groups.codes else None
        answer = lift(layout.partial_columns, arguments, codes, count, sizes, live)
        group_keys = [picked(key, group_index) for key in groups.keys]
        folded.append(
            layout.table(pair_blocks, group_keys, fresh_slots(group_keys[: len(keys)], count, slot), answer)
        )
    return folded


def columns_of_cells(
    grouped: Grouped, chunk: WindowCells, others: Sequence[Sequence[WindowCells]]
) -> tuple[dict[str, pa.Array], np.ndarray | None]:
    """Key and aggregate columns by internal name, and where an aggregate overflowed."""
    columns = {key.name: values for key, values in zip(grouped.keys, chunk.keys, strict=True)}
    failed = None
    distinct = {
        argument: _distinct_values(chunk, store)
        for argument, store in zip(grouped.distinct_arguments, others, strict=True)
    }
    for item in grouped.aggregates:
        if aggregate_calls.needs_values(item.call):
            argument = aggregate_calls.effective_argument(item.call)
            assert argument is not None
            lowered = lower_distinct(item.call, argument, distinct[argument], chunk.rows)
        elif item.call.against:
            from headrace.operators.aggregates.group_comparisons import compared  # noqa: PLC0415 - of sketches

            lowered = compared(item.call, chunk.answer, columns)
        else:
            lowered = aggregate_calls.lower(item.call, chunk.answer)
        columns[item.name] = lowered.values
        if lowered.errors is not None:
            failed = lowered.errors if failed is None else failed | lowered.errors
    return columns, failed


def _distinct_values(chunk: WindowCells, store: Sequence[WindowCells]) -> Histogram:
    """Each distinct value of a window and group, owned by the index of its (window, group) in `chunk`."""
    parts = [part for part in store if part.rows]
    if not parts:
        return Histogram(np.empty(0, np.int64), pa.nulls(0), np.empty(0, np.int64))
    stacked_windows = np.concatenate([chunk.windows, *(part.windows for part in parts)])
    keys = [
        pa.concat_arrays([flat(column), *(flat(part.keys[index]) for part in parts)])
        for index, column in enumerate(chunk.keys)
    ]
    values = pa.concat_arrays([flat(part.keys[-1]) for part in parts])
    groups = group([pa.array(stacked_windows), *keys], len(stacked_windows))
    row = np.full(groups.count, -1, np.int64)
    row[groups.codes[: chunk.rows]] = np.arange(chunk.rows)
    owner = row[groups.codes[chunk.rows :]]
    has_owner = owner >= 0
    counts = np.concatenate([part.answer.cells[at_rest.rows_partial()][0] for part in parts])
    return Histogram(owner, values, counts).take(np.flatnonzero(has_owner))


def lower_distinct(
    call: AggregateCall, argument: Expression, histogram: Histogram, rows: int
) -> aggregate_calls.Lowered:
    """The aggregate over distinct values: of their histogram, or by the same partials as over rows."""
    if call.function in BY_VALUE:
        return lower_by_value(call, histogram, rows)
    value = Column("__value", argument.type)
    plain = AggregateCall(call.function, value, call.type)
    partial_columns = aggregate_calls.partials_of([plain])
    if len(histogram.owner):
        return aggregate_calls.lower(
            plain, lift(partial_columns, {value: histogram.values}, histogram.owner, rows)
        )
    return aggregate_calls.lower(plain, nothing(partial_columns, rows))


def nothing(partial_columns: Sequence[PartialColumn], rows: int) -> Answer:
    """Cells of no rows."""
    dictionaries = {
        partial_column: pa.array([], partial_column.arrow_types()[-1])
        for partial_column in partial_columns
        if partial_column.has_dictionary
    }
    return Answer(
        {partial_column: partial_column.partial.identity((rows,)) for partial_column in partial_columns},
        dictionaries,
    )
