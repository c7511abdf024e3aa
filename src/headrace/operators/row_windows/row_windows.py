"""`[ROWS n SLIDE m]` and its partitioned form: windows at every m-th row over the last n, with and without aggregates.

Rows get dense ranks in their partition when they are below punctuation (decision D10), or, numbered by arrival, when
they arrive; from then on a rank is to these windows what an instant is to time windows, and panes of ranks serve
aggregates in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.windows.context import Context
from headrace.algebra.windows.window import Numbering, TimeSlide
from headrace.operators.aggregates.cell_table import Layout, WindowCells, gather
from headrace.operators.aggregates.group_by import columns_of_cells, fold, nothing
from headrace.operators.base.batch import Rejected
from headrace.operators.base.group_codes import Ints, ints
from headrace.operators.base.operator import AT, WINDOW, Advance, Sections, Step
from headrace.operators.base.ranges import dense_ranks, repeated
from headrace.operators.output.changelog import consolidated
from headrace.operators.output.output_stage import finish
from headrace.operators.panes.panes import Panes
from headrace.operators.row_windows.partitioned_rows import OverPartitions, PartitionedRows
from headrace.operators.row_windows.window_bins import bins_between, cells_of
from headrace.operators.rows.row_state import ROWS, Held, hold
from headrace.schema import STAMP
from headrace.time import FOREVER

RANK: Final = "__rank"
RANKED: Final = "ranked"


@dataclass(frozen=True, slots=True)
class RowSlides(OverPartitions):
    """Windows over the last `count` rows of a partition, one at every `slide`-th row; numbered in stream order or by arrival."""

    spec: PartitionedRows
    count: int
    slide: int
    numbered: Numbering = "rank"

    @property
    def context(self) -> Context:
        """The class of its window."""
        return Context.FORWARD_FREE if self.numbered == "row_num" else Context.FORWARD_AWARE

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Rank the rows below punctuation; answer the windows they complete."""
        limit = FOREVER if advance.final or self.numbered == "row_num" else advance.punctuation
        arrived = hold(self.rows, [delta[ROWS] for delta in deltas if ROWS in delta])
        waiting = hold(self.rows, [run[ROWS] for run in runs if ROWS in run])
        waiting = waiting.where((waiting.at >= advance.emitted_to) & (waiting.at < limit))
        state: dict[str, pa.Table] = {}
        if (later := arrived.where(arrived.at >= limit)).rows:
            state[ROWS] = later.table
        fresh = hold(self.rows, [waiting.table, arrived.where(arrived.at < limit).table])
        if not fresh.rows:
            return Step(state)
        ranked = rank(self, [run[RANKED] for run in runs if RANKED in run], fresh)
        state[RANKED] = ranked.fresh()
        results, rejected = _answer(self, ranked)
        return Step(state, results, rejected)

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        """Ranked rows of later windows, and of the last one closed; unranked rows that still wait.

        What ISTREAM and DSTREAM emit of the last one depends on the one before it.
        """
        if section == ROWS:
            held = hold(self.rows, tables)
            return held.where(held.at >= advance.emitted_to).table
        whole = pa.concat_tables(tables)
        ranks = ints(whole, RANK)
        groups = self.spec.partition(whole)
        last = np.zeros(groups.count, np.int64)
        np.maximum.at(last, groups.codes, ranks)
        shown = last // self.slide - (self.spec.emit_mode is not None)
        return whole.filter(pa.array(ranks > (shown * self.slide - self.count)[groups.codes]))

    def latest(self, runs: Sequence[Sections]) -> pa.Table | None:
        """The last window of each partition, from state alone, as INVOKE returns it. None if no window has closed."""
        stored = [run[RANKED] for run in runs if RANKED in run]
        held = hold(self.rows, [table.drop_columns([RANK]) for table in stored])
        if not held.rows:
            return None
        ranks = np.concatenate([ints(table, RANK) for table in stored])
        groups = self.spec.partition(held.table)
        last = np.zeros(groups.count, np.int64)
        np.maximum.at(last, groups.codes, ranks)
        before = np.maximum(last // self.slide - 1, 0) * self.slide
        return _answer(self, Ranked(held, groups.codes, ranks, before, last, held.rows))[0]


@dataclass(frozen=True, slots=True)
class Ranked:
    """All available rows, with the rank of each in its partition, from 1; rows of one stream row share it.

    `before` and `last` are the greatest ranks of each partition, before this epoch and now. `older` rows come first.
    """

    held: Held
    codes: Ints
    ranks: Ints
    before: Ints
    last: Ints
    older: int

    def fresh(self) -> pa.Table:
        """The rows ranked now, as they are stored."""
        table = self.held.table.slice(self.older)
        return table.append_column(RANK, pa.array(self.ranks[self.older :]))

    def time_of(self, codes: Ints, ranks: Ints) -> Ints:
        """The time of the row of a rank in a partition."""
        span = int(self.last.max()) + 1
        keys = self.codes * span + self.ranks
        order = np.argsort(keys, kind="stable")
        return self.held.at[order[np.searchsorted(keys, codes * span + ranks, sorter=order)]]


def rank(operator: RowSlides, stored: Sequence[pa.Table], fresh: Held) -> Ranked:
    """Continue each partition's ranks over the new rows, in the order (event time, position)."""
    older = hold(operator.rows, [table.drop_columns([RANK]) for table in stored])
    ranks_before = [ints(table, RANK) for table in stored]
    held = hold(operator.rows, [older.table, fresh.table])
    groups = operator.spec.partition(held.table)
    ranks = np.concatenate([*ranks_before, np.zeros(fresh.rows, np.int64)])
    before = np.zeros(groups.count, np.int64)
    np.maximum.at(before, groups.codes[: older.rows], ranks[: older.rows])
    codes = groups.codes[older.rows :]
    at = fresh.at if operator.numbered == "rank" else np.zeros(fresh.rows, np.int64)
    ranks[older.rows :] = before[codes] + dense_ranks(codes, at, fresh.position)
    last = before.copy()
    np.maximum.at(last, groups.codes, ranks)
    return Ranked(held, groups.codes, ranks, before, last, older.rows)


@dataclass(frozen=True, slots=True)
class _Series:
    """Numbers for the windows of all partitions: consecutive in one, a gap between two."""

    offset: Ints
    first: Ints
    last: Ints

    def split(self, numbers: Ints) -> tuple[Ints, Ints]:
        """Partition and window of each number."""
        codes = np.searchsorted(self.offset, numbers, side="right") - 1
        return codes, numbers - self.offset[codes]


Chunk = tuple[Ints, dict[str, pa.Array], np.ndarray | None]
"""Window numbers, columns, and where an aggregate overflowed."""


def _answer(operator: RowSlides, ranked: Ranked) -> tuple[pa.Table | None, tuple[Rejected, ...]]:
    last, before = ranked.last // operator.slide, ranked.before // operator.slide
    first = np.maximum(before if operator.spec.emit_mode else before + 1, 1)
    first = np.where(last > before, first, last + 1)
    series = _Series(np.cumsum(last + 2) - last - 2, first, last)
    if not (last > before).any():
        return None, ()
    tables: list[pa.Table] = []
    rejected: list[Rejected] = []
    chunks = (
        _rows(operator, ranked, series)
        if operator.spec.grouped is None
        else _groups(operator, ranked, series)
    )
    for numbers, columns, failed in chunks:
        codes, windows = series.split(numbers)
        ends = ranked.time_of(codes, windows * operator.slide)
        starts = ranked.time_of(codes, np.maximum(windows * operator.slide - operator.count, 0) + 1)
        prefix = operator.spec.bounds_prefix
        columns[f"{prefix}window_start"] = pa.array(starts).cast(STAMP)
        columns[f"{prefix}window_end"] = pa.array(ends).cast(STAMP)
        columns[f"{prefix}window_id"] = pa.array(windows)
        table, bad = finish(operator.finish, columns, numbers, ends, failed)
        tables.append(table)
        rejected += bad
    results = pa.concat_tables(tables) if tables else None
    if operator.spec.emit_mode and results is not None:
        results = _differences(operator, ranked, series, results)
    return results, tuple(rejected)


def _rows(operator: RowSlides, ranked: Ranked, series: _Series) -> Iterator[Chunk]:
    """Live rows in their windows: window number and columns."""
    low, high = _windows_of(operator, ranked.ranks - 1)
    low = np.maximum(low, series.first[ranked.codes])
    high = np.minimum(high, series.last[ranked.codes])
    due = np.flatnonzero((low <= high) & ranked.held.live)
    shift = series.offset[ranked.codes[due]]
    for row, number in repeated(low[due] + shift, high[due] + shift):
        picked = pa.array(due[row])
        columns = {name: ranked.held.column(name).take(picked) for name in operator.rows.names}
        yield number, columns, None


def _windows_of(operator: RowSlides, offsets: Ints) -> tuple[Ints, Ints]:
    """First and last window that holds a rank, as rank - 1: i*m - n <= rank - 1 < i*m."""
    return offsets // operator.slide + 1, (offsets + operator.count) // operator.slide


def _groups(operator: RowSlides, ranked: Ranked, series: _Series) -> Iterator[Chunk]:
    """Aggregated windows: window number, key and aggregate columns, overflows."""
    grouped = operator.spec.grouped
    assert grouped is not None
    panes = Panes.of(TimeSlide(operator.count, operator.slide))
    live = np.flatnonzero(ranked.held.live)
    pane = panes.of_instants(ranked.ranks[live] - 1)
    span = int(pane.max()) + 1 if len(pane) else 1
    picked = pa.array(live)
    values = [
        ranked.held.column(name).take(picked) for name in operator.rows.names[operator.spec.partitions :]
    ]
    tables = fold(grouped, ranked.codes[live] * span + pane, values, 0)
    by_store = [
        _window_cells(layout, table, panes, span, series)
        for layout, table in zip(grouped.layouts, tables, strict=True)
    ]
    chunks = [by_store[0]]
    if operator.spec.emit_empty and not grouped.keys:
        numbers = np.concatenate(
            [
                np.arange(low, high + 1) + shift
                for low, high, shift in zip(series.first, series.last, series.offset, strict=True)
            ]
        )
        missing = numbers[~np.isin(numbers, by_store[0].windows)]
        chunks.append(WindowCells(missing, (), nothing(grouped.layouts[0].partial_columns, len(missing))))
    for chunk in chunks:
        if chunk.rows:
            columns, failed = columns_of_cells(grouped, chunk, [[part] for part in by_store[1:]])
            yield chunk.windows, columns, failed


def _window_cells(layout: Layout, table: pa.Table, panes: Panes, span: int, series: _Series) -> WindowCells:
    """The windows that close now, each read from its bin: the cost does not depend on count / slide."""
    rows = gather(layout, [table])
    codes, pane = np.divmod(rows.blocks, span)
    assert panes.back is not None
    low = np.maximum(pane // panes.per_slide + 1, series.first[codes])
    high = np.minimum((pane - (1 if panes.cut else 0)) // panes.per_slide + panes.back, series.last[codes])
    shift = series.offset[codes]
    return cells_of(
        bins_between(
            layout, rows, low + shift, high + shift + 1, int(series.offset[-1] + series.last[-1]) + 2
        )
    )


def _differences(operator: RowSlides, ranked: Ranked, series: _Series, rows: pa.Table) -> pa.Table:
    """The differences between each window that closes now and the one before it."""
    numbers = ints(rows, WINDOW)
    codes, windows = series.split(numbers)
    before = ranked.before // operator.slide
    entering, leaving = windows > before[codes], windows < series.last[codes]
    picked = np.concatenate([np.flatnonzero(entering), np.flatnonzero(leaving)])
    target = np.concatenate([numbers[entering], numbers[leaving] + 1])
    signs = np.repeat([1, -1], [entering.sum(), leaving.sum()])
    assert operator.spec.emit_mode is not None
    changes = consolidated(rows.take(pa.array(picked)), target, signs, operator.spec.emit_mode)
    codes, windows = series.split(ints(changes, AT))
    ends = ranked.time_of(codes, windows * operator.slide)
    return changes.set_column(changes.column_names.index(AT), AT, pa.array(ends))


__all__ = ["Ranked", "RowSlides", "rank"]
