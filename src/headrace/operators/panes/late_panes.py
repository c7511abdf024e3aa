"""Late rows of a query WITH REVISIONS in closed panes: the partials that they add to the stored blocks above each pane,
and the instant from which windows can still change.

A closed pane is in blocks of every level that was complete when it closed. A late row adds a partial to the pane and to
each of those blocks: a delta of O(levels) cells, never a rewrite.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.algebra.query import Revisions
from headrace.operators.aggregates.cell_table import Gathered, Layout, gather, merge_gathered, select
from headrace.operators.panes.pane_keys import block_key
from headrace.time import BEGINNING, Instant


def settled_at(emitted_to: Instant, revisions: Revisions | None) -> Instant:
    """The instant up to which windows that end there or earlier never change again; BEGINNING if all may."""
    if revisions is None or emitted_to == BEGINNING:
        return emitted_to
    return BEGINNING if revisions.within is None else emitted_to - revisions.within


def into_blocks(layout: Layout, late: Sequence[pa.Table], before: int, top: int) -> list[pa.Table]:
    """The partials that late panes add to blocks of levels 1 to `top`; `before` is the first pane that was not closed."""
    if not late:
        return []
    rows = gather(layout, late)
    panes = rows.blocks - block_key(0, 0)
    added: list[pa.Table] = []
    for level in range(1, top + 1):
        in_built_blocks = np.flatnonzero(panes >> level < before >> level)
        if not len(in_built_blocks):
            break
        blocks = (panes[in_built_blocks] >> level) + block_key(level, 0)
        picked = Gathered(
            blocks,
            rows.slots[in_built_blocks],
            rows.groups.of_rows(in_built_blocks),
            select(rows.answer, in_built_blocks),
        )
        added.append(merge_gathered(layout, picked))
    return added
