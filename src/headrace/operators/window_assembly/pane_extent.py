"""State table of the first and the last pane with rows, one pair for an operator, for EMIT EMPTY without GROUP BY:
windows are emitted from the first on, also those without rows. A row counts also where the WHERE over the window
drops it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from headrace.operators.aggregates.cell_table import KEY
from headrace.operators.base.group_codes import ints
from headrace.operators.base.operator import SLOT
from headrace.operators.panes.pane_keys import block_key

SEEN: Final = "seen"


def extent_table(low: int, high: int, slot: int) -> pa.Table:
    """The state table of the least and greatest pane of an operator's rows."""
    keys = pa.array([block_key(0, low), block_key(0, high)])
    return pa.table([keys, pa.array([slot, slot], pa.int16())], names=[KEY, SLOT])


def one_extent(tables: Sequence[pa.Table]) -> pa.Table:
    """The extent of several extents."""
    whole = pa.concat_tables(tables)
    if not whole.num_rows:
        return whole
    keys = ints(whole, KEY) - block_key(0, 0)
    return extent_table(int(keys.min()), int(keys.max()), whole.column(SLOT)[0].as_py())
