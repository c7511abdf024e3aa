"""Scanner of aggregates at every instant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.operators.aggregates.cell_table import KEY
from headrace.operators.aggregates.group_by import fold
from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import SLOT, Scanned
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
        operator, scanned = self.operator, self.rows.finish()
        deltas = dict(scanned.deltas)
        if operator.folds and ROWS in deltas:
            held = hold(operator.rows, [deltas.pop(ROWS)])
            values = [held.column(name) for name in operator.rows.names[operator.validity.partitions :]]
            slot = operator.rows.slot if operator.rows.routing is None else None
            for store, table in enumerate(fold(operator.grouped, held.at, values, slot)):
                deltas[f"{CELLS}{store}"] = table
        if operator.is_global and self.first != FOREVER:
            deltas[FIRST] = pa.table({KEY: [self.first], SLOT: pa.array([operator.rows.slot], pa.int16())})
        return Scanned(deltas, scanned.rejected, scanned.rows_in, scanned.rows_kept)
