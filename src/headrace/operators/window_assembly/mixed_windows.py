"""Windows of different lengths over the same panes, made together: those of all queries of a family, in one pass.

A window is a few blocks of its query's panes. The blocks of all (query, window) pairs are found by their keys at once, and
their cells combined in one reduction: the cost follows the blocks, whatever the number of different lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.aggregates.cell_table import (
    FIRST_KEY,
    KEY,
    Layout,
    WindowCells,
    gather,
    reduce_answer,
)
from headrace.operators.base.group_codes import Ints, compact, ints, picked
from headrace.operators.panes.closed_panes import ClosedPanes
from headrace.operators.panes.pane_keys import covers
from headrace.operators.panes.window_lengths import WindowLengths

_WINDOWS_AT_ONCE: Final = 64
_NONE: Final[Ints] = np.empty(0, np.int64)


def mixed_windows(
    layout: Layout, lengths: WindowLengths, closed_panes: ClosedPanes, due: range
) -> Iterator[WindowCells]:
    """The cells of all windows in `due` of every query."""
    for start in range(due.start, due.stop, _WINDOWS_AT_ONCE):
        chunk = range(start, min(due.stop, start + _WINDOWS_AT_ONCE))
        tables, window = _Wanted.of(lengths, chunk).rows_of(closed_panes.blocks)
        if tables:
            yield _combined(layout, tables, window, chunk)


def _combined(layout: Layout, tables: Sequence[pa.Table], window: Ints, due: range) -> WindowCells:
    """The cells of tables whose rows belong to windows; `window` counts from the first of `due`."""
    rows = gather(layout, tables)
    count = rows.groups.count
    codes, live = compact(window * count + rows.groups.codes, len(due) * count)
    answer = reduce_answer(layout, rows.answer, codes, len(live))
    window_index, group_index = np.divmod(live, count)
    keys = tuple(picked(key, group_index) for key in rows.groups.keys)
    return WindowCells(window_index + due.start, keys, answer)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The blocks of windows, each once, ascending: `edges` has the key of each and the next one. Triples of a block, a length and a window.

    `codes` are those of the (block, length) pairs of the triples, ascending; `windows` count from the first one due.
    """

    lengths: WindowLengths
    length_of_query: Ints
    edges: Ints
    codes: Ints
    windows: Ints

    @staticmethod
    def of(lengths: WindowLengths, due: range) -> _Wanted:
        """The blocks of the windows in `due` of all lengths."""
        distinct, example, length_of_query = np.unique(lengths.panes, return_index=True, return_inverse=True)
        window = np.repeat(np.arange(len(due)), len(distinct))
        stop = lengths.grid.per_slide * (window + due.start)
        length = np.tile(np.arange(len(distinct)), len(due))
        keys, owner = covers(stop - distinct[length], stop, lengths.tops[example][length])
        blocks, block = np.unique(keys, return_inverse=True)
        codes = block * len(distinct) + length[owner]
        order = np.argsort(codes, kind="stable")
        edges = np.stack([blocks, blocks + 1], 1).ravel()
        return _Wanted(lengths, length_of_query, edges, codes[order], window[owner][order])

    def rows_of(self, tables: Sequence[pa.Table]) -> tuple[list[pa.Table], Ints]:
        """The rows of sorted tables that windows are made of, once for each window, and the window of each."""
        wanted: list[tuple[pa.Table, Ints]] = []
        parts: list[tuple[Ints, Ints]] = []
        for table in tables:
            keys = ints(table, KEY)
            rows, block = self._at_keys(keys)
            if len(rows):
                wanted.append((table, rows))
                parts.append((block, self._lengths_of(table, rows)))
        if not wanted:
            return [], np.empty(0, np.int64)
        block, length = (np.concatenate(column) for column in zip(*parts, strict=True))
        code = block * (int(self.length_of_query.max()) + 1) + length
        first, stop = (np.searchsorted(self.codes, code, side) for side in ("left", "right"))
        copies = stop - first
        source = np.repeat(np.arange(len(code)), copies)
        triple = np.arange(len(source)) - np.repeat(np.cumsum(copies) - copies - first, copies)
        edges = np.searchsorted(source, np.cumsum([0, *(len(rows) for _, rows in wanted)]))
        picked_tables, start = [], 0
        for index, (table, rows) in enumerate(wanted):
            rows_of_table = rows[source[edges[index] : edges[index + 1]] - start]
            picked_tables += [table.take(pa.array(rows_of_table))] if len(rows_of_table) else []
            start += len(rows)
        return picked_tables, self.windows[triple]

    def _lengths_of(self, table: pa.Table, rows: Ints) -> Ints:
        """The index of the length of each row's query."""
        if len(self.length_of_query) == 1:
            return np.zeros(len(rows), np.int64)
        return self.length_of_query[self.lengths.places(ints(table, FIRST_KEY)[rows])]

    def _at_keys(self, keys: Ints) -> tuple[Ints, Ints]:
        """The rows whose key is wanted, and the index of the key of each."""
        first, stop = keys.searchsorted(self.edges).reshape(-1, 2).T
        sizes = stop - first
        ends = sizes.cumsum()
        rows = ends.item(-1)
        if not rows:
            return _NONE, _NONE
        block = np.arange(len(sizes)).repeat(sizes)
        return np.arange(rows) - (ends - sizes - first).repeat(sizes), block
