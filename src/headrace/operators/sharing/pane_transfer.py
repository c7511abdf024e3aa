"""Pane backfill: the panes of a new query, made from those of a running query; and which running queries have such
panes.

A query that is registered while rows arrive has no history. If another query folds the same rows into panes that have
all edges of the new query's panes, its cells are combined into the wider panes and over the keys that the new query
does not have, without reading a row again.
Source: Aurora's shared windows (Carney et al. 2002), and history from present windows (PAT-6).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from headrace.operators.aggregates.cell_table import KEY, SLOT, Layout, fresh_slots, gather, merge_gathered
from headrace.operators.base.group_codes import flat, ints
from headrace.operators.base.operator import Sections
from headrace.operators.families.numbering import number_of
from headrace.operators.families.pane_queries import together
from headrace.operators.panes.adaptive_panes import SPARSE_OPEN, SPARSE_SEALED
from headrace.operators.panes.pane_keys import between, block_key, pane_keys
from headrace.operators.panes.panes import HIGHEST, Panes
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.time import BEGINNING, Instant


def can_give(source_operator: PaneAggregate, new_operator: PaneAggregate) -> bool:
    """Whether the source's panes are fine enough for the new operator: the same rows, all its keys, partials and pane edges."""
    if (new_operator.stream, new_operator.steps, new_operator.sheds) != (
        source_operator.stream,
        source_operator.steps,
        source_operator.sheds,
    ):
        return False
    if new_operator.answers_empty:
        return False
    if (
        source_operator.sheds
        and source_operator.has_own_panes
        and source_operator.query != new_operator.query
    ):
        return False  # its share of the rows may be its own
    if (
        source_operator.revisions is not None
        or new_operator.revisions is not None
        or source_operator.panes.has_gaps
    ):
        return False
    keys = {key.expression for key in source_operator.keys}
    if not {key.expression for key in new_operator.keys} <= keys or not _holds_edges(
        source_operator.panes, new_operator.panes
    ):
        return False
    return _source_stores(source_operator, new_operator) is not None


def _holds_edges(source: Panes, new: Panes) -> bool:
    """Whether every edge of the new panes is one of the source's. Landmark sources have none, since their panes are merged."""
    if source.back is None or new.slide % source.slide:
        return False
    edges = {0, source.cut}
    return all((new.anchor + cut - source.anchor) % source.slide in edges for cut in {0, new.cut})


def _source_stores(source_operator: PaneAggregate, new_operator: PaneAggregate) -> list[int] | None:
    """For each store of the new operator that of the source; None if one is missing or lacks a partial."""
    arguments, stores = source_operator.grouped.distinct_arguments, [0]
    for argument in new_operator.grouped.distinct_arguments:
        if argument not in arguments:
            return None
        stores.append(1 + arguments.index(argument))
    held = set(source_operator.layouts[0].partial_columns)
    return (
        stores
        if all(partial_column in held for partial_column in new_operator.layouts[0].partial_columns)
        else None
    )


def needed_from(operator: PaneAggregate, emitted_to: Instant) -> Instant:
    """The start of the first window that ends after `emitted_to`: earlier rows are in no window that is still to be emitted."""
    if operator.range is None or emitted_to == BEGINNING:
        return BEGINNING
    panes = operator.panes
    return panes.anchor + (panes.last_closed(emitted_to) + 1) * panes.slide - operator.range


def transferred(
    source_operator: PaneAggregate,
    new_operator: PaneAggregate,
    runs: Sequence[Sections],
    since: Instant,
    emitted_to: Instant,
) -> dict[str, pa.Table]:
    """The new operator's deltas, as if it had folded the rows from `since` on itself.

    `runs` are the source's state, after it answered up to `emitted_to`.
    """
    wide = together((source_operator,)) if source_operator.family_key is not None else source_operator
    stores = _source_stores(source_operator, new_operator)
    assert stores is not None
    first = source_operator.panes.of_instant(since) if since != BEGINNING else -HIGHEST
    deltas: dict[str, pa.Table] = {}
    for store, source_store in enumerate(stores):
        layout = wide.layouts[source_store]
        # A pane that closed later is still in a run's open section, and complete in the sealed section of a later run.
        still_open = (
            first if emitted_to == BEGINNING else max(first, source_operator.panes.of_instant(emitted_to))
        )
        starts = {f"sealed{source_store}": first, f"open{source_store}": still_open}
        if not source_store:
            starts |= {SPARSE_SEALED: first, SPARSE_OPEN: still_open}
        tables = list(_panes_of(source_operator, layout, runs, starts))
        if tables:
            deltas[f"open{store}"] = _refolded(
                source_operator, new_operator, layout, new_operator.layouts[store], tables
            )
    return {name: table for name, table in deltas.items() if table.num_rows}


def _panes_of(
    source_operator: PaneAggregate, layout: Layout, runs: Sequence[Sections], starts: Mapping[str, int]
) -> Iterator[pa.Table]:
    """The source's own panes, of each section from a pane on, without the blocks above them."""
    for run in runs:
        for section, first in starts.items():
            tables = [run[section]] if section in run else []
            for table in between(tables, block_key(0, first), block_key(0, HIGHEST)):
                rows = table
                if source_operator.family_key is not None:
                    is_own = pc.equal(flat(table.column(layout.key_names[0])), number_of(source_operator.id))
                    rows = table.filter(is_own)
                if rows.num_rows:
                    yield layout.lifted(rows) if layout.are_rows(rows) else rows.cast(layout.schema())


def _refolded(
    source_operator: PaneAggregate,
    new_operator: PaneAggregate,
    source_layout: Layout,
    layout: Layout,
    tables: Sequence[pa.Table],
) -> pa.Table:
    """The cells of one store, by the panes and keys of the new operator."""
    columns_by_key = {
        key.expression: name for key, name in zip(source_layout.keys, source_layout.key_names, strict=True)
    }
    columns = [KEY, SLOT, *(columns_by_key[key.expression] for key in layout.keys)]
    for partial_column in layout.partial_columns:
        columns += source_layout.cell_names(source_layout.partial_columns.index(partial_column))
    narrow = [pa.table([table.column(name) for name in columns], schema=layout.schema()) for table in tables]
    rows = gather(layout, narrow)
    starts = source_operator.panes.starts(rows.blocks - block_key(0, 0))
    panes = new_operator.panes.of_instants(starts)
    merged = merge_gathered(layout, replace(rows, blocks=pane_keys(panes)))
    if new_operator.panes.has_gaps:
        inside = (ints(merged, KEY) - block_key(0, 0)) & 1
        merged = merged.filter(pa.array(inside.astype(bool)))
    names = layout.key_names[: len(new_operator.keys)]
    slots = fresh_slots(
        [flat(merged.column(name)) for name in names], merged.num_rows, new_operator.single_slot
    )
    return merged.set_column(1, merged.schema.field(1), pa.array(slots, pa.int16()))
