"""Operator for time windows with two implementations, exact aggregates and sketches, of which each epoch's rows go to one: windows
that hold a sketched row are answered from sketches, with their bounds, and all others exactly.

Exact panes stay as they are. For a window that holds both, its exact panes are converted into sketches when they are closed, each pane
once, and stored: so the way back to exact answers loses nothing, and is over when no window holds a sketched row any more. Source: Aurora
(Carney et al. 2002), groups of boxes with alternative implementations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.aggregates.cell_table import KEY, Layout, merge
from headrace.operators.aggregates.group_by import columns_of_cells
from headrace.operators.aggregates.sketched_cells import sketched
from headrace.operators.base.batch import Batch, Rejected
from headrace.operators.base.group_codes import flat, ints
from headrace.operators.base.operator import (
    SLOT,
    Advance,
    EmittedCounts,
    Scanner,
    Sections,
    Step,
)
from headrace.operators.base.wrapper import Around
from headrace.operators.output.output_stage import finish
from headrace.operators.panes.closed_panes import ClosedPanes
from headrace.operators.panes.emission_limit import EmissionCap
from headrace.operators.panes.pane_keys import between, block_key, extent
from headrace.operators.panes.pane_sealing import Sealed
from headrace.operators.panes.panes import HIGHEST, LOWEST, Panes
from headrace.operators.time_windows.divided_scanner import OPEN_PANES, DividedScanner
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.operators.window_assembly.assemble import closing, windows
from headrace.operators.window_assembly.window_closing import (
    Chunk,
    bounds_of,
    chunks_of,
    count_open_windows,
    opened_panes,
)
from headrace.time import BEGINNING, FOREVER, Instant

IS_SKETCHED: Final = "__sketched"
"""The column of a batch's rows that are to be sketched: true or false."""
SKETCHED: Final = "sketched"
CONVERTED: Final = "converted"
SPAN: Final = "converted span"
"""The exact panes that were converted: one row, their first one and the one after the last."""
_FIRST, _AFTER = "__first", "__after"
_OWN: Final = (SKETCHED, CONVERTED, SPAN)


@dataclass(frozen=True, slots=True)
class Alternatives(Around):
    """The windows of `inner`, or of `sketching`, whose one store has sketches; both have the same panes, groups and answers."""

    inner: PaneAggregate
    sketching: PaneAggregate
    slot: int

    @property
    def panes(self) -> Panes:
        """Those of both operators."""
        return self.inner.panes

    @property
    def layout(self) -> Layout:
        """Of sketches."""
        return self.sketching.layouts[0]

    @property
    def columns(self) -> frozenset[str]:
        """Those of both operators."""
        return self.inner.columns | self.sketching.columns

    @property
    def emission_windows(self) -> Panes:
        """Those of both operators."""
        return self.panes

    @property
    def synopsis_bytes(self) -> Mapping[str, int]:
        """Of the sketches."""
        return self.sketching.synopsis_bytes

    def scanner(self, relations: Mapping[str, pa.Table]) -> Scanner:
        """Folds rows by one implementation or the other."""
        scanners = self.inner.scanner(relations), self.sketching.scanner(relations)
        return DividedScanner(*scanners, SKETCHED, _are_sketched)

    def emission_limit(
        self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance, cap: EmissionCap
    ) -> Instant | None:
        """That of the inner operator over rows of both."""
        exact, sketches = [_of_inner(run) for run in runs], _tables(SKETCHED, (*runs, *deltas))
        over: list[Sections] = [{OPEN_PANES: table} for table in sketches]
        return self.inner.emission_limit(
            [*exact, *over], [_of_inner(delta) for delta in deltas], advance, cap
        )

    def due_after(self, runs: Sequence[Sections], advance: Advance) -> Instant:
        """That of the inner operator; the next punctuation while a window holds sketched rows."""
        due = self.inner.due_after([_of_inner(run) for run in runs], advance)
        held = self._live(_tables(SKETCHED, runs), advance.punctuation)
        return min(due, advance.punctuation + 1, FOREVER) if held else due

    def display(self) -> Iterator[str]:
        """The alternatives, then the inner operator's lines."""
        yield "exact while there is time; in an overload rows are aggregated into sketches, and windows that hold such rows have their bounds"
        yield from self.inner.display()

    @property
    def state_label(self) -> str:
        """Both."""
        return f"{self.inner.state_label}, or sketches of panes"

    def advance(self, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance) -> Step:
        """Answer the windows that closed: from sketches those that hold a sketched row."""
        exact = [_of_inner(run) for run in runs], [_of_inner(delta) for delta in deltas]
        arrived = _tables(SKETCHED, deltas)
        sketches = self._live([*_tables(SKETCHED, runs), *arrived], advance.emission_start)
        if not sketches:
            return self.inner.advance(*exact, advance)
        stores = [
            self.inner.store.seal(layout, number, *exact, advance)
            for number, layout in enumerate(self.inner.layouts)
        ]
        state: dict[str, pa.Table] = {
            name: table for store in stores for name, table in store.sections.items()
        }
        if arrived:
            state[SKETCHED] = merge(self.layout, arrived)
        parts = [extent(stores[0].closed.panes), extent(sketches)]
        ends = [part for part in parts if part is not None]
        present = min(first for first, _ in ends), max(last for _, last in ends)
        opened = opened_panes((*exact[0], *exact[1])) + sketches
        open_windows = count_open_windows(self.inner, present, opened, advance.punctuation)
        if advance.punctuation == BEGINNING:
            return Step(state, open_windows=open_windows)
        emitted = (
            LOWEST if advance.emission_start == BEGINNING else self.panes.last_closed(advance.emission_start)
        )
        due = closing(self.panes, emitted, self.panes.last_closed(advance.punctuation), present)
        edge = HIGHEST if advance.final else self.panes.of_instant(advance.punctuation)
        closed, converted = self._converted(runs, stores, sketches, edge, is_end=advance.final)
        chunks = self._chunks(stores, closed, self._holding(sketches, due), due)
        return self._finished(chunks, {**state, **converted}, open_windows)

    def _live(self, tables: Sequence[pa.Table], emitted: Instant) -> list[pa.Table]:
        """The rows of panes that a window ending after an instant holds."""
        panes = between(tables, block_key(0, LOWEST), block_key(0, HIGHEST))
        return [table for table in self.sketching.store.live(panes, emitted) if table.num_rows]

    def _holding(self, sketches: Sequence[pa.Table], due: range) -> list[range]:
        """Those of the windows that hold a sketched row, as ranges in ascending order."""
        panes = np.unique(np.concatenate([ints(table, KEY) for table in sketches])) - block_key(0, 0)
        holding = self.panes.holding(panes, due.stop - 1) if due else ()
        parts = (range(max(part.start, due.start), part.stop) for part in holding)
        return [part for part in parts if part]

    def _converted(
        self,
        runs: Sequence[Sections],
        stores: Sequence[Sealed],
        sketches: Sequence[pa.Table],
        edge: int,
        *,
        is_end: bool,
    ) -> tuple[list[pa.Table], dict[str, pa.Table]]:
        """All closed panes of windows that hold a sketched row, as sketches; and what of it is stored.

        Panes from the first of these windows on are converted as they close, those converted before are read. Later rows are of the
        pane `edge` or after it, so the first of these windows never becomes an earlier one.
        """
        held = extent(sketches)
        assert held is not None
        first = self.panes.first(self.panes.first_window(min(held[0], edge)))
        assert first is not None
        known = _span(_tables(SPAN, runs))
        low, begin = known if known is not None and known[0] <= first <= known[1] else (first, first)
        closed = between(sketches, block_key(0, LOWEST), block_key(0, edge))
        closed += between(_tables(CONVERTED, runs), block_key(0, first), block_key(0, begin))
        if edge <= begin:
            return closed, {}
        bounds = block_key(0, begin), block_key(0, edge)
        new = sketched(
            self.inner.grouped, self.layout, [between(store.closed.panes, *bounds) for store in stores]
        )
        state = {SPAN: _span_table(low, edge, self.slot)}
        if new.num_rows:
            closed.append(new)
            state[CONVERTED] = new
        return closed, {} if is_end else state

    def _chunks(
        self, stores: Sequence[Sealed], closed: Sequence[pa.Table], holding: Sequence[range], due: range
    ) -> Iterator[tuple[PaneAggregate, Chunk]]:
        """The windows in ascending order, each with the implementation that answers it."""
        start = due.start
        sketched_panes = ClosedPanes([merge(self.layout, closed)]) if closed else None
        for part in (*holding, range(due.stop, due.stop)):
            if start < part.start:
                exact = chunks_of(self.inner, stores, range(start, part.start))
                yield from ((self.inner, chunk) for chunk in exact)
            if part and sketched_panes is not None:
                yield from ((self.sketching, chunk) for chunk in self._sketched_chunks(sketched_panes, part))
            start = part.stop

    def _sketched_chunks(self, closed: ClosedPanes, due: range) -> Iterator[Chunk]:
        """Windows from sketches of panes, without blocks of them: a flood does not last for many windows."""
        operator = self.sketching
        for cells in windows(self.layout, self.panes, closed, due, 0):
            columns, failed = columns_of_cells(operator.grouped, cells, [])
            bounds, ends = bounds_of(self.panes, operator.range, operator.window_alias, cells.windows)
            held = int(cells.answer.cells[self.layout.partial_columns[0]][0].sum())
            yield Chunk({**columns, **bounds}, cells.windows, ends, failed, held)

    def _finished(
        self, chunks: Iterator[tuple[PaneAggregate, Chunk]], state: Sections, open_windows: int
    ) -> Step:
        tables: list[pa.Table] = []
        rejected: list[Rejected] = []
        counts = EmittedCounts()
        for operator, chunk in chunks:
            counts = counts.plus(len(chunk.windows), chunk.held)
            table, bad = finish(operator.finish, chunk.columns, chunk.windows, chunk.ends, chunk.failed)
            tables.append(table)
            rejected += bad
        results = pa.concat_tables(tables) if tables else None
        return Step(state, results, tuple(rejected), open_windows, emitted_counts=counts)

    def compact(self, section: str, tables: Sequence[pa.Table], advance: Advance) -> pa.Table:
        """Merge sketches of panes that a later window may hold; keep the span that was converted last."""
        if section == SPAN:
            last = _span(tables)
            return tables[0].slice(0, 0) if last is None else _span_table(*last, self.slot)
        if section not in _OWN:
            return self.inner.compact(section, tables, advance)
        live = self._live(tables, advance.emitted_to)
        return merge(self.layout, live) if live else tables[0].slice(0, 0)


def _are_sketched(batch: Batch) -> npt.NDArray[np.bool_] | None:
    """The column of a batch, without which all rows are exact."""
    marks = batch.columns.get(IS_SKETCHED)
    return None if marks is None else flat(marks).to_numpy(zero_copy_only=False)


def _of_inner(sections: Sections) -> Sections:
    return {name: table for name, table in sections.items() if name not in _OWN}


def _tables(name: str, sections: Sequence[Sections]) -> list[pa.Table]:
    return [part[name] for part in sections if name in part and part[name].num_rows]


def _span_table(first: int, after: int, slot: int) -> pa.Table:
    return pa.table({SLOT: pa.array([slot], pa.int16()), _FIRST: [first], _AFTER: [after]})


def _span(tables: Sequence[pa.Table]) -> tuple[int, int] | None:
    """The span that was converted last: the one with the greatest end, and of these the least beginning."""
    spans = [
        (after, -first)
        for table in tables
        for first, after in zip(ints(table, _FIRST).tolist(), ints(table, _AFTER).tolist(), strict=True)
    ]
    if not spans:
        return None
    after, first = max(spans)
    return -first, after
