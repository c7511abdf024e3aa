"""`[RANGE r SLIDE n ROWS]`: windows that end at rows, so that which ones a row is in depends on rows still to come.

Rows are folded into cells by (partition, group, instant) when they come, in whatever order, and are not looked at again
(without aggregates they are kept). When punctuation has passed it, a row's number says whether a window ends there;
`bins` then gives every window's aggregate at once. State: the cells of the last range and of what punctuation has not
passed, where windows may still end, a count per partition, and what the last window of each partition answered.
Source: Li 2008, section 6.2.3 (forward-context aware windows).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions import Named
from headrace.algebra.window_classes import Context
from headrace.algebra.windows import Numbering
from headrace.operators.bins import Ends, bins_of, cells_of, places_of
from headrace.operators.changes import Telling
from headrace.operators.finish import Finish
from headrace.operators.grouped import Grouped, columns_of_cells, fold, nothing
from headrace.operators.grouping import Ints, flat, ints, slots_of
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
from headrace.operators.pane_store import KEY, merge
from headrace.operators.pane_windows import WindowCells
from headrace.operators.row_numbers import COUNTS, MARKS, Numbers, added, ends_among
from headrace.operators.row_operator import RowOperator
from headrace.operators.row_store import ROWS, TIME, Held, RowLayout, hold
from headrace.operators.window_rows import repeated
from headrace.time import BEGINNING, FOREVER, Duration, Instant


@dataclass(frozen=True, slots=True)
class TupleSlides(RowOperator):
    """`Finish(Aggregate?(Windowed(TupleSlide)))`; with `telling`, each window against the one before of its partition.

    The first `partitions` stored values are the partition. `grouped` reads the stored values that follow, in its order of
    inputs; None without aggregates.
    """

    id: str
    query: str
    stream: str
    range: Duration
    every: int
    numbered: Numbering
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
        own = (Named(f"__{name}", value) for name, value in zip(self.parts, self.rows.partition, strict=True))
        return Grouped((*own, *self.grouped.keys), self.grouped.aggregates)

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], turn: Turn) -> Step:
        """Fold what came; answer the windows that end at rows which punctuation passed."""
        limit = FOREVER if turn.final else turn.now
        arrived = hold(self.rows, [delta[ROWS] for delta in deltas if ROWS in delta])
        state, ends = ends_among(self._numbers, arrived.table, runs, (turn.closed, limit))
        state |= self._kept(arrived)
        if not ends.count:
            return Step(state)
        chunks = self._rows(ends, runs, state) if self.grouped is None else self._groups(ends, runs, state)
        shown = Shown(ends.at - self.range, ends.at, ends.at)
        results, rejected = finished(self.finish, self.bounds_prefix, ends, shown, chunks)
        state[LAST] = last_of_each(ends, results, self._slots)
        if self.telling is not None:
            results = told_apart(ends, results, [run[LAST] for run in runs if LAST in run], self.telling)
            state[TOLD] = last_of_each(ends, results, self._slots)
        return Step(state, results, rejected)

    @property
    def _numbers(self) -> Numbers:
        return Numbers(self.parts, self.every, self.numbered)

    def _slots(self, keys: Sequence[pa.Array], rows: int) -> np.ndarray:
        """Where a partition lives: as `RowLayout` routes its rows."""
        return slots_of(keys, rows) if self.partitions else np.full(rows, self.rows.slot, np.int16)

    def _kept(self, arrived: Held) -> dict[str, pa.Table]:
        """What came, as it is kept: cells a store, or rows."""
        live = arrived.where(arrived.live)
        if not live.rows:
            return {}
        if self.grouped is None:
            return {ROWS: live.table}
        values = [live.column(name) for name in self.rows.names]
        kept = {}
        for place, table in enumerate(fold(self.by_part, live.at, values, self.rows.slot)):
            keys = [flat(table.column(f"k{part}")) for part in range(self.partitions)]
            slots = pa.array(self._slots(keys, table.num_rows))
            kept[_store(place)] = table.set_column(table.column_names.index(SLOT), SLOT, slots)
        return kept

    # -------------------------------------------------------------------------------------------------- windows that end

    def _rows(self, ends: Ends, runs: Sequence[Sections], state: Sections) -> Iterator[Chunk]:
        """Rows in their windows."""
        held = hold(self.rows, _reaching(self, ROWS, TIME, ends, runs, state))
        low, high = places_of(ends, [held.column(name) for name in self.parts], held.at, self.range)
        inside = np.flatnonzero(low < high)
        yield np.empty(0, np.int64), self._columns(held, inside[:0]), None
        for row, place in repeated(low[inside], high[inside] - 1):
            yield place, self._columns(held, inside[row]), None

    def _columns(self, held: Held, rows: Ints) -> dict[str, pa.Array]:
        picked = pa.array(rows)
        return {name: held.column(name).take(picked) for name in self.rows.names}

    def _groups(self, ends: Ends, runs: Sequence[Sections], state: Sections) -> Iterator[Chunk]:
        """Aggregated windows."""
        grouped = self.by_part
        found = []
        for place, layout in enumerate(grouped.layouts):
            tables = _reaching(self, _store(place), KEY, ends, runs, state)
            found.append(cells_of(bins_of(layout, tables, ends, self.range, self.partitions)))
        chunks = [found[0]]
        if self.emit_empty and self.grouped is not None and not self.grouped.keys:
            missing = np.setdiff1d(np.arange(ends.count), found[0].windows)
            keys = tuple(key.take(pa.array(missing)) for key in ends.keys)
            chunks.append(WindowCells(missing, keys, nothing(grouped.layouts[0].feds, len(missing))))
        for chunk in chunks:
            columns, failed = columns_of_cells(grouped, chunk, [[part] for part in found[1:]])
            yield chunk.windows, columns, failed

    # ------------------------------------------------------------------------------------------------------------- at rest

    def compact(self, section: str, tables: Sequence[pa.Table], turn: Turn) -> pa.Table:
        """Cells (or rows) of windows to come, marks that punctuation has not passed, one count a partition."""
        if section == COUNTS:
            return added(self._numbers, tables)
        if section in LASTS:
            return newest(pa.concat_tables(tables), self.partitions)
        if section == MARKS:
            return _above(
                pa.concat_tables(tables), TIME, turn.closed - 1 if turn.closed > BEGINNING else BEGINNING
            )
        if section != ROWS:
            layout = self.by_part.layouts[int(section.removeprefix("cells"))]
            return _above(merge(layout, tables), KEY, _reach(turn.closed, self.range))
        return _above(pa.concat_tables(tables), TIME, _reach(turn.closed, self.range))

    @property
    def keeps_latest(self) -> bool:
        """Its state does."""
        return True

    def latest(self, runs: Sequence[Sections]) -> pa.Table | None:
        """The last window of each partition: what INVOKE returns. None when no window has closed."""
        return latest_told(runs, self.telling, self.partitions)


def _store(place: int) -> str:
    return f"cells{place}"


def _reach(at: Instant, length: Duration) -> Instant:
    """Rows after this instant are in windows that end at `at` or later."""
    return BEGINNING if at < BEGINNING + length else at - length


def _above(table: pa.Table, name: str, bound: Instant) -> pa.Table:
    if bound == BEGINNING:
        return table
    return table.filter(pa.array(ints(table, name) > bound))


def _reaching(
    operator: TupleSlides, section: str, name: str, ends: Ends, runs: Sequence[Sections], state: Sections
) -> list[pa.Table]:
    """The stored rows that a window which ends now may hold."""
    tables = [table for kept in (*runs, state) if (table := kept.get(section)) is not None]
    low, high = _reach(int(ends.at.min()), operator.range), int(ends.at.max())
    found = []
    for table in tables:
        at = ints(table, name)
        found.append(table.filter(pa.array((at > low) & (at <= high))))
    return found
