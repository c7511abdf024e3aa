"""INVOKE q [RANGE d] of an aggregate at every instant: the answer at NOW over a shorter range, from the cells in its state.

See `headrace.operators.on_demand.subwindow_check`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headrace.operators.aggregates.cell_table import KEY, merge
from headrace.operators.base.group_codes import ints
from headrace.operators.base.operator import Advance, Sections
from headrace.time import BEGINNING, Duration, Instant

if TYPE_CHECKING:
    from headrace.operators.relations.instant_aggregate import InstantAggregate

FIRST: Final = "first"
"""The section of the first instant of all."""
CELLS: Final = "cells"
"""The sections of folded rows, followed by the number of the store."""


def at_now(
    operator: InstantAggregate, runs: Sequence[Sections], length: Duration, now: Instant
) -> pa.Table | None:
    """R(now), as changes: all cells in the window as if they arrived now, in an operator without state."""
    shorter = replace(operator, validity=replace(operator.validity, length=length + 1))
    delta: dict[str, pa.Table] = {}
    for store, layout in enumerate(operator.grouped.layouts):
        name = f"{CELLS}{store}"
        held = [_moved(run[name], now - length, now) for run in runs if name in run]
        if sum(table.num_rows for table in held):
            delta[name] = merge(layout, held)
    first = next((run[FIRST] for run in runs if FIRST in run and run[FIRST].num_rows), None)
    if first is not None:
        delta[FIRST] = _moved(first.slice(0, 1), BEGINNING, now)
    if not delta:
        return None
    return shorter.advance((), (delta,), Advance(BEGINNING, now + 1, now)).results


def _moved(table: pa.Table, start: Instant, now: Instant) -> pa.Table:
    """The rows since `start`, at `now`."""
    keys = ints(table, KEY)
    rows = table.filter(pa.array((keys >= start) & (keys <= now)))
    return rows.set_column(rows.column_names.index(KEY), KEY, pa.array(np.full(rows.num_rows, now)))
