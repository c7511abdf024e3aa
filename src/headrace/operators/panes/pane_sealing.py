"""Sealing of panes below punctuation: they are merged once, and their blocks (merged intervals of panes) are built; and
the closed panes and blocks that a later window may still hold.

Sealed panes are written once, in the epoch in which they close: a delta, never a rewrite. Panes that no later window
holds are needed for the answers of this epoch only. Rolling windows (`rolling_windows`) are made from unmerged panes as
well, so expired panes are merged, and their blocks built, only when a window needs it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headrace.algebra.query import Revisions
from headrace.dataclass import dataclass
from headrace.operators.aggregates.cell_table import FIRST_KEY, KEY, Layout, disjoint_tables, merge
from headrace.operators.base.group_codes import ints
from headrace.operators.base.operator import Advance, Sections
from headrace.operators.panes.adaptive_panes import SPARSE_OPEN, SPARSE_SEALED, in_order, settle
from headrace.operators.panes.closed_panes import ClosedPanes
from headrace.operators.panes.late_panes import into_blocks, settled_at
from headrace.operators.panes.pane_keys import (
    between,
    block_key,
    extent,
    levels_and_blocks,
    levels_of,
    parted,
)
from headrace.operators.panes.panes import HIGHEST, LOWEST, Panes
from headrace.operators.panes.window_lengths import WindowLengths
from headrace.time import BEGINNING, Instant


@dataclass(frozen=True, slots=True)
class Sealed:
    """One store's tables after sealing: open panes, panes from which windows are made, and the state's new sections."""

    still_open: Sequence[pa.Table]
    closed: ClosedPanes
    sections: Sections


@dataclass(frozen=True, slots=True)
class PaneStore:
    """How panes of one operator are stored: the top level of blocks, the revisions of late rows, and the row layout limit."""

    panes: Panes
    top: int
    revisions: Revisions | None
    row_layout_limit: int | None
    lengths: WindowLengths | None = None
    """Of the windows of several queries, where these differ; `panes` are those of the longest."""

    def seal(
        self,
        layout: Layout,
        store: int,
        runs: Sequence[Sections],
        deltas: Sequence[Sections],
        advance: Advance,
    ) -> Sealed:
        """Split panes of store number `store` at the new punctuation."""
        opened, sealed, arrived = (
            _of(runs, store, "open"),
            _of(runs, store, "sealed"),
            _of(deltas, store, "open"),
        )
        is_one_task = len(deltas) == 1  # one task's rows are folded already
        if advance.punctuation == BEGINNING:
            still_open = arrived if is_one_task else self._merged(layout, arrived)
            return Sealed(still_open, ClosedPanes(sealed), _sections(layout, store, still_open, []))
        edge = HIGHEST if advance.final else self.panes.of_instant(advance.punctuation)
        before = LOWEST if advance.emitted_to == BEGINNING else self.panes.of_instant(advance.emitted_to)
        border = block_key(0, edge)
        newly_closed = between(opened, block_key(0, before), border) if before < edge else []
        arrived_closed, later = parted(arrived, border)
        newly_closed += arrived_closed
        still_open = later if is_one_task else self._merged(layout, later)
        since = self._expired_below(advance.punctuation)
        expired, newly_closed = parted(newly_closed, block_key(0, since))
        # A pane that is its own window is emitted now and not stored.
        whole = self.panes.per_window == 1 and newly_closed
        fresh = [merge(layout, newly_closed)] if whole else self._merged(layout, newly_closed)
        sealed_now = self._with_blocks(layout, fresh, sealed, max(before, since), edge)
        live = self.live(sealed_now, settled_at(advance.punctuation, self.revisions))

        def ended() -> list[pa.Table]:
            if not expired and before >= since:
                return []
            return self._with_blocks(layout, self._merged(layout, expired), sealed, before, since)

        closed_panes = ClosedPanes([*sealed, *sealed_now], expired, ended)
        return Sealed(still_open, closed_panes, _sections(layout, store, still_open, live))

    def _expired_below(self, punctuation: Instant) -> int:
        """Panes below it are in no window that closes after `punctuation`, and neither are the blocks that hold them."""
        first = self._horizon(punctuation) if self.panes.per_window != 1 and self.revisions is None else None
        return LOWEST if first is None else first >> self.top << self.top

    def _with_blocks(
        self, layout: Layout, fresh: Sequence[pa.Table], sealed: Sequence[pa.Table], before: int, edge: int
    ) -> list[pa.Table]:
        held = extent([*sealed, *fresh])
        if held is None:
            return []
        start, stop = max(before, held[0]), min(edge, _past(held[1], self.top))
        late_panes = between(fresh, block_key(0, LOWEST), block_key(0, before))
        late = into_blocks(layout, late_panes, before, self.top)
        blocks = parents(layout, [*sealed, *late], fresh, (start, stop), self.top, self.row_layout_limit)
        tables = [table for table in (*fresh, *blocks) if table.num_rows]
        return [merge(layout, [*tables, *late])] if late else tables

    def _merged(self, layout: Layout, tables: Sequence[pa.Table]) -> list[pa.Table]:
        """One row per block and group; sparse groups may stay rows. Several tables of cells are of different blocks, in their order."""
        if not tables:
            return []
        return disjoint_tables(layout, tables) or settle(layout, tables, self.row_layout_limit)

    def closed(self, runs: Sequence[Sections], store: int) -> list[pa.Table]:
        """Sealed panes of store number `store`, and their blocks, as stored."""
        return _of(runs, store, "sealed")

    def open_panes(self, runs: Sequence[Sections], store: int) -> list[pa.Table]:
        """Panes of store number `store` that were open when they were stored."""
        return _of(runs, store, "open")

    def holds_closed(self, runs: Sequence[Sections], store: int, punctuation: Instant) -> bool:
        """Whether store number `store` has a closed pane that a window ending after the punctuation holds."""
        panes = between(self.closed(runs, store), block_key(0, LOWEST), block_key(0, HIGHEST))
        return any(table.num_rows for table in self.live(panes, punctuation))

    def opened(self, tables: Sequence[pa.Table], emitted_to: Instant) -> list[pa.Table]:
        """Panes that were not closed at `emitted_to`."""
        edge = LOWEST if emitted_to == BEGINNING else self.panes.of_instant(emitted_to)
        return between(tables, block_key(0, edge), block_key(0, HIGHEST))

    def live(self, tables: Sequence[pa.Table], settled: Instant) -> list[pa.Table]:
        """Closed panes and blocks that a window ending after `settled` may hold, by level."""
        if settled == BEGINNING:
            return list(tables)
        horizon = self._horizon(settled)
        if horizon is None:
            return list(tables)
        live = [
            part
            for table in tables
            for level in levels_of(table)
            if level <= self.top
            for part in between([table], block_key(level, horizon >> level), block_key(level, HIGHEST))
        ]
        return live if self.lengths is None else self._of_each(self.lengths, live, settled)

    def _of_each(self, lengths: WindowLengths, live: Sequence[pa.Table], settled: Instant) -> list[pa.Table]:
        """The rows that a window of their own query may hold."""
        window, picked_tables = self.panes.last_closed(settled) + 1, []
        for table in live:
            needed = lengths.still_needed(
                ints(table, FIRST_KEY), *levels_and_blocks(ints(table, KEY)), window
            )
            picked_tables += (
                [table] if needed.all() else [table.filter(pa.array(needed))] if needed.any() else []
            )
        return picked_tables

    def _horizon(self, settled: Instant) -> int | None:
        """The first pane of the first window that ends after `settled`; None for landmark windows."""
        first = self.panes.first(self.panes.last_closed(settled) + 1)
        return None if first is None else min(first, HIGHEST)


def parents(
    layout: Layout,
    sealed: Sequence[pa.Table],
    fresh: Sequence[pa.Table],
    span: tuple[int, int],
    top: int,
    row_layout_limit: int | None = None,
) -> list[pa.Table]:
    """Blocks of levels 1..top that become complete when the panes [span) close; `fresh` holds those panes."""
    built: list[pa.Table] = []
    below = fresh
    start, stop = span
    for level in range(1, top + 1):
        low, high = start >> level, stop >> level
        if high <= low:
            break
        child = block_key(level - 1, 0)
        parts = between([*sealed, *below], child + 2 * low, child + 2 * high)
        raised = [_raised(part, child, block_key(level, 0)) for part in parts]
        below = settle(layout, raised, row_layout_limit) if raised else []
        built += below
    return built


def _of(sections: Sequence[Sections], store: int, name: str) -> list[pa.Table]:
    """Tables of a store's open or sealed panes, including those in the row layout."""
    names = [f"{name}{store}"]
    if not store:
        names.append(SPARSE_OPEN if name == "open" else SPARSE_SEALED)
    return [section[key] for section in sections for key in names if key in section]


def _sections(
    layout: Layout, store: int, still_open: Sequence[pa.Table], sealed: Sequence[pa.Table]
) -> dict[str, pa.Table]:
    """The new state of a store, by layout."""
    state: dict[str, pa.Table] = {}
    for tables, whole, sparse in (
        (still_open, f"open{store}", SPARSE_OPEN),
        (sealed, f"sealed{store}", SPARSE_SEALED),
    ):
        rows: list[pa.Table] = []
        partials: list[pa.Table] = []
        for table in tables:
            if table.num_rows:
                (rows if layout.are_rows(table) else partials).append(table)
        if partials:
            state[whole] = partials[0] if len(partials) == 1 else pa.concat_tables(partials)
        if rows:
            state[sparse] = rows[0] if len(rows) == 1 else in_order(rows)
    return state


def _raised(table: pa.Table, child: int, parent: int) -> pa.Table:
    """Rows of blocks as rows of the blocks one level up."""
    keys = ints(table, KEY)
    return table.set_column(0, KEY, pa.array(((keys - child) >> 1) + parent))


def _past(pane: int, top: int) -> int:
    """The end of the widest block that holds the pane: blocks beyond it are empty."""
    return ((pane >> top) + 1) << top
