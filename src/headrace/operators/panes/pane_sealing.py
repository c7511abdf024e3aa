"""What becomes of panes when punctuation passes them: they are merged for good, and their blocks are built.

Written once, in the epoch in which they close: a delta, never a rewrite. Panes that no window to come holds are needed for
the answers of this epoch alone. Where windows are rolled over (`rolling_windows`) these are made from parts of panes as well, so
that such panes are merged, and their blocks built, only when a window asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace.algebra.query import Revisions
from headrace.operators.aggregates.cell_table import KEY, Layout, merge
from headrace.operators.base.group_codes import ints
from headrace.operators.base.operator import Advance, Sections
from headrace.operators.panes.adaptive_panes import SPARSE_OPEN, SPARSE_SEALED, in_order, settle
from headrace.operators.panes.closed_panes import ClosedPanes
from headrace.operators.panes.late_panes import into_blocks, settled_at
from headrace.operators.panes.pane_keys import between, block_key, extent, parted
from headrace.operators.panes.panes import HIGHEST, LOWEST, Panes
from headrace.time import BEGINNING, Instant


@dataclass(frozen=True, slots=True)
class Sealed:
    """One store's tables after sealing: what stays open, what windows are made from, and the state's new sections."""

    still_open: Sequence[pa.Table]
    closed: ClosedPanes
    sections: Sections


@dataclass(frozen=True, slots=True)
class PaneStore:
    """How panes of one operator are kept: up to which level of blocks, whether late rows may change them, and which lie as rows."""

    panes: Panes
    top: int
    revisions: Revisions | None
    row_layout_limit: int | None

    def seal(
        self,
        layout: Layout,
        place: int,
        runs: Sequence[Sections],
        deltas: Sequence[Sections],
        advance: Advance,
    ) -> Sealed:
        """Split panes of store `place` at the new punctuation."""
        opened, sealed, arrived = (
            _of(runs, place, "open"),
            _of(runs, place, "sealed"),
            _of(deltas, place, "open"),
        )
        alone = len(deltas) == 1  # one task's rows are folded already
        if advance.punctuation == BEGINNING:
            still_open = arrived if alone else self._merged(layout, arrived)
            return Sealed(still_open, ClosedPanes(sealed), _sections(layout, place, still_open, []))
        edge = HIGHEST if advance.final else self.panes.of_instant(advance.punctuation)
        before = LOWEST if advance.emitted_to == BEGINNING else self.panes.of_instant(advance.emitted_to)
        border = block_key(0, edge)
        ripe = between(opened, block_key(0, before), border) if before < edge else []
        passed, later = parted(arrived, border)
        ripe += passed
        still_open = later if alone else self._merged(layout, later)
        since = self._expired_below(advance.punctuation)
        spent, ripe = parted(ripe, block_key(0, since))
        # A pane that is its own window is told now and not kept: there is nothing to save.
        whole = self.panes.per_window == 1 and ripe
        fresh = [merge(layout, ripe)] if whole else self._merged(layout, ripe)
        made = self._with_blocks(layout, fresh, sealed, max(before, since), edge)
        kept = self.live(made, settled_at(advance.punctuation, self.revisions))

        def ended() -> list[pa.Table]:
            return self._with_blocks(layout, self._merged(layout, spent), sealed, before, since)

        closed = ClosedPanes([*sealed, *made], spent, ended)
        return Sealed(still_open, closed, _sections(layout, place, still_open, kept))

    def _expired_below(self, now: Instant) -> int:
        """Panes below it are in no window that closes after `now`, and neither are the blocks that hold them."""
        first = self._horizon(now) if self.panes.per_window != 1 and self.revisions is None else None
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
        made = [table for table in (*fresh, *blocks) if table.num_rows]
        return [merge(layout, [*made, *late])] if late else made

    def _merged(self, layout: Layout, tables: Sequence[pa.Table]) -> list[pa.Table]:
        """One row a block and group; groups of few rows may stay those rows."""
        return settle(layout, tables, self.row_layout_limit) if tables else []

    def closed(self, runs: Sequence[Sections], place: int) -> list[pa.Table]:
        """Panes of store `place` that are sealed, and their blocks, as they lie in state."""
        return _of(runs, place, "sealed")

    def opened(self, tables: Sequence[pa.Table], closed: Instant) -> list[pa.Table]:
        """Panes that had not been closed at `closed`."""
        edge = LOWEST if closed == BEGINNING else self.panes.of_instant(closed)
        return between(tables, block_key(0, edge), block_key(0, HIGHEST))

    def live(self, tables: Sequence[pa.Table], settled: Instant) -> list[pa.Table]:
        """Closed panes and blocks that a window ending after `settled` may hold, by level."""
        if settled == BEGINNING:
            return list(tables)
        horizon = self._horizon(settled)
        if horizon is None:
            return list(tables)
        return [
            table
            for level in range(self.top + 1)
            for table in between(tables, block_key(level, horizon >> level), block_key(level, HIGHEST))
        ]

    def _horizon(self, settled: Instant) -> int | None:
        """The first pane of the first window that ends after `settled`; None where windows have no beginning."""
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


def _of(sections: Sequence[Sections], place: int, name: str) -> list[pa.Table]:
    """Tables of a store's open or sealed panes, those of rows too."""
    names = [f"{name}{place}"]
    if not place:
        names.append(SPARSE_OPEN if name == "open" else SPARSE_SEALED)
    return [each[one] for each in sections for one in names if one in each]


def _sections(
    layout: Layout, place: int, still_open: Sequence[pa.Table], kept: Sequence[pa.Table]
) -> dict[str, pa.Table]:
    """The new state of a store, by form."""
    found: dict[str, pa.Table] = {}
    for tables, whole, few in (
        (still_open, f"open{place}", SPARSE_OPEN),
        (kept, f"sealed{place}", SPARSE_SEALED),
    ):
        rows: list[pa.Table] = []
        partials: list[pa.Table] = []
        for table in tables:
            if table.num_rows:
                (rows if layout.are_rows(table) else partials).append(table)
        if partials:
            found[whole] = partials[0] if len(partials) == 1 else pa.concat_tables(partials)
        if rows:
            found[few] = rows[0] if len(rows) == 1 else in_order(rows)
    return found


def _raised(table: pa.Table, child: int, parent: int) -> pa.Table:
    """Rows of blocks as rows of the blocks one level up."""
    keys = ints(table, KEY)
    return table.set_column(0, KEY, pa.array(((keys - child) >> 1) + parent))


def _past(pane: int, top: int) -> int:
    """The end of the widest block that holds the pane: blocks beyond it are empty."""
    return ((pane >> top) + 1) << top
