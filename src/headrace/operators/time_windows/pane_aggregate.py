"""Operator for aggregation over time windows by panes: sliding, tumbling and landmark windows, any range and slide; and
its scanner.

Each row is folded once into the partials of its pane and group; windows are combined from closed panes only (Paned-WID,
Li 2008, section 6.3, with the pane cut of `panes`). DISTINCT aggregates have an additional store whose groups include
the distinct values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.aggregates import NamedAggregate
from headrace.algebra.expressions.expression import Named
from headrace.algebra.expressions.series import AT
from headrace.algebra.query import Revisions
from headrace.algebra.windows.context import Context
from headrace.dataclass import dataclass
from headrace.operators.aggregates.cell_table import KEY, Layout, merge
from headrace.operators.aggregates.fitted_cells import fitted
from headrace.operators.aggregates.group_by import Grouped
from headrace.operators.aggregates.synopsis_calls import uses_synopses, with_doubled_errors
from headrace.operators.base.batch import Batch, Rejected
from headrace.operators.base.group_codes import ints
from headrace.operators.base.operator import (
    Advance,
    EmittedCounts,
    FamilyStep,
    Operator,
    Scanned,
    Sections,
    Step,
)
from headrace.operators.families import pane_queries
from headrace.operators.families.cohort import Cohort
from headrace.operators.families.family import family_name, in_family
from headrace.operators.families.family_operator import FamilyOperator
from headrace.operators.output.output_stage import Finish, finish
from headrace.operators.panes.adaptive_panes import (
    EVERY_ROW,
    SPARSE_OPEN,
    SPARSE_SEALED,
    fold_adaptively,
    grown_into_partials,
    in_order,
    settle,
    sparse_group_limit,
)
from headrace.operators.panes.emission_limit import EmissionCap
from headrace.operators.panes.late_panes import settled_at
from headrace.operators.panes.pane_keys import block_key, extent, pane_keys
from headrace.operators.panes.pane_sealing import PaneStore
from headrace.operators.panes.panes import Panes
from headrace.operators.panes.subwindows import Subwindows
from headrace.operators.panes.window_lengths import WindowLengths, top_level
from headrace.operators.rows.row_pipeline import RowPipeline, RowStep, columns_read
from headrace.operators.time_windows import group_punctuation, pane_display, pane_subwindow
from headrace.operators.time_windows.group_punctuation import GroupAdvance
from headrace.operators.window_assembly.pane_emission_limit import emission_limit
from headrace.operators.window_assembly.pane_extent import SEEN, extent_table, one_extent
from headrace.operators.window_assembly.window_closing import close
from headrace.time import BEGINNING, FOREVER, Duration, Instant


@dataclass(frozen=True, slots=True)
class PaneAggregate(FamilyOperator):
    """`Finish(Aggregate(Windowed(TimeSlide | Landmark)))` of one query.

    `single_slot`: route all groups to one slot, for queries whose windows must be in one place. `range` is None for
    landmark windows. `window_alias` names the window's bounds in the columns passed to `finish`.
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
    """With revisions, rows below the punctuation are read too, and the windows that were answered without them are revised.
    """
    below: int = 0
    """The number of steps below the window: rows they drop are in no window, rows dropped by others only in no answer."""
    family: str | None = None
    """The name of the state it shares with queries of its shape; see `headrace.operators.families.family`."""
    row_layout_limit: int | None = None
    """Groups of at most this many rows in a pane are stored as rows; None: all are folded. See `adaptive_panes`."""
    has_own_panes: bool = False
    """Whether it folds rows and stores panes by itself, even if they could be shared."""
    sheds: bool = False
    """Whether it reads the sample of rows that the stream keeps under shedding, with their weights, instead of all rows."""
    rule: str = ""
    lengths: WindowLengths | None = field(default=None, compare=False)
    """Of the windows of all queries that it is `together`, where these differ; `panes` and `range` are of the longest."""

    @property
    def answers_empty(self) -> bool:
        """Whether windows without rows have answers."""
        return self.emit_empty and not self.keys

    @property
    def grouped(self) -> Grouped:
        """Its group keys and aggregates."""
        return Grouped(self.keys, self.aggregates)

    @property
    def adapts(self) -> bool:
        """Whether sparse groups can be stored as rows: not for landmarks and revisions, which read them again."""
        once = self.revisions is None and not self.answers_empty and self.panes.back is not None
        return once and not uses_synopses(self.aggregates)

    def with_row_layout(self, *, folds: bool = True) -> PaneAggregate:
        """The operator that stores sparse groups as rows; without `folds` all groups, until they are merged."""
        return self.keeping(sparse_group_limit(self.layouts[0]) if folds else EVERY_ROW)

    def keeping(self, most: int | None) -> PaneAggregate:
        """The operator that stores groups of at most `most` rows in a pane as rows."""
        return replace(self, row_layout_limit=most) if self.adapts else self

    @property
    def context(self) -> Context:
        """The class of its window."""
        return Context.FREE

    @property
    def row_steps(self) -> tuple[RowStep, ...]:
        """The steps applied to rows before they are folded."""
        return self.steps

    @property
    def finishing(self) -> Finish:
        """The steps above its groups."""
        return self.finish

    @property
    def time_panes(self) -> Panes | None:
        """Its panes, unless an expression reads event times."""
        return None if any(name.endswith(AT) for name in self.columns) else self.panes

    @property
    def over_panes(self) -> PaneAggregate:
        """Itself."""
        return self

    @property
    def routing_steps(self) -> tuple[RowStep, ...]:
        """Its steps, unless windows without rows have answers, or it is unshared."""
        return () if self.answers_empty or self.has_own_panes else self.steps

    def unshared(self) -> PaneAggregate:
        """The operator that folds and stores its panes by itself."""
        return replace(self, family=None, has_own_panes=True)

    def among_readers_of(self, results: str) -> PaneAggregate:
        """The operator in the family of those that read results with one clock, if it has a family."""
        return self if self.family is None else replace(in_family(self.reading(results)), stream=self.stream)

    def reading(self, stream: str) -> PaneAggregate:
        """The operator over another stream."""
        return replace(self, stream=stream)

    @property
    def former_states(self) -> tuple[str, ...]:
        """The families whose queries read one stream, and whose queries had windows of one range."""
        if self.family is None:
            return ()
        window = (self.stream, self.panes, self.range, self.window_alias)
        of_one_range = family_name((window, self.keys, self.aggregates))
        of_one_stream = in_family(self).family
        return (of_one_range, *({of_one_stream or ""} - {"", self.family}))

    def together(self, queries: Sequence[Operator]) -> PaneAggregate:
        """One aggregate for all queries of its family, grouped by query first."""
        return self if self.family is None else pane_queries.together(pane_queries.over_panes(queries))

    def advance_family(
        self, cohort: Cohort, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance
    ) -> FamilyStep:
        """Close the windows of all queries in one step."""
        return pane_queries.advance_panes(cohort, runs, deltas, advance)

    def stream_family(
        self, cohort: Cohort, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance
    ) -> pane_queries.PaneStream:
        """Close the windows of some queries at a time."""
        return pane_queries.PaneStream(cohort, runs, deltas, advance)

    @property
    def store(self) -> PaneStore:
        """The store of its closed panes."""
        return PaneStore(self.panes, self.top_level, self.revisions, self.row_layout_limit, self.lengths)

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
        """The highest level of blocks worth storing."""
        return top_level(self.panes.per_window)

    @property
    def emission_windows(self) -> Panes:
        """Its own."""
        return self.panes

    def emission_limit(
        self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance, cap: EmissionCap
    ) -> Instant | None:
        """The instant up to which to answer in one step, see `emission_limit`."""
        keys, empty = len(self.keys), self.answers_empty
        return emission_limit(self.panes, runs, deltas, advance, cap, keys=keys, answers_empty=empty)

    @property
    def ends_in_parts(self) -> bool:
        """Each window is made of panes alone."""
        return True

    def due_after(self, runs: Sequence[Sections], advance: Advance) -> Instant:
        """When the first open pane closes, or the next window that holds a closed one, or the next one at all where empty ones are
        answered.
        """
        next_due, punctuation = super().due_after(runs, advance), advance.punctuation
        if next_due == FOREVER or punctuation == BEGINNING:
            return next_due
        window_end = self.panes.end_of(self.panes.last_closed(punctuation) + 1)
        stores = range(len(self.layouts))
        opened = [table for store in stores for table in self.store.open_panes(runs, store)]
        is_next = self.answers_empty or any(
            self.store.holds_closed(runs, store, punctuation) for store in stores
        )
        due = window_end if is_next else FOREVER
        pane = extent(self.store.opened(opened, punctuation))
        return due if pane is None else min(due, int(self.panes.starts(np.array([pane[0] + 1]))[0]))

    def group_columns(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        """Those of the columns that are group keys, if windows close group by group."""
        return group_punctuation.grouping_columns(self, columns)

    def advance_groups(
        self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance, groups: GroupAdvance
    ) -> Step:
        """`advance`, where single groups advance to their own punctuation."""
        return group_punctuation.advance_groups(self, runs, deltas, advance, groups)

    def without_done(self, section: str, table: pa.Table, groups: GroupAdvance) -> pa.Table:
        """Rows about to be merged, without groups that were emitted completely and get no more rows."""
        return group_punctuation.without_done(self, section, table, groups)

    @property
    def subwindows(self) -> Subwindows | None:
        """All that begin at one of its slides, unless a late row may change them."""
        if self.range is None or self.revisions is not None:
            return None
        return Subwindows(self.range, self.panes, self.answers_empty)

    def answer_subwindow(
        self,
        length: Duration,
        runs: Sequence[Sections],
        emitted_to: Instant,
        now: Instant,  # noqa: ARG002
    ) -> pa.Table | None:
        """The last window of that length, from its panes."""
        return pane_subwindow.of_panes(self, length, runs, emitted_to)

    def display(self) -> Iterator[str]:
        """From HAVING down to the panes and the steps below."""
        return pane_display.lines(self)

    @property
    def state_label(self) -> str:
        """Its window, its keys and its partials."""
        return pane_display.state_label(self)

    @property
    def synopsis_bytes(self) -> Mapping[str, int]:
        """Bytes of each sketch in each pane."""
        return pane_display.sketch_bytes(self)

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Seal the panes below punctuation, build their blocks, answer the windows that closed."""
        closed = close(self, runs, deltas, advance)
        tables: list[pa.Table] = []
        rejected: list[Rejected] = []
        counts = EmittedCounts()
        for chunk in closed.chunks:
            counts = counts.plus(len(chunk.windows), chunk.held)
            table, bad = finish(self.finish, chunk.columns, chunk.windows, chunk.ends, chunk.failed)
            tables.append(table)
            rejected += bad
        results = pa.concat_tables(tables) if tables else None
        return Step(
            closed.state, results, tuple(rejected), closed.open_windows, closed.revised_windows, counts
        )

    def before_merge(
        self, sections: Mapping[str, Sequence[pa.Table]], advance: Advance
    ) -> Mapping[str, Sequence[pa.Table]]:
        """Sections about to be merged, where groups that are no longer sparse are folded."""
        if SPARSE_OPEN not in sections and SPARSE_SEALED not in sections:
            return sections
        needed = dict(sections)
        for name, still_needed in ((SPARSE_OPEN, self.store.opened), (SPARSE_SEALED, self.store.live)):
            if name in sections:
                needed[name] = still_needed(sections[name], advance.emitted_to)
        return grown_into_partials(self.layouts[0], needed, self.row_layout_limit)

    def coarser(self, doubled: int) -> PaneAggregate:
        """The operator whose sketches have their errors doubled, as often as they remain different ones."""
        partials = len(self.layouts[0].partial_columns)
        for times in range(doubled, 0, -1):
            made = replace(self, aggregates=with_doubled_errors(self.aggregates, times))
            if len(made.layouts[0].partial_columns) == partials:
                return made
        return self

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        """Merge parts of open panes; drop blocks that no later window holds; merge a landmark's closed panes into one.

        Sketches are made as coarse as those that the operator makes now.
        """
        needed = self._compacted(section, tables, advance)
        are_fitted = self._has_doubled_errors and section in ("open0", "sealed0")
        return fitted(self.layouts[0], needed) if are_fitted else needed

    @property
    def _has_doubled_errors(self) -> bool:
        """Whether there are sketches that are coarser than their query asks for: those at rest may be finer."""
        return any(item.call.doubled for item in self.aggregates)

    def unexpired_rows(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> int | None:
        """Rows of closed panes, which are stored once, and of open panes that only one table has; of windows of one length.

        None where a merge also makes sketches coarser.
        """
        if (
            section == SEEN
            or self.lengths is not None
            or self.panes.back is None
            or self.revisions is not None
            or self._has_doubled_errors
        ):
            return None
        is_open = section == SPARSE_OPEN or section.startswith("open")
        rows = (self.store.opened if is_open else self.store.live)(tables, advance.emitted_to)
        return None if is_open and len(rows) > 1 else sum(int(table.num_rows) for table in rows)

    def _compacted(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        if section == SEEN:
            return one_extent([*tables])
        if section in (SPARSE_SEALED, SPARSE_OPEN):
            still_needed = self.store.live if section == SPARSE_SEALED else self.store.opened
            needed = still_needed(tables, advance.emitted_to) or [tables[0].slice(0, 0)]
            return needed[0] if len(needed) == 1 else in_order(needed)
        layout = self.layouts[int(section.removeprefix("open").removeprefix("sealed"))]
        if section.startswith("open"):
            opened = self.store.opened(tables, advance.emitted_to)
            return opened[0] if len(opened) == 1 else merge(layout, opened)
        settled = settled_at(advance.emitted_to, self.revisions)
        if settled == BEGINNING:
            return merge(layout, tables)
        if self.panes.back is None:
            return _landmark_pane(
                layout, tables, None if self.revisions is None else self.panes.of_instant(settled)
            )
        return merge(layout, self.store.live(tables, settled))


def _landmark_pane(layout: Layout, tables: Sequence[pa.Table], edge: int | None) -> pa.Table:
    """A landmark's closed panes as one; with an `edge` only those below it, since a window may still end after it."""
    whole = merge(layout, tables)
    keys = ints(whole, KEY)
    closed = len(keys) if edge is None else int(np.searchsorted(keys, block_key(0, edge)))
    if not closed:
        return whole
    collapsed = np.r_[np.full(closed, keys[closed - 1]), keys[closed:]]
    return merge(layout, [whole.set_column(0, KEY, pa.array(collapsed))])


@dataclass(slots=True)
class PaneScanner:
    """The scanner: one table of partials per batch and store, merged at the end."""

    operator: PaneAggregate
    below: RowPipeline
    pipeline: RowPipeline
    tables: list[list[pa.Table]] = field(default_factory=list)
    rows: list[pa.Table] = field(default_factory=list)
    seen: list[pa.Table] = field(default_factory=list)
    rows_in: int = 0
    rows_kept: int = 0
    groups: int = 0
    sparse_groups: int = 0

    def add(self, batch: Batch) -> None:
        """Fold a batch."""
        self.rows_in += batch.rows
        batch = self.below.apply(batch)
        if self.operator.panes.has_gaps:
            batch = batch.where((self.operator.panes.of_times(batch.times) & 1).astype(bool))
        if self.operator.answers_empty and batch.rows:
            panes = self.operator.panes.of_times(batch.times)
            self.seen.append(extent_table(int(panes.min()), int(panes.max()), self.operator.single_slot or 0))
        batch = self.pipeline.apply(batch)
        grouped = self.operator.grouped
        batch, values = self.pipeline.evaluate(batch, grouped.inputs())
        self.rows_kept += batch.rows
        if batch.rows:
            blocks = pane_keys(self.operator.panes.of_times(batch.times))
            slot, row_layout_limit = self.operator.single_slot, self.operator.row_layout_limit
            folded = fold_adaptively(grouped, blocks, values, slot, row_layout_limit=row_layout_limit)
            self.groups, self.sparse_groups = (
                self.groups + folded.groups,
                self.sparse_groups + folded.sparse_groups,
            )
            self.tables.append(folded.tables)
            self.rows += [folded.rows] if folded.rows is not None else []

    def finish(self) -> Scanned:
        """The deltas: one row per pane and group."""
        deltas = {}
        for store, layout in enumerate(self.operator.layouts):
            tables = [folded[store] for folded in self.tables]
            if len(tables) > 1 and store == 0 and self.rows:
                tables, self.rows = _halves(
                    settle(layout, [*tables, *self.rows], self.operator.row_layout_limit)
                )
            if tables:
                deltas[f"open{store}"] = tables[0] if len(tables) == 1 else merge(layout, tables)
        if self.rows:
            deltas[SPARSE_OPEN] = self.rows[0]
        if self.seen:
            deltas[SEEN] = one_extent(self.seen)
        rejected = (*self.below.rejected, *self.pipeline.rejected)
        return Scanned(deltas, rejected, self.rows_in, self.rows_kept, self.groups, self.sparse_groups)


def _halves(settled: list[pa.Table]) -> tuple[list[pa.Table], list[pa.Table]]:
    """The partials, and the rows if there are any."""
    return settled[:1], [table for table in settled[1:] if table.num_rows]
