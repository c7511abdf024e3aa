"""Operator for sessions and `[DELTA d ON x]`, with and without aggregates: windows of a partition that last until a gap
in time, or until a row is beyond the threshold and begins the next one.

Rows wait until they are below punctuation; they are then cut into windows and folded, so that a window in progress is
one cell per group (without aggregates its rows are stored).
State: waiting rows, one open frame and the open window of each partition, and the answer of the last closed window of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from headrace.algebra.windows.context import Context
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
from headrace.operators.base.due import waiting_settle
from headrace.operators.base.group_codes import Ints, compact, flat, group, ints
from headrace.operators.base.operator import Advance, FamilyStep, Operator, Sections, Step
from headrace.operators.families.cohort import Cohort
from headrace.operators.families.family import number_last
from headrace.operators.row_windows.frame_cuts import NUMBER, Cut, Cutter, cut, latest_open_frames, max_rows
from headrace.operators.row_windows.partitioned_rows import OverPartitions, PartitionedRows
from headrace.operators.row_windows.window_answers import LASTS, Chunk, Shown, newest
from headrace.operators.row_windows.window_bins import Ends
from headrace.operators.rows.row_state import ROWS, TIME, Held, hold
from headrace.time import FOREVER, Instant

_OPEN_FRAMES, _OPEN = "heads", "open"


@dataclass(frozen=True, slots=True)
class FrameWindows(OverPartitions):
    """Windows that `cutter` cuts: each row of a partition is in one. The value of a delta is stored after the partition."""

    spec: PartitionedRows
    cutter: Cutter

    @property
    def shape(self) -> tuple[object, ...]:
        """Frames of one kind in equal partitions, with answers of the same columns."""
        return *self.spec.shape, self.spec.answer_shape, type(self.cutter).__name__, *self.cutter.shape

    @property
    def extent(self) -> int:
        """The gap of sessions."""
        return self.cutter.extent

    def together(self, queries: Sequence[Operator]) -> FrameWindows:
        """One operator for all queries of its family: their number is the first part of a partition."""
        if self.family is None:
            return self
        spec = self.spec.together(queries)
        assert spec.queries is not None
        return replace(self, spec=spec, cutter=self.cutter.together(spec.queries))

    @property
    def context(self) -> Context:
        """The class of its window."""
        return Context.FORWARD_AWARE

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Cut the rows below punctuation into windows; answer those that end."""
        state, frames, count = self.cut(runs, deltas, advance)
        if frames is None:
            return Step(state, open_windows=count)
        results, rejected = self.spec.answered(*self.ended(frames, runs, state), runs, state)
        return Step(state, results, rejected, count)

    def advance_family(
        self, cohort: Cohort, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance
    ) -> FamilyStep:
        """The same for the rows of all queries, whose windows are then finished by query."""
        together = self.together(cohort.queries)
        state, frames, count = together.cut(runs, deltas, advance)
        steps = {query.id: Step() for query in cohort.queries}
        if frames is not None:
            ended = together.ended(frames, runs, state)
            steps = together.spec.answered_by_query(cohort, *ended, runs, state)
        return FamilyStep(state, {name: replace(step, open_windows=count) for name, step in steps.items()})

    def cut(
        self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance
    ) -> tuple[dict[str, pa.Table], Cut | None, int]:
        """New state, the windows that end now, if there are any, and the number of open ones."""
        limit = FOREVER if advance.final else advance.punctuation
        arrived = hold(self.rows, [delta[ROWS] for delta in deltas if ROWS in delta])
        waiting = hold(self.rows, [run[ROWS] for run in runs if ROWS in run])
        waiting = waiting.where((waiting.at >= advance.emitted_to) & (waiting.at < limit))
        state: dict[str, pa.Table] = {}
        if (later := arrived.where(arrived.at >= limit)).rows:
            state[ROWS] = later.table
        due_rows = hold(self.rows, [waiting.table, arrived.where(arrived.at < limit).table])
        open_frames = latest_open_frames(
            self.spec.parts, [run[_OPEN_FRAMES] for run in runs if _OPEN_FRAMES in run]
        )
        if open_frames is not None:
            open_frames = self.cutter.unended_frames(
                open_frames, advance.emitted_to
            )  # a frame ends only once, also with its stream
        if not (due_rows.rows or (open_frames is not None and self.cutter.time_ends(open_frames, limit))):
            return state, None, 0 if open_frames is None else open_frames.num_rows
        frames = cut(self.spec.parts, self.cutter, due_rows, open_frames, advance.emitted_to, limit)
        state |= {_OPEN_FRAMES: number_last(frames.open_frames)} | self._stored(due_rows, frames.number)
        return state, frames if frames.ends.count else None, frames.open

    def ended(
        self, frames: Cut, runs: Sequence[Sections], state: Sections
    ) -> tuple[Ends, Shown, Iterator[Chunk]]:
        """The windows that end now, their shown bounds and their rows or groups."""
        sections = (*runs, dict(state))
        chunks = self.spec.chunks(
            frames.ends, self._rows(frames, sections), partial(self._cells, frames, sections)
        )
        return frames.ends, Shown(frames.first, frames.last, frames.ids), chunks

    def _stored(self, rows: Held, number: Ints) -> dict[str, pa.Table]:
        """The state of the rows that were cut: cells by window and group, or rows with their window."""
        live = np.flatnonzero(rows.live)
        if not len(live):
            return {}
        table, number = rows.table.take(pa.array(live)), number[live]
        if self.spec.grouped is None:
            return {_OPEN: number_last(table.append_column(NUMBER, pa.array(number)))}
        return self.spec.cells(table, number, [name for name in self.rows.names if name != self.cutter.on])

    # -------------------------------------------------------------------------------------------------- windows that end

    def _rows(self, frames: Cut, sections: Sequence[Sections]) -> Iterator[Chunk]:
        stored = [run[_OPEN] for run in sections if _OPEN in run]
        names = list(self.rows.names)
        if not stored:
            empty = self.rows.schema().empty_table()
            yield np.empty(0, np.int64), {name: flat(empty.column(name)) for name in names}, None
            return
        whole = pa.concat_tables(stored)
        keys = [flat(whole.column(name)) for name in self.spec.parts]
        window = _windows_of(frames, keys, ints(whole, NUMBER))
        due = np.flatnonzero(window >= 0)
        yield window[due], {name: flat(whole.column(name)).take(pa.array(due)) for name in names}, None

    def _cells(self, frames: Cut, sections: Sequence[Sections], layout: Layout, store: str) -> WindowCells:
        """The cells of windows that end now; those of partitions without an ending window are not loaded."""
        tables = [run[store] for run in sections if store in run]
        numbers = [ints(table, KEY) for table in tables]
        due = np.unique(frames.ids)
        due_tables = [
            table.filter(pa.array(np.isin(keys, due))) for table, keys in zip(tables, numbers, strict=True)
        ]
        rows = gather(layout, due_tables)
        keys = [key.take(pa.array(rows.groups.codes)) for key in rows.groups.keys[: len(self.spec.parts)]]
        window = _windows_of(frames, keys, rows.blocks)
        due = np.flatnonzero(window >= 0)
        count = max(rows.groups.count, 1)
        combined, there = compact(
            window[due] * count + rows.groups.codes[due], max(frames.ends.count, 1) * count
        )
        answer = reduce_answer(layout, select(rows.answer, due), combined, len(there))
        windows, group_index = np.divmod(there, count)
        return WindowCells(
            windows, tuple(key.take(pa.array(group_index)) for key in rows.groups.keys), answer
        )

    # ------------------------------------------------------------------------------------------------------------- at rest

    def due_after(self, runs: Sequence[Sections], advance: Advance) -> Instant:
        """When the first row that waits is below punctuation, or an open window ends without another row."""
        due = waiting_settle(runs, ROWS, TIME, advance.punctuation)
        open_frames = latest_open_frames(
            self.spec.parts, [run[_OPEN_FRAMES] for run in runs if _OPEN_FRAMES in run]
        )
        return (
            due if open_frames is None else min(due, self.cutter.next_end(open_frames, advance.punctuation))
        )

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        """Rows that wait, the newest open frame and the open window of each partition, and its last answer."""
        whole = pa.concat_tables(tables)
        if section == ROWS:
            held = hold(self.rows, tables)
            return held.where(held.at >= advance.emitted_to).table
        if section == _OPEN_FRAMES:
            open_frames = latest_open_frames(self.spec.parts, tables)
            assert open_frames is not None
            return self.cutter.unended_frames(open_frames, advance.emitted_to)
        if section in LASTS:
            return newest(whole)
        if section == _OPEN:
            return whole.filter(pa.array(max_rows(whole, self.spec.parts, NUMBER)))
        keys = [f"k{part}" for part, _ in enumerate(self.spec.parts)]
        merged = merge(self.spec.layout_of(section), tables)
        return merged.filter(pa.array(max_rows(merged, keys, KEY)))


def _windows_of(frames: Cut, keys: Sequence[pa.Array], numbers: Ints) -> Ints:
    """The window among those that end of each (partition, number); -1 if it is still open, or ended before."""
    count = frames.ends.count
    both = [pa.concat_arrays([ending, key]) for ending, key in zip(frames.ends.keys, keys, strict=True)]
    codes = group([*both, pa.array(np.r_[frames.ids, numbers])], count + len(numbers)).codes
    window = np.full(int(codes.max()) + 1, -1, np.int64)
    window[codes[:count]] = np.arange(count)
    return window[codes[count:]]
