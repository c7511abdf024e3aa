"""Storage of each group of a pane either as its rows or as a partial, whichever is smaller (AdaptWID with panes): the
choice, the fold of a batch into both layouts, and the merging of tables of both.

A row has one value per argument, a partial often several numbers: COUNT, SUM, MIN, MAX and STDDEV of one column are
nine. So a group with few rows in a pane is smaller as its rows (*lazy*) than folded (*eager*), and a flood of such
groups is most of the state. Within a pane the choice is made for each group by counting: rows are stored as rows while
they take less room than the partial, and are folded when there are more of them. Both forms are equivalent and are
combined when a window is made, so a group may change from one to the other at any time, and a query from never storing
rows to doing so (`should_store_rows`, with hysteresis).
Source: Li, Window Queries over Data Streams (2008), section 6.4, "AdaptWID with panes"; inside one pane the threshold
6.9 reduces to the number of rows against the size of a partial over the size of a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
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
from headrace.operators.base.group_codes import SLOTS, Ints, flat, group, ints, picked, picked_rows
from headrace.operators.panes.panes import Panes
from headrace.operators.panes.single_row_groups import read_back
from headrace.operators.panes.window_cost_model import rows_for_panes_to_pay
from headrace.schema import Type, to_arrow

SPARSE_OPEN: Final = "few_open"
SPARSE_SEALED: Final = "few_sealed"
"""Sections of rows in the row layout, of open and of closed panes."""
EVERY_ROW: Final = 1 << 40
"""A row limit above any group's size: panes store rows without folding any."""
ALWAYS_ROWS: Final = 1 << 41
"""The same of an operator that never folds any: its groups are not counted."""
LEAST_GROUPS: Final = 64
"""With fewer (pane, group) pairs the layout does not change."""
_BEGIN, _END = 0.15, 0.05
_ENOUGH: Final = 0.8
_LESS_OTHERS, _MORE_OTHERS = 0.25, 0.35
_SAMPLED: Final = SLOTS // 16
_EVERY: Final = 8
_FIXED: Final = 10
"""Bytes of a block's key and a slot."""
_VARYING: Final = 16
"""Assumed bytes of a value of variable width."""


@lru_cache(maxsize=1024)  # called for each batch
def sparse_group_limit(layout: Layout) -> int:
    """The most rows of a group that take less room than its partial."""
    return max(0, (partial_bytes(layout) - 1) // row_bytes(layout))


def partial_bytes(layout: Layout) -> int:
    """Approximate stored bytes of a group's partials in a block."""
    cells = sum(
        _arrow_bytes(kind)
        for partial_column in layout.partial_columns
        for kind in partial_column.arrow_types()
    )
    return _key_bytes(layout) + cells


def row_bytes(layout: Layout) -> int:
    """Approximate stored bytes of a row."""
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
    """Whether to store rows from now on, after `sparse_groups` of `groups` (pane, group) pairs had few rows.

    Begins when that makes the partials smaller by 15 percent, ends below 5 percent.
    """
    if groups < LEAST_GROUPS:
        return does
    return sparse_groups / groups * _saved(layout) >= (_END if does else _BEGIN)


@lru_cache(maxsize=1024)
def _saved(layout: Layout) -> float:
    """The share of a partial's bytes that is saved if a row replaces it."""
    return 1 - row_bytes(layout) / partial_bytes(layout)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Measurements of an epoch.

    `rows` of `groups` (pane, group) pairs, `sparse_groups` of which have few rows; `held` rows in the `pairs` of
    (window, group) that were emitted.
    """

    rows: int
    groups: int
    sparse_groups: int
    pairs: int = 0
    held: int = 0


def panes_pay(panes: Panes, sizes: Sizes, *, do: bool) -> bool:
    """Whether to fold rows into panes on arrival.

    Not if a group has fewer rows in a window than its panes save combinations (6.1 against 6.3 of the thesis), and few
    rows are of groups that would be folded. `do` is the current state; it does not change until windows have closed,
    since only closed windows show how many rows a group has in one. Begins and ends at different bounds.
    """
    if panes.per_window is None:
        return True
    if sizes.groups < LEAST_GROUPS or not sizes.pairs:
        return do
    enough, others = (_ENOUGH, _LESS_OTHERS) if do else (1.0, _MORE_OTHERS)
    has = sizes.held / sizes.pairs
    return sizes.rows - sizes.sparse_groups > others * sizes.rows or has >= enough * rows_for_panes_to_pay(
        panes
    )


@dataclass(frozen=True, slots=True)
class Folded:
    """A folded batch: the stores' tables of partials, rows in the row layout, and the numbers of groups and of sparse
    groups.
    """

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
    """Like `group_by.fold`, but (block, group) pairs of at most `row_layout_limit` rows stay rows; None: all are
    folded, and counted.
    """
    layouts = grouped.layouts
    layout = layouts[0]
    if row_layout_limit is None:
        tables = fold(grouped, blocks, values, slot)
        held = ints(tables[0], layout.cell_names(0)[0])
        return Folded(tables, None, len(held), int((held <= sparse_group_limit(layout)).sum()))
    if row_layout_limit >= EVERY_ROW:
        return _as_they_are(grouped, blocks, values, slot, counts=row_layout_limit < ALWAYS_ROWS)
    keys = list(values[: len(grouped.keys)])
    arguments = dict(zip(grouped.arguments, values[len(keys) :], strict=True))
    groups = group(
        keys,
        len(blocks),
        small=row_layout_limit,
        placed=row_layout_limit <= 1 and layout.is_light,
        blocks=blocks_seen(blocks),
    )
    codes, count, pair_blocks, group_index, sizes = by_block_and_group(blocks, groups)
    counted = codes is groups.codes
    answer = lift(layout.partial_columns, arguments, codes, count, sizes, groups.live if counted else None)
    group_keys = groups.keys if counted else [picked(key, group_index) for key in groups.keys]
    slots = fresh_slots(group_keys, count, slot)
    eager, sparse_pairs = _parted(
        answer.cells[layout.partial_columns[0]][0], groups.large if counted else None, row_layout_limit
    )
    sparse_groups, rows = len(pair_blocks[sparse_pairs]), None
    if sparse_groups:
        read = read_back(layout, answer, sparse_pairs) if row_layout_limit == 1 else None
        if read is None:
            lazy, sparse_pairs = _rows_of(
                sparse_pairs, groups.dense().codes if counted else codes, pair_blocks, count
            )
            read = [picked(arguments[argument], lazy) for argument in layout.arguments]
        columns = [
            pa.array(pair_blocks[sparse_pairs]),
            pa.array(slots[sparse_pairs]),
            *(picked(key, sparse_pairs) for key in group_keys),
            *read,
        ]
        rows = pa.table(columns, schema=layout.row_schema())
        # of the other groups only the partial is stored
        answer, pair_blocks, slots = select(answer, eager), pair_blocks[eager], slots[eager]
        group_keys = [picked(key, eager) for key in group_keys]
    partials = layout.table(pair_blocks, group_keys, slots, answer)
    others = fold(grouped, blocks, values, slot, beside=True) if len(layouts) > 1 else []
    return Folded([partials, *others], rows, count, sparse_groups)


def _parted(held: Ints, large: int | None, row_layout_limit: int) -> tuple[Ints | slice, Ints | slice]:
    """The groups of more than `row_layout_limit` rows and the others, by `held` rows; `large` if the others come last."""
    if large is not None:
        return slice(0, large), slice(large, len(held))
    small = held <= row_layout_limit
    return np.flatnonzero(~small), np.flatnonzero(small)


def _as_they_are(
    grouped: Grouped, blocks: Ints, values: Sequence[pa.Array], slot: int | None, *, counts: bool
) -> Folded:
    """Rows without folding the plain store; with `counts` the number of groups is estimated from a sample."""
    layout, keys = grouped.layouts[0], list(values[: len(grouped.keys)])
    arguments = dict(zip(grouped.arguments, values[len(keys) :], strict=True))
    slots = fresh_slots(keys, len(blocks), slot)
    columns = [
        pa.array(blocks),
        pa.array(slots),
        *keys,
        *(arguments[argument] for argument in layout.arguments),
    ]
    rows = in_order([pa.table([flat(argument) for argument in columns], schema=layout.row_schema())])
    groups, sparse_groups = 0, 0
    if counts:
        key_slots = slots if slot is None else fresh_slots(keys, len(blocks), None)
        groups, sparse_groups = _sampled(layout, blocks, keys, key_slots)
    partials = [layout.schema().empty_table(), *fold(grouped, blocks, values, slot, beside=True)]
    return Folded(partials, rows, groups, sparse_groups)


def _sampled(layout: Layout, blocks: Ints, keys: Sequence[pa.Array], slots: np.ndarray) -> tuple[int, int]:
    """Estimated numbers of groups and of sparse groups: from all rows of some groups, or from some rows of all.

    Of the two estimates the one that folds more is used.
    """
    estimates: list[tuple[float, float]] = []
    for some in (np.flatnonzero(slots < _SAMPLED), np.arange(0, len(blocks), _EVERY)):
        groups = group([picked(flat(key), some) for key in keys], len(some))
        codes, count, *_ = by_block_and_group(blocks[some], groups)
        sparse_groups = (
            int((np.bincount(codes, minlength=count) <= sparse_group_limit(layout)).sum()) if count else 0
        )
        scale = len(blocks) / max(1, len(some))
        estimates.append((sparse_groups * scale, count * scale) if count else (len(blocks), len(blocks)))
    small, all_groups = min(estimates)
    return round(all_groups), round(small)


def _rows_of(groups: Ints | slice, codes: Ints, blocks: Ints, count: int) -> tuple[Ints, Ints]:
    """The rows of some groups in the order of blocks, and the group of each."""
    small = np.zeros(count, bool)
    small[groups] = True
    lazy = np.flatnonzero(small[codes])
    of_rows = codes[lazy]
    if blocks[0] != blocks[-1]:
        order = np.argsort(of_rows, kind="stable")
        lazy, of_rows = lazy[order], of_rows[order]
    return lazy, of_rows


def settle(layout: Layout, tables: Sequence[pa.Table], row_layout_limit: int | None = None) -> list[pa.Table]:
    """Tables of both layouts with each (block, group) in one of them: partials, then rows of sparse groups without a
    partial.

    `row_layout_limit` is the most rows of a sparse group; None: as many as take less room than a partial.
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
    ):  # whose values need one dictionary
        row_table, lazy = _sparse_rows(layout, folded, rows, most)
        if lazy.all():
            return [merge(layout, folded), in_order([row_table])]
        return [
            merge(layout, [*folded, row_table.filter(pa.array(~lazy))]),
            in_order([row_table.filter(pa.array(lazy))]),
        ]
    return _settled(layout, folded, rows, most)


def _sparse_rows(
    layout: Layout, folded: Sequence[pa.Table], rows: Sequence[pa.Table], most: int
) -> tuple[pa.Table, np.ndarray]:
    """Rows of several tables as one, and which of them are of groups with at most `most` rows and no partial."""
    row_table, cut = pa.concat_tables(rows), sum(table.num_rows for table in folded)
    heads = headed(layout, [*folded, row_table])
    codes, count, *_ = by_block_and_group(heads.blocks, heads.groups)
    return row_table, _are_sparse(codes, cut, count, most)[codes[cut:]]


def _are_sparse(codes: Ints, cut: int, count: int, most: int) -> np.ndarray:
    """The groups with at most `most` rows from index `cut` on, and no partial before."""
    sparse_groups: np.ndarray = np.bincount(codes[cut:], minlength=count) <= most
    sparse_groups[codes[:cut]] = False
    return sparse_groups


def _settled(
    layout: Layout, folded: Sequence[pa.Table], rows: Sequence[pa.Table], most: int
) -> list[pa.Table]:
    """Like `settle`, for both layouts; blocks and groups are numbered once for all of it."""
    held = pa.concat_tables(folded) if folded else layout.schema().empty_table()
    row_table, cut = pa.concat_tables(rows), held.num_rows
    heads = headed(layout, [held, row_table])
    codes, count, blocks, group_indices, _ = by_block_and_group(heads.blocks, heads.groups)
    sparse_groups = _are_sparse(codes, cut, count, most)
    large, lazy = np.flatnonzero(~sparse_groups), sparse_groups[codes[cut:]]
    sparse_table = _in_order_of(heads.blocks[cut:], row_table, np.flatnonzero(lazy))
    if not len(large):
        return [layout.schema().empty_table(), sparse_table]
    rank = np.empty(count, np.int64)
    rank[large] = np.arange(len(large))
    slots = np.zeros(count, np.int16)
    slots[codes] = heads.slots
    large_rows = np.flatnonzero(~lazy)
    arguments = {
        argument: picked(values, large_rows) for argument, values in layout.arguments_of(row_table).items()
    }
    answer = lift(layout.partial_columns, arguments, rank[codes[cut:][large_rows]], len(large))
    if cut:
        answer = answer_onto(layout, Answer(cells_of_partials(layout, held)[0]), rank[codes[:cut]], answer)
    keys = [picked(key, group_indices[large]) for key in heads.groups.keys]
    partials = layout.table(blocks[large], keys, slots[large], answer)
    return [partials, sparse_table]


def _in_order_of(blocks: Ints, sparse: pa.Table, indices: Ints) -> pa.Table:
    """Some of the rows, in the order of blocks."""
    chosen_blocks = blocks[indices]
    if (chosen_blocks[1:] < chosen_blocks[:-1]).any():
        indices = indices[np.argsort(chosen_blocks, kind="stable")]
    return picked_rows(sparse, indices)


def in_order(tables: Sequence[pa.Table]) -> pa.Table:
    """Rows of several tables by block, as one table."""
    whole = pa.concat_tables(tables)
    keys = ints(whole, KEY)
    if (np.diff(keys) < 0).any():
        whole = whole.take(pa.array(np.argsort(keys, kind="stable")))
    return whole


def _share_blocks(tables: Sequence[pa.Table]) -> bool:
    """Whether a block may be in two of the sorted tables, as open panes are; closed ones are mostly in one."""
    keys = [ints(table, KEY) for table in tables if table.num_rows]
    ends = sorted((of_table.item(0), of_table.item(-1)) for of_table in keys)
    return any(last >= first for (_, last), (first, _) in pairwise(ends))


def grown_into_partials(
    layout: Layout, sections: Mapping[str, Sequence[pa.Table]], row_layout_limit: int | None = None
) -> dict[str, list[pa.Table]]:
    """Sections about to be merged, where groups that are no longer sparse are folded."""
    result = {name: list(tables) for name, tables in sections.items()}
    for sparse_groups, whole in ((SPARSE_OPEN, "open0"), (SPARSE_SEALED, "sealed0")):
        if not result.get(sparse_groups, True):
            del result[sparse_groups]
        elif _share_blocks(result.get(sparse_groups, ())):  # no group grows within one table
            partials, *rows = settle(layout, result.pop(sparse_groups), row_layout_limit)
            if partials.num_rows:
                result.setdefault(whole, []).append(partials)
            if rows and rows[0].num_rows:
                result[sparse_groups] = rows
    return result
