"""Closing of an aggregate's windows over panes in one step: panes below punctuation are sealed, and windows that ended
(or that late rows revise) are combined into key and aggregate columns, before HAVING and the select list.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.aggregates.cell_table import FIRST_KEY, KEY, WindowCells
from headrace.operators.aggregates.group_by import columns_of_cells, nothing
from headrace.operators.base.group_codes import Ints, ints
from headrace.operators.base.operator import QUERY_NUMBER, Advance, Sections, Windows
from headrace.operators.panes.adaptive_panes import SPARSE_OPEN
from headrace.operators.panes.closed_panes import ClosedPanes
from headrace.operators.panes.pane_keys import between, block_key, extent
from headrace.operators.panes.pane_sealing import Sealed
from headrace.operators.panes.panes import LOWEST, Panes
from headrace.operators.window_assembly.assemble import closing, windows
from headrace.operators.window_assembly.mixed_windows import mixed_windows
from headrace.operators.window_assembly.pane_extent import SEEN, one_extent
from headrace.schema import STAMP
from headrace.time import BEGINNING, Duration, Instant

if TYPE_CHECKING:
    from headrace.operators.time_windows.pane_aggregate import PaneAggregate


_MOST_MIXED: Final = 4
"""With more windows due than so many for each length, the windows of each length are made by themselves."""


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
    """The number of stream rows that the windows hold together; a row counts once per window."""
    is_whole: bool = False
    """Whether each query of a family with a row here has all of its rows here; families have neither revisions nor EMIT EMPTY."""

    def rows(self, indices: Ints) -> Chunk:
        """Some of the rows."""
        picked = pa.array(indices)
        return Chunk(
            {name: column.take(picked) for name, column in self.columns.items()},
            self.windows[indices],
            self.ends[indices],
            self.failed[indices] if self.failed is not None else None,
        )


@dataclass(frozen=True, slots=True)
class ClosedWindows:
    """Closed windows before they are finished: new state, the windows a chunk at a time, and the number of open ones."""

    state: Sections
    chunks: Iterable[Chunk] = ()
    open_windows: int = 0
    revised_windows: Windows = ()
    """Those of them that were answered before, without late rows."""


def close(
    operator: PaneAggregate, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance
) -> ClosedWindows:
    """Merge deltas with runs, seal panes below punctuation, and combine the windows that closed."""
    stores = []
    state: dict[str, pa.Table] = {}
    for number, layout in enumerate(operator.layouts):
        store = operator.store.seal(layout, number, runs, deltas, advance)
        stores.append(store)
        state |= store.sections
    arrived = [delta[SEEN] for delta in deltas if SEEN in delta]
    if arrived:
        state[SEEN] = one_extent(arrived)
    present = extent(stores[0].closed.panes)
    if operator.answers_empty:
        present = extent([*arrived, *(run[SEEN] for run in runs if SEEN in run)])
    opened = opened_panes((*runs, *deltas))
    if advance.punctuation == BEGINNING or present is None:
        return ClosedWindows(
            state, open_windows=count_open_windows(operator, present, opened, advance.punctuation)
        )
    emitted, last_due = _emission(operator, advance)
    due = closing(operator.panes, emitted, last_due, present)
    if operator.answers_empty and not advance.final:
        due = range(due.start, max(due.stop, last_due + 1))
    revised = _revised(operator, deltas, present[0], emitted)
    chunks = itertools.chain.from_iterable(chunks_of(operator, stores, range_) for range_ in (*revised, due))
    return ClosedWindows(
        state, chunks, count_open_windows(operator, present, opened, advance.punctuation), revised
    )


@dataclass(frozen=True, slots=True)
class ClosedCells:
    """The same of closed windows as cells, before aggregates are computed."""

    state: Sections
    chunks: Iterable[WindowCells]
    open_windows: int


def closed_cells(
    operator: PaneAggregate, runs: Sequence[Sections], deltas: Sequence[Sections], advance: Advance
) -> ClosedCells:
    """`close` for an operator with one store, of windows that end, without revisions and answers for empty windows."""
    store = operator.store.seal(operator.layouts[0], 0, runs, deltas, advance)
    present = extent(store.closed.panes)
    opened = opened_panes((*runs, *deltas))
    open_windows = count_open_windows(operator, present, opened, advance.punctuation)
    if advance.punctuation == BEGINNING or present is None:
        return ClosedCells(store.sections, (), open_windows)
    due = closing(operator.panes, *_emission(operator, advance), present)
    chunks = windows(operator.layouts[0], operator.panes, store.closed, due, operator.top_level)
    return ClosedCells(store.sections, chunks, open_windows)


def _emission(operator: PaneAggregate, advance: Advance) -> tuple[int, int]:
    """The last window that was emitted, and the last one that is due."""
    emitted = (
        LOWEST if advance.emission_start == BEGINNING else operator.panes.last_closed(advance.emission_start)
    )
    last_due = operator.panes.last_closed(advance.punctuation)
    if advance.final and operator.panes.back is None:
        last_due = max(
            emitted, operator.panes.first_window(operator.panes.of_instant(advance.max_event_time))
        )
    return emitted, last_due


def opened_panes(sections: Sequence[Sections]) -> list[pa.Table]:
    """The tables of open panes that have rows."""
    tables = (part[name] for part in sections for name in ("open0", SPARSE_OPEN) if name in part)
    return [table for table in tables if table.num_rows]


def _revised(operator: PaneAggregate, deltas: Sequence[Sections], first: int, emitted: int) -> Windows:
    """Windows up to `emitted` that late rows are in; `first` is the least pane that holds a row.

    With EMIT EMPTY, the windows between a late row and the former first row are new.
    """
    if operator.revisions is None or emitted == LOWEST:
        return ()
    section = SEEN if operator.answers_empty else "open0"
    arrived = [delta[section] for delta in deltas if section in delta]
    late = between(arrived, block_key(0, LOWEST), block_key(0, operator.panes.stop(emitted)))
    if not late:
        return ()
    panes = np.concatenate([ints(table, KEY) for table in late]) - block_key(0, 0)
    if operator.answers_empty:
        start = operator.panes.first_window(max(int(panes.min()), first))
        return (range(start, emitted + 1),) if start <= emitted else ()
    return operator.panes.holding(panes, emitted)


def count_open_windows(
    operator: PaneAggregate, sealed: tuple[int, int] | None, opened: Sequence[pa.Table], punctuation: Instant
) -> int:
    """The number of windows that have not closed, up to the last one that holds a row; one if a window never ends."""
    keys = [ints(table, KEY) for table in opened]
    ends = [
        (keys_of_table.item(0) - block_key(0, 0), keys_of_table.item(-1) - block_key(0, 0))
        for keys_of_table in keys
    ]
    ends += [] if sealed is None else [sealed]
    if not ends:
        return 0
    final = operator.panes.last_window(max(last for _, last in ends))
    if final is None:
        return 1
    least = operator.panes.first_window(min(first for first, _ in ends))
    return max(
        0,
        final
        - (
            least - 1 if punctuation == BEGINNING else max(least - 1, operator.panes.last_closed(punctuation))
        ),
    )


def chunks_of(operator: PaneAggregate, stores: Sequence[Sealed], due: range) -> Iterator[Chunk]:
    """The windows in `due`."""
    lengths = operator.lengths
    if lengths is not None and len(due) > _MOST_MIXED * lengths.distinct:
        for panes, range_, numbers in lengths.each():
            alone = replace(operator, panes=panes, range=range_, lengths=None)
            yield from chunks_of(alone, [_only(store, numbers) for store in stores], due)
        return
    # values of DISTINCT are numbered once for each chunk, of which there are many in the order of queries
    by_query = len(stores) == 1 and [key.name for key in operator.keys[:1]] == [QUERY_NUMBER]
    plain, *others = (
        windows(layout, operator.panes, store.closed, due, operator.top_level, by_query=by_query)
        if lengths is None
        else mixed_windows(layout, lengths, store.closed, due)
        for layout, store in zip(operator.layouts, stores, strict=True)
    )
    distinct = [list(store_windows) for store_windows in others]
    for chunk in _with_empty(operator, plain, due):
        columns, failed = columns_of_cells(operator.grouped, chunk, distinct)
        bounds, ends = bounds_of(
            operator.panes, _ranges(operator, chunk), operator.window_alias, chunk.windows
        )
        columns |= bounds
        held = int(chunk.answer.cells[operator.layouts[0].partial_columns[0]][0].sum())
        yield Chunk(columns, chunk.windows, ends, failed, held, chunk.is_whole)


def bounds_of(
    panes: Panes, range_: Duration | Ints | None, alias: str, windows: Ints
) -> tuple[dict[str, pa.Array], Ints]:
    """The columns of the bounds of windows, with a range of all or of each, and their ends; landmark windows have no start."""
    starts, ends = panes.window_bounds(windows, range_)
    columns = {
        f"{alias}.window_start": pa.nulls(len(windows), STAMP)
        if range_ is None
        else pa.array(starts).cast(STAMP),
        f"{alias}.window_end": pa.array(ends).cast(STAMP),
        f"{alias}.window_id": pa.array(windows),
    }
    return columns, ends


def _ranges(operator: PaneAggregate, chunk: WindowCells) -> Duration | Ints | None:
    """The range of all windows, or of each."""
    lengths = operator.lengths
    return operator.range if lengths is None else lengths.ranges[lengths.places(chunk.keys[0].to_numpy())]


def _only(store: Sealed, numbers: Ints) -> Sealed:
    """The rows of some queries of a store, with their blocks."""

    def own(tables: Iterable[pa.Table]) -> list[pa.Table]:
        rows = (table.filter(pa.array(np.isin(ints(table, FIRST_KEY), numbers))) for table in tables)
        return [table for table in rows if table.num_rows]

    closed = store.closed
    return Sealed((), ClosedPanes(own(closed.lasting), own(closed.expired), lambda: own(closed.ended())), {})


def _with_empty(operator: PaneAggregate, chunks: Iterable[WindowCells], due: range) -> Iterator[WindowCells]:
    """The chunks; for EMIT EMPTY of a global aggregate, with a row for each window without rows."""
    if not operator.answers_empty:
        yield from chunks
        return
    with_rows = list(chunks)
    have = np.concatenate([chunk.windows for chunk in with_rows]) if with_rows else np.empty(0, np.int64)
    all_windows = np.arange(due.start, due.stop)
    missing = all_windows[~np.isin(all_windows, have)]
    yield from with_rows
    if len(missing):
        yield WindowCells(missing, (), nothing(operator.layouts[0].partial_columns, len(missing)))
