"""Which groups of a pane lie as their rows, and which as a partial? AdaptWID with panes.

A row has one value for each argument, a partial often several numbers: COUNT, SUM, MIN, MAX and STDDEV of one column are nine.
So a group with few rows in a pane is smaller as its rows (*lazy*) than folded (*eager*), and a flood of such groups is most of
the state. Within a pane the choice is made for each group by counting: rows lie as they are while they take less room than
the partial, and are folded when there are more of them. Both forms mean the same and meet when a window is made, so a group
may change from one to the other at any time, and a query from never keeping rows to doing so (`should_store_rows`, with
hysteresis). Source: Li, Window Queries over Data Streams (2008), section 6.4, "AdaptWID with panes"; inside one pane the
threshold 6.9 comes down to rows against size of a partial over size of a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.operators.aggregates.aggregate_calls import Answer, lift
from headrace.operators.aggregates.cell_table import (
    KEY,
    Layout,
    answer_onto,
    cells_of_partials,
    fresh_slots,
    headed,
    merge,
    select,
)
from headrace.operators.aggregates.group_by import Grouped, fold
from headrace.operators.base.block_codes import blocks_seen, by_block_and_group
from headrace.operators.base.group_codes import SLOTS, Ints, flat, group, ints, picked
from headrace.operators.panes.panes import Panes
from headrace.operators.panes.single_row_groups import read_back
from headrace.operators.panes.window_cost_model import rows_for_panes_to_pay
from headrace.schema import Type, to_arrow

SPARSE_OPEN: Final = "few_open"
SPARSE_SEALED: Final = "few_sealed"
"""Sections of rows that lie as they are, of panes that are open and closed."""
EVERY_ROW: Final = 1 << 40
"""So many rows of a group are all there are: panes take rows in without folding any."""
LEAST_GROUPS: Final = 64
"""Fewer (pane, group) pairs say too little of how rows are spread."""
_BEGIN, _END = 0.15, 0.05
_ENOUGH: Final = 0.8
_FEW_OTHERS, _MORE_OTHERS = 0.25, 0.35
_SAMPLED: Final = SLOTS // 16
_EVERY: Final = 8
_FIXED: Final = 10
"""Bytes of a block's key and a slot."""
_VARYING: Final = 16
"""Taken for the size of a value whose type does not say it."""


@lru_cache(maxsize=1024)  # asked for each batch
def sparse_group_limit(layout: Layout) -> int:
    """So many rows of a group take less room than its partial."""
    return max(0, (partial_bytes(layout) - 1) // row_bytes(layout))


def partial_bytes(layout: Layout) -> int:
    """Size of a block's group at rest, about."""
    cells = sum(
        _arrow_bytes(kind)
        for partial_column in layout.partial_columns
        for kind in partial_column.arrow_types()
    )
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


def should_store_rows(layout: Layout, groups: int, sparse_groups: int, *, does: bool) -> bool:
    """Whether to keep rows from now on, after `few` of `groups` (pane, group) pairs had few rows.

    Begins when that makes the partials smaller by 15 percent, ends below 5 percent.
    """
    if groups < LEAST_GROUPS:
        return does
    return sparse_groups / groups * _saved(layout) >= (_END if does else _BEGIN)


@lru_cache(maxsize=1024)
def _saved(layout: Layout) -> float:
    """The share of a partial that is saved where a row takes its place."""
    return 1 - row_bytes(layout) / partial_bytes(layout)


@dataclass(frozen=True, slots=True)
class Sizes:
    """What an epoch measured.

    `rows` of `groups` (pane, group) pairs, `few` of which have few; `held` rows in the `pairs` of (window, group) it answered.
    """

    rows: int
    groups: int
    sparse_groups: int
    pairs: int = 0
    held: int = 0


def panes_pay(panes: Panes, found: Sizes, *, do: bool) -> bool:
    """Whether to fold rows as they come.

    Not where a group has fewer rows in a window than its panes save combinations (6.1 against 6.3 of the thesis), and few
    rows are of groups that would be folded. `do` is what holds, and stays until windows have closed, which alone tell how
    many rows a group has in one: in how many panes of a window it is, no epoch says. Begins and ends at different bounds.
    """
    if panes.per_window is None:
        return True
    if found.groups < LEAST_GROUPS or not found.pairs:
        return do
    enough, others = (_ENOUGH, _FEW_OTHERS) if do else (1.0, _MORE_OTHERS)
    has = found.held / found.pairs
    return found.rows - found.sparse_groups > others * found.rows or has >= enough * rows_for_panes_to_pay(
        panes
    )


@dataclass(frozen=True, slots=True)
class Folded:
    """A batch folded: the stores' tables of partials, rows that lie as they are, how many groups there are and how many are small."""

    tables: list[pa.Table]
    rows: pa.Table | None
    groups: int
    sparse_groups: int


def fold_adaptively(
    grouped: Grouped,
    blocks: Ints,
    values: Sequence[pa.Array],
    slot: int | None,
    *,
    row_layout_limit: int | None,
) -> Folded:
    """Like `grouped.fold`, but (block, group) pairs of at most `keeps` rows stay rows; None: all are folded, and counted."""
    layouts = grouped.layouts
    layout = layouts[0]
    if row_layout_limit is None:
        tables = fold(grouped, blocks, values, slot)
        held = ints(tables[0], layout.cell_names(0)[0])
        return Folded(tables, None, len(held), int((held <= sparse_group_limit(layout)).sum()))
    if row_layout_limit >= EVERY_ROW:
        return _as_they_are(grouped, blocks, values, slot)
    keys = list(values[: len(grouped.keys)])
    given = dict(zip(grouped.arguments, values[len(keys) :], strict=True))
    groups = group(
        keys,
        len(blocks),
        small=row_layout_limit,
        placed=row_layout_limit <= 1 and layout.is_light,
        blocks=blocks_seen(blocks),
    )
    codes, count, found, member, sizes = by_block_and_group(blocks, groups)
    counted = codes is groups.codes
    answer = lift(layout.partial_columns, given, codes, count, sizes, groups.live if counted else None)
    taken = groups.keys if counted else [picked(key, member) for key in groups.keys]
    slots = fresh_slots(taken, count, slot)
    eager, own = _parted(
        answer.cells[layout.partial_columns[0]][0], groups.large if counted else None, row_layout_limit
    )
    sparse_groups, rows = len(found[own]), None
    if sparse_groups:
        read = read_back(layout, answer, own) if row_layout_limit == 1 else None
        if read is None:
            lazy, own = _rows_of(own, groups.dense().codes if counted else codes, found, count)
            read = [picked(given[argument], lazy) for argument in layout.arguments]
        columns = [pa.array(found[own]), pa.array(slots[own]), *(picked(key, own) for key in taken), *read]
        rows = pa.table(columns, schema=layout.row_schema())
        # of the others nothing but the partial is kept
        answer, found, slots = select(answer, eager), found[eager], slots[eager]
        taken = [picked(key, eager) for key in taken]
    partials = layout.table(found, taken, slots, answer)
    others = fold(grouped, blocks, values, slot, beside=True) if len(layouts) > 1 else []
    return Folded([partials, *others], rows, count, sparse_groups)


def _parted(held: Ints, large: int | None, row_layout_limit: int) -> tuple[Ints | slice, Ints | slice]:
    """The groups of more than `keeps` rows and the others, of which `held` says the rows; `large` where the others come last."""
    if large is not None:
        return slice(0, large), slice(large, len(held))
    small = held <= row_layout_limit
    return np.flatnonzero(~small), np.flatnonzero(small)


def _as_they_are(grouped: Grouped, blocks: Ints, values: Sequence[pa.Array], slot: int | None) -> Folded:
    """Rows without a fold of the plain store. How many groups there are is told by those of some slots."""
    layout, keys = grouped.layouts[0], list(values[: len(grouped.keys)])
    given = dict(zip(grouped.arguments, values[len(keys) :], strict=True))
    own = fresh_slots(keys, len(blocks), None)
    slots = own if slot is None else np.full(len(blocks), slot, np.int16)
    columns = [pa.array(blocks), pa.array(slots), *keys, *(given[each] for each in layout.arguments)]
    rows = in_order([pa.table([flat(each) for each in columns], schema=layout.row_schema())])
    groups, sparse_groups = _sampled(layout, blocks, keys, own)
    partials = [layout.schema().empty_table(), *fold(grouped, blocks, values, slot, beside=True)]
    return Folded(partials, rows, groups, sparse_groups)


def _sampled(layout: Layout, blocks: Ints, keys: Sequence[pa.Array], slots: np.ndarray) -> tuple[int, int]:
    """About how many groups there are, and small ones: by all rows of some groups, or by some rows of all, what folds more."""
    found: list[tuple[float, float]] = []
    for some in (np.flatnonzero(slots < _SAMPLED), np.arange(0, len(blocks), _EVERY)):
        groups = group([picked(flat(key), some) for key in keys], len(some))
        codes, count, *_ = by_block_and_group(blocks[some], groups)
        sparse_groups = (
            int((np.bincount(codes, minlength=count) <= sparse_group_limit(layout)).sum()) if count else 0
        )
        scale = len(blocks) / max(1, len(some))
        found.append((sparse_groups * scale, count * scale) if count else (len(blocks), len(blocks)))
    small, every = min(found)
    return round(every), round(small)


def _rows_of(own: Ints | slice, codes: Ints, blocks: Ints, count: int) -> tuple[Ints, Ints]:
    """The rows of some groups in the order of blocks, and the group of each."""
    small = np.zeros(count, bool)
    small[own] = True
    lazy = np.flatnonzero(small[codes])
    of_rows = codes[lazy]
    if blocks[0] != blocks[-1]:
        order = np.argsort(of_rows, kind="stable")
        lazy, of_rows = lazy[order], of_rows[order]
    return lazy, of_rows


def settle(layout: Layout, tables: Sequence[pa.Table], row_layout_limit: int | None = None) -> list[pa.Table]:
    """Tables of both forms with one block's group in one of them: partials, then rows of groups that have few and no partial.

    `keeps` says how many are few; None: as many as take less room than a partial.
    """
    rows = [table for table in tables if layout.are_rows(table) and table.num_rows]
    folded = [table for table in tables if not layout.are_rows(table)]
    if not rows:
        return [merge(layout, folded)]
    if row_layout_limit is not None and row_layout_limit >= EVERY_ROW:
        return [merge(layout, folded), in_order(rows)]
    most = sparse_group_limit(layout) if row_layout_limit is None else row_layout_limit
    if any(
        partial_column.has_dictionary for partial_column in layout.partial_columns
    ):  # whose values have to meet in one
        lone, lazy = _sparse_rows(layout, folded, rows, most)
        if lazy.all():
            return [merge(layout, folded), in_order([lone])]
        return [
            merge(layout, [*folded, lone.filter(pa.array(~lazy))]),
            in_order([lone.filter(pa.array(lazy))]),
        ]
    return _settled(layout, folded, rows, most)


def _sparse_rows(
    layout: Layout, folded: Sequence[pa.Table], rows: Sequence[pa.Table], most: int
) -> tuple[pa.Table, np.ndarray]:
    """Rows of several tables as one, and which of them are of groups that have at most so many and no partial."""
    lone, cut = pa.concat_tables(rows), sum(table.num_rows for table in folded)
    heads = headed(layout, [*folded, lone])
    codes, count, *_ = by_block_and_group(heads.blocks, heads.groups)
    return lone, _are_sparse(codes, cut, count, most)[codes[cut:]]


def _are_sparse(codes: Ints, cut: int, count: int, most: int) -> np.ndarray:
    """Of which groups there are at most so many rows from `cut` on, and no partial before."""
    sparse_groups: np.ndarray = np.bincount(codes[cut:], minlength=count) <= most
    sparse_groups[codes[:cut]] = False
    return sparse_groups


def _settled(
    layout: Layout, folded: Sequence[pa.Table], rows: Sequence[pa.Table], most: int
) -> list[pa.Table]:
    """Like `settle`, of both forms; blocks and groups are numbered once for all of it."""
    held = pa.concat_tables(folded) if folded else layout.schema().empty_table()
    lone, cut = pa.concat_tables(rows), held.num_rows
    heads = headed(layout, [held, lone])
    codes, count, blocks, members, _ = by_block_and_group(heads.blocks, heads.groups)
    sparse_groups = _are_sparse(codes, cut, count, most)
    large, lazy = np.flatnonzero(~sparse_groups), sparse_groups[codes[cut:]]
    lying = _in_order_of(heads.blocks[cut:], lone, np.flatnonzero(lazy))
    if not len(large):
        return [layout.schema().empty_table(), lying]
    rank = np.empty(count, np.int64)
    rank[large] = np.arange(len(large))
    slots = np.zeros(count, np.int16)
    slots[codes] = heads.slots
    grown = np.flatnonzero(~lazy)
    given = {argument: picked(values, grown) for argument, values in layout.given(lone).items()}
    answer = lift(layout.partial_columns, given, rank[codes[cut:][grown]], len(large))
    if cut:
        answer = answer_onto(layout, Answer(cells_of_partials(layout, held)[0]), rank[codes[:cut]], answer)
    keys = [picked(key, members[large]) for key in heads.groups.keys]
    partials = layout.table(blocks[large], keys, slots[large], answer)
    return [partials, lying]


def _in_order_of(blocks: Ints, sparse: pa.Table, places: Ints) -> pa.Table:
    """Some of the rows, in the order of blocks."""
    kept = blocks[places]
    if (np.diff(kept) < 0).any():
        places = places[np.argsort(kept, kind="stable")]
    return pa.table([picked(flat(column), places) for column in sparse.columns], schema=sparse.schema)


def in_order(tables: Sequence[pa.Table]) -> pa.Table:
    """Rows of several tables by block, as one table."""
    whole = pa.concat_tables(tables)
    keys = ints(whole, KEY)
    if (np.diff(keys) < 0).any():
        whole = whole.take(pa.array(np.argsort(keys, kind="stable")))
    return whole


def grown_into_partials(
    layout: Layout, sections: Mapping[str, Sequence[pa.Table]], row_layout_limit: int | None = None
) -> dict[str, list[pa.Table]]:
    """Sections about to be merged, where groups whose rows have become many are folded."""
    found = {name: list(tables) for name, tables in sections.items()}
    for sparse_groups, whole in ((SPARSE_OPEN, "open0"), (SPARSE_SEALED, "sealed0")):
        if not found.get(sparse_groups, True):
            del found[sparse_groups]
        elif len(found.get(sparse_groups, ())) > 1:  # in one table alone no group has grown
            partials, *rows = settle(layout, found.pop(sparse_groups), row_layout_limit)
            if partials.num_rows:
                found.setdefault(whole, []).append(partials)
            if rows and rows[0].num_rows:
                found[sparse_groups] = rows
    return found
