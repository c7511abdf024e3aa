"""Rolling windows of many queries, some queries at a time, in the order of queries.

Arrays of all cells would be new memory at every step, and its first touch costs ten times the work; those of some queries are
used again for the next ones, and stay in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np

from headrace.operators.aggregates.cell_table import Gathered, Layout, WindowCells, select
from headrace.operators.base.group_codes import Groups, Ints, picked
from headrace.operators.window_assembly.rolling_windows import rolling

_CELLS: Final = 1 << 18
"""Cells of the queries that are assembled together."""
_PLACES_AT_ONCE: Final = 1 << 16


def rolled_by_query(
    layout: Layout, rows: Gathered, panes: Ints, starts: Ints, length: int, due: range
) -> Iterator[WindowCells]:
    """The non-empty cells of windows, as `rolling` has them, of groups that begin with the number of a query.

    Each part has all windows of its queries, query by query, and those of a query window by window.
    """
    numbers = rows.groups.keys[0].to_numpy()
    order = np.argsort(numbers, kind="stable")
    begins = np.flatnonzero(np.append(True, np.diff(numbers[order]) != 0))
    portions = begins // max(1, _CELLS // len(due))
    cuts = begins[np.flatnonzero(np.diff(portions, prepend=-1))]
    for low, high, own, panes_of_rows in _divided(rows, panes, order, cuts):
        answer = rolling(layout, own, panes_of_rows, starts, length)
        window, cell = _places(numbers[order[low:high]], len(due))
        held = np.flatnonzero(answer.cells[layout.partial_columns[0]][0].take(cell) > 0)
        if len(held):
            window, cell = window.take(held), cell.take(held)
            group = order[low + cell - window * (high - low)]
            keys = tuple(picked(key, group) for key in rows.groups.keys)
            yield WindowCells(window + due.start, keys, select(answer, cell))


def _divided(
    rows: Gathered, panes: Ints, order: Ints, cuts: Ints
) -> Iterator[tuple[int, int, Gathered, Ints]]:
    """The rows, with their panes, of groups low to high in `order` for each two of `cuts`, which become groups 0 to high - low."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    codes = rows.groups.codes
    if len(cuts) == 1:
        yield 0, len(order), _of_groups(rows, place[codes], len(order)), panes
        return
    ends = [*cuts[1:].tolist(), len(order)]
    portion_of_place = np.repeat(
        np.arange(len(cuts), dtype=np.min_scalar_type(len(cuts))), np.diff([0, *ends])
    )
    portion = portion_of_place[place[codes]]
    by_portion = np.argsort(portion, kind="stable")
    stops = np.cumsum(np.bincount(portion, minlength=len(cuts))).tolist()
    for (low, high), (first, stop) in zip(pairwise([0, *ends]), pairwise([0, *stops]), strict=True):
        chosen = by_portion[first:stop]
        own = replace(
            rows, blocks=rows.blocks[chosen], slots=rows.slots[chosen], answer=select(rows.answer, chosen)
        )
        yield low, high, _of_groups(own, place[codes[chosen]] - low, high - low), panes[chosen]


def _of_groups(rows: Gathered, codes: Ints, count: int) -> Gathered:
    return replace(rows, groups=Groups(codes, count, ()))


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
