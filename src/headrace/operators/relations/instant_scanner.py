"""Scanner of aggregates at every instant: its deltas are the new rows, folded by event time and group if an event time
determines how long a row holds (`[RANGE r]`, UNBOUNDED), else as they are (`[ROWS n]`). Without GROUP BY also the least
event time of all rows, even of those that WHERE drops, for each query: its answer begins there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.aggregates.cell_table import FIRST_KEY, KEY
from headrace.operators.aggregates.group_by import fold
from headrace.operators.base.batch import Batch
from headrace.operators.base.group_codes import Ints, flat
from headrace.operators.base.operator import SLOT, Scanned, Sections
from headrace.operators.relations.instant_subwindow import CELLS, FIRST
from headrace.operators.rows.row_state import ROWS, RowScanner, hold
from headrace.time import FOREVER, Instant

if TYPE_CHECKING:
    from headrace.operators.relations.instant_aggregate import InstantAggregate


@dataclass(slots=True)
class InstantScanner:
    """Stores rows, folded by instant and group if possible, and the first instant."""

    operator: InstantAggregate
    rows: RowScanner
    first: Instant = FOREVER

    def add(self, batch: Batch) -> None:
        """Add a batch."""
        if batch.rows:
            self.first = min(self.first, int(batch.at.min()))
        self.rows.add(batch)

    def finish(self) -> Scanned:
        """The deltas."""
        scanned = self.rows.finish()
        deltas = instant_deltas(self.operator, scanned.deltas.get(ROWS), self.first)
        return Scanned(deltas, scanned.rejected, scanned.rows_in, scanned.rows_kept)


def instant_deltas(operator: InstantAggregate, rows: pa.Table | None, first: Instant | Ints) -> Sections:
    """Stored rows, folded by instant and group if possible, and the first instant: of all queries, or of each."""
    deltas: dict[str, pa.Table] = {}
    if rows is not None and not operator.folds:
        deltas[ROWS] = rows
    elif rows is not None:
        held = hold(operator.rows, [rows])
        values = [held.column(name) for name in operator.stored_names]
        for store, table in enumerate(fold(operator.grouped, held.at, values, operator.rows.slot)):
            keys = [flat(table.column(name)) for name in operator.grouped.layouts[0].key_names]
            slots = pa.array(operator.slots_of_groups(keys, table.num_rows))
            deltas[f"{CELLS}{store}"] = table.set_column(table.column_names.index(SLOT), SLOT, slots)
    if operator.is_global:
        extents = operator.extents
        firsts = np.broadcast_to(np.asarray(first, np.int64), extents.count)
        have_rows = firsts != FOREVER
        if have_rows.any():
            columns = {KEY: pa.array(firsts[have_rows]), SLOT: pa.array(extents.slots[have_rows])}
            number = {FIRST_KEY: pa.array(extents.numbers[have_rows])} if operator.queries else {}
            deltas[FIRST] = pa.table({**columns, **number})
    return deltas
