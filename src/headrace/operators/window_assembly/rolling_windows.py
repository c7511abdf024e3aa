"""Rolling windows: many more windows than panes in one, each made of the tail of one interval of panes and the head of the
next.

Panes are cut into intervals as long as a window. Combined from each pane to the end of its interval, and from its start
to each pane, they give any window as two cells, without an inverse: three combinations per pane and group, whatever
range/slide is (van Herk 1992, Gil and Werman 1993). Aggregates that can be subtracted exactly need one running total
instead: a window is the total at its end less that at its start (the differential aggregates of Li 2008, section 6.3).
"""

from __future__ import annotations

import numpy as np

from headrace.operators.aggregates.aggregate_calls import Answer
from headrace.operators.aggregates.cell_table import Gathered, Layout
from headrace.operators.base.group_codes import Ints
from headrace.operators.partials.encoding import PartialColumn
from headrace.operators.partials.partial import Cells, Partial


def rolling(layout: Layout, rows: Gathered, panes: Ints, starts: Ints, length: int) -> Answer:
    """The cells of each (window, group), windows slowest.

    `panes` numbers the pane of each row from 0, window i is the `length` panes from `starts[i]` on.
    """
    count = rows.groups.count
    intervals = int(starts[-1]) // length + 2
    codes = panes * count + rows.groups.codes
    cells: dict[PartialColumn, Cells] = {}
    with np.errstate(all="ignore"):
        for partial_column in layout.partial_columns:
            flat = partial_column.partial.reduce(
                rows.answer.cells[partial_column], codes, intervals * length * count
            )
            answer_of = _differences if partial_column.partial.subtracts else _windows
            windows = answer_of(partial_column.partial, flat, starts, length, count)
            cells[partial_column] = tuple(part.reshape(-1) for part in windows)
    return Answer(cells, rows.answer.dictionaries)


def _differences(partial: Partial, flat: Cells, starts: Ints, length: int, count: int) -> Cells:
    """Windows down, groups across; totals wrap around and so do their differences."""
    none = partial.identity((1, count))
    panes = tuple(
        np.concatenate([zero, part.reshape(-1, count)]) for zero, part in zip(none, flat, strict=True)
    )
    return tuple(total[starts + length] - total[starts] for total in partial.accumulate(panes))


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
