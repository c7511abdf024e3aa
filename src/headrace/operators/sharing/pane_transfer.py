"""Can a window that is new be made of the panes that a present one holds, and how?

A query that joins at run time has seen nothing. Where another one folds the same rows into panes whose edges are all that
the new one's panes have, its cells are what the new one would have folded itself: they are combined into the wider panes and
over the keys that are no longer wanted, and no row is read again.
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
from headrace.operators.families.cohort import together
from headrace.operators.families.family import number_of
from headrace.operators.panes.adaptive_panes import SPARSE_OPEN, SPARSE_SEALED
from headrace.operators.panes.pane_keys import between, block_key, pane_keys
from headrace.operators.panes.panes import HIGHEST, Panes
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.time import BEGINNING, Instant


def can_give(source_operator: PaneAggregate, new_operator: PaneAggregate) -> bool:
    """Whether the donor's panes hold all that the taker's are made of: the same rows, its keys, its partials, its edges."""
    if (new_operator.stream, new_operator.steps, new_operator.sheds) != (
        source_operator.stream,
        source_operator.steps,
        source_operator.sheds,
    ):
        return False
    if new_operator.answers_empty:
        return False
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
    return _places(source_operator, new_operator) is not None


def _holds_edges(source_operator: Panes, new_operator: Panes) -> bool:
    """Whether every edge of the taker's panes is one of the donor's, which are no landmark's: these forget their edges."""
    if source_operator.back is None or new_operator.slide % source_operator.slide:
        return False
    edges = {0, source_operator.cut}
    return all(
        (new_operator.anchor + cut - source_operator.anchor) % source_operator.slide in edges
        for cut in {0, new_operator.cut}
    )


def _places(source_operator: PaneAggregate, new_operator: PaneAggregate) -> list[int] | None:
    """For each store of the taker that of the donor; None where one is missing or lacks a partial."""
    given, found = source_operator.grouped.distinct_arguments, [0]
    for argument in new_operator.grouped.distinct_arguments:
        if argument not in given:
            return None
        found.append(1 + given.index(argument))
    held = set(source_operator.layouts[0].partial_columns)
    return (
        found
        if all(partial_column in held for partial_column in new_operator.layouts[0].partial_columns)
        else None
    )


def needed_from(operator: PaneAggregate, emitted_to: Instant) -> Instant:
    """The start of the first window that ends after `closed`: rows before it are in none that is still to be told."""
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
    """The taker's deltas, as if it had folded the rows from `since` on itself.

    `runs` are the donor's state as it lies, after it had answered up to `closed`.
    """
    wide = together((source_operator,)) if source_operator.family_key is not None else source_operator
    places = _places(source_operator, new_operator)
    assert places is not None
    first = source_operator.panes.of_instant(since) if since != BEGINNING else -HIGHEST
    deltas: dict[str, pa.Table] = {}
    for own, place in enumerate(places):
        layout = wide.layouts[place]
        # A pane that has closed since is still among a run's open ones, and whole among the closed ones of a later run.
        still_open = (
            first if emitted_to == BEGINNING else max(first, source_operator.panes.of_instant(emitted_to))
        )
        starts = {f"sealed{place}": first, f"open{place}": still_open}
        if not place:
            starts |= {SPARSE_SEALED: first, SPARSE_OPEN: still_open}
        tables = list(_panes_of(source_operator, layout, runs, starts))
        if tables:
            deltas[f"open{own}"] = _refolded(
                source_operator, new_operator, layout, new_operator.layouts[own], tables
            )
    return {name: table for name, table in deltas.items() if table.num_rows}


def _panes_of(
    source_operator: PaneAggregate, layout: Layout, runs: Sequence[Sections], starts: Mapping[str, int]
) -> Iterator[pa.Table]:
    """The donor's own panes, of each section from a pane on, without the blocks above them."""
    for run in runs:
        for section, first in starts.items():
            found = [run[section]] if section in run else []
            for table in between(found, block_key(0, first), block_key(0, HIGHEST)):
                mine = table
                if source_operator.family_key is not None:
                    member = pc.equal(flat(table.column(layout.key_names[0])), number_of(source_operator.id))
                    mine = table.filter(member)
                if mine.num_rows:
                    yield layout.lifted(mine) if layout.are_rows(mine) else mine.cast(layout.schema())


def _refolded(
    source_operator: PaneAggregate,
    new_operator: PaneAggregate,
    given: Layout,
    wanted: Layout,
    tables: Sequence[pa.Table],
) -> pa.Table:
    """The cells of one store, by the panes and keys of the taker."""
    places = {key.expression: name for key, name in zip(given.keys, given.key_names, strict=True)}
    columns = [KEY, SLOT, *(places[key.expression] for key in wanted.keys)]
    for partial_column in wanted.partial_columns:
        columns += given.cell_names(given.partial_columns.index(partial_column))
    narrow = [pa.table([table.column(name) for name in columns], schema=wanted.schema()) for table in tables]
    rows = gather(wanted, narrow)
    starts = source_operator.panes.starts(rows.blocks - block_key(0, 0))
    panes = new_operator.panes.of_instants(starts)
    merged = merge_gathered(wanted, replace(rows, blocks=pane_keys(panes)))
    if new_operator.panes.has_gaps:
        inside = (ints(merged, KEY) - block_key(0, 0)) & 1
        merged = merged.filter(pa.array(inside.astype(bool)))
    names = wanted.key_names[: len(new_operator.keys)]
    slots = fresh_slots(
        [flat(merged.column(name)) for name in names], merged.num_rows, new_operator.single_slot
    )
    return merged.set_column(1, merged.schema.field(1), pa.array(slots, pa.int16()))
