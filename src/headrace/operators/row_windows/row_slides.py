"""Operator for `[ROWS n SLIDE m]` and its partitioned form, with and without aggregates: windows at every m-th row over
the last n.

Rows get dense ranks in their partition when they are below punctuation (decision D10), or, numbered by arrival, when
they arrive; from then on a rank is to these windows what an instant is to time windows, and panes of ranks serve
aggregates in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.windows.context import Context
from headrace.algebra.windows.window import Numbering
from headrace.dataclass import dataclass
from headrace.operators.aggregates.cell_table import Layout, WindowCells, gather
from headrace.operators.aggregates.group_by import columns_of_cells, fold, nothing
from headrace.operators.base.batch import Rejected
from headrace.operators.base.due import waiting_settle
from headrace.operators.base.group_codes import Groups, Ints, flat, ints
from headrace.operators.base.group_ranks import dense_ranks
from headrace.operators.base.operator import (
    AT,
    QUERY_NUMBER,
    WINDOW,
    Advance,
    FamilyStep,
    Operator,
    Sections,
    Step,
)
from headrace.operators.families.cohort import Cohort
from headrace.operators.families.family import number_last
from headrace.operators.families.finishing import by_query, plan_of, plans_of, with_number
from headrace.operators.output.changelog import Emitted, consolidated
from headrace.operators.output.output_stage import Finish, finish
from headrace.operators.row_windows.partitioned_rows import OverPartitions, PartitionedRows
from headrace.operators.row_windows.window_bins import bins_between, cells_of
from headrace.operators.rows.row_state import ROWS, TIME, Held, hold
from headrace.operators.window_assembly.window_pairs import repeated
from headrace.schema import STAMP
from headrace.time import FOREVER, Instant

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
    def extent(self) -> int:
        """The number of rows in a window."""
        return self.count

    @property
    def shape(self) -> tuple[object, ...]:
        """Equal partitions, groups and slides."""
        return *self.spec.shape, self.slide, self.numbered

    def together(self, queries: Sequence[Operator]) -> RowSlides:
        """One operator for all queries of its family: their number is the first part of a partition."""
        return self if self.family is None else replace(self, spec=self.spec.together(queries))

    @property
    def context(self) -> Context:
        """The class of its window."""
        return Context.FORWARD_FREE if self.numbered == "row_num" else Context.FORWARD_AWARE

    @property
    def counts_arrivals(self) -> bool:
        """Whether its rows are numbered by arrival."""
        return self.numbered == "row_num"

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Rank the rows below punctuation; answer the windows they complete."""
        state, ranked = self.ranked(runs, deltas, advance)
        return Step(state) if ranked is None else Step(state, *_answer(self, ranked))

    def advance_family(
        self, cohort: Cohort, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance
    ) -> FamilyStep:
        """The same for the rows of all queries, whose windows are then finished by query."""
        together = self.together(cohort.queries)
        state, ranked = together.ranked(runs, deltas, advance)
        steps = {query.id: Step() for query in cohort.queries}
        if ranked is not None:
            for index, results, rejected in _answers(together, ranked, cohort):
                steps[cohort.queries[index].id] = Step({}, results, rejected)
        return FamilyStep(state, steps)

    def ranked(
        self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance
    ) -> tuple[dict[str, pa.Table], Ranked | None]:
        """New state, and all rows with their ranks; None if no new one is below punctuation."""
        limit = FOREVER if advance.final or self.numbered == "row_num" else advance.punctuation
        arrived = hold(self.rows, [delta[ROWS] for delta in deltas if ROWS in delta])
        waiting = hold(self.rows, [run[ROWS] for run in runs if ROWS in run])
        waiting = waiting.where((waiting.at >= advance.emitted_to) & (waiting.at < limit))
        state: dict[str, pa.Table] = {}
        if (later := arrived.where(arrived.at >= limit)).rows:
            state[ROWS] = later.table
        fresh = hold(self.rows, [waiting.table, arrived.where(arrived.at < limit).table])
        if not fresh.rows:
            return state, None
        ranked = rank(self, [run[RANKED] for run in runs if RANKED in run], fresh)
        state[RANKED] = ranked.fresh()
        return state, ranked

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
        return whole.filter(pa.array(ranks > (shown * self.slide - self.counts(groups))[groups.codes]))

    def due_after(self, runs: Sequence[Sections], advance: Advance) -> Instant:
        """When the first row that waits is below punctuation, and gets its rank."""
        return waiting_settle(runs, ROWS, TIME, advance.punctuation)

    def counts(self, partitions: Groups) -> Ints:
        """The number of rows in a window, by partition."""
        extents = self.spec.queries
        if extents is None:
            return np.full(partitions.count, self.count)
        counts: Ints = extents.values[extents.places_of(partitions.keys[0].to_numpy())]
        return counts

    def latest(self, runs: Sequence[Sections]) -> pa.Table | None:
        """The last window of each partition, from state alone, as INVOKE returns it. None if no window has closed."""
        if self.family is not None:
            return self.together((self,)).latest(runs)
        stored = [run[RANKED] for run in runs if RANKED in run]
        held = hold(self.rows, [table.drop_columns([RANK]) for table in stored])
        if not held.rows:
            return None
        ranks = np.concatenate([ints(table, RANK) for table in stored])
        groups = self.spec.partition(held.table)
        last = np.zeros(groups.count, np.int64)
        np.maximum.at(last, groups.codes, ranks)
        before = np.maximum(last // self.slide - 1, 0) * self.slide
        partitions = Partitions(before, last, self.counts(groups))
        return _answer(self, Ranked(held, groups.codes, ranks, partitions, held.rows))[0]


@dataclass(frozen=True, slots=True)
class Partitions:
    """Of each partition the greatest rank before this epoch and now, the rows of its windows, and its query's number."""

    before: Ints
    last: Ints
    counts: Ints
    numbers: Ints | None = None


@dataclass(frozen=True, slots=True)
class Ranked:
    """All available rows, with the rank of each in its partition, from 1; rows of one stream row share it.

    `older` rows come first.
    """

    held: Held
    codes: Ints
    ranks: Ints
    partitions: Partitions
    older: int

    def fresh(self) -> pa.Table:
        """The rows ranked now, as they are stored."""
        table = self.held.table.slice(self.older)
        return number_last(table.append_column(RANK, pa.array(self.ranks[self.older :])))

    def time_of(self, codes: Ints, ranks: Ints) -> Ints:
        """The time of the row of a rank in a partition."""
        span = int(self.partitions.last.max()) + 1
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
    numbers = None if operator.spec.queries is None else groups.keys[0].to_numpy()
    partitions = Partitions(before, last, operator.counts(groups), numbers)
    return Ranked(held, groups.codes, ranks, partitions, older.rows)


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


def _answer(operator: RowSlides, ranked: Ranked) -> Emitted:
    series = _series(operator, ranked)
    return _finished(operator, ranked, series, _windows(operator, ranked, series), operator.finish)


def _answers(
    operator: RowSlides, ranked: Ranked, cohort: Cohort
) -> Iterator[tuple[int, pa.Table | None, tuple[Rejected, ...]]]:
    """The answers of several queries, by their places: those with equal plans together, if no row fails."""
    series = _series(operator, ranked)
    chunks = list(_windows(operator, ranked, series))
    for plan, places in plans_of([plan_of(query) for query in cohort.queries]):
        picked_chunks = [_of_queries(chunk, cohort.numbers[places]) for chunk in chunks]
        results, rejected = _finished(operator, ranked, series, picked_chunks, with_number(plan))
        if not rejected:
            for number, table in by_query(results):
                yield int(np.searchsorted(cohort.numbers, number)), table, ()
            continue
        for index in places:
            picked_chunks = [_of_queries(chunk, cohort.numbers[[index]]) for chunk in chunks]
            yield index, *_finished(operator, ranked, series, picked_chunks, plan)


def _of_queries(chunk: Chunk, numbers: Ints) -> Chunk:
    """The rows of windows of some queries."""
    windows, columns, failed = chunk
    is_own = np.isin(flat(columns[QUERY_NUMBER]).to_numpy(), numbers)
    if is_own.all():
        return chunk
    mask = pa.array(is_own)
    columns = {name: flat(column).filter(mask) for name, column in columns.items()}
    return windows[is_own], columns, None if failed is None else failed[is_own]


def _series(operator: RowSlides, ranked: Ranked) -> _Series:
    """The windows that close now, and with changes the one before them."""
    last, before = ranked.partitions.last // operator.slide, ranked.partitions.before // operator.slide
    first = np.maximum(before if operator.spec.emit_mode else before + 1, 1)
    first = np.where(last > before, first, last + 1)
    return _Series(np.cumsum(last + 2) - last - 2, first, last)


def _windows(operator: RowSlides, ranked: Ranked, series: _Series) -> Iterator[Chunk]:
    """The rows or groups of all windows of a series, with the bounds of the window and the number of the query."""
    if not (series.last >= series.first).any():
        return
    counts, numbers = ranked.partitions.counts, ranked.partitions.numbers
    chunks = (
        _rows(operator, ranked, series)
        if operator.spec.grouped is None
        else _groups(operator, ranked, series)
    )
    for ordinals, columns, failed in chunks:
        codes, windows = series.split(ordinals)
        starts = ranked.time_of(codes, np.maximum(windows * operator.slide - counts[codes], 0) + 1)
        ends = ranked.time_of(codes, windows * operator.slide)
        prefix = operator.spec.bounds_prefix
        columns[f"{prefix}window_start"] = pa.array(starts).cast(STAMP)
        columns[f"{prefix}window_end"] = pa.array(ends).cast(STAMP)
        columns[f"{prefix}window_id"] = pa.array(windows)
        if numbers is not None:
            columns[QUERY_NUMBER] = pa.array(numbers[codes])
        yield ordinals, columns, failed


def _finished(
    operator: RowSlides, ranked: Ranked, series: _Series, chunks: Iterable[Chunk], plan: Finish
) -> Emitted:
    """The results of windows under a plan, or the differences between them."""
    tables: list[pa.Table] = []
    rejected: list[Rejected] = []
    for ordinals, columns, failed in chunks:
        codes, windows = series.split(ordinals)
        ends = ranked.time_of(codes, windows * operator.slide)
        table, bad = finish(plan, columns, ordinals, ends, failed)
        tables.append(table)
        rejected += bad
    results = pa.concat_tables(tables) if tables else None
    if operator.spec.emit_mode and results is not None:
        results = _differences(operator, ranked, series, results)
    return results, tuple(rejected)


def _rows(operator: RowSlides, ranked: Ranked, series: _Series) -> Iterator[Chunk]:
    """Live rows in their windows: window number and columns."""
    offsets, counts = ranked.ranks - 1, ranked.partitions.counts[ranked.codes]
    low = np.maximum(offsets // operator.slide + 1, series.first[ranked.codes])
    high = np.minimum((offsets + counts) // operator.slide, series.last[ranked.codes])
    due = np.flatnonzero((low <= high) & ranked.held.live)
    shift = series.offset[ranked.codes[due]]
    for row, number in repeated(low[due] + shift, high[due] + shift):
        picked = pa.array(due[row])
        columns = {name: ranked.held.column(name).take(picked) for name in operator.rows.names}
        yield number, columns, None


def _groups(operator: RowSlides, ranked: Ranked, series: _Series) -> Iterator[Chunk]:
    """Aggregated windows: window number, key and aggregate columns, overflows.

    A slide of ranks is two panes, cut where a window begins in it: where it has none, the first one is empty.
    """
    grouped = operator.spec.grouped
    assert grouped is not None
    live = np.flatnonzero(ranked.held.live)
    slides, offsets = np.divmod(ranked.ranks[live] - 1, operator.slide)
    pane = 2 * slides + (offsets >= -ranked.partitions.counts[ranked.codes[live]] % operator.slide)
    span = int(pane.max()) + 1 if len(pane) else 1
    picked = pa.array(live)
    values = [
        ranked.held.column(name).take(picked) for name in operator.rows.names[operator.spec.partitions :]
    ]
    tables = fold(grouped, ranked.codes[live] * span + pane, values, 0)
    back = -(-ranked.partitions.counts // operator.slide)
    by_store = [
        _window_cells(layout, table, back, span, series)
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


def _window_cells(layout: Layout, table: pa.Table, back: Ints, span: int, series: _Series) -> WindowCells:
    """The windows that close now, each read from its bin: the cost does not depend on count / slide.

    `back` is the number of slides that a window of each partition begins in.
    """
    rows = gather(layout, [table])
    codes, pane = np.divmod(rows.blocks, span)
    low = np.maximum(pane // 2 + 1, series.first[codes])
    high = np.minimum((pane - 1) // 2 + back[codes], series.last[codes])
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
    before = ranked.partitions.before // operator.slide
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
