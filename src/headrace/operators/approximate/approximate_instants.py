"""Operator for approximate counts and sums at every instant, within an error bound: `[RANGE d]` without a slide, where
a group's many counts below punctuation are merged into exponential histograms.

A histogram is equivalent to a few counts that expire one by one (`Histograms.cells`), with the same error bound. So the
exact operator answers, over these counts instead of rows. Rows at or above punctuation stay exact.

When the error of histograms changes, the next visit writes each of them again, with its answer: a row that was emitted with a small bound does
not hold until the next expiry of a bucket that has become larger.
Source: as `synopses/exponential_histogram`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.aggregates.aggregate_calls import Answer
from headrace.operators.aggregates.cell_table import KEY, SLOT, Layout, merge
from headrace.operators.approximate.histogram_store import GroupHistograms, HistogramLayout, as_cells
from headrace.operators.base.batch import Rejected
from headrace.operators.base.group_codes import Ints, flat, ints
from headrace.operators.base.operator import Advance, Sections, Step
from headrace.operators.base.wrapper import Around
from headrace.operators.output.display import MANY, histogram_bytes, histograms, keys, steps_up
from headrace.operators.panes.pane_keys import block_key
from headrace.operators.panes.panes import LOWEST
from headrace.operators.panes.subwindows import Subwindows
from headrace.operators.partials.encoding import PartialColumn
from headrace.operators.relations.instant_aggregate import InstantAggregate
from headrace.operators.relations.instant_rows import span_of
from headrace.operators.relations.instant_subwindow import CELLS
from headrace.operators.rows.row_pipeline import RowStep
from headrace.synopses.histograms.canonical_form import Form
from headrace.time import BEGINNING, Duration, Instant, render_duration

OPEN: Final = f"{CELLS}0"
HISTOGRAMS: Final = "thinned"


@dataclass(frozen=True, slots=True)
class ApproximateInstants(Around):
    """`Finish(Aggregate(Windowed(TimeRange)))` of one query, all aggregates approximate.

    `exactly` answers; `forms` is the histogram form of each of its partials, None for those that hold error bounds;
    `bounds` maps each of these to the partial that it bounds; `doubled` is how often the errors are doubled, None if they may not be.
    """

    exactly: InstantAggregate
    forms: tuple[Form | None, ...]
    bounds: Mapping[PartialColumn, PartialColumn]
    doubled: int | None = None

    @property
    def inner(self) -> InstantAggregate:
        """The operator that reads the stream."""
        return self.exactly

    @property
    def row_steps(self) -> tuple[RowStep, ...]:
        """The steps applied to rows before they are counted."""
        return self.exactly.row_steps

    @property
    def subwindows(self) -> Subwindows | None:
        """Those of the exact operator: the histograms hold every shorter range."""
        return self.exactly.subwindows

    def answer_subwindow(
        self, length: Duration, runs: Sequence[Sections], emitted_to: Instant, now: Instant
    ) -> pa.Table | None:
        """R(now) of the last `length`, within the same bound."""
        return self.exactly.answer_subwindow(
            length, self.cells_since(runs, emitted_to, now - length), emitted_to, now
        )

    def display(self) -> Iterator[str]:
        """Its range, its histograms, its groups."""
        length = self.exactly.validity.length
        assert length is not None
        yield f"a relation at every instant, of the last {render_duration(length - 1)}"
        in_histograms = (
            (partial_column, form)
            for partial_column, form in zip(self.layout.partial_columns, self.forms, strict=True)
            if form is not None
        )
        yield from histograms(in_histograms, f"every instant with a row: up to {16 * MANY:,}")
        where = "by group" if self.exactly.rows.routing is not None else "to one slot"
        yield f"group by {keys(self.exactly.grouped.keys)} (routed {where})"
        yield from steps_up(self.row_steps)

    @property
    def synopsis_bytes(self) -> Mapping[str, int]:
        """Of each histogram, once per group."""
        measured = self.histogram_layout
        return histogram_bytes(measured.layout.partial_columns, measured.forms_of(self.doubled or 0))

    @property
    def layout(self) -> Layout:
        """Cells of single instants."""
        return self.exactly.grouped.layouts[0]

    @property
    def histogram_layout(self) -> HistogramLayout:
        """Cells and histograms of settled instants, without the partials that hold bounds."""
        in_histograms = [
            (partial_column, form)
            for partial_column, form in zip(self.layout.partial_columns, self.forms, strict=True)
            if form
        ]
        layout = Layout(self.layout.keys, tuple(partial_column for partial_column, _ in in_histograms))
        return HistogramLayout(layout, tuple(form for _, form in in_histograms), self.doubled)

    def coarser(self, doubled: int) -> ApproximateInstants:
        """The operator whose histograms have their errors doubled so often."""
        return self if self.doubled is None else replace(self, doubled=doubled)

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Emit what changes at the instants below punctuation; convert long lists of cells to histograms."""
        span = span_of(advance, self.exactly.emit_mode)
        if span.limit <= span.emitted_to:
            return self.exactly.advance(runs, deltas, advance)
        arrived = [delta[OPEN] for delta in deltas if OPEN in delta]
        waiting = [_since(run[OPEN], span.emitted_to) for run in runs if OPEN in run]
        settled = merge(self.layout, [_below(table, span.limit) for table in (*waiting, *arrived)])
        fresh, bad = self.histogram_layout.cells(self._to_histogram_cells(settled))
        has_emitted = span.emitted_to != BEGINNING
        older = [run[HISTOGRAMS] for run in runs if HISTOGRAMS in run]
        held = GroupHistograms.of(
            self.histogram_layout, [*older, fresh], self._horizon(span.emitted_to) if has_emitted else None
        )
        others = [
            {name: table for name, table in run.items() if name not in (OPEN, HISTOGRAMS)} for run in runs
        ]
        other_deltas = [{name: table for name, table in delta.items() if name != OPEN} for delta in deltas]
        changed_at = span.emitted_to if has_emitted else None
        step = self.exactly.advance([{OPEN: self._cells(held, changed_at)}, *others], other_deltas, advance)
        state = dict(step.state)
        later = [_since(table, span.limit) for table in arrived]
        if sum(table.num_rows for table in later):
            state[OPEN] = merge(self.layout, later)
        fresh_from = span.emitted_to if has_emitted else LOWEST
        new = held.at_rest(fresh_from, span.limit, settle=not advance.final, refit=True)
        if new.num_rows:
            state[HISTOGRAMS] = new
        rejected = [*step.rejected, *([_too_large(settled, bad)] if bad.any() else [])]
        return Step(state, step.results, tuple(rejected), step.open_windows)

    def due_after(self, runs: Sequence[Sections], advance: Advance) -> Instant:
        """When the first of the counts begins to hold or expires that the histograms are equivalent to."""
        start = max(advance.punctuation, BEGINNING + self._length) - self._length
        return self.exactly.due_after(self.cells_since(runs, advance.punctuation, start), advance)

    def cells_since(self, runs: Sequence[Sections], emitted_to: Instant, start: Instant) -> list[Sections]:
        """State from `start` on, as the exact operator's state: histograms below `emitted_to`, exact cells from there on."""
        histograms = [run[HISTOGRAMS] for run in runs if HISTOGRAMS in run]
        held = GroupHistograms.of(self.histogram_layout, histograms, None if start < LOWEST else start)
        waiting = [_since(run[OPEN], emitted_to) for run in runs if OPEN in run]
        others = [
            {name: table for name, table in run.items() if name not in (OPEN, HISTOGRAMS)} for run in runs
        ]
        return [{OPEN: merge(self.layout, [self._cells(held), *waiting])}, *others]

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        """Without cells that newer histograms include, and without what has left every window."""
        if section == HISTOGRAMS:
            horizon = None if advance.emitted_to == BEGINNING else self._horizon(advance.emitted_to)
            return self.histogram_layout.compact(tables, horizon, fit=False)
        if section == OPEN:
            return merge(self.layout, [_since(table, advance.emitted_to) for table in tables])
        return self.exactly.compact(section, tables, advance)

    def _to_histogram_cells(self, settled: pa.Table) -> pa.Table:
        """Cells without the partials of bounds; each instant is a pane of its own."""
        full, thin = self.layout, self.histogram_layout.layout
        names = {KEY: KEY, SLOT: SLOT} | {name: name for name in full.key_names}
        for index, partial_column in enumerate(thin.partial_columns):
            names |= dict(
                zip(
                    full.cell_names(full.partial_columns.index(partial_column)),
                    thin.cell_names(index),
                    strict=True,
                )
            )
        chosen = settled.select(list(names)).rename_columns(list(names.values()))
        return chosen.set_column(0, KEY, pa.array(ints(settled, KEY) + block_key(0, 0)))

    def _horizon(self, emitted_to: Instant) -> Instant:
        """The earliest instant whose rows are in the window at `emitted_to`, or leave it then."""
        return emitted_to - self._length

    @property
    def _length(self) -> Duration:
        length = self.exactly.validity.length
        assert length is not None
        return length

    def _cells(self, held: GroupHistograms, changed_at: Instant | None = None) -> pa.Table:
        """Everything held, as counts at instants; those of bounds next to the counts they bound. Groups whose histogram gets another error
        have a count of nothing at `changed_at`, at which they are answered again.
        """
        thin = self.histogram_layout.layout.partial_columns
        parts = [(held.codes, held.panes, dict(zip(thin, held.values, strict=True)))]
        if changed_at is not None and len(held.of_others):
            parts.append((held.of_others, np.full(len(held.of_others), changed_at), {}))
        bound_of = {partial_column: bound for bound, partial_column in self.bounds.items()}
        for measure, partial_column in enumerate(thin):
            cells = held.cells(measure)
            numbers = {partial_column: cells.weights}
            if partial_column in bound_of:
                numbers[bound_of[partial_column]] = cells.slack - cells.slack_of_newer()
            parts.append((cells.keys, cells.times, numbers))
        codes = np.concatenate([part[0] for part in parts])
        times = np.concatenate([part[1] for part in parts])
        columns = {
            partial_column: as_cells(
                partial_column,
                np.concatenate([_or_zeros(part[2].get(partial_column), len(part[0])) for part in parts]),
            )
            for partial_column in self.layout.partial_columns
        }
        keys = [flat(key).take(pa.array(codes)) for key in held.groups.keys]
        return merge(self.layout, [self.layout.table(times, keys, held.slots[codes], Answer(columns))])


def _or_zeros(values: Ints | None, count: int) -> Ints:
    return np.zeros(count, np.int64) if values is None else values


def _since(table: pa.Table, instant: Instant) -> pa.Table:
    return table.filter(pa.array(ints(table, KEY) >= instant))


def _below(table: pa.Table, instant: Instant) -> pa.Table:
    return table.filter(pa.array(ints(table, KEY) < instant))


def _too_large(settled: pa.Table, bad: np.ndarray) -> Rejected:
    """Sums of one instant that do not fit their type."""
    at = ints(settled, KEY)[bad]
    return Rejected(at, np.full(len(at), -1), ("an aggregate does not fit its type",) * len(at))
