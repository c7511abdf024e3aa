"""Which groups of a pane lie as their rows, and which as a partial? AdaptWID with panes.

A row has one value for each argument, a partial often several numbers: COUNT, SUM, MIN, MAX and STDDEV of one column are nine.
So a group with few rows in a pane is smaller as its rows (*lazy*) than folded (*eager*), and a flood of such groups is most of
the state. Within a pane the choice is made for each group by counting: rows lie as they are while they take less room than
the partial, and are folded when there are more of them. Both forms mean the same and meet when a window is made, so a group
may change from one to the other at any time, and a query from never keeping rows to doing so (`should_adapt`, with
hysteresis). Source: Li, Window Queries over Data Streams (2008), section 6.4, "AdaptWID with panes"; inside one pane the
threshold 6.9 comes down to rows against size of a partial over size of a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.operators.aggregation import lift
from headrace.operators.grouped import Grouped, fold
from headrace.operators.grouping import SLOTS, Ints, flat, group, picked
from headrace.operators.pane_store import (
    KEY,
    Layout,
    by_block_and_group,
    fresh_slots,
    merge,
    select,
)
from headrace.operators.panes import Panes
from headrace.operators.window_costs import rows_for_panes_to_pay
from headrace.schema import Type, to_arrow

FEW_OPEN: Final = "few_open"
FEW_SEALED: Final = "few_sealed"
"""Sections of rows that lie as they are, of panes that are open and closed."""
EVERY_ROW: Final = 1 << 40
"""So many rows of a group are all there are: panes take rows in without folding any."""
LEAST_GROUPS: Final = 64
"""Fewer (pane, group) pairs say too little of how rows are spread."""
_BEGIN, _END = 0.15, 0.05
_ENOUGH: Final = 0.8
_FEW_OTHERS: Final = 0.1
_SAMPLED: Final = SLOTS // 16
_EVERY: Final = 8
_FIXED: Final = 10
"""Bytes of a block's key and a slot."""
_VARYING: Final = 16
"""Taken for the size of a value whose type does not say it."""


def few_rows(layout: Layout) -> int:
    """So many rows of a group take less room than its partial."""
    return max(0, (partial_bytes(layout) - 1) // row_bytes(layout))


def partial_bytes(layout: Layout) -> int:
    """Size of a block's group at rest, about."""
    cells = sum(_arrow_bytes(kind) for fed in layout.feds for kind in fed.arrow_types())
    return _key_bytes(layout) + cells


def row_bytes(layout: Layout) -> int:
    """Size of a row at rest, about."""
    return _key_bytes(layout) + sum(_bytes(argument.type) for argument in layout.arguments)


def _key_bytes(layout: Layout) -> int:
    return _FIXED + sum(_bytes(key.expression.type) for key in layout.keys)


def _bytes(kind: Type) -> int:
    return _arrow_bytes(to_arrow(kind))


def _arrow_bytes(kind: pa.DataType) -> int:
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:  # of strings and the like
        return _VARYING


def should_adapt(layout: Layout, groups: int, few: int, *, does: bool) -> bool:
    """Whether to keep rows from now on, after `few` of `groups` (pane, group) pairs had few rows.

    Begins when that makes the partials smaller by 15 percent, ends below 5 percent.
    """
    if groups < LEAST_GROUPS:
        return does
    saved = few / groups * (1 - row_bytes(layout) / partial_bytes(layout))
    return saved >= (_END if does else _BEGIN)


def panes_pay(panes: Panes, rows: int, groups: int, few: int, *, do: bool) -> bool:
    """Whether to fold rows as they come, after `rows` of `groups` (pane, group) pairs, `few` of which lie as their rows anyway.

    Not where a group has fewer rows in a window than its panes save combinations (6.1 against 6.3 of the thesis) and next to
    no row is of a group that would be folded. `do` is what holds: rows begin to lie unfolded well below both bounds.
    """
    held = panes.per_window
    if held is None:
        return True
    if groups < LEAST_GROUPS:
        return do
    enough, others = (_ENOUGH, _FEW_OTHERS) if do else (1.0, 2 * _FEW_OTHERS)
    return rows - few > others * rows or rows / groups * held >= enough * rows_for_panes_to_pay(panes)


@dataclass(frozen=True, slots=True)
class Folded:
    """A batch folded: the stores' tables of partials, rows that lie as they are, how many groups there are and how many are small."""

    tables: list[pa.Table]
    rows: pa.Table | None
    groups: int
    few: int


def fold_adaptively(
    grouped: Grouped, blocks: Ints, values: Sequence[pa.Array], slot: int | None, *, keeps: int | None
) -> Folded:
    """Like `grouped.fold`, but (block, group) pairs of at most `keeps` rows stay rows; None: all are folded, and counted."""
    layout = grouped.layouts[0]
    if keeps is None:
        tables = fold(grouped, blocks, values, slot)
        held = flat(tables[0].column(layout.cell_names(0)[0])).to_numpy()
        return Folded(tables, None, len(held), int((held <= few_rows(layout)).sum()))
    if keeps >= EVERY_ROW:
        return _as_they_are(grouped, blocks, values, slot)
    keys = list(values[: len(grouped.keys)])
    given = dict(zip(grouped.arguments, values[len(keys) :], strict=True))
    arguments = {expression: given[expression] for expression in layout.arguments}
    groups = group(keys, len(blocks))
    codes, count, found, member = by_block_and_group(blocks, groups)
    taken = [picked(key, member) for key in groups.keys]
    slots = fresh_slots(taken, count, slot)
    answer = lift(layout.feds, arguments, codes, count)
    small = answer.cells[layout.feds[0]][0] <= keeps
    few = int(small.sum())
    rows = None
    if few:
        lazy, own = _rows_of(small, codes, found, keeps)
        columns = [pa.array(found[own]), pa.array(slots[own]), *(picked(key, own) for key in taken)]
        columns += [picked(argument, lazy) for argument in arguments.values()]
        rows = pa.table(columns, schema=layout.row_schema())
        eager = np.flatnonzero(~small)  # of the others nothing but the partial is kept
        answer, found, slots = select(answer, eager), found[eager], slots[eager]
        taken = [picked(key, eager) for key in taken]
    partials = layout.table(found, taken, slots, answer)
    others = fold(grouped, blocks, values, slot, beside=True)
    return Folded([partials, *others], rows, count, few)


def _as_they_are(grouped: Grouped, blocks: Ints, values: Sequence[pa.Array], slot: int | None) -> Folded:
    """Rows without a fold of the plain store. How many groups there are is told by those of some slots."""
    layout, keys = grouped.layouts[0], list(values[: len(grouped.keys)])
    given = dict(zip(grouped.arguments, values[len(keys) :], strict=True))
    own = fresh_slots(keys, len(blocks), None)
    slots = own if slot is None else np.full(len(blocks), slot, np.int16)
    columns = [pa.array(blocks), pa.array(slots), *keys, *(given[each] for each in layout.arguments)]
    rows = in_order([pa.table([flat(each) for each in columns], schema=layout.row_schema())])
    groups, few = _sampled(layout, blocks, keys, own)
    partials = [layout.schema().empty_table(), *fold(grouped, blocks, values, slot, beside=True)]
    return Folded(partials, rows, groups, few)


def _sampled(layout: Layout, blocks: Ints, keys: Sequence[pa.Array], slots: np.ndarray) -> tuple[int, int]:
    """About how many groups there are, and small ones: by all rows of some groups, or by some rows of all, what folds more."""
    found: list[tuple[float, float]] = []
    for some in (np.flatnonzero(slots < _SAMPLED), np.arange(0, len(blocks), _EVERY)):
        groups = group([picked(flat(key), some) for key in keys], len(some))
        codes, count, _, _ = by_block_and_group(blocks[some], groups)
        few = int((np.bincount(codes, minlength=count) <= few_rows(layout)).sum()) if count else 0
        scale = len(blocks) / max(1, len(some))
        found.append((few * scale, count * scale) if count else (len(blocks), len(blocks)))
    small, every = min(found)
    return round(every), round(small)


def _rows_of(small: np.ndarray, codes: Ints, blocks: Ints, keeps: int) -> tuple[Ints, Ints]:
    """The rows of small groups in the order of blocks, and the group of each."""
    if keeps == 1:
        place = np.empty(len(small), np.int64)
        place[codes] = np.arange(len(codes))
        own = np.flatnonzero(small)
        return place[own], own
    lazy = np.flatnonzero(small[codes])
    own = codes[lazy]
    if blocks[0] != blocks[-1]:
        order = np.argsort(own, kind="stable")
        lazy, own = lazy[order], own[order]
    return lazy, own


def settle(layout: Layout, tables: Sequence[pa.Table], keeps: int | None = None) -> list[pa.Table]:
    """Tables of both forms with one block's group in one of them: partials, then rows of groups that have few and no partial.

    `keeps` says how many are few; None: as many as take less room than a partial.
    """
    rows = [table for table in tables if layout.are_rows(table) and table.num_rows]
    folded = [table for table in tables if not layout.are_rows(table)]
    if not rows:
        return [merge(layout, folded)]
    if keeps is not None and keeps >= EVERY_ROW:
        return [merge(layout, folded), in_order(rows)]
    names = [KEY, *layout.key_names]
    every = pa.concat_tables([table.select(names) for table in (*rows, *folded)])
    whole = pa.concat_tables(rows)
    blocks = flat(every.column(KEY)).to_numpy()
    groups = group([flat(every.column(name)) for name in layout.key_names], every.num_rows)
    codes, count, _, _ = by_block_and_group(blocks, groups)
    held = np.bincount(codes[: whole.num_rows], minlength=count)
    small = held <= (few_rows(layout) if keeps is None else keeps)
    small[codes[whole.num_rows :]] = False
    lazy = small[codes[: whole.num_rows]]
    if lazy.all():
        return [merge(layout, folded), in_order([whole])]
    grown = whole.filter(pa.array(~lazy))
    return [merge(layout, [*folded, grown]), in_order([whole.filter(pa.array(lazy))])]


def in_order(tables: Sequence[pa.Table]) -> pa.Table:
    """Rows of several tables by block, as one table."""
    whole = pa.concat_tables(tables)
    keys = flat(whole.column(KEY)).to_numpy()
    if (np.diff(keys) < 0).any():
        whole = whole.take(pa.array(np.argsort(keys, kind="stable")))
    return whole


def grown_into_partials(
    layout: Layout, sections: Mapping[str, Sequence[pa.Table]], keeps: int | None = None
) -> dict[str, list[pa.Table]]:
    """Sections about to be merged, where groups whose rows have become many are folded."""
    found = {name: list(tables) for name, tables in sections.items()}
    for few, whole in ((FEW_OPEN, "open0"), (FEW_SEALED, "sealed0")):
        if not found.get(few, True):
            del found[few]
        elif len(found.get(few, ())) > 1:  # in one table alone no group has grown
            partials, *rows = settle(layout, found.pop(few), keeps)
            if partials.num_rows:
                found.setdefault(whole, []).append(partials)
            if rows and rows[0].num_rows:
                found[few] = rows
    return found
