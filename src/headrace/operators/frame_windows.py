"""Sessions and `[DELTA d ON x]`: windows that go on until a row begins the next one, with and without aggregates.

Rows wait until punctuation has passed them; they are then cut into windows and folded, so that a window in progress is one
cell a group (without aggregates its rows are kept). State: rows that wait, one head and the open window of each
partition, and what the last closed window of each answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions import Named
from headrace.algebra.window_classes import Context
from headrace.operators.changes import Telling
from headrace.operators.finish import Finish
from headrace.operators.frame_cuts import NUMBER, Cut, Cutter, cut, greatest, newest_heads
from headrace.operators.grouped import Grouped, columns_of_cells, fold, nothing
from headrace.operators.grouping import Ints, compact, flat, group, ints, slots_of
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
from headrace.operators.operator import SLOT, Sections, Step, Turn
from headrace.operators.pane_store import KEY, Layout, gather, merge, reduce_answer, select
from headrace.operators.pane_windows import WindowCells
from headrace.operators.row_operator import RowOperator
from headrace.operators.row_store import ROWS, Held, RowLayout, hold
from headrace.time import FOREVER

_HEADS, _OPEN = "heads", "open"


@dataclass(frozen=True, slots=True)
class FrameWindows(RowOperator):
    """`Finish(Aggregate?(Windowed(Delta | Session)))`; with `telling`, each window against the one before of its partition.

    The first `partitions` stored values are the partition, the next one is what a delta is measured on, if it is one.
    `grouped` reads the stored values that follow, in its order of inputs; None without aggregates.
    """

    id: str
    query: str
    stream: str
    cutter: Cutter
    partitions: int
    bounds_prefix: str
    rows: RowLayout
    grouped: Grouped | None
    finish: Finish
    emit_empty: bool = False
    telling: Telling | None = None
    relations: tuple[str, ...] = ()

    @property
    def context(self) -> Context:
        """The class of its window."""
        return Context.FORWARD_AWARE

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the stored partition values."""
        return self.rows.names[: self.partitions]

    @property
    def by_part(self) -> Grouped:
        """The aggregation with the partition as its first keys."""
        assert self.grouped is not None
        own = zip(self.parts, self.rows.partition, strict=False)
        return Grouped(
            (*(Named(f"__{name}", value) for name, value in own), *self.grouped.keys), self.grouped.aggregates
        )

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], turn: Turn) -> Step:
        """Cut the rows that punctuation passed into windows; answer those that end."""
        limit = FOREVER if turn.final else turn.now
        arrived = hold(self.rows, [delta[ROWS] for delta in deltas if ROWS in delta])
        waiting = hold(self.rows, [run[ROWS] for run in runs if ROWS in run])
        waiting = waiting.where((waiting.at >= turn.closed) & (waiting.at < limit))
        state: dict[str, pa.Table] = {}
        if (later := arrived.where(arrived.at >= limit)).rows:
            state[ROWS] = later.table
        passed = hold(self.rows, [waiting.table, arrived.where(arrived.at < limit).table])
        heads = newest_heads(self.parts, [run[_HEADS] for run in runs if _HEADS in run])
        if heads is not None:
            heads = self.cutter.open_heads(heads, turn.closed)  # what ended, also with its stream, ends once
        if not (passed.rows or (heads is not None and self.cutter.time_ends(heads, limit))):
            return Step(state, open_windows=0 if heads is None else heads.num_rows)
        now = cut(self.parts, self.cutter, passed, heads, turn.closed, limit)
        state |= {_HEADS: now.heads} | self._kept(passed, now.number)
        if not now.ends.count:
            return Step(state, open_windows=now.open)
        chunks = self._rows(now, runs, state) if self.grouped is None else self._groups(now, runs, state)
        shown = Shown(now.first, now.last, now.ids)
        results, rejected = finished(self.finish, self.bounds_prefix, now.ends, shown, chunks)
        state[LAST] = last_of_each(now.ends, results, self._slots)
        if self.telling is not None:
            kept = [run[LAST] for run in runs if LAST in run]
            results = told_apart(now.ends, results, kept, self.telling)
            state[TOLD] = last_of_each(now.ends, results, self._slots)
        return Step(state, results, rejected, now.open)

    def _slots(self, keys: Sequence[pa.Array], rows: int) -> np.ndarray:
        """Where a partition lives: as `RowLayout` routes its rows."""
        return slots_of(keys, rows) if self.partitions else np.full(rows, self.rows.slot, np.int16)

    def _kept(self, passed: Held, number: Ints) -> dict[str, pa.Table]:
        """The rows that were cut, as they are kept: cells by window and group, or rows with their window."""
        live = np.flatnonzero(passed.live)
        if not len(live):
            return {}
        table, number = passed.table.take(pa.array(live)), number[live]
        if self.grouped is None:
            return {_OPEN: table.append_column(NUMBER, pa.array(number))}
        names = [name for name in self.rows.names if name != self.cutter.on]
        kept = {}
        values = [flat(table.column(name)) for name in names]
        for place, cells in enumerate(fold(self.by_part, number, values, self.rows.slot)):
            keys = [flat(cells.column(f"k{part}")) for part in range(self.partitions)]
            slots = pa.array(self._slots(keys, cells.num_rows))
            kept[f"cells{place}"] = cells.set_column(cells.column_names.index(SLOT), SLOT, slots)
        return kept

    # -------------------------------------------------------------------------------------------------- windows that end

    def _rows(self, now: Cut, runs: Sequence[Sections], state: Sections) -> Iterator[Chunk]:
        stored = [table for kept in (*runs, state) if (table := kept.get(_OPEN)) is not None]
        names = list(self.rows.names)
        if not stored:
            empty = self.rows.schema().empty_table()
            yield np.empty(0, np.int64), {name: flat(empty.column(name)) for name in names}, None
            return
        whole = pa.concat_tables(stored)
        keys = [flat(whole.column(name)) for name in self.parts]
        place = _windows_of(now, keys, ints(whole, NUMBER))
        due = np.flatnonzero(place >= 0)
        yield place[due], {name: flat(whole.column(name)).take(pa.array(due)) for name in names}, None

    def _groups(self, now: Cut, runs: Sequence[Sections], state: Sections) -> Iterator[Chunk]:
        grouped = self.by_part
        found = []
        for place, layout in enumerate(grouped.layouts):
            name = f"cells{place}"
            tables = [table for kept in (*runs, state) if (table := kept.get(name)) is not None]
            found.append(_cells(layout, tables, now, self.partitions))
        chunks = [found[0]]
        if self.emit_empty and self.grouped is not None and not self.grouped.keys:
            missing = np.setdiff1d(np.arange(now.ends.count), found[0].windows)
            keys = tuple(key.take(pa.array(missing)) for key in now.ends.keys)
            chunks.append(WindowCells(missing, keys, nothing(grouped.layouts[0].feds, len(missing))))
        for chunk in chunks:
            columns, failed = columns_of_cells(grouped, chunk, [[part] for part in found[1:]])
            yield chunk.windows, columns, failed

    # ------------------------------------------------------------------------------------------------------------- at rest

    def compact(self, section: str, tables: Sequence[pa.Table], turn: Turn) -> pa.Table:
        """Rows that wait, the newest head and the open window of each partition, and its last answer."""
        whole = pa.concat_tables(tables)
        if section == ROWS:
            held = hold(self.rows, tables)
            return held.where(held.at >= turn.closed).table
        if section == _HEADS:
            heads = newest_heads(self.parts, tables)
            assert heads is not None
            return self.cutter.open_heads(heads, turn.closed)
        if section in LASTS:
            return newest(whole, self.partitions)
        if section == _OPEN:
            return whole.filter(pa.array(greatest(whole, self.parts, NUMBER)))
        keys = [f"k{part}" for part in range(self.partitions)]
        layout = self.by_part.layouts[int(section.removeprefix("cells"))]
        merged = merge(layout, tables)
        return merged.filter(pa.array(greatest(merged, keys, KEY)))

    @property
    def keeps_latest(self) -> bool:
        """Its state does."""
        return True

    def latest(self, runs: Sequence[Sections]) -> pa.Table | None:
        """The last window of each partition that has ended: what INVOKE returns. None when there is none."""
        return latest_told(runs, self.telling, self.partitions)


def _windows_of(now: Cut, keys: Sequence[pa.Array], numbers: Ints) -> Ints:
    """The window among those that end of each (partition, number); -1 when it goes on, or ended before."""
    count = now.ends.count
    both = [pa.concat_arrays([own, key]) for own, key in zip(now.ends.keys, keys, strict=True)]
    codes = group([*both, pa.array(np.r_[now.ids, numbers])], count + len(numbers)).codes
    place = np.full(int(codes.max()) + 1, -1, np.int64)
    place[codes[:count]] = np.arange(count)
    return place[codes[count:]]


def _cells(layout: Layout, tables: Sequence[pa.Table], now: Cut, partitions: int) -> WindowCells:
    """The cells of windows that end now; those of partitions that have been silent since are not loaded."""
    numbers = [ints(table, KEY) for table in tables]
    due = np.unique(now.ids)
    kept = [table.filter(pa.array(np.isin(own, due))) for table, own in zip(tables, numbers, strict=True)]
    rows = gather(layout, kept)
    keys = [key.take(pa.array(rows.groups.codes)) for key in rows.groups.keys[:partitions]]
    place = _windows_of(now, keys, rows.blocks)
    due = np.flatnonzero(place >= 0)
    count = max(rows.groups.count, 1)
    combined, there = compact(place[due] * count + rows.groups.codes[due], max(now.ends.count, 1) * count)
    answer = reduce_answer(layout, select(rows.answer, due), combined, len(there))
    windows, member = np.divmod(there, count)
    return WindowCells(windows, tuple(key.take(pa.array(member)) for key in rows.groups.keys), answer)
