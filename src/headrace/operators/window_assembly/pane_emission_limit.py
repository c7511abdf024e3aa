"""Emission limit of an aggregate over panes: the instant up to which it answers in one step, so that its result rows
stay a bounded number, from the panes that have rows; see `emission_limit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.operators.aggregates.cell_table import KEY
from headrace.operators.base.group_codes import Ints, flat, group, ints
from headrace.operators.base.operator import Advance, Sections
from headrace.operators.panes.adaptive_panes import SPARSE_OPEN, SPARSE_SEALED
from headrace.operators.panes.emission_limit import HIGHEST_WINDOW, EmissionCap, emission_limit_over, span
from headrace.operators.panes.pane_keys import between, block_key
from headrace.operators.panes.panes import HIGHEST, LOWEST, Panes
from headrace.operators.window_assembly.pane_extent import SEEN
from headrace.time import Instant

_SECTIONS: Final = ("open0", "sealed0", SPARSE_OPEN, SPARSE_SEALED)


def emission_limit(
    panes: Panes,
    runs: Sequence[Sections],
    deltas: Sequence[Sections],
    advance: Advance,
    cap: EmissionCap,
    *,
    keys: int,
    answers_empty: bool,
) -> Instant | None:
    """The instant up to which an aggregate with `keys` keys should answer now; None: up to the punctuation."""
    due = span(panes, advance, cap)
    if due is None:
        return None
    names = (SEEN,) if answers_empty else _SECTIONS
    tables = [section[name] for section in (*runs, *deltas) for name in names if name in section]
    tables = between(tables, block_key(0, LOWEST), block_key(0, HIGHEST))
    if not tables:
        return None
    filled = np.unique(np.concatenate([_panes(table) for table in tables]))
    first, last = _filled(panes, filled, due, advance, answers_empty=answers_empty)
    if int(last.max()) - int(first.min()) < cap.windows:
        return None
    rows = sum(table.num_rows for table in tables)
    most = rows * panes.back if panes.back and not answers_empty else 1 << 60
    limit = emission_limit_over(panes, first, last, rows if keys else 1, most, cap)
    if limit is None or not keys:
        return limit
    return emission_limit_over(panes, first, last, _groups(keys, tables), most, cap)


def _filled(
    maps: Panes, panes: Ints, due: tuple[int, int], advance: Advance, *, answers_empty: bool
) -> tuple[Ints, Ints]:
    """The first and the last window among those due that each pane gives rows to."""
    emitted, last_due = due[0], min(due[1], HIGHEST_WINDOW)
    if advance.final:
        final = maps.last_window(int(panes[-1]))
        last_due = min(
            last_due, maps.first_window(maps.of_instant(advance.max_event_time)) if final is None else final
        )
    first = panes // maps.per_slide + 1
    if maps.back is None or answers_empty:
        first, last = first[:1], np.array([last_due])
    else:
        last = np.minimum((panes - (1 if maps.cut else 0)) // maps.per_slide + maps.back, last_due)
    return np.maximum(first, emitted + 1), last


def _panes(table: pa.Table) -> Ints:
    """The panes of a table, each once; rows are in the order of panes."""
    keys = ints(table, KEY)
    panes: Ints = keys[np.flatnonzero(np.diff(keys, prepend=keys[0] - 1))] - block_key(0, 0)
    return panes


def _groups(keys: int, tables: Sequence[pa.Table]) -> int:
    names = [f"k{index}" for index in range(keys)]
    whole = pa.concat_tables([table.select(names) for table in tables])
    return group([flat(whole.column(name)) for name in names], whole.num_rows).count
