"""Operator for `[WINDOW name(args)]`: windows of a user's class, with and without aggregates.

The class is called once per batch, when rows are scanned: a row is added to the cell of each of its windows (WID)
together with the window's bounds, so that no user code runs where state is. Rows on which the class fails, or which it
puts outside a window's bounds, are rejected for this query alone.
State: a cell per group (without aggregates: a row) of each window that has not ended, and the answer of the last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.expression import Expression, columns_of
from headrace.algebra.windows.context import Context
from headrace.algebra.windows.window import Custom
from headrace.dataclass import dataclass
from headrace.operators.aggregates.cell_table import (
    KEY,
    Layout,
    WindowCells,
    gather,
    merge,
    reduce_answer,
    select,
)
from headrace.operators.base.due import settles
from headrace.operators.base.group_codes import Ints, compact, flat, ints
from headrace.operators.base.operator import Advance, Sections, Step
from headrace.operators.row_windows.partitioned_rows import OverPartitions, PartitionedRows
from headrace.operators.row_windows.user_window_scan import END, START, UserScanner
from headrace.operators.row_windows.window_answers import LASTS, Chunk, Shown, newest
from headrace.operators.row_windows.window_bins import Ends
from headrace.operators.rows.row_pipeline import RowPipeline
from headrace.operators.rows.row_state import ROWS
from headrace.time import FOREVER, Instant


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
class UserWindows(OverPartitions):
    """Windows of a user's class, one after the other as they end; `on` are the expressions passed to the class."""

    spec: PartitionedRows
    window: Custom
    on: tuple[Expression, ...]

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
            self.spec.grouped,
            RowPipeline.of(self.rows.below, relations),
            RowPipeline.of(self.rows.above, relations),
        )

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Answer the windows whose end is at or below punctuation."""
        limit = FOREVER if advance.final else advance.punctuation
        state: dict[str, pa.Table] = {}
        for section in self.spec.stores:
            arrived = [delta[section] for delta in deltas if section in delta]
            if arrived and (later := _ending_after(pa.concat_tables(arrived), limit)).num_rows:
                state[section] = later
        held = [
            table for sections in (*runs, *deltas) if (table := sections.get(self.spec.stores[0])) is not None
        ]
        windows = _windows([_ending_after(table, advance.emitted_to) for table in held])
        due = windows.where(windows.end <= limit)
        open_windows = len(windows.number) - len(due.number)
        if not len(due.number):
            return Step(state, open_windows=open_windows)
        order = np.lexsort((due.number, due.end))
        ends = Ends(due.end[order], np.zeros(len(order), np.int64), ())
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        stored = (*runs, *deltas)
        shown = Shown(due.start[order], due.end[order], due.number[order])
        rows, cells = self._rows(due, rank, stored), partial(_cells, due, rank, stored)
        chunks = self.spec.chunks(ends, rows, cells)
        results, rejected = self.spec.answered(ends, shown, chunks, runs, state)
        return Step(state, results, rejected, open_windows)

    def _rows(self, due: _Windows, rank: Ints, stored: Sequence[Sections]) -> Iterator[Chunk]:
        tables = [table for sections in stored if (table := sections.get(ROWS)) is not None]
        whole = pa.concat_tables(tables)
        windows, rows = _due_rows(due, ints(whole, KEY))
        picked = pa.array(rows)
        yield rank[windows], {name: flat(whole.column(name)).take(picked) for name in self.rows.names}, None

    # ------------------------------------------------------------------------------------------------------------- at rest

    def due_after(self, runs: Sequence[Sections], advance: Advance) -> Instant:
        """The first end of a window that holds a row."""
        tables = (run[self.spec.stores[0]] for run in runs if self.spec.stores[0] in run)
        return min((settles(ints(table, END) - 1, advance.punctuation) for table in tables), default=FOREVER)

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        """What later windows need: one cell per window and group, or their rows."""
        if section in LASTS:
            return newest(pa.concat_tables(tables))
        whole = _ending_after(pa.concat_tables(tables), advance.emitted_to)
        if section == ROWS:
            return whole
        layout = self.spec.layout_of(section)
        windows = _windows([whole])
        merged = merge(layout, [whole.select(layout.schema().names)])
        at = np.searchsorted(windows.number, ints(merged, KEY))
        merged = merged.append_column(START, pa.array(windows.start[at]))
        return merged.append_column(END, pa.array(windows.end[at]))


def _ending_after(table: pa.Table, emitted_to: int) -> pa.Table:
    return table.filter(pa.array(ints(table, END) > emitted_to))


def _windows(tables: Sequence[pa.Table]) -> _Windows:
    if not tables:
        none = np.empty(0, np.int64)
        return _Windows(none, none, none)
    whole = pa.concat_tables([table.select([KEY, START, END]) for table in tables])
    number, start, end = (ints(whole, name) for name in (KEY, START, END))
    distinct, first = np.unique(number, return_index=True)
    return _Windows(distinct, start[first], end[first])


def _due_rows(due: _Windows, numbers: Ints) -> tuple[Ints, Ints]:
    """For rows of windows with these numbers: the index in `due`, and which rows are in one of them."""
    at = np.minimum(np.searchsorted(due.number, numbers), len(due.number) - 1)
    rows = np.flatnonzero(due.number[at] == numbers)
    return at[rows], rows


def _cells(
    due: _Windows, rank: Ints, sections: Sequence[Sections], layout: Layout, store: str
) -> WindowCells:
    """The cells of windows that end now."""
    names = layout.schema().names
    rows = gather(layout, [run[store].select(names) for run in sections if store in run])
    windows, in_windows = _due_rows(due, rows.blocks)
    count = max(rows.groups.count, 1)
    combined, there = compact(rank[windows] * count + rows.groups.codes[in_windows], len(due.number) * count)
    answer = reduce_answer(layout, select(rows.answer, in_windows), combined, len(there))
    windows, group_index = np.divmod(there, count)
    return WindowCells(windows, tuple(key.take(pa.array(group_index)) for key in rows.groups.keys), answer)
