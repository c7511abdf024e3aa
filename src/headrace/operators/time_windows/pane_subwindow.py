"""Answers over a shorter window, from the panes that an aggregate keeps for its own.

A window of panes holds every window that begins at one of its slides and ends where it does.
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
    """The operator as it would be with a window of that length."""
    assert operator.range is not None
    return replace(operator, panes=shortened(operator.panes, operator.range - length), range=length)


def of_panes(
    operator: PaneAggregate, length: Duration, runs: Sequence[Sections], closed: Instant
) -> pa.Table | None:
    """The last window of that length which ends at or before `closed`; None where there is no row."""
    if closed in (BEGINNING, FOREVER):
        return None
    asked = of_length(operator, length)
    asked = asked.together((asked,))
    stores = [
        Sealed((), ClosedPanes(asked.store.closed(runs, place)), {}) for place, _ in enumerate(asked.layouts)
    ]
    window = asked.panes.last_closed(closed)
    if asked.answers_empty and window < _first_window(asked, runs):
        return None
    tables = [
        finish(operator.finish, chunk.columns, chunk.windows, chunk.ends, chunk.failed)[0]
        for chunk in chunks_of(asked, stores, range(window, window + 1))
    ]
    return pa.concat_tables(tables) if tables else None


def _first_window(operator: PaneAggregate, runs: Sequence[Sections]) -> int:
    """The first window with a row: from then on, empty ones answer too."""
    seen = [ints(run[SEEN], KEY) for run in runs if SEEN in run and run[SEEN].num_rows]
    first = min((int(keys.min()) for keys in seen), default=block_key(0, HIGHEST))
    return operator.panes.first_window(first - block_key(0, 0))
