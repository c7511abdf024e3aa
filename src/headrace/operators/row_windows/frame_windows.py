"""Sessions and `[DELTA d ON x]`: windows that go on until a row begins the next one, with and without aggregates.

Rows wait until punctuation has passed them; they are then cut into windows and folded, so that a window in progress is one
cell a group (without aggregates its rows are kept). State: rows that wait, one head and the open window of each
partition, and what the last closed window of each answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from headrace.algebra.windows.context import Context
from headrace.operators.aggregates.cell_table import (
    KEY,
    Layout,
    WindowCells,
    gather,
    merge,
    reduce_answer,
    select,
)
from headrace.operators.base.group_codes import Ints, compact, flat, group, ints
from headrace.operators.base.operator import Advance, Sections, Step
from headrace.operators.row_windows.frame_cuts import NUMBER, Cut, Cutter, cut, latest_open_frames, max_rows
from headrace.operators.row_windows.last_window import LASTS, Chunk, Shown, newest
from headrace.operators.row_windows.partitioned_rows import OverPartitions, PartitionedRows
from headrace.operators.rows.row_state import ROWS, Held, hold
from headrace.time import FOREVER

_OPEN_FRAMES, _OPEN = "heads", "open"


@dataclass(frozen=True, slots=True)
class FrameWindows(OverPartitions):
    """Windows that `cutter` cuts: each row of a partition is in one. What a delta is measured on is stored after the partition."""

    spec: PartitionedRows
    cutter: Cutter

    @property
    def context(self) -> Context:
        """The class of its window."""
        return Context.FORWARD_AWARE

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Cut the rows that punctuation passed into windows; answer those that end."""
        limit = FOREVER if advance.final else advance.punctuation
        arrived = hold(self.rows, [delta[ROWS] for delta in deltas if ROWS in delta])
        waiting = hold(self.rows, [run[ROWS] for run in runs if ROWS in run])
        waiting = waiting.where((waiting.at >= advance.emitted_to) & (waiting.at < limit))
        state: dict[str, pa.Table] = {}
        if (later := arrived.where(arrived.at >= limit)).rows:
            state[ROWS] = later.table
        passed = hold(self.rows, [waiting.table, arrived.where(arrived.at < limit).table])
        heads = latest_open_frames(
            self.spec.parts, [run[_OPEN_FRAMES] for run in runs if _OPEN_FRAMES in run]
        )
        if heads is not None:
            heads = self.cutter.unended_frames(
                heads, advance.emitted_to
            )  # what ended, also with its stream, ends once
        if not (passed.rows or (heads is not None and self.cutter.time_ends(heads, limit))):
            return Step(state, open_windows=0 if heads is None else heads.num_rows)
        now = cut(self.spec.parts, self.cutter, passed, heads, advance.emitted_to, limit)
        state |= {_OPEN_FRAMES: now.open_frames} | self._stored(passed, now.number)
        if not now.ends.count:
            return Step(state, open_windows=now.open)
        kept = (*runs, state)
        chunks = self.spec.chunks(now.ends, self._rows(now, kept), partial(self._cells, now, kept))
        shown = Shown(now.first, now.last, now.ids)
        results, rejected = self.spec.answered(now.ends, shown, chunks, runs, state)
        return Step(state, results, rejected, now.open)

    def _stored(self, passed: Held, number: Ints) -> dict[str, pa.Table]:
        """The rows that were cut, as they are kept: cells by window and group, or rows with their window."""
        live = np.flatnonzero(passed.live)
        if not len(live):
            return {}
        table, number = passed.table.take(pa.array(live)), number[live]
        if self.spec.grouped is None:
            return {_OPEN: table.append_column(NUMBER, pa.array(number))}
        return self.spec.cells(table, number, [name for name in self.rows.names if name != self.cutter.on])

    # -------------------------------------------------------------------------------------------------- windows that end

    def _rows(self, now: Cut, kept: Sequence[Sections]) -> Iterator[Chunk]:
        stored = [run[_OPEN] for run in kept if _OPEN in run]
        names = list(self.rows.names)
        if not stored:
            empty = self.rows.schema().empty_table()
            yield np.empty(0, np.int64), {name: flat(empty.column(name)) for name in names}, None
            return
        whole = pa.concat_tables(stored)
        keys = [flat(whole.column(name)) for name in self.spec.parts]
        place = _windows_of(now, keys, ints(whole, NUMBER))
        due = np.flatnonzero(place >= 0)
        yield place[due], {name: flat(whole.column(name)).take(pa.array(due)) for name in names}, None

    def _cells(self, now: Cut, kept: Sequence[Sections], layout: Layout, store: str) -> WindowCells:
        """The cells of windows that end now; those of partitions that have been silent since are not loaded."""
        tables = [run[store] for run in kept if store in run]
        numbers = [ints(table, KEY) for table in tables]
        due = np.unique(now.ids)
        own = [
            table.filter(pa.array(np.isin(keys, due))) for table, keys in zip(tables, numbers, strict=True)
        ]
        rows = gather(layout, own)
        keys = [key.take(pa.array(rows.groups.codes)) for key in rows.groups.keys[: self.spec.partitions]]
        place = _windows_of(now, keys, rows.blocks)
        due = np.flatnonzero(place >= 0)
        count = max(rows.groups.count, 1)
        combined, there = compact(place[due] * count + rows.groups.codes[due], max(now.ends.count, 1) * count)
        answer = reduce_answer(layout, select(rows.answer, due), combined, len(there))
        windows, member = np.divmod(there, count)
        return WindowCells(windows, tuple(key.take(pa.array(member)) for key in rows.groups.keys), answer)

    # ------------------------------------------------------------------------------------------------------------- at rest

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        """Rows that wait, the newest head and the open window of each partition, and its last answer."""
        whole = pa.concat_tables(tables)
        if section == ROWS:
            held = hold(self.rows, tables)
            return held.where(held.at >= advance.emitted_to).table
        if section == _OPEN_FRAMES:
            heads = latest_open_frames(self.spec.parts, tables)
            assert heads is not None
            return self.cutter.unended_frames(heads, advance.emitted_to)
        if section in LASTS:
            return newest(whole, self.spec.partitions)
        if section == _OPEN:
            return whole.filter(pa.array(max_rows(whole, self.spec.parts, NUMBER)))
        keys = [f"k{part}" for part in range(self.spec.partitions)]
        merged = merge(self.spec.layout_of(section), tables)
        return merged.filter(pa.array(max_rows(merged, keys, KEY)))


def _windows_of(now: Cut, keys: Sequence[pa.Array], numbers: Ints) -> Ints:
    """The window among those that end of each (partition, number); -1 when it goes on, or ended before."""
    count = now.ends.count
    both = [pa.concat_arrays([own, key]) for own, key in zip(now.ends.keys, keys, strict=True)]
    codes = group([*both, pa.array(np.r_[now.ids, numbers])], count + len(numbers)).codes
    place = np.full(int(codes.max()) + 1, -1, np.int64)
    place[codes[:count]] = np.arange(count)
    return place[codes[count:]]
