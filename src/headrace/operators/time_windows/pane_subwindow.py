"""INVOKE q [RANGE d] of an aggregate over time windows: the last window of the shorter length d, from the panes that
are stored for its own window.

A window of panes contains every window that begins at one of its slides and ends where it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.operators.aggregates.cell_table import KEY
from headrace.operators.base.group_codes import ints
from headrace.operators.base.operator import Sections
from headrace.operators.output.output_stage import finish
from headrace.operators.panes.closed_panes import ClosedPanes
from headrace.operators.panes.pane_keys import block_key
from headrace.operators.panes.pane_sealing import Sealed
from headrace.operators.panes.panes import HIGHEST
from headrace.operators.panes.subwindows import shortened
from headrace.operators.window_assembly.pane_extent import SEEN
from headrace.operators.window_assembly.window_closing import chunks_of
from headrace.time import BEGINNING, FOREVER, Duration, Instant

if TYPE_CHECKING:
    from headrace.operators.time_windows.pane_aggregate import PaneAggregate


def of_length(operator: PaneAggregate, length: Duration) -> PaneAggregate:
    """The operator with a window of that length."""
    assert operator.range is not None
    return replace(operator, panes=shortened(operator.panes, operator.range - length), range=length)


def of_panes(
    operator: PaneAggregate, length: Duration, runs: Sequence[Sections], emitted_to: Instant
) -> pa.Table | None:
    """The last window of that length which ends at or before `emitted_to`; None if it has no row."""
    if emitted_to in (BEGINNING, FOREVER):
        return None
    shorter = of_length(operator, length)
    shorter = shorter.together((shorter,))
    stores = [
        Sealed((), ClosedPanes(shorter.store.closed(runs, store)), {})
        for store, _ in enumerate(shorter.layouts)
    ]
    window = shorter.panes.last_closed(emitted_to)
    if shorter.answers_empty and window < _first_window(shorter, runs):
        return None
    tables = [
        finish(operator.finish, chunk.columns, chunk.windows, chunk.ends, chunk.failed)[0]
        for chunk in chunks_of(shorter, stores, range(window, window + 1))
    ]
    return pa.concat_tables(tables) if tables else None


def _first_window(operator: PaneAggregate, runs: Sequence[Sections]) -> int:
    """The first window with a row: from then on, empty ones answer too."""
    seen = [ints(run[SEEN], KEY) for run in runs if SEEN in run and run[SEEN].num_rows]
    first = min((int(keys.min()) for keys in seen), default=block_key(0, HIGHEST))
    return operator.panes.first_window(first - block_key(0, 0))
