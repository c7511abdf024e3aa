"""Operator for approximate counts and sums over time windows, within an error bound: the closed panes of a group, when
they are many, are merged into exponential histograms.

Pane numbers serve as instants, since windows begin and end where panes do. A window [start, end) counts the buckets at
or after `start`, less half of the oldest; exact cells that are not in the histogram yet are added. Whether a group has
a row in the window is exact.
Source: as `synopses/exponential_histogram`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.aggregates import NamedAggregate
from headrace.algebra.expressions.approximation import exact
from headrace.dataclass import dataclass
from headrace.operators.aggregates import aggregate_calls
from headrace.operators.aggregates.aggregate_calls import Answer
from headrace.operators.aggregates.cell_table import KEY, Layout, merge
from headrace.operators.approximate.histogram_store import GroupHistograms, HistogramLayout, as_cells
from headrace.operators.base.batch import Rejected
from headrace.operators.base.group_codes import Ints
from headrace.operators.base.operator import Advance, Sections, Step
from headrace.operators.base.wrapper import Around
from headrace.operators.output.display import histogram_bytes, histograms, steps_up
from headrace.operators.output.output_stage import finish
from headrace.operators.panes.pane_keys import between, block_key, extent
from headrace.operators.panes.panes import HIGHEST, LOWEST
from headrace.operators.panes.subwindows import Subwindows
from headrace.operators.rows.row_pipeline import RowStep
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.operators.time_windows.pane_display import routed
from headrace.operators.time_windows.pane_subwindow import of_length
from headrace.operators.window_assembly.assemble import closing
from headrace.schema import STAMP
from headrace.synopses.histograms.canonical_form import Form
from headrace.time import BEGINNING, FOREVER, Duration, Instant, render_duration

OPEN: Final = "open0"
HISTOGRAMS: Final = "thinned"
_MOST_PAIRS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ApproximateWindows(Around):
    """`Finish(Aggregate(Windowed(TimeSlide)))` of one query, all aggregates approximate.

    `exactly` is the same query without errors, whose panes and partials are used; `forms` is the histogram form of each
    of its partials, before any error is doubled; `aggregates` are those of the query.
    """

    exactly: PaneAggregate
    aggregates: tuple[NamedAggregate, ...]
    forms: tuple[Form, ...]
    doubled: int | None = None
    """How often the errors are doubled while memory is short; None: they never are."""

    @property
    def inner(self) -> PaneAggregate:
        """The operator that reads the stream."""
        return self.exactly

    @property
    def row_steps(self) -> tuple[RowStep, ...]:
        """The steps applied to rows before they are counted."""
        return self.exactly.steps

    @property
    def subwindows(self) -> Subwindows | None:
        """The lengths that begin at a slide, if the slide divides the range."""
        whole = self.exactly
        return None if whole.panes.cut or whole.range is None else Subwindows(whole.range, whole.panes)

    def answer_subwindow(
        self,
        length: Duration,
        runs: Sequence[Sections],
        emitted_to: Instant,
        now: Instant,  # noqa: ARG002
    ) -> pa.Table | None:
        """The last window of that length, within the same bound."""
        if emitted_to in (BEGINNING, FOREVER):
            return None
        return answer_of(replace(self, exactly=of_length(self.exactly, length)), runs, emitted_to)

    def display(self) -> Iterator[str]:
        """Its windows, its histograms, its groups."""
        panes = self.exactly.panes
        yield f"window every {render_duration(panes.slide)} of {panes.per_window} panes (context free)"
        in_histograms = zip(self.layout.partial_columns, self.forms, strict=True)
        yield from histograms(in_histograms, f"every pane: {8 * (panes.per_window or 0):,}")
        yield routed(self.exactly)
        yield from steps_up(self.row_steps)

    @property
    def synopsis_bytes(self) -> Mapping[str, int]:
        """Of each histogram, once per group."""
        forms = self.histogram_layout.forms_of(self.doubled or 0)
        return histogram_bytes(self.layout.partial_columns, forms)

    @property
    def layout(self) -> Layout:
        """Cells of open panes."""
        return self.exactly.layouts[0]

    @property
    def histogram_layout(self) -> HistogramLayout:
        """Cells and histograms of closed panes."""
        return HistogramLayout(self.layout, self.forms, self.doubled)

    def coarser(self, doubled: int) -> ApproximateWindows:
        """The operator whose histograms have their errors doubled so often."""
        return self if self.doubled is None else replace(self, doubled=doubled)

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Seal the panes below punctuation; answer the windows that closed; convert long lists of cells to histograms."""
        panes = self.exactly.panes
        arrived = [delta[OPEN] for delta in deltas if OPEN in delta]
        if advance.punctuation == BEGINNING:
            return Step({OPEN: merge(self.layout, arrived)} if arrived else {})
        edge = HIGHEST if advance.final else panes.of_instant(advance.punctuation)
        before = LOWEST if advance.emitted_to == BEGINNING else panes.of_instant(advance.emitted_to)
        border = block_key(0, edge)
        opened = [run[OPEN] for run in runs if OPEN in run]
        newly_closed = between(opened, block_key(0, before), border)
        sealed = merge(self.layout, newly_closed + between(arrived, block_key(0, LOWEST), border))
        fresh, bad = self.histogram_layout.cells(sealed)
        last_emitted = LOWEST if advance.emitted_to == BEGINNING else panes.last_closed(advance.emitted_to)
        horizon = None if advance.emitted_to == BEGINNING else panes.first(last_emitted + 1)
        held = GroupHistograms.of(
            self.histogram_layout, [*(run[HISTOGRAMS] for run in runs if HISTOGRAMS in run), fresh], horizon
        )
        state = {}
        if later := between(arrived, border, block_key(0, HIGHEST)):
            state[OPEN] = merge(self.layout, later)
        new = held.at_rest(before, edge, settle=not advance.final)
        if new.num_rows:
            state[HISTOGRAMS] = new
        rejected = [_too_large(self, sealed, bad)] if bad.any() else []
        if held.is_empty:
            return Step(state, None, tuple(rejected))
        last_due, present = panes.last_closed(advance.punctuation), held.extent()
        tables = []
        for columns, windows in _answers(self, held, closing(panes, last_emitted, last_due, present)):
            ends = panes.window_bounds(windows, self.exactly.range)[1]
            table, failed = finish(self.exactly.finish, columns, windows, ends)
            tables.append(table)
            rejected += failed
        last = panes.last_window(present[1])
        results = pa.concat_tables(tables) if tables else None
        return Step(state, results, tuple(rejected), max(0, (last or last_due) - last_due))

    def due_after(self, runs: Sequence[Sections], advance: Advance) -> Instant:
        """When the first open pane closes, or the next window that holds a closed one; never without rows for it."""
        panes, punctuation = self.exactly.panes, advance.punctuation
        if punctuation == BEGINNING:
            return super().due_after(runs, advance)
        next_window = panes.last_closed(punctuation) + 1
        histograms_of_runs = [run[HISTOGRAMS] for run in runs if HISTOGRAMS in run]
        held = GroupHistograms.of(self.histogram_layout, histograms_of_runs, panes.first(next_window))
        due = FOREVER if held.is_empty else panes.end_of(next_window)
        border = block_key(0, panes.of_instant(punctuation))
        pane = extent(between([run[OPEN] for run in runs if OPEN in run], border, block_key(0, HIGHEST)))
        return due if pane is None else min(due, int(panes.starts(np.array([pane[0] + 1]))[0]))

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        """Parts of open panes merged; of closed panes, without cells that newer histograms include and without expired
        panes.
        """
        if section == OPEN:
            return self.exactly.compact(section, tables, advance)
        panes = self.exactly.panes
        has_closed = advance.emitted_to != BEGINNING
        return self.histogram_layout.compact(
            tables, panes.first(panes.last_closed(advance.emitted_to) + 1) if has_closed else None
        )


def _too_large(operator: ApproximateWindows, sealed: pa.Table, bad: np.ndarray) -> Rejected:
    """Sums of one pane that do not fit their type."""
    panes = sealed.column(KEY).to_numpy()[bad] - block_key(0, 0)
    windows = panes // operator.exactly.panes.per_slide + 1
    at = operator.exactly.panes.window_bounds(windows, operator.exactly.range)[1]
    return Rejected(at, np.full(len(at), -1), ("an aggregate does not fit its type",) * len(at))


@dataclass(frozen=True, slots=True)
class _Sums:
    """One measure of all groups as numbers that expire: running totals in the order of group, then pane."""

    sort_keys: Ints
    totals: Ints
    slack: Ints
    span: int
    low: int

    @staticmethod
    def of(held: GroupHistograms, measure: int, low: int, high: int) -> _Sums:
        cells, span = held.cells(measure), high - low + 2
        keys = np.r_[cells.keys[::-1], held.codes]
        order = np.argsort(keys, kind="stable")  # buckets of a group, oldest first, then its cells
        sort_keys = (keys * span + np.r_[cells.times[::-1], held.panes] - low)[order]
        weights = np.r_[cells.weights[::-1], held.values[measure]][order]
        slack = np.r_[cells.slack[::-1], np.zeros(len(held.panes), np.int64)][order]
        return _Sums(sort_keys, np.r_[0, np.cumsum(weights)], np.r_[slack, 0], span, low)

    def between(self, groups: Ints, first: Ints, stop: Ints) -> tuple[Ints, Ints]:
        """Estimates for the panes [first, stop) of groups, and the error bound of each."""
        base = groups * self.span - self.low
        top = self.low + self.span - 1
        start = np.searchsorted(self.sort_keys, base + np.clip(first, self.low, top))
        end = np.searchsorted(self.sort_keys, base + np.clip(stop, self.low, top))
        return self.totals[end] - self.totals[start], np.where(start < end, self.slack[start], 0)


def answer_of(operator: ApproximateWindows, runs: Sequence[Sections], emitted_to: Instant) -> pa.Table | None:
    """The last window that ends at or before `emitted_to`, from state that was advanced up to there; None if no group has a
    row.
    """
    panes = operator.exactly.panes
    window = panes.last_closed(emitted_to)
    held = GroupHistograms.of(
        operator.histogram_layout, [run[HISTOGRAMS] for run in runs if HISTOGRAMS in run], panes.first(window)
    )
    if held.is_empty:
        return None
    ends = panes.window_bounds(np.array([window]), operator.exactly.range)[1]
    tables = [
        finish(operator.exactly.finish, columns, windows, np.full(len(windows), ends[0]))[0]
        for columns, windows in _answers(operator, held, range(window, window + 1))
    ]
    return pa.concat_tables(tables) if tables else None


Answered = tuple[dict[str, pa.Array], Ints]


def _answers(operator: ApproximateWindows, held: GroupHistograms, due: range) -> Iterator[Answered]:
    """Columns and windows of every (window, group) that has a row, a bounded number at a time."""
    panes, (low, high) = operator.exactly.panes, held.extent()
    sums = [_Sums.of(held, measure, low, high) for measure in held.layout.measures]
    step = max(1, _MOST_PAIRS // max(held.groups.count, 1))
    for start in range(due.start, due.stop, step):
        windows = np.arange(start, min(start + step, due.stop))
        window = np.repeat(windows, held.groups.count)
        group_index = np.tile(np.arange(held.groups.count), len(windows))
        stop = panes.per_slide * window
        assert panes.back is not None
        first = panes.per_slide * (window - panes.back) + (1 if panes.cut else 0)
        alive = np.flatnonzero(sums[0].between(group_index, first, stop)[0] > 0)
        if len(alive):
            estimates = [
                measure_sums.between(group_index[alive], first[alive], stop[alive]) for measure_sums in sums
            ]
            yield _columns(operator, held, window[alive], group_index[alive], estimates), window[alive]


def _columns(
    operator: ApproximateWindows,
    held: GroupHistograms,
    windows: Ints,
    group_index: Ints,
    estimates: Sequence[tuple[Ints, Ints]],
) -> dict[str, pa.Array]:
    whole, partial_columns = operator.exactly, operator.layout.partial_columns
    columns = {
        key.name: values.take(pa.array(group_index))
        for key, values in zip(whole.keys, held.groups.keys, strict=True)
    }
    cells = Answer(
        {
            partial_column: as_cells(partial_column, value)
            for partial_column, (value, _) in zip(partial_columns, estimates, strict=True)
        }
    )
    slack = {
        partial_column: pa.array(bound)
        for partial_column, (_, bound) in zip(partial_columns, estimates, strict=True)
    }
    for item in operator.aggregates:
        call = exact(item.call)
        if item.call.part == "bound":
            columns[item.name] = slack[aggregate_calls.measure_of(call)]
        else:
            columns[item.name] = aggregate_calls.lower(call, cells).values
    starts, ends = whole.panes.window_bounds(windows, whole.range)
    columns[f"{whole.window_alias}.window_start"] = pa.array(starts).cast(STAMP)
    columns[f"{whole.window_alias}.window_end"] = pa.array(ends).cast(STAMP)
    columns[f"{whole.window_alias}.window_id"] = pa.array(windows)
    return columns
