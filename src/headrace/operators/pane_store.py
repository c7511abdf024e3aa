"""State of windowed aggregates: partials of open panes, and of closed panes as an aligned dyadic tree.

A *block* (level, j) covers the 2^level closed panes [j*2^level, (j+1)*2^level). Any run of panes is a union of at most two
blocks a level, so a window costs O(log panes), needs no inverse, and blocks serve all windows (decision D11). Blocks are
written once, in the epoch in which punctuation passes their last pane: a delta, never a rewrite.

Rows at rest: `__key` (block number and level in one sortable integer), `__slot`, the group's keys, the partials' columns.
Open panes are rows of level 0 in their own section; several runs may hold parts of one. A block's group of few rows may
lie as these rows instead (`adaptive_panes`): tables of that form have the arguments' values in place of partials.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions import Expression, Named
from headrace.operators import cells as at_rest
from headrace.operators.aggregation import Answer, lift
from headrace.operators.cells import Fed
from headrace.operators.grouping import Groups, Ints, compact, flat, group, slots_of
from headrace.operators.partials import Cells
from headrace.schema import to_arrow

KEY: Final = "__key"
SLOT: Final = "__slot"
_LEVEL: Final = 1 << 57
_MIDDLE: Final = 1 << 56


def block_key(level: int, block: int) -> int:
    """One integer that sorts by level, then block."""
    return level * _LEVEL + block + _MIDDLE


def pane_keys(panes: Ints) -> Ints:
    """The keys of level-0 blocks."""
    return panes + _MIDDLE


@dataclass(frozen=True, slots=True)
class Layout:
    """What a store keeps per pane and group: key expressions and partials. The first partial counts rows."""

    keys: tuple[Named, ...]
    feds: tuple[Fed, ...]

    @property
    def key_names(self) -> tuple[str, ...]:
        """Names of the key columns at rest."""
        return tuple(f"k{place}" for place in range(len(self.keys)))

    def cell_names(self, place: int) -> list[str]:
        """Names of the columns of partial `place`."""
        return [f"p{place}_{column}" for column in range(self.feds[place].partial.width)]

    @property
    def arguments(self) -> tuple[Expression, ...]:
        """What the partials are fed, each once: the columns of a row that lies as it is."""
        fed = (each.expression for each in self.feds if each.expression is not None)
        return tuple(dict.fromkeys(fed))

    def row_schema(self) -> pa.Schema:
        """Columns of rows that lie as they are."""
        fields = list(self.schema())[: 2 + len(self.keys)]
        fields += [
            pa.field(f"v{place}", to_arrow(argument.type)) for place, argument in enumerate(self.arguments)
        ]
        return pa.schema(fields)

    def are_rows(self, table: pa.Table) -> bool:
        """True for a table of rows that lie as they are."""
        place = 2 + len(self.keys)
        return bool(table.num_columns == place or table.field(place).name != self.cell_names(0)[0])

    def lifted(self, table: pa.Table) -> pa.Table:
        """Rows that lie as they are, as a partial each."""
        columns = [flat(column) for column in table.columns]
        arguments = dict(zip(self.arguments, columns[2 + len(self.keys) :], strict=True))
        answer = lift(self.feds, arguments, np.arange(table.num_rows), table.num_rows)
        slots = columns[1].to_numpy(zero_copy_only=False)
        return self.table(columns[0].to_numpy(), columns[2 : 2 + len(self.keys)], slots, answer)

    def schema(self) -> pa.Schema:
        """The Arrow schema of its rows."""
        fields = [pa.field(KEY, pa.int64()), pa.field(SLOT, pa.int16())]
        fields += [
            pa.field(name, to_arrow(key.expression.type))
            for name, key in zip(self.key_names, self.keys, strict=True)
        ]
        for place, fed in enumerate(self.feds):
            fields += [pa.field(n, t) for n, t in zip(self.cell_names(place), fed.arrow_types(), strict=True)]
        return pa.schema(fields)

    def table(self, blocks: Ints, keys: Sequence[pa.Array], slots: np.ndarray, answer: Answer) -> pa.Table:
        """Rows at rest."""
        columns: list[pa.Array] = [pa.array(blocks), pa.array(slots), *keys]
        for fed in self.feds:
            columns += at_rest.store(fed, answer.cells[fed], answer.dictionaries.get(fed))
        return pa.table(columns, schema=self.schema())


@dataclass(frozen=True, slots=True)
class Gathered:
    """Rows of several tables, in memory: block keys, group codes, cells."""

    blocks: Ints
    slots: np.ndarray
    groups: Groups
    answer: Answer

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.blocks)


def gather(layout: Layout, tables: Sequence[pa.Table]) -> Gathered:
    """Load tables, of partials or of rows, in their order, and number their groups."""
    whole = pa.concat_tables(_as_partials(layout, tables)) if tables else layout.schema().empty_table()
    columns = {name: flat(whole.column(name)) for name in whole.column_names}
    groups = group([columns[name] for name in layout.key_names], whole.num_rows)
    cells: dict[Fed, Cells] = {}
    dictionaries: dict[Fed, pa.Array] = {}
    for place, fed in enumerate(layout.feds):
        cells[fed], dictionary = at_rest.load(fed, [columns[name] for name in layout.cell_names(place)])
        if dictionary is not None:
            dictionaries[fed] = dictionary
    return Gathered(
        columns[KEY].to_numpy(zero_copy_only=False),
        columns[SLOT].to_numpy(zero_copy_only=False),
        groups,
        Answer(cells, dictionaries),
    )


def _as_partials(layout: Layout, tables: Sequence[pa.Table]) -> Sequence[pa.Table]:
    """The tables, those of rows as partials, which are made together."""
    rows = [table for table in tables if layout.are_rows(table)]
    if not rows:
        return tables
    lifted, start = layout.lifted(pa.concat_tables(rows)), 0
    found = []
    for table in tables:
        if layout.are_rows(table):
            found.append(lifted.slice(start, table.num_rows))
            start += table.num_rows
        else:
            found.append(table)
    return found


def reduce_answer(layout: Layout, answer: Answer, codes: Ints, count: int) -> Answer:
    """Combine the cells of equal codes."""
    with np.errstate(all="ignore"):
        cells = {fed: fed.partial.reduce(answer.cells[fed], codes, count) for fed in layout.feds}
    return Answer(cells, answer.dictionaries)


def select(answer: Answer, rows: np.ndarray | slice) -> Answer:
    """Some of the cells."""
    return Answer(
        {fed: tuple(part[rows] for part in cells) for fed, cells in answer.cells.items()}, answer.dictionaries
    )


def merge(layout: Layout, tables: Sequence[pa.Table]) -> pa.Table:
    """One row per block and group, sorted by block."""
    if not tables:
        return layout.schema().empty_table()
    return merge_gathered(layout, gather(layout, tables))


def merge_gathered(layout: Layout, rows: Gathered) -> pa.Table:
    """One row per block and group, sorted by block."""
    codes, count, blocks, groups = by_block_and_group(rows.blocks, rows.groups)
    answer = reduce_answer(layout, rows.answer, codes, count)
    keys = [key.take(pa.array(groups)) for key in rows.groups.keys]
    slots = np.zeros(count, np.int16)
    slots[codes] = rows.slots
    return layout.table(blocks, keys, slots, answer)


def by_block_and_group(blocks: Ints, groups: Groups) -> tuple[Ints, int, Ints, Ints]:
    """Codes of (block, group) pairs in the order of blocks: code per row, count, and block and group of each code."""
    if not len(blocks):
        return blocks, 0, blocks, blocks
    low, high = int(blocks.min()), int(blocks.max())
    if high - low < 4 * len(blocks):
        distinct, local = None, blocks - low
        span = high - low + 1
    else:
        distinct, local = np.unique(blocks, return_inverse=True)
        span = len(distinct)
    codes, live = compact(local * groups.count + groups.codes, span * groups.count)
    place, member = np.divmod(live, groups.count)
    found = place + low if distinct is None else distinct[place]
    if (np.diff(found) < 0).any():
        order = np.argsort(found, kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        codes, found, member = rank[codes], found[order], member[order]
    return codes, len(live), found, member


def between(tables: Iterable[pa.Table], low: int, high: int) -> list[pa.Table]:
    """The rows of each sorted table with low <= key < high, without copying."""
    found = []
    for table in tables:
        if table.num_rows:
            keys = flat(table.column(KEY)).to_numpy(zero_copy_only=False)
            start, stop = np.searchsorted(keys, [low, high])
            if stop > start:
                found.append(table.slice(start, stop - start))
    return found


def at_keys(tables: Sequence[pa.Table], keys: Sequence[int]) -> list[pa.Table]:
    """The rows of the given blocks."""
    return [found for key in keys for found in between(tables, key, key + 1)]


def cover(first: int, stop: int, top: int) -> list[tuple[int, int]]:
    """The blocks (level, j) of at most level `top` whose disjoint union is the panes [first, stop).

    >>> cover(1, 8, 5)
    [(0, 1), (1, 1), (2, 1)]
    """
    blocks = []
    while first < stop:
        level = min(
            ((first & -first).bit_length() - 1) if first else top, (stop - first).bit_length() - 1, top
        )
        blocks.append((level, first >> level))
        first += 1 << level
    return blocks


def fresh_slots(keys: Sequence[pa.Array], count: int, routed_to: int | None) -> np.ndarray:
    """The slots of groups: by their keys, or all in one slot."""
    if routed_to is not None:
        return np.full(count, routed_to, np.int16)
    return slots_of(keys, count)
