"""Windowed aggregation over panes: sliding, tumbling and landmark windows of time, any range and slide.

Each row is folded once into the partials of its pane and group; windows are combined from closed panes only (Paned-WID,
Li 2008, section 6.3, with the pane cut of `panes`). DISTINCT aggregates keep, beside, a store whose groups are also the
distinct values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.aggregates import NamedAggregate
from headrace.algebra.expressions import Named
from headrace.algebra.query import Revisions
from headrace.operators.adaptive_panes import (
    EVERY_ROW,
    FEW_OPEN,
    FEW_SEALED,
    few_rows,
    fold_adaptively,
    grown_into_partials,
    in_order,
    settle,
)
from headrace.operators.batch import Batch, Rejected
from headrace.operators.finish import Finish, finish
from headrace.operators.grouped import Grouped, columns_of_cells, nothing
from headrace.operators.grouping import Ints, flat
from headrace.operators.late_panes import settled_at
from headrace.operators.lower_synopses import keeps_synopses
from headrace.operators.operator import Scanned, Sections, Step, Told, Turn, Windows
from headrace.operators.pace import Pace
from headrace.operators.pane_reach import SEEN, extent_table, one_extent, reach
from headrace.operators.pane_store import KEY, Layout, between, block_key, merge, pane_keys
from headrace.operators.pane_windows import WindowCells, closing, extent, windows
from headrace.operators.panes import Panes
from headrace.operators.row_steps import RowPipeline, RowStep, columns_read
from headrace.operators.sealing import PaneStore, Sealed
from headrace.time import BEGINNING, Duration, Instant

_LOWEST: Final = -(1 << 55)
_HIGHEST: Final = 1 << 55
_LEAST_PANES_FOR_BLOCKS: Final = 8


@dataclass(frozen=True, slots=True)
class PaneAggregate:
    """`Finish(Aggregate(Windowed(TimeSlide | Landmark)))` of one query.

    `single_slot`: route all groups to one slot, for queries whose windows must meet in one place. `range` is None for
    landmark windows. `window_alias` names the window's bounds in the columns handed to `finish`.
    """

    id: str
    query: str
    stream: str
    panes: Panes
    range: Duration | None
    window_alias: str
    keys: tuple[Named, ...]
    aggregates: tuple[NamedAggregate, ...]
    finish: Finish
    steps: tuple[RowStep, ...] = ()
    single_slot: int | None = None
    emit_empty: bool = False
    relations: tuple[str, ...] = ()
    revisions: Revisions | None = None
    """Rows below the punctuation come too, and the windows that had been answered without them are answered again."""
    below: int = 0
    """How many of the steps stand below the window: rows they drop are in no window, others only in no answer."""
    family: str | None = None
    """The name of the state it shares with queries of its shape; see `headrace.operators.family`."""
    keeps: int | None = None
    """Groups of at most so many rows in a pane lie as their rows; None: all are folded. See `adaptive_panes`."""
    alone: bool = False
    """Whether it folds rows and keeps panes by itself, also where queries alike could do it for it."""
    sheds: bool = False
    """Whether it is shown the rows that the stream keeps, with what each stands for, instead of all."""
    rule: str = ""

    @property
    def answers_empty(self) -> bool:
        """True when a window that no row reaches has an answer all the same."""
        return self.emit_empty and not self.keys

    @property
    def grouped(self) -> Grouped:
        """What is aggregated by what."""
        return Grouped(self.keys, self.aggregates)

    @property
    def adapts(self) -> bool:
        """True where a group of few rows can lie as these rows: not where all of the past, or late rows, meet them again."""
        once = self.revisions is None and not self.answers_empty and self.panes.back is not None
        return once and not keeps_synopses(self.aggregates)

    def adapting(self, *, folds: bool = True) -> PaneAggregate:
        """The operator while it keeps groups of few rows as these; without `folds` all groups, until their rows meet."""
        most = few_rows(self.layouts[0]) if folds else EVERY_ROW
        return replace(self, keeps=most) if self.adapts else self

    @property
    def store(self) -> PaneStore:
        """How its panes are kept once they are closed."""
        return PaneStore(self.panes, self.top_level, self.revisions, self.keeps)

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """The stores: the plain one, then one for each distinct argument."""
        return self.grouped.layouts

    @property
    def columns(self) -> frozenset[str]:
        """The stream's columns it reads."""
        return columns_read(self.steps) | self.grouped.reads()

    def scanner(self, relations: Mapping[str, pa.Table]) -> PaneScanner:
        """Folds a task's rows into pane partials."""
        below = RowPipeline.of(self.steps[: self.below], relations)
        return PaneScanner(self, below, RowPipeline.of(self.steps[self.below :], relations))

    @property
    def top_level(self) -> int:
        """The highest level of blocks worth keeping."""
        reach = self.panes.per_window
        return 0 if reach is None or reach < _LEAST_PANES_FOR_BLOCKS else reach.bit_length() - 1

    def reach(
        self, runs: Sequence[Sections], deltas: Sequence[Sections], turn: Turn, pace: Pace
    ) -> Instant | None:
        """Up to where to answer in one step, see `pace`."""
        return reach(self, runs, deltas, turn, pace)

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], turn: Turn) -> Step:
        """Seal the panes that punctuation passed, build their blocks, answer the windows that closed."""
        closed = close(self, runs, deltas, turn)
        tables: list[pa.Table] = []
        rejected: list[Rejected] = []
        told = Told()
        for chunk in closed.chunks:
            told = told.plus(len(chunk.windows), chunk.held)
            table, bad = finish(self.finish, chunk.columns, chunk.windows, chunk.ends, chunk.failed)
            tables.append(table)
            rejected += bad
        results = pa.concat_tables(tables) if tables else None
        return Step(closed.state, results, tuple(rejected), closed.open_windows, closed.again, told)

    def before_merge(
        self, sections: Mapping[str, Sequence[pa.Table]], turn: Turn
    ) -> Mapping[str, Sequence[pa.Table]]:
        """Sections about to be merged, with groups folded of which the parts have many rows together."""
        if FEW_OPEN not in sections and FEW_SEALED not in sections:
            return sections
        needed = dict(sections)
        for name, kept in ((FEW_OPEN, self.store.opened), (FEW_SEALED, self.store.live)):
            if name in sections:
                needed[name] = kept(sections[name], turn.closed)
        return grown_into_partials(self.layouts[0], needed, self.keeps)

    def compact(self, section: str, tables: Sequence[pa.Table], turn: Turn) -> pa.Table:
        """Merge parts of open panes; drop blocks no later window holds; a landmark's past becomes one pane."""
        if section == SEEN:
            return one_extent([*tables])
        if section in (FEW_SEALED, FEW_OPEN):
            kept = self.store.live if section == FEW_SEALED else self.store.opened
            found = kept(tables, turn.closed) or [tables[0].slice(0, 0)]
            return found[0] if len(found) == 1 else in_order(found)
        layout = self.layouts[int(section.removeprefix("open").removeprefix("sealed"))]
        if section.startswith("open"):
            opened = self.store.opened(tables, turn.closed)
            return opened[0] if len(opened) == 1 else merge(layout, opened)
        settled = settled_at(turn.closed, self.revisions)
        if settled == BEGINNING:
            return merge(layout, tables)
        if self.panes.back is None:
            return _one_past(
                layout, tables, None if self.revisions is None else self.panes.of_instant(settled)
            )
        return merge(layout, self.store.live(tables, settled))


def _one_past(layout: Layout, tables: Sequence[pa.Table], edge: int | None) -> pa.Table:
    """A landmark's past as one pane; with an `edge` only what lies below it, since a window may still end after it."""
    whole = merge(layout, tables)
    keys = flat(whole.column(KEY)).to_numpy(zero_copy_only=False)
    past = len(keys) if edge is None else int(np.searchsorted(keys, block_key(0, edge)))
    if not past:
        return whole
    collapsed = np.r_[np.full(past, keys[past - 1]), keys[past:]]
    return merge(layout, [whole.set_column(0, KEY, pa.array(collapsed))])


@dataclass(slots=True)
class PaneScanner:
    """The scan half: one table of partials a batch and store, merged at the end."""

    operator: PaneAggregate
    below: RowPipeline
    pipeline: RowPipeline
    tables: list[list[pa.Table]] = field(default_factory=list)
    rows: list[pa.Table] = field(default_factory=list)
    seen: list[pa.Table] = field(default_factory=list)
    rows_in: int = 0
    rows_kept: int = 0
    groups: int = 0
    few: int = 0

    def add(self, batch: Batch) -> None:
        """Fold a batch."""
        self.rows_in += batch.rows
        batch = self.below.apply(batch)
        if self.operator.panes.has_gaps:
            batch = batch.where((self.operator.panes.of_instants(batch.at) & 1).astype(bool))
        if self.operator.answers_empty and batch.rows:
            panes = self.operator.panes.of_instants(batch.at)
            self.seen.append(extent_table(int(panes.min()), int(panes.max()), self.operator.single_slot or 0))
        batch = self.pipeline.apply(batch)
        grouped = self.operator.grouped
        batch, values = self.pipeline.evaluate(batch, grouped.inputs())
        self.rows_kept += batch.rows
        if batch.rows:
            blocks = pane_keys(self.operator.panes.of_instants(batch.at))
            slot, keeps = self.operator.single_slot, self.operator.keeps
            folded = fold_adaptively(grouped, blocks, values, slot, keeps=keeps)
            self.groups, self.few = self.groups + folded.groups, self.few + folded.few
            self.tables.append(folded.tables)
            self.rows += [folded.rows] if folded.rows is not None else []

    def finish(self) -> Scanned:
        """The deltas: one row per pane and group."""
        deltas = {}
        for place, layout in enumerate(self.operator.layouts):
            tables = [folded[place] for folded in self.tables]
            if len(tables) > 1 and place == 0 and self.rows:
                tables, self.rows = _halves(settle(layout, [*tables, *self.rows], self.operator.keeps))
            if tables:
                deltas[f"open{place}"] = tables[0] if len(tables) == 1 else merge(layout, tables)
        if self.rows:
            deltas[FEW_OPEN] = self.rows[0]
        if self.seen:
            deltas[SEEN] = one_extent(self.seen)
        rejected = (*self.below.rejected, *self.pipeline.rejected)
        return Scanned(deltas, rejected, self.rows_in, self.rows_kept, self.groups, self.few)


def _halves(settled: list[pa.Table]) -> tuple[list[pa.Table], list[pa.Table]]:
    """The partials, and the rows where there are any."""
    return settled[:1], [table for table in settled[1:] if table.num_rows]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Windows that closed, a row for each (window, group): their columns, before HAVING and the select list.

    `failed` marks rows on which an aggregate overflowed.
    """

    columns: Mapping[str, pa.Array]
    windows: Ints
    ends: Ints
    failed: np.ndarray | None
    held: int = 0
    """How many rows of the stream the windows hold together, a row as often as it is in one."""

    def rows(self, places: Ints) -> Chunk:
        """Some of the rows."""
        picked = pa.array(places)
        return Chunk(
            {name: column.take(picked) for name, column in self.columns.items()},
            self.windows[places],
            self.ends[places],
            self.failed[places] if self.failed is not None else None,
        )


@dataclass(frozen=True, slots=True)
class Closed:
    """What closing windows gives before it is finished: new state, the windows a chunk at a time, how many stay open."""

    state: Sections
    chunks: Iterable[Chunk] = ()
    open_windows: int = 0
    again: Windows = ()
    """Windows among them that had been answered before, without rows that came late."""


def close(
    operator: PaneAggregate, runs: Sequence[Sections], deltas: Sequence[Sections], turn: Turn
) -> Closed:
    """Merge deltas with runs, seal what punctuation passed, and combine the windows that closed."""
    stores = []
    state: dict[str, pa.Table] = {}
    for place, layout in enumerate(operator.layouts):
        store = operator.store.seal(layout, place, runs, deltas, turn)
        stores.append(store)
        state |= store.kept
    arrived = [delta[SEEN] for delta in deltas if SEEN in delta]
    if arrived:
        state[SEEN] = one_extent(arrived)
    present = extent(stores[0].closed.panes)
    if operator.answers_empty:
        present = extent([*arrived, *(run[SEEN] for run in runs if SEEN in run)])
    every = (part[name] for part in (*runs, *deltas) for name in ("open0", FEW_OPEN) if name in part)
    opened = [table for table in every if table.num_rows]
    if turn.now == BEGINNING or present is None:
        return Closed(state, open_windows=_open_windows(operator, present, opened, turn.now))
    closed = _LOWEST if turn.answered == BEGINNING else operator.panes.last_closed(turn.answered)
    now = operator.panes.last_closed(turn.now)
    if turn.final and operator.panes.back is None:
        now = max(closed, operator.panes.first_window(operator.panes.of_instant(turn.greatest)))
    due = closing(operator.panes, closed, now, present)
    if operator.answers_empty and not turn.final:
        due = range(due.start, max(due.stop, now + 1))
    again = _again(operator, deltas, present[0], closed)
    chunks = itertools.chain.from_iterable(chunks_of(operator, stores, each) for each in (*again, due))
    return Closed(state, chunks, _open_windows(operator, present, opened, turn.now), again)


def _again(operator: PaneAggregate, deltas: Sequence[Sections], first: int, closed: int) -> Windows:
    """Windows up to `closed` that late rows are in; `first` is the least pane that holds a row.

    Where empty windows answer too, those between a late row and the row that had been the first are new.
    """
    if operator.revisions is None or closed == _LOWEST:
        return ()
    section = SEEN if operator.answers_empty else "open0"
    arrived = [delta[section] for delta in deltas if section in delta]
    late = between(arrived, block_key(0, _LOWEST), block_key(0, operator.panes.stop(closed)))
    if not late:
        return ()
    panes = np.concatenate([flat(table.column(KEY)).to_numpy() for table in late]) - block_key(0, 0)
    if operator.answers_empty:
        start = operator.panes.first_window(max(int(panes.min()), first))
        return (range(start, closed + 1),) if start <= closed else ()
    return operator.panes.holding(panes, closed)


def _open_windows(
    operator: PaneAggregate, sealed: tuple[int, int] | None, opened: Sequence[pa.Table], now: Instant
) -> int:
    """How many windows have not closed, up to the last one that holds a row; one where a window never ends."""
    keys = [flat(table.column(KEY)).to_numpy() for table in opened]
    ends = [(each.item(0) - block_key(0, 0), each.item(-1) - block_key(0, 0)) for each in keys]
    ends += [] if sealed is None else [sealed]
    if not ends:
        return 0
    final = operator.panes.last_window(max(last for _, last in ends))
    if final is None:
        return 1
    least = operator.panes.first_window(min(first for first, _ in ends))
    return max(
        0, final - (least - 1 if now == BEGINNING else max(least - 1, operator.panes.last_closed(now)))
    )


def chunks_of(operator: PaneAggregate, stores: Sequence[Sealed], due: range) -> Iterator[Chunk]:
    """The windows in `due`."""
    plain, *others = (
        windows(layout, operator.panes, store.closed, due, operator.top_level)
        for layout, store in zip(operator.layouts, stores, strict=True)
    )
    beside = [list(each) for each in others]
    for chunk in _with_empty(operator, plain, due):
        columns, failed = columns_of_cells(operator.grouped, chunk, beside)
        starts, ends = operator.panes.window_bounds(chunk.windows, operator.range)
        bounds = {"window_start": starts, "window_end": ends}
        stamp = pa.timestamp("us", tz="UTC")
        for name, values in bounds.items():
            columns[f"{operator.window_alias}.{name}"] = pa.array(values).cast(stamp)
        if operator.range is None:
            columns[f"{operator.window_alias}.window_start"] = pa.nulls(chunk.rows, stamp)
        columns[f"{operator.window_alias}.window_id"] = pa.array(chunk.windows)
        held = int(chunk.answer.cells[operator.layouts[0].feds[0]][0].sum())
        yield Chunk(columns, chunk.windows, ends, failed, held)


def _with_empty(operator: PaneAggregate, chunks: Iterable[WindowCells], due: range) -> Iterator[WindowCells]:
    """The chunks; for EMIT EMPTY of a global aggregate, with a row for each window that had none."""
    if not operator.answers_empty:
        yield from chunks
        return
    found = list(chunks)
    have = np.concatenate([chunk.windows for chunk in found]) if found else np.empty(0, np.int64)
    every = np.arange(due.start, due.stop)
    missing = every[~np.isin(every, have)]
    yield from found
    if len(missing):
        yield WindowCells(missing, (), nothing(operator.layouts[0].feds, len(missing)))
