"""Rolling windows: many more windows than panes in one, each made of the tail of one interval of panes and the head of the
next.

Panes are cut into intervals as long as a window. Combined from each pane to the end of its interval, and from its start
to each pane, they give any window as two cells, without an inverse: three combinations per pane and group, whatever
range/slide is (van Herk 1992, Gil and Werman 1993). Aggregates that can be subtracted exactly need one running total
instead: a window is the total at its end less that at its start (the differential aggregates of Li 2008, section 6.3).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from headrace.operators.aggregates.aggregate_calls import Answer
from headrace.operators.aggregates.cell_table import Gathered, Layout, WindowCells, select
from headrace.operators.base.group_codes import Groups, Ints, picked
from headrace.operators.partials.encoding import PartialColumn
from headrace.operators.partials.partial import Cells, Partial, running

_CELLS_AT_ONCE: Final = 1 << 16
"""Of windows that are subtracted together: arrays of all of them are new memory each, whose first touch costs more than the sums."""
_PLACES_AT_ONCE: Final = 1 << 16


def rolling(layout: Layout, rows: Gathered, panes: Ints, starts: Ints, length: int) -> Answer:
    """The cells of each (window, group), windows slowest.

    `panes` numbers the pane of each row from 0, window i is the `length` panes from `starts[i]` on.
    """
    cells: dict[PartialColumn, Cells] = {}
    with np.errstate(all="ignore"):
        for partial_column in layout.partial_columns:
            make = _differences if partial_column.partial.subtracts else _combined
            windows = make(partial_column, rows, panes, starts, length)
            cells[partial_column] = tuple(part.reshape(-1) for part in windows)
    return Answer(cells, rows.answer.dictionaries)


def rolled_by_query(
    layout: Layout, rows: Gathered, panes: Ints, starts: Ints, length: int, due: range
) -> WindowCells | None:
    """The non-empty cells of windows, as `rolling` has them, of groups that begin with the number of a query; None without one.

    They are query by query, and those of a query window by window.
    """
    numbers = rows.groups.keys[0].to_numpy()
    order = np.argsort(numbers, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    own = replace(rows, groups=Groups(place[rows.groups.codes], len(order), ()))
    answer = rolling(layout, own, panes, starts, length)
    window, cell = _places(numbers[order], len(due))
    held = np.flatnonzero(answer.cells[layout.partial_columns[0]][0].take(cell) > 0)
    if not len(held):
        return None
    window, cell = window.take(held), cell.take(held)
    group = order[cell - window * len(order)]
    keys = tuple(picked(key, group) for key in rows.groups.keys)
    return WindowCells(window + due.start, keys, select(answer, cell))


def _places(numbers: Ints, windows: int) -> tuple[Ints, Ints]:
    """The window and the cell, windows slowest, of all windows of groups in the order of their queries' numbers."""
    count = len(numbers)
    begins = np.flatnonzero(np.append(True, np.diff(numbers) != 0))
    sizes = np.diff(np.append(begins, count))
    # A query's cells begin after those of all windows of the queries before it, and are window by window.
    first = np.repeat(begins * (windows - 1), sizes) + np.arange(count)
    stride = np.repeat(sizes, sizes)
    window_of, cells = (np.empty(windows * count, np.int64) for _ in range(2))
    at_once = max(1, _PLACES_AT_ONCE // count)
    for low in range(0, windows, at_once):
        window = np.arange(low, min(windows, low + at_once))[:, None]
        at = first + window * stride
        window_of[at] = window
        cells[at] = window * count + np.arange(count)
    return window_of, cells


def _differences(column: PartialColumn, rows: Gathered, panes: Ints, starts: Ints, length: int) -> Cells:
    """Windows down, groups across; totals wrap around and so do their differences. Only panes that hold rows have totals."""
    count = rows.groups.count
    present = np.flatnonzero(np.bincount(panes))
    places = np.zeros(int(present[-1]) + 1, np.int64)
    places[present] = np.arange(1, len(present) + 1)
    codes = places[panes] * count + rows.groups.codes
    totals = column.partial.reduce(rows.answer.cells[column], codes, (len(present) + 1) * count)
    low, high = np.searchsorted(present, starts), np.searchsorted(present, starts + length)
    return tuple(_between(total.reshape(-1, count), low, high) for total in totals)


def _between(counts: np.ndarray, low: Ints, high: Ints) -> np.ndarray:
    """The sums of the rows after `low` up to `high`, for each pair of them; `counts` is overwritten."""
    totals, at_once = running(np.add, counts, counts), max(1, _CELLS_AT_ONCE // counts.shape[1])
    windows = np.empty((len(low), counts.shape[1]), counts.dtype)
    for begin in range(0, len(low), at_once):
        some = slice(begin, begin + at_once)
        np.subtract(totals[high[some]], totals[low[some]], out=windows[some])
    return windows


def _combined(column: PartialColumn, rows: Gathered, panes: Ints, starts: Ints, length: int) -> Cells:
    """Windows down, groups across, of cells that cannot be subtracted."""
    count, intervals = rows.groups.count, int(starts[-1]) // length + 2
    codes = panes * count + rows.groups.codes
    flat = column.partial.reduce(rows.answer.cells[column], codes, intervals * length * count)
    return _windows(column.partial, flat, starts, length, count)


def _windows(partial: Partial, flat: Cells, starts: Ints, length: int, count: int) -> Cells:
    """Windows down, groups across."""
    if length == 1:
        return tuple(part.reshape(-1, count)[starts] for part in flat)
    by_step = tuple(_across(part, length, count) for part in flat)
    heads = tuple(_down(part, length, count) for part in partial.accumulate(by_step))
    backwards = partial.accumulate(tuple(part[::-1] for part in by_step))
    tails = tuple(_down(part[::-1], length, count) for part in backwards)
    whole = starts % length == 0  # only the head of its own interval
    tail_starts = np.where(whole, 0, starts)
    before = tuple(
        np.where(whole[:, None], none, tail[tail_starts])
        for none, tail in zip(partial.identity((1, count)), tails, strict=True)
    )
    return partial.combine(before, tuple(head[starts + length - 1] for head in heads))


def _across(part: np.ndarray, length: int, count: int) -> np.ndarray:
    """Steps within an interval down, intervals and groups across."""
    return np.ascontiguousarray(part.reshape(-1, length, count).transpose(1, 0, 2).reshape(length, -1))


def _down(part: np.ndarray, length: int, count: int) -> np.ndarray:
    """Panes down, groups across."""
    return part.reshape(length, -1, count).transpose(1, 0, 2).reshape(-1, count)
