"""State of aggregates at every instant, as cells by instant and group: the cells that new rows add, those that have not
expired, and those that an advance reads, with their intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.operators.aggregates.cell_table import KEY, Gathered, Layout, gather, merge
from headrace.operators.base.group_codes import SLOTS, Ints, ints
from headrace.operators.base.operator import SLOT, Sections
from headrace.operators.families.extents import only_slots
from headrace.operators.output.changelog import Span
from headrace.operators.partials.encoding import rows_partial
from headrace.operators.relations.instant_subwindow import CELLS
from headrace.operators.relations.interval_blocks import are_few, in_order
from headrace.operators.relations.interval_groups import Timed, Valued
from headrace.time import BEGINNING, FOREVER, Instant

if TYPE_CHECKING:
    from headrace.operators.relations.instant_aggregate import InstantAggregate

Slots: TypeAlias = np.ndarray | None
"""Which of the 256 slots matter; None: all."""


def arrived(
    operator: InstantAggregate, runs: Sequence[Sections], deltas: Sequence[Sections], span: Span
) -> dict[str, pa.Table]:
    """The state of the new rows; of rows that never expire, one cell per group of all that is settled now."""
    state: dict[str, pa.Table] = {}
    for name in sorted({name for delta in deltas for name in delta}):
        state[name] = pa.concat_tables([delta[name] for delta in deltas if name in delta])
    for blocks in operator.buckets:
        if (
            name := f"{CELLS}{blocks.store}"
        ) in state:  # in order of instants, so that any interval is a slice
            state[name] = together(blocks.layout, [state[name]])
    if not operator.folds or operator.validity.length is not None:
        return state
    for store, layout in enumerate(operator.grouped.layouts):
        name = f"{CELLS}{store}"
        older = [
            table.filter(pa.array(_within(table, span)))
            for run in runs
            if (table := run.get(name)) is not None
        ]
        fresh = state.pop(name, layout.schema().empty_table())
        settled = [*older, fresh.filter(pa.array(ints(fresh, KEY) < span.limit))]
        waiting = fresh.filter(pa.array(ints(fresh, KEY) >= span.limit))
        tables = [_without_expiry(merge(layout, settled)), waiting]
        if sum(table.num_rows for table in tables):
            state[name] = merge(layout, tables)
    return state


def together(layout: Layout, tables: Sequence[pa.Table]) -> pa.Table:
    """Cells in order of instants; many of them one for each instant and group."""
    return in_order(tables) if are_few(tables) else merge(layout, tables)


def _within(table: pa.Table, span: Span) -> np.ndarray:
    within: np.ndarray = span.holds(ints(table, KEY)) & (ints(table, KEY) != BEGINNING)
    return within


def _without_expiry(table: pa.Table) -> pa.Table:
    return table.set_column(0, KEY, pa.array(np.full(table.num_rows, BEGINNING)))


def _settled(operator: InstantAggregate, table: pa.Table, span: Span) -> pa.Table:
    """The cells below punctuation that hold at an instant of the span, or end there."""
    held = holding(operator, table, span.emitted_to)
    return held.filter(pa.array(ints(held, KEY) < span.limit))


def holding(operator: InstantAggregate, table: pa.Table, emitted_to: Instant) -> pa.Table:
    """The cells that hold at an instant at or after `emitted_to`, or end there."""
    keys = ints(table, KEY)
    if operator.validity.length is None:
        return table.filter(pa.array((keys == BEGINNING) | (keys >= emitted_to)))
    return table.filter(pa.array(keys + operator.extents.of_rows(table) >= emitted_to))


def folded(operator: InstantAggregate, sections: Sequence[Sections], span: Span) -> tuple[Timed, Slots]:
    """Cells folded per instant, with their intervals; and the slots of groups that have an event, None for all."""
    stores = range(len(operator.grouped.layouts))
    cells = [tables_of(sections, f"{CELLS}{store}") for store in stores]
    if buckets := operator.buckets:
        tables = [blocks.edges(cells[blocks.store], span) for blocks in buckets]
        slots = _slots_in(operator, tables)
        for blocks, some in zip(buckets, tables, strict=True):
            some.extend(only_slots(blocks.throughout(sections, cells[blocks.store], span), slots))
    else:
        tables = [[_settled(operator, table, span) for table in some] for some in cells]
        fresh = [
            [table.filter(pa.array(ints(table, KEY) >= span.emitted_to)) for table in some] for some in tables
        ]
        slots = _slots_in(operator, fresh) if operator.validity.for_ever else None
        tables = [only_slots(some, slots) for some in tables]
    return _timed(operator, tables), slots


def _slots_in(operator: InstantAggregate, tables: Iterable[Sequence[pa.Table]]) -> Slots:
    """The slots of rows, if groups in other slots do not matter."""
    if operator.needs_all or operator.is_global:
        return None
    slots = np.zeros(SLOTS, bool)
    for some in tables:
        for table in some:
            slots[ints(table, SLOT)] = True
    return slots


def _timed(operator: InstantAggregate, tables: Sequence[Sequence[pa.Table]]) -> Timed:
    """Cells with their intervals; `tables` are those of each store."""
    gathered = [gather(layout, some) for layout, some in zip(operator.grouped.layouts, tables, strict=True)]
    ends = [_ends_of(operator, rows) for rows in gathered]
    keys = [tuple(key.take(pa.array(rows.groups.codes)) for key in rows.groups.keys) for rows in gathered]
    distinct = {
        argument: Valued(
            keys[store][:-1],
            keys[store][-1],
            gathered[store].blocks,
            ends[store],
            gathered[store].answer.cells[rows_partial()][0],
        )
        for store, argument in enumerate(operator.grouped.distinct_arguments, start=1)
    }
    return Timed(keys[0], gathered[0].blocks, ends[0], gathered[0].answer, distinct)


def _ends_of(operator: InstantAggregate, rows: Gathered) -> Ints:
    """The instants at which cells expire."""
    if operator.validity.length is None:
        return np.full(rows.rows, FOREVER)
    if operator.queries is None:
        return rows.blocks + operator.validity.length
    extents = operator.queries.values[operator.queries.places_of(rows.groups.keys[0].to_numpy())]
    ends: Ints = rows.blocks + extents[rows.groups.codes]
    return ends


def tables_of(sections: Sequence[Sections], name: str) -> list[pa.Table]:
    """A section's tables."""
    return [section[name] for section in sections if name in section]
