"""Partial aggregates of the combinations of several sides' rows, from the partial aggregates of each side: which groups
have equal keys, and the cells of a side repeated for the rows of the others.

With n rows of a key on the other sides, each row of a side is in n combinations. So a sum or a count over the combinations
of a key is that of the side's rows times n, and the least and greatest values are those of the side's rows.
Sources: eager aggregation (Yan, Larson 1995, "eager count"); factorised aggregates (Olteanu, Schleich 2016).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.operators.aggregates.aggregate_calls import Answer
from headrace.operators.aggregates.cell_table import Layout, WindowCells, cells_of_partials
from headrace.operators.base.group_codes import Ints, flat, group
from headrace.operators.partials.encoding import PartialColumn, rows_partial
from headrace.operators.partials.integer_moments import carried
from headrace.operators.partials.partial import Cells, Count, Extreme, Sum
from headrace.operators.rows.sorted_rows import of_one_hash, usable


def can_repeat(partial_column: PartialColumn) -> bool:
    """Whether `repeated` is defined for a partial."""
    return isinstance(partial_column.partial, Count | Sum | Extreme)


def repeated(partial_column: PartialColumn, cells: Cells, times: Sequence[Ints]) -> Cells:
    """Cells whose rows occur as often as the product of `times`, each of which is less than 2^31.

    Exact where integers are summed as limbs of 32 bits: a limb times a number of rows fits 64 bits.
    """
    if isinstance(partial_column.partial, Extreme):
        return cells
    in_limbs = isinstance(partial_column.partial, Sum) and partial_column.partial.integer
    for rows in times:
        with np.errstate(all="ignore"):
            cells = tuple(part * rows for part in (carried(cells) if in_limbs else cells))
        if in_limbs:
            cells = tuple(carried(cells))
    return cells


def in_one_table(layout: Layout, chunks: Sequence[WindowCells]) -> WindowCells | None:
    """The cells of several chunks of windows together; None without cells."""
    filled = [chunk for chunk in chunks if chunk.rows]
    if len(filled) < 2:
        return filled[0] if filled else None
    tables = [
        layout.table(chunk.windows, chunk.keys, np.zeros(chunk.rows, np.int16), chunk.answer)
        for chunk in filled
    ]
    whole = pa.concat_tables(tables)
    keys = tuple(flat(whole.column(name)) for name in layout.key_names)
    return WindowCells(
        np.concatenate([chunk.windows for chunk in filled]), keys, Answer(*cells_of_partials(layout, whole))
    )


def combinations(sides: Sequence[WindowCells], keys: int, *, of_rows: bool = False) -> list[Ints]:
    """Combinations of a cell of each side, of one window and with equal values of the first `keys` keys: by side the
    number of the cell. A NULL equals nothing. With `of_rows` several cells may have the same keys.
    """
    joined = [np.flatnonzero(usable(side.keys[:keys], side.rows)) for side in sides]
    columns = [pa.array(np.concatenate([side.windows for side in sides]))]
    columns += [pa.concat_arrays([flat(side.keys[key]) for side in sides]) for key in range(keys)]
    groups = group(columns, len(columns[0]))
    starts = np.cumsum([0, *(side.rows for side in sides)]).tolist()
    codes = [groups.codes[start:][rows] for start, rows in zip(starts, joined, strict=False)]
    cell_numbers, cell_codes = [joined[0]], codes[0]
    for side, rows, side_codes in zip(sides[1:], joined[1:], codes[1:], strict=True):
        if len(side.keys) == keys and not of_rows:  # one cell for each code
            cell_of_code = np.full(groups.count, -1)
            cell_of_code[side_codes] = rows
            right = cell_of_code[cell_codes]
            left = np.flatnonzero(right >= 0)
            right = right[left]
        else:
            by_code = np.argsort(side_codes, kind="stable")
            left, right = _pairs(cell_codes, side_codes[by_code])
            right = rows[by_code[right]]
        cell_numbers = [*(numbers[left] for numbers in cell_numbers), right]
        cell_codes = cell_codes[left]
    return cell_numbers


def _pairs(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """The pairs of equal values of two columns, of which the second is ascending."""
    none = np.empty(0, np.int64)
    parts = [(none, none), *of_one_hash(left, right)]
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def products(
    layout: Layout, sides: Sequence[WindowCells], cell_numbers: Sequence[Ints], side_of: Sequence[int | None]
) -> Answer:
    """The partials of each combination of cells; `side_of` are the sides whose rows the partials aggregate, None for others."""
    counts = [
        side.answer.cells[rows_partial()][0][numbers]
        for side, numbers in zip(sides, cell_numbers, strict=True)
    ]
    cells: dict[PartialColumn, Cells] = {}
    dictionaries: dict[PartialColumn, pa.Array] = {}
    for partial_column, owner in zip(layout.partial_columns, side_of, strict=True):
        if owner is None:
            continue
        answer = sides[owner].answer
        owner_cells = tuple(part[cell_numbers[owner]] for part in answer.cells[partial_column])
        others = [count for side, count in enumerate(counts) if side != owner]
        cells[partial_column] = repeated(partial_column, owner_cells, others)
        if partial_column in answer.dictionaries:
            dictionaries[partial_column] = answer.dictionaries[partial_column]
    return Answer(cells, dictionaries)
