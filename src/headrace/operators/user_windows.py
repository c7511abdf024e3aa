"""`[WINDOW name(args)]`: windows of a user's class, with and without aggregates.

The class is asked once a batch, when rows are scanned: a row goes to the cell of each of its windows (WID), which carries
the window's bounds along, so that nothing of the user's runs where state is. Rows on which the class fails, or which it puts
outside a window's bounds, are rejected for this query alone. State: a cell a group (without aggregates: a row) of each
window whose end is still to come, and what the last one answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions import Expression, columns_of
from headrace.algebra.window_classes import Context
from headrace.algebra.windows import Custom
from headrace.operators.bins import Ends
from headrace.operators.changes import Telling
from headrace.operators.finish import Finish
from headrace.operators.grouped import Grouped, columns_of_cells
from headrace.operators.grouping import Ints, compact, flat, ints
from headrace.operators.last_windows import (
    LAST,
    LASTS,
    TOLD,
    Chunk,
    Shown,
    finished,
    last_of_each,
    latest_told,
    newest,
    told_apart,
)
from headrace.operators.operator import Sections, Step, Turn
from headrace.operators.pane_store import KEY, Layout, gather, merge, reduce_answer, select
from headrace.operators.pane_windows import WindowCells
from headrace.operators.row_operator import RowOperator
from headrace.operators.row_steps import RowPipeline
from headrace.operators.row_store import ROWS, RowLayout
from headrace.operators.user_scanner import END, START, UserScanner
from headrace.time import FOREVER


@dataclass(frozen=True, slots=True)
class _Windows:
    """Windows that hold a row: numbers in order, their starts and ends."""

    number: Ints
    start: Ints
    end: Ints

    def where(self, keep: np.ndarray) -> _Windows:
        """Some of them."""
        return _Windows(self.number[keep], self.start[keep], self.end[keep])


@dataclass(frozen=True, slots=True)
class UserWindows(RowOperator):
    """`Finish(Aggregate?(Windowed(Custom)))`; with `telling`, each window against the one that ended before it.

    `on` are the expressions handed to the class. `grouped` reads the stored values, in its order of inputs; None without
    aggregates.
    """

    id: str
    query: str
    stream: str
    window: Custom
    on: tuple[Expression, ...]
    bounds_prefix: str
    rows: RowLayout
    grouped: Grouped | None
    finish: Finish
    telling: Telling | None = None
    relations: tuple[str, ...] = ()

    @property
    def context(self) -> Context:
        """The class of its window."""
        return Context.FREE

    @property
    def columns(self) -> frozenset[str]:
        """The stream's columns it reads."""
        return self.rows.reads().union(*(columns_of(expression) for expression in self.on))

    def scanner(self, relations: Mapping[str, pa.Table]) -> UserScanner:
        """Puts a task's rows into their windows."""
        return UserScanner(
            self.window,
            self.on,
            self.rows,
            self.grouped,
            RowPipeline.of(self.rows.below, relations),
            RowPipeline.of(self.rows.above, relations),
        )

    @property
    def _sections(self) -> tuple[str, ...]:
        if self.grouped is None:
            return (ROWS,)
        return tuple(f"cells{place}" for place, _ in enumerate(self.grouped.layouts))

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], turn: Turn) -> Step:
        """Answer the windows whose end punctuation has reached."""
        limit = FOREVER if turn.final else turn.now
        state: dict[str, pa.Table] = {}
        for section in self._sections:
            arrived = [delta[section] for delta in deltas if section in delta]
            if arrived and (later := _ending_after(pa.concat_tables(arrived), limit)).num_rows:
                state[section] = later
        held = [table for kept in (*runs, *deltas) if (table := kept.get(self._sections[0])) is not None]
        known = _windows([_ending_after(table, turn.closed) for table in held])
        due = known.where(known.end <= limit)
        open_windows = len(known.number) - len(due.number)
        if not len(due.number):
            return Step(state, open_windows=open_windows)
        order = np.lexsort((due.number, due.end))
        ends = Ends(due.end[order], np.zeros(len(order), np.int64), ())
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        stored = (*runs, *deltas)
        chunks = self._rows(due, place, stored) if self.grouped is None else self._groups(due, place, stored)
        shown = Shown(due.start[order], due.end[order], due.number[order])
        results, rejected = finished(self.finish, self.bounds_prefix, ends, shown, chunks)
        state[LAST] = last_of_each(ends, results, self._slots)
        if self.telling is not None:
            results = told_apart(ends, results, [run[LAST] for run in runs if LAST in run], self.telling)
            state[TOLD] = last_of_each(ends, results, self._slots)
        return Step(state, results, rejected, open_windows)

    def _slots(self, _: Sequence[pa.Array], rows: int) -> np.ndarray:
        return np.full(rows, self.rows.slot, np.int16)

    def _rows(self, due: _Windows, place: Ints, stored: Sequence[Sections]) -> Iterator[Chunk]:
        tables = [table for kept in stored if (table := kept.get(ROWS)) is not None]
        whole = pa.concat_tables(tables)
        found, own = _found(due, ints(whole, KEY))
        picked = pa.array(own)
        yield place[found], {name: flat(whole.column(name)).take(picked) for name in self.rows.names}, None

    def _groups(self, due: _Windows, place: Ints, stored: Sequence[Sections]) -> Iterator[Chunk]:
        grouped = self.grouped
        assert grouped is not None
        found = []
        for section, layout in zip(self._sections, grouped.layouts, strict=True):
            tables = [table for kept in stored if (table := kept.get(section)) is not None]
            found.append(_cells(layout, tables, due, place))
        columns, failed = columns_of_cells(grouped, found[0], [[part] for part in found[1:]])
        yield found[0].windows, columns, failed

    # ------------------------------------------------------------------------------------------------------------- at rest

    def compact(self, section: str, tables: Sequence[pa.Table], turn: Turn) -> pa.Table:
        """What windows to come need: one cell a window and group, or their rows."""
        if section in LASTS:
            return newest(pa.concat_tables(tables), 0)
        whole = _ending_after(pa.concat_tables(tables), turn.closed)
        if section == ROWS or self.grouped is None:
            return whole
        layout = self.grouped.layouts[int(section.removeprefix("cells"))]
        known = _windows([whole])
        merged = merge(layout, [whole.select(layout.schema().names)])
        at = np.searchsorted(known.number, ints(merged, KEY))
        merged = merged.append_column(START, pa.array(known.start[at]))
        return merged.append_column(END, pa.array(known.end[at]))

    @property
    def keeps_latest(self) -> bool:
        """Its state does."""
        return True

    def latest(self, runs: Sequence[Sections]) -> pa.Table | None:
        """The window that ended last: what INVOKE returns. None when there is none."""
        return latest_told(runs, self.telling, 0)


def _ending_after(table: pa.Table, closed: int) -> pa.Table:
    return table.filter(pa.array(ints(table, END) > closed))


def _windows(tables: Sequence[pa.Table]) -> _Windows:
    if not tables:
        none = np.empty(0, np.int64)
        return _Windows(none, none, none)
    whole = pa.concat_tables([table.select([KEY, START, END]) for table in tables])
    number, start, end = (ints(whole, name) for name in (KEY, START, END))
    distinct, first = np.unique(number, return_index=True)
    return _Windows(distinct, start[first], end[first])


def _found(due: _Windows, numbers: Ints) -> tuple[Ints, Ints]:
    """For what lies in windows of these numbers: the place among `due`, and which are in one of them."""
    at = np.minimum(np.searchsorted(due.number, numbers), len(due.number) - 1)
    own = np.flatnonzero(due.number[at] == numbers)
    return at[own], own


def _cells(layout: Layout, tables: Sequence[pa.Table], due: _Windows, place: Ints) -> WindowCells:
    """The cells of windows that end now."""
    names = layout.schema().names
    rows = gather(layout, [table.select(names) for table in tables])
    found, own = _found(due, rows.blocks)
    count = max(rows.groups.count, 1)
    combined, there = compact(place[found] * count + rows.groups.codes[own], len(due.number) * count)
    answer = reduce_answer(layout, select(rows.answer, own), combined, len(there))
    windows, member = np.divmod(there, count)
    return WindowCells(windows, tuple(key.take(pa.array(member)) for key in rows.groups.keys), answer)
