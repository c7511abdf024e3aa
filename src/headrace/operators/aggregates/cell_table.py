"""State tables of aggregates: their layout (a row per block of panes and group, with cells of partials, or plain rows),
their loading into memory, and their merging to one row per block and group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Expression, Named
from headrace.dataclass import dataclass
from headrace.operators.aggregates.aggregate_calls import Answer, lift, lift_each
from headrace.operators.base.block_codes import Pairs, are_distinct, by_block_and_group
from headrace.operators.base.group_codes import Groups, Ints, flat, group, ints, picked, slots_of
from headrace.operators.base.made_once import MadeOnce
from headrace.operators.partials import encoding as at_rest
from headrace.operators.partials.encoding import PartialColumn
from headrace.operators.partials.partial import Cells, Count, Extreme, Sum, reduce_onto
from headrace.schema import to_arrow

KEY: Final = "__key"
SLOT: Final = "__slot"
FIRST_KEY: Final = "k0"
"""The first group key: of the cells of several queries, the query's number."""
_FIRST_CELL: Final = "p0_0"
"""The count of rows, which every table of partials has."""
_MOST_LIGHT_COLUMNS: Final = 6
_FEW: Final = 1 << 10
"""Rows of a table whose pairs are counted before it is merged: of more, counting would cost too much if it is in vain."""
_MANY: Final = 1 << 18
"""Rows of tables from which on a copy of them costs more than counting their pairs, where their blocks differ."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a store has per pane and group: key expressions and partials. The first partial counts rows."""

    keys: tuple[Named, ...]
    partial_columns: tuple[PartialColumn, ...]

    @property
    def key_names(self) -> tuple[str, ...]:
        """Names of the key columns in state tables."""
        return tuple(f"k{index}" for index in range(len(self.keys)))

    def cell_names(self, index: int) -> list[str]:
        """Names of the columns of partial number `index`."""
        return [f"p{index}_{column}" for column in range(self.partial_columns[index].partial.width)]

    @property
    def arguments(self) -> tuple[Expression, ...]:
        """The inputs of the partials, each once: the value columns of the row layout."""
        arguments = (column.expression for column in self.partial_columns if column.expression is not None)
        return tuple(dict.fromkeys(arguments))

    @property
    def is_light(self) -> bool:
        """Whether cells have so few numbers that selecting some of many cells is cheaper than renumbering the rows."""
        plain = all(
            isinstance(partial_column.partial, Count | Sum | Extreme) and not partial_column.has_dictionary
            for partial_column in self.partial_columns
        )
        return (
            plain
            and sum(partial_column.partial.width for partial_column in self.partial_columns)
            <= _MOST_LIGHT_COLUMNS
        )

    def row_schema(self) -> pa.Schema:
        """The schema of the row layout."""
        return _row_schema(self)

    def are_rows(self, table: pa.Table) -> bool:
        """Whether a table is in the row layout."""
        first_cell = 2 + len(self.keys)
        return bool(table.num_columns == first_cell or table.field(first_cell).name != _FIRST_CELL)

    def arguments_of(self, rows: pa.Table) -> dict[Expression, pa.Array]:
        """Values of the arguments of rows in the row layout."""
        columns = [flat(rows.column(index)) for index in range(2 + len(self.keys), rows.num_columns)]
        return dict(zip(self.arguments, columns, strict=True))

    def lift(self, rows: pa.Table) -> Answer:
        """The cells of rows in the row layout, one per row; only for partials without dictionaries."""
        return lift_each(self.partial_columns, self.arguments_of(rows), rows.num_rows)

    def lifted(self, table: pa.Table) -> pa.Table:
        """Rows in the row layout, as one row of partials each."""
        columns = [flat(column) for column in table.columns[: 2 + len(self.keys)]]
        answer = lift(
            self.partial_columns, self.arguments_of(table), np.arange(table.num_rows), table.num_rows
        )
        slots = columns[1].to_numpy(zero_copy_only=False)
        return self.table(columns[0].to_numpy(), columns[2:], slots, answer)

    def schema(self) -> pa.Schema:
        """The Arrow schema of its rows."""
        return _schemas.of((self.keys, self.partial_columns), lambda: _schema(self))

    def table(self, blocks: Ints, keys: Sequence[pa.Array], slots: np.ndarray, answer: Answer) -> pa.Table:
        """A state table of cells."""
        columns: list[pa.Array] = [pa.array(blocks), pa.array(slots), *keys]
        for partial_column in self.partial_columns:
            columns += at_rest.store(
                partial_column, answer.cells[partial_column], answer.dictionaries.get(partial_column)
            )
        return pa.table(columns, schema=self.schema())


_schemas: Final[MadeOnce[pa.Schema]] = MadeOnce(4096)


@lru_cache(maxsize=1024)
def _schema(layout: Layout) -> pa.Schema:
    fields = [pa.field(KEY, pa.int64()), pa.field(SLOT, pa.int16())]
    fields += [
        pa.field(name, to_arrow(key.expression.type))
        for name, key in zip(layout.key_names, layout.keys, strict=True)
    ]
    for index, partial_column in enumerate(layout.partial_columns):
        fields += [
            pa.field(n, t)
            for n, t in zip(layout.cell_names(index), partial_column.arrow_types(), strict=True)
        ]
    return pa.schema(fields)


@lru_cache(maxsize=1024)
def _row_schema(layout: Layout) -> pa.Schema:
    fields = list(_schema(layout))[: 2 + len(layout.keys)]
    fields += [
        pa.field(f"v{index}", to_arrow(argument.type)) for index, argument in enumerate(layout.arguments)
    ]
    return pa.schema(fields)


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
    """Load tables of either layout, in their order, and number their groups."""
    if not tables:
        tables = [layout.schema().empty_table()]
    if any(partial_column.has_dictionary for partial_column in layout.partial_columns):
        tables = _as_partials(layout, tables)  # their values need one dictionary
    tables = [pa.concat_tables(alike) for _, alike in groupby(tables, layout.are_rows)]
    cells, dictionaries = _cells_of(layout, tables)
    return replace(headed(layout, tables), answer=Answer(cells, dictionaries))


def headed(layout: Layout, tables: Sequence[pa.Table]) -> Gathered:
    """Blocks, slots and groups of tables of either layout, without cells."""
    heads = pa.concat_tables([table.select([KEY, SLOT, *layout.key_names]) for table in tables])
    return Gathered(
        ints(heads, KEY),
        ints(heads, SLOT),
        group([flat(heads.column(name)) for name in layout.key_names], heads.num_rows),
        Answer({}),
    )


def _cells_of(
    layout: Layout, tables: Sequence[pa.Table]
) -> tuple[dict[PartialColumn, Cells], dict[PartialColumn, pa.Array]]:
    """The cells of tables of either layout, in the tables' order; rows are lifted together."""
    rows = np.array([layout.are_rows(table) for table in tables])
    partials = [table for table, is_row in zip(tables, rows, strict=True) if not is_row]
    cells, dictionaries = cells_of_partials(layout, pa.concat_tables(partials)) if partials else ({}, {})
    if not rows.any():
        return cells, dictionaries
    row_tables = [table for table, is_row in zip(tables, rows, strict=True) if is_row]
    lifted = layout.lift(pa.concat_tables(row_tables)).cells
    if not partials:
        return dict(lifted), dictionaries
    joined = {
        partial_column: tuple(
            np.concatenate(both) for both in zip(cells[partial_column], lifted[partial_column], strict=True)
        )
        for partial_column in layout.partial_columns
    }
    if rows[len(partials) :].all():
        return joined, dictionaries
    ends = np.cumsum([table.num_rows for table in (*partials, *row_tables)])
    indices = iter(np.split(np.arange(ends[-1]), ends[:-1]))
    of_partials = [next(indices) for _ in partials]
    order = np.concatenate([next(indices) if is_row else of_partials.pop(0) for is_row in rows])
    return {
        partial_column: tuple(part[order] for part in parts) for partial_column, parts in joined.items()
    }, dictionaries


def cells_of_partials(
    layout: Layout, whole: pa.Table
) -> tuple[dict[PartialColumn, Cells], dict[PartialColumn, pa.Array]]:
    """The cells of a table of partials, and their dictionaries."""
    cells: dict[PartialColumn, Cells] = {}
    dictionaries: dict[PartialColumn, pa.Array] = {}
    row_counts: Cells | None = None
    at = 2 + len(layout.keys)
    for partial_column in layout.partial_columns:
        columns = [flat(whole.column(at + offset)) for offset in range(partial_column.partial.width)]
        at += partial_column.partial.width
        cells[partial_column], dictionary = at_rest.load(partial_column, columns)
        if isinstance(partial_column.partial, Count):  # equal counts share one array
            row_counts = cells[partial_column] if row_counts is None else row_counts
            cells[partial_column] = (
                row_counts
                if np.array_equal(row_counts[0], cells[partial_column][0])
                else cells[partial_column]
            )
        if dictionary is not None:
            dictionaries[partial_column] = dictionary
    return cells, dictionaries


def _as_partials(layout: Layout, tables: Sequence[pa.Table]) -> Sequence[pa.Table]:
    """The tables with those in the row layout converted to partials, in one step."""
    rows = [table for table in tables if layout.are_rows(table)]
    if not rows:
        return tables
    lifted, start = layout.lifted(pa.concat_tables(rows)), 0
    converted = []
    for table in tables:
        if layout.are_rows(table):
            converted.append(lifted.slice(start, table.num_rows))
            start += table.num_rows
        else:
            converted.append(table)
    return converted


def reduce_answer(layout: Layout, answer: Answer, codes: Ints, count: int) -> Answer:
    """Combine the cells of equal codes."""
    reduced: dict[int, Cells] = {}
    with np.errstate(all="ignore"):
        for partial_column in layout.partial_columns:
            held = answer.cells[partial_column]
            if id(held) not in reduced:
                reduced[id(held)] = partial_column.partial.reduce(held, codes, count)
    return Answer(
        {
            partial_column: reduced[id(answer.cells[partial_column])]
            for partial_column in layout.partial_columns
        },
        answer.dictionaries,
    )


def answer_onto(layout: Layout, answer: Answer, codes: Ints, onto: Answer) -> Answer:
    """Combine the cells of equal codes with those of `onto`, which is consumed; for partials without dictionaries."""
    keys = {
        partial_column: (id(answer.cells[partial_column]), id(onto.cells[partial_column]))
        for partial_column in layout.partial_columns
    }
    uses = Counter(start for _, start in set(keys.values()))
    reduced: dict[tuple[int, int], Cells] = {}
    with np.errstate(all="ignore"):
        for partial_column, key in keys.items():
            if key not in reduced:
                start = onto.cells[partial_column]
                if uses[key[1]] > 1:  # counts of all rows are the same cells
                    start = tuple(part.copy() for part in start)
                reduced[key] = reduce_onto(partial_column.partial, answer.cells[partial_column], codes, start)
    return Answer({partial_column: reduced[key] for partial_column, key in keys.items()})


def select(answer: Answer, rows: np.ndarray | slice) -> Answer:
    """Some of the cells."""
    selected: dict[int, Cells] = {}
    for cells in answer.cells.values():  # counts of all rows are the same cells
        if id(cells) not in selected:
            selected[id(cells)] = tuple(part[rows] for part in cells)
    return Answer(
        {partial_column: selected[id(cells)] for partial_column, cells in answer.cells.items()},
        answer.dictionaries,
    )


def merge(layout: Layout, tables: Sequence[pa.Table]) -> pa.Table:
    """One row per block and group, sorted by block."""
    if not tables:
        return layout.schema().empty_table()
    rows = [layout.are_rows(table) for table in tables]
    if len(tables) == 1 and not rows[0] and tables[0].num_rows <= _FEW and _is_merged(layout, tables[0]):
        return tables[0]
    if any(rows) and not any(partial_column.has_dictionary for partial_column in layout.partial_columns):
        halves = (
            [table for table, is_row in zip(tables, rows, strict=True) if is_row == half]
            for half in (False, True)
        )
        return _merge_both(layout, *halves)
    return merge_gathered(layout, gather(layout, tables))


def disjoint_tables(layout: Layout, tables: Sequence[pa.Table]) -> list[pa.Table] | None:
    """Large tables of cells in the order of blocks, if each is merged and no two have a block in common; None otherwise.

    Scan tasks of a backlog read files of different times: a table of all their cells would be a copy in new memory.
    """
    tables = [table for table in tables if table.num_rows]
    if sum(table.num_rows for table in tables) < _MANY or any(map(layout.are_rows, tables)):
        return None
    # The blocks of each in one piece: they are read several times.
    whole = [table.set_column(0, KEY, flat(table.column(KEY))) for table in tables]
    whole.sort(key=lambda table: ints(table, KEY).item(0))
    are_apart = all(ints(one, KEY).item(-1) < ints(other, KEY).item(0) for one, other in pairwise(whole))
    return whole if are_apart and all(_is_merged(layout, table) for table in whole) else None


def _is_merged(layout: Layout, table: pa.Table) -> bool:
    """Whether a table of cells has one row per block and group, in the order of blocks, as the rows of one task mostly do."""
    blocks = ints(table, KEY)
    if (blocks[1:] < blocks[:-1]).any():
        return False
    are_merged = are_distinct(table.select([KEY, *layout.key_names]))
    if are_merged is not None:
        return are_merged
    rows = headed(layout, [table])
    return bool(by_block_and_group(rows.blocks, rows.groups).number == table.num_rows)


def merge_gathered(layout: Layout, rows: Gathered) -> pa.Table:
    """One row per block and group, sorted by block."""
    pairs = by_block_and_group(rows.blocks, rows.groups)
    return _merged(layout, rows, pairs, reduce_answer(layout, rows.answer, pairs[0], pairs[1]))


def _merge_both(layout: Layout, partials: Sequence[pa.Table], row_tables: Sequence[pa.Table]) -> pa.Table:
    """The same for partials, which are reduced, and rows, which are aggregated into the same cells."""
    held = pa.concat_tables(partials) if partials else layout.schema().empty_table()
    row_table, cut = pa.concat_tables(row_tables), held.num_rows
    rows = headed(layout, [held, row_table])
    pairs = by_block_and_group(rows.blocks, rows.groups)
    codes, count = pairs.codes, pairs.number
    answer = lift(layout.partial_columns, layout.arguments_of(row_table), codes[cut:], count)
    if cut:
        answer = answer_onto(layout, Answer(cells_of_partials(layout, held)[0]), codes[:cut], answer)
    return _merged(layout, rows, pairs, answer)


def _merged(layout: Layout, rows: Gathered, pairs: Pairs, answer: Answer) -> pa.Table:
    codes, count, blocks, groups, _ = pairs
    slots = np.zeros(count, np.int16)
    slots[codes] = rows.slots
    keys = rows.groups.keys
    group_keys = keys if codes is rows.groups.codes else [picked(key, groups) for key in keys]
    return layout.table(blocks, group_keys, slots, answer)


def fresh_slots(keys: Sequence[pa.Array], count: int, routed_to: int | None) -> np.ndarray:
    """The slots of groups: by their keys, or all in one slot."""
    if routed_to is not None:
        return np.full(count, routed_to, np.int16)
    return slots_of(keys, count)


@dataclass(frozen=True, slots=True)
class WindowCells:
    """Non-empty (window, group) pairs: `windows[i]` and the group's key values, with their cells.

    `is_whole`: each query with a pair here has all of its pairs here.
    """

    windows: Ints
    keys: tuple[pa.Array, ...]
    answer: Answer
    is_whole: bool = False

    @property
    def rows(self) -> int:
        """Number of pairs."""
        return len(self.windows)
