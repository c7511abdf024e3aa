"""Closing windows over panes: seal what punctuation passed, combine the windows that ended, before HAVING and the select list."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.operators.aggregates.cell_table import KEY, WindowCells
from headrace.operators.aggregates.group_by import columns_of_cells, nothing
from headrace.operators.base.group_codes import Ints, ints
from headrace.operators.base.operator import Advance, Sections, Windows
from headrace.operators.panes.adaptive_panes import SPARSE_OPEN
from headrace.operators.panes.pane_keys import between, block_key, extent
from headrace.operators.panes.pane_sealing import Sealed
from headrace.operators.panes.panes import LOWEST
from headrace.operators.window_assembly.assemble import closing, windows
from headrace.operators.window_assembly.pane_extent import SEEN, one_extent
from headrace.schema import STAMP
from headrace.time import BEGINNING, Instant

if TYPE_CHECKING:
    from headrace.operators.time_windows.pane_aggregate import PaneAggregate


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
class ClosedWindows:
    """What closing windows gives before it is finished: new state, the windows a chunk at a time, how many stay open."""

    state: Sections
    chunks: Iterable[Chunk] = ()
    open_windows: int = 0
    revised_windows: Windows = ()
    """Windows among them that had been answered before, without rows that came late."""


def close(
    operator: PaneAggregate, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance
) -> ClosedWindows:
    """Merge deltas with runs, seal what punctuation passed, and combine the windows that closed."""
    stores = []
    state: dict[str, pa.Table] = {}
    for place, layout in enumerate(operator.layouts):
        store = operator.store.seal(layout, place, runs, deltas, advance)
        stores.append(store)
        state |= store.sections
    arrived = [delta[SEEN] for delta in deltas if SEEN in delta]
    if arrived:
        state[SEEN] = one_extent(arrived)
    present = extent(stores[0].closed.panes)
    if operator.answers_empty:
        present = extent([*arrived, *(run[SEEN] for run in runs if SEEN in run)])
    every = (part[name] for part in (*runs, *deltas) for name in ("open0", SPARSE_OPEN) if name in part)
    opened = [table for table in every if table.num_rows]
    if advance.punctuation == BEGINNING or present is None:
        return ClosedWindows(
            state, open_windows=_open_windows(operator, present, opened, advance.punctuation)
        )
    closed = (
        LOWEST if advance.emission_start == BEGINNING else operator.panes.last_closed(advance.emission_start)
    )
    now = operator.panes.last_closed(advance.punctuation)
    if advance.final and operator.panes.back is None:
        now = max(closed, operator.panes.first_window(operator.panes.of_instant(advance.max_event_time)))
    due = closing(operator.panes, closed, now, present)
    if operator.answers_empty and not advance.final:
        due = range(due.start, max(due.stop, now + 1))
    again = _again(operator, deltas, present[0], closed)
    chunks = itertools.chain.from_iterable(chunks_of(operator, stores, each) for each in (*again, due))
    return ClosedWindows(state, chunks, _open_windows(operator, present, opened, advance.punctuation), again)


def _again(operator: PaneAggregate, deltas: Sequence[Sections], first: int, closed: int) -> Windows:
    """Windows up to `closed` that late rows are in; `first` is the least pane that holds a row.

    Where empty windows answer too, those between a late row and the row that had been the first are new.
    """
    if operator.revisions is None or closed == LOWEST:
        return ()
    section = SEEN if operator.answers_empty else "open0"
    arrived = [delta[section] for delta in deltas if section in delta]
    late = between(arrived, block_key(0, LOWEST), block_key(0, operator.panes.stop(closed)))
    if not late:
        return ()
    panes = np.concatenate([ints(table, KEY) for table in late]) - block_key(0, 0)
    if operator.answers_empty:
        start = operator.panes.first_window(max(int(panes.min()), first))
        return (range(start, closed + 1),) if start <= closed else ()
    return operator.panes.holding(panes, closed)


def _open_windows(
    operator: PaneAggregate, sealed: tuple[int, int] | None, opened: Sequence[pa.Table], now: Instant
) -> int:
    """How many windows have not closed, up to the last one that holds a row; one where a window never ends."""
    keys = [ints(table, KEY) for table in opened]
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
        for name, values in bounds.items():
            columns[f"{operator.window_alias}.{name}"] = pa.array(values).cast(STAMP)
        if operator.range is None:
            columns[f"{operator.window_alias}.window_start"] = pa.nulls(chunk.rows, STAMP)
        columns[f"{operator.window_alias}.window_id"] = pa.array(chunk.windows)
        held = int(chunk.answer.cells[operator.layouts[0].partial_columns[0]][0].sum())
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
        yield WindowCells(missing, (), nothing(operator.layouts[0].partial_columns, len(missing)))
