"""Assembly of windows of one range and slide (or landmark windows) from panes: all those that close in one epoch,
computed together.

Windows that close together overlap. What is common to all of them is combined once from dyadic blocks; what only the
earlier ones hold is accumulated backwards, what only the later ones hold forwards; each window is then three cells per
group, whatever range/slide is. If there are many more windows than panes in one, they are rolling (`rolling_windows`).
An interval of windows with the same rows is one window, repeated. If groups are so sparse over time that a dense table
would be mostly empty, rows are instead repeated per window and reduced. `window_cost_model` chooses the cheapest way.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.aggregates.aggregate_calls import Answer
from headrace.operators.aggregates.cell_table import (
    KEY,
    Gathered,
    Layout,
    WindowCells,
    gather,
    headed,
    reduce_answer,
    select,
)
from headrace.operators.base.group_codes import Ints, compact, flat, ints, picked
from headrace.operators.panes.closed_panes import ClosedPanes
from headrace.operators.panes.pane_keys import at_keys, between, block_key, cover
from headrace.operators.panes.panes import HIGHEST, LOWEST, Panes
from headrace.operators.panes.window_cost_model import MOST_WINDOWS, cost
from headrace.operators.partials import encoding as at_rest
from headrace.operators.partials.encoding import PartialColumn
from headrace.operators.partials.partial import Cells
from headrace.operators.window_assembly.rolling_windows import rolled_by_query, rolling

_DENSE_CELLS: Final = 2_000_000
_CELLS_OF_QUERIES: Final = 1 << 18
"""Of the queries whose windows are made together."""
_SHORTEST_CHUNK: Final = 64
_MOST_REPEATED_PANES: Final = 12
_ROLLED_ROWS: Final = 250_000
_ROLLED_WINDOWS: Final = 65_536
_LONG_STEADY: Final = 1024
_REPEATED_ROWS: Final = 250_000


def closing(panes: Panes, emitted: int, last_due: int, present: tuple[int, int] | None) -> range:
    """The windows after `emitted` up to `last_due` that may hold a row; `present` is the least and greatest non-empty pane."""
    if present is None:
        return range(0)
    last_holding = panes.last_window(present[1])
    return range(
        max(emitted + 1, panes.first_window(present[0])),
        (last_due if last_holding is None else min(last_due, last_holding)) + 1,
    )


def windows(
    layout: Layout, panes: Panes, closed_panes: ClosedPanes, due: range, top: int, *, by_query: bool = False
) -> Iterator[WindowCells]:
    """The cells of all windows in `due`, a chunk at a time; `top` is the highest level of blocks.

    With `by_query` groups begin with the number of a query, and chunks of many rows are in its order, each of some queries.
    """
    sealed = closed_panes.panes
    if panes.per_window == 1 and due:
        held = between(sealed, block_key(0, panes.stop(due[0]) - 1), block_key(0, panes.stop(due[-1])))
        if len(held) == 1 and not layout.are_rows(held[0]):
            yield _panes_alone(layout, panes, held[0])
            return
    elif panes.per_window is not None and len(due) == 1:
        yield from _one_window(layout, panes, closed_panes.blocks, due.start, top)
        return
    start = due.start
    rolled_length, chunk_length = (
        _rolled_length(layout, panes, sealed, due),
        _chunk_length(panes, sealed, due),
    )
    while start < due.stop:
        chunk = range(start, min(due.stop, start + (rolled_length or chunk_length)))
        steady = _steady(panes, sealed, start, due.stop)
        if steady - start >= min(len(chunk), _LONG_STEADY) > 1:
            cells = _chunk(layout, panes, closed_panes.blocks, range(start, start + 1), top)
            for one in cells or ():
                yield from _repeated(one, range(start, steady))
            start = steady if cells is not None else _skip(panes, sealed, steady)
            continue
        if rolled_length:
            is_rolled, cells = _rolled(layout, panes, sealed, chunk, by_query)
            if not is_rolled:
                rolled_length = 0
                continue
        else:
            cells = _chunk(layout, panes, closed_panes.blocks, chunk, top, by_query)
        if cells is not None:
            yield from (replace(one, is_whole=len(chunk) == len(due)) for one in cells)
            start = chunk.stop
        else:
            start = _skip(panes, sealed, chunk.stop)


def _panes_alone(layout: Layout, panes: Panes, table: pa.Table) -> WindowCells:
    """Windows of one pane each, from one table: its rows are already their cells."""
    columns = {name: flat(table.column(name)) for name in table.column_names}
    cells: dict[PartialColumn, Cells] = {}
    dictionaries: dict[PartialColumn, pa.Array] = {}
    for index, partial_column in enumerate(layout.partial_columns):
        cells[partial_column], dictionary = at_rest.load(
            partial_column, [columns[name] for name in layout.cell_names(index)]
        )
        if dictionary is not None:
            dictionaries[partial_column] = dictionary
    pane = columns[KEY].to_numpy() - block_key(0, 0)
    keys = tuple(columns[name] for name in layout.key_names)
    return WindowCells(pane // panes.per_slide + 1, keys, Answer(cells, dictionaries))


def _one_window(
    layout: Layout, panes: Panes, blocks: Sequence[pa.Table], window: int, top: int
) -> Iterator[WindowCells]:
    """One window of several panes: the fewest blocks that it is made of, combined by group."""
    first = panes.first(window)
    assert first is not None
    tables = at_keys(blocks, [block_key(*block) for block in cover(first, panes.stop(window), top)])
    tables.sort(key=layout.are_rows)  # those of one layout are loaded together
    if tables:
        rows = gather(layout, tables)
        answer = reduce_answer(layout, rows.answer, rows.groups.codes, rows.groups.count)
        yield WindowCells(np.full(rows.groups.count, window), rows.groups.keys, answer)


def _steady(panes: Panes, sealed: Sequence[pa.Table], window: int, stop: int) -> int:
    """One past the last of the windows from `window` on, below `stop`, that are made of the same rows."""
    first, after = panes.first(window), block_key(0, panes.stop(window))
    for table in between(sealed, block_key(0, LOWEST if first is None else first), block_key(0, HIGHEST)):
        keys = ints(table, KEY)
        row = int(np.searchsorted(keys, after))
        if row < len(keys):
            stop = min(stop, panes.first_window(int(keys[row]) - block_key(0, 0)))
        last = panes.last_window(int(keys[0]) - block_key(0, 0)) if row else None
        if last is not None:
            stop = min(stop, last + 1)
    return stop


def _repeated(cells: WindowCells, windows: range) -> Iterator[WindowCells]:
    """One window's cells, for each of the windows."""
    length = max(1, _REPEATED_ROWS // max(1, cells.rows))
    for start in range(windows.start, windows.stop, length):
        window = np.arange(start, min(windows.stop, start + length))
        source = np.tile(np.arange(cells.rows), len(window))
        keys = tuple(key.take(pa.array(source)) for key in cells.keys)
        yield WindowCells(np.repeat(window, cells.rows), keys, select(cells.answer, source))


def _rolled_length(layout: Layout, panes: Panes, sealed: Sequence[pa.Table], due: range) -> int:
    """The number of windows to roll together, by the rows of their panes; 0 if they are too few for that."""
    subtracts = all(partial_column.partial.subtracts for partial_column in layout.partial_columns)
    if panes.back is None or not due or not cost(panes, len(due)).rolls(subtracts=subtracts):
        return 0
    rows = _rows_held(panes, sealed, due)
    length = min(_ROLLED_WINDOWS, _ROLLED_ROWS * len(due) // max(1, rows))
    return length if length and cost(panes, length).rolls(subtracts=subtracts) else 0


def _rolled(
    layout: Layout, panes: Panes, sealed: Sequence[pa.Table], due: range, by_query: bool
) -> tuple[bool, Iterator[WindowCells] | None]:
    """Whether a dense table of panes and groups is worth it, and if so its cells (None: no rows)."""
    first, length = panes.first(due[0]), panes.per_window
    assert first is not None
    assert length is not None
    held = between(sealed, block_key(0, first), block_key(0, panes.stop(due[-1])))
    if not held:
        return True, None
    rows = (headed if by_query else gather)(layout, held)
    count = rows.groups.count
    if panes.per_slide * (len(due) + 2 * length) * count > max(4 * rows.rows, _DENSE_CELLS):
        return False, None
    if not by_query:
        return True, _rolled_cells(layout, panes, rows, due, by_query)
    portions = _query_portions([held], due)
    return True, itertools.chain.from_iterable(
        _rolled_cells(layout, panes, gather(layout, own), due, by_query) for (own,) in portions
    )


def _is_dense(panes: Panes, rows: Gathered, due: range) -> bool:
    """Whether the cells of all panes and groups are fewer than twice the copies of rows that windows would hold.

    A copy is gathered and scattered, a cell of a table is read in order: it takes a tenth of the time.
    """
    assert panes.per_window is not None
    assert panes.back is not None
    steps = panes.per_slide * len(due) + 2 * panes.per_window
    return (steps + len(due)) * rows.groups.count <= 2 * min(panes.back, len(due)) * rows.rows


def _rolled_cells(
    layout: Layout, panes: Panes, rows: Gathered, due: range, by_query: bool
) -> Iterator[WindowCells]:
    """The cells of windows from one dense table of their panes and groups."""
    first, length = panes.first(due[0]), panes.per_window
    assert first is not None
    assert length is not None
    starts, of_rows = panes.per_slide * np.arange(len(due)), rows.blocks - block_key(0, first)
    if by_query:
        cells = rolled_by_query(layout, rows, of_rows, starts, length, due)
        return iter(() if cells is None else (cells,))
    return iter((_alive(layout, rows, rolling(layout, rows, of_rows, starts, length), due),))


def _chunk_length(panes: Panes, sealed: Sequence[pa.Table], due: range) -> int:
    """The number of windows in a chunk: as many as share a common middle.

    A chunk longer than a window has no middle, and every pane row is repeated per window that holds it. That costs
    least if windows hold few panes, so the chunk is as long as the bound on repetitions allows.
    """
    if panes.back is None or panes.back >= _MOST_REPEATED_PANES:
        return min(MOST_WINDOWS, panes.back or MOST_WINDOWS)
    if len(due) <= _SHORTEST_CHUNK:
        return _SHORTEST_CHUNK
    copies = panes.back * _rows_held(panes, sealed, due)
    return max(_SHORTEST_CHUNK, min(_ROLLED_WINDOWS, _ROLLED_ROWS * len(due) // max(1, copies)))


def _rows_held(panes: Panes, sealed: Sequence[pa.Table], due: range) -> int:
    """Rows of the panes that the windows hold; not for landmark windows."""
    first = panes.first(due[0])
    assert first is not None
    return sum(
        table.num_rows for table in between(sealed, block_key(0, first), block_key(0, panes.stop(due[-1])))
    )


def _skip(panes: Panes, sealed: Sequence[pa.Table], window: int) -> int:
    """The next window at or after `window` that may hold a row, over a gap of any length."""
    first = panes.first(window)
    if first is None:
        return window
    after = between(sealed, block_key(0, first), block_key(0, HIGHEST))
    if not after:
        return 1 << 60
    least = min(int(flat(table.column(KEY))[0].as_py()) for table in after) - block_key(0, 0)
    return max(window, panes.first_window(least))


def _chunk(
    layout: Layout, panes: Panes, sealed: Sequence[pa.Table], due: range, top: int, by_query: bool = False
) -> Iterator[WindowCells] | None:
    """The cells of some windows; None if their panes hold no row."""
    first, last = panes.first(due[0]), panes.first(due[-1])
    stop_first, stop_last = panes.stop(due[0]), panes.stop(due[-1])
    if first is None or last is None:
        middle = between(sealed, block_key(0, LOWEST), block_key(0, stop_first))
        left_range, right_range = (0, 0), (stop_first, stop_last)
    elif last < stop_first:
        middle = at_keys(sealed, [block_key(*block) for block in cover(last, stop_first, top)])
        left_range, right_range = (first, last), (stop_first, stop_last)
    else:
        middle, left_range, right_range = [], (first, stop_last), (0, 0)
    left = between(sealed, block_key(0, left_range[0]), block_key(0, left_range[1]))
    right = between(sealed, block_key(0, right_range[0]), block_key(0, right_range[1]))
    parts = left, middle, right
    if not any(parts):
        return None
    ranges = left_range, right_range
    if not by_query:
        return _cells(layout, panes, parts, due, ranges, by_query)
    portions = _query_portions(parts, due)
    return itertools.chain.from_iterable(
        _cells(layout, panes, own, due, ranges, by_query) for own in portions
    )


def _query_portions(
    parts: Sequence[Sequence[pa.Table]], due: range
) -> Iterator[tuple[Sequence[pa.Table], ...]]:
    from headrace.operators.window_assembly.query_portions import query_portions  # noqa: PLC0415 - of families

    return query_portions(parts, _rows_of_queries(parts, due))


def _rows_of_queries(parts: Iterable[Sequence[pa.Table]], due: range) -> int:
    """The rows of the queries whose windows are made together, for about `_CELLS_OF_QUERIES` of these."""
    blocks = [ints(table, KEY) for part in parts for table in part]
    changes = sum(1 + np.count_nonzero(of_table[1:] != of_table[:-1]) for of_table in blocks)
    return max(1, int(_CELLS_OF_QUERIES * changes // len(due)))


def _cells(
    layout: Layout,
    panes: Panes,
    parts: Sequence[Sequence[pa.Table]],
    due: range,
    ranges: tuple[tuple[int, int], tuple[int, int]],
    by_query: bool,
) -> Iterator[WindowCells]:
    """The cells of windows of the panes before, in and after the blocks that all of them hold; `ranges` are those before and after."""
    left_range, right_range = ranges
    rows = gather(layout, [table for part in parts for table in part])
    ends = np.cumsum([0, *(sum(table.num_rows for table in part) for part in parts)]).tolist()
    slices = [slice(low, high) for low, high in itertools.pairwise(ends)]
    disjoint = panes.first(due[0]) is not None and right_range == (0, 0)
    cells = (right_range[1] - right_range[0] + left_range[1] - left_range[0] + len(due)) * rows.groups.count
    if disjoint and _is_dense(panes, rows, due):
        return _rolled_cells(layout, panes, rows, due, by_query)
    if disjoint or cells > max(8 * rows.rows, _DENSE_CELLS):
        return iter((_sparse(layout, panes, rows, slices[1], due),))
    return iter((_dense(layout, panes, rows, slices, due, left_range, right_range),))


def _dense(
    layout: Layout,
    panes: Panes,
    rows: Gathered,
    parts: Sequence[slice],
    due: range,
    left_range: tuple[int, int],
    right_range: tuple[int, int],
) -> WindowCells:
    (left, middle, right), count = parts, rows.groups.count
    pane = rows.blocks - block_key(0, 0)
    firsts = (
        np.array([panes.first(window) or 0 for window in due])
        if panes.back is not None
        else np.zeros(len(due), int)
    )
    stops = np.array([panes.stop(window) for window in due])
    cells: dict[PartialColumn, Cells] = {}
    with np.errstate(all="ignore"):
        for partial_column in layout.partial_columns:
            grid = _Grid(partial_column, rows, count)
            backward = grid.table(left, left_range[1] - 1 - pane[left], left_range[1] - left_range[0])
            forward = grid.table(right, pane[right] - right_range[0], right_range[1] - right_range[0])
            centre = grid.table(middle, np.zeros(middle.stop - middle.start, np.int64), 0)
            whole = partial_column.partial.combine(_at(backward, left_range[1] - firsts), centre)
            whole = partial_column.partial.combine(whole, _at(forward, stops - right_range[0]))
            cells[partial_column] = tuple(part.reshape(-1) for part in whole)
    return _alive(layout, rows, Answer(cells, rows.answer.dictionaries), due)


def _alive(layout: Layout, rows: Gathered, answer: Answer, due: range) -> WindowCells:
    """The non-empty ones of the cells of each window and group, windows slowest."""
    held = answer.cells[layout.partial_columns[0]][0] > 0
    if held.all():
        window, group_index = np.divmod(np.arange(len(held)), rows.groups.count)
    else:
        alive = np.flatnonzero(held)
        answer = select(answer, alive)
        window, group_index = np.divmod(alive, rows.groups.count)
    keys = tuple(picked(key, group_index) for key in rows.groups.keys)
    return WindowCells(window + due.start, keys, answer)


@dataclass(frozen=True, slots=True)
class _Grid:
    """One partial's rows as dense tables: steps down, groups across, accumulated downwards."""

    partial_column: PartialColumn
    rows: Gathered
    groups: int

    def table(self, chosen: slice, step: Ints, steps: int) -> Cells:
        """The chosen rows at their steps: row s holds everything at steps below s (row 0 the identity).

        With no steps, row 0 holds all chosen rows.
        """
        offset = 0 if steps == 0 else 1
        height = steps + 1
        codes = (step + offset) * self.groups + self.rows.groups.codes[chosen]
        chosen_cells = tuple(part[chosen] for part in self.rows.answer.cells[self.partial_column])
        flat_cells = self.partial_column.partial.reduce(chosen_cells, codes, height * self.groups)
        grid = tuple(part.reshape(height, self.groups) for part in flat_cells)
        return self.partial_column.partial.accumulate(grid) if steps else grid


def _at(cells: Cells, steps: Ints) -> Cells:
    return tuple(part[steps] for part in cells)


def _sparse(layout: Layout, panes: Panes, rows: Gathered, middle: slice, due: range) -> WindowCells:
    """Repeat each pane row for every due window that holds it, then reduce."""
    pane = rows.blocks - block_key(0, 0)
    low = np.maximum(pane // panes.per_slide + 1, due.start)
    if panes.back is None:
        high = np.full(len(pane), due.stop, np.int64)
    else:
        high = np.minimum((pane - (1 if panes.cut else 0)) // panes.per_slide + panes.back + 1, due.stop)
    low[middle], high[middle] = due.start, due.stop
    copies = np.maximum(high - low, 0)
    source = np.repeat(np.arange(rows.rows), copies)
    window = np.arange(len(source)) - np.repeat(np.cumsum(copies) - copies, copies) + np.repeat(low, copies)
    codes, live = compact(
        (window - due.start) * rows.groups.count + rows.groups.codes[source], len(due) * rows.groups.count
    )
    answer = reduce_answer(layout, select(rows.answer, source), codes, len(live))
    window_index, group_index = np.divmod(live, rows.groups.count)
    keys = tuple(key.take(pa.array(group_index)) for key in rows.groups.keys)
    return WindowCells(window_index + due.start, keys, answer)
