"""Merge of the parts of a query's results by emission instant, in batches whose instants ascend.

A query's history may be as large as memory, so only the rows of the current batch are in memory, and each batch is read into
the memory of the previous one: touching new memory costs more than the reading.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import ints
from headrace.operators.base.operator import AT
from headrace.time import Instant

PIECE: Final = 1 << 14
"""Rows of a long result that are written and read together."""


@dataclass(frozen=True, slots=True)
class Part:
    """Rows with an instant in `AT`, none below `least`; `batches` reads them by instant, or as one batch in any order."""

    least: Instant
    batches: Callable[[], Iterator[pa.RecordBatch]]

    @staticmethod
    def of(table: pa.Table) -> Part:
        """The rows of a table that is not empty."""
        batches = table.combine_chunks().to_batches()
        return Part(int(batches[0].column(AT).to_numpy().min()), lambda: iter(batches))


def instant_batches(parts: Sequence[Part], rows: int) -> Iterator[pa.Table]:
    """All rows in tables of about `rows` rows, more where many have one instant; instants ascend from table to table."""
    unread = [(part.least, index) for index, part in enumerate(parts)]
    heapq.heapify(unread)
    readers: dict[int, Iterator[pa.RecordBatch]] = {}
    pending: list[pa.RecordBatch] = []
    count, enough = 0, rows
    while unread:
        bound, index = heapq.heappop(unread)
        if index not in readers:
            readers[index] = parts[index].batches()
        batch = next(readers[index], None)
        if batch is None:
            del readers[index]
        elif batch.num_rows:
            pending.append(by_instant(batch))
            count += batch.num_rows
            heapq.heappush(unread, (max(bound, pending[-1].column(AT)[-1].as_py()), index))
        else:
            heapq.heappush(unread, (bound, index))
        if not unread or count >= enough:
            ready, pending = _parted(pending, unread[0][0] if unread else None)
            count = sum(batch.num_rows for batch in pending)
            enough = max(rows, 2 * count)  # many rows of one instant are not cut again for each batch
            if ready:
                yield pa.Table.from_batches(ready)


Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def by_instant(rows: Rows) -> Rows:
    """The same rows in the order of instants; stable."""
    at = ints(rows, AT)
    if not (at[1:] < at[:-1]).any():
        return rows
    return rows.take(pa.array(np.argsort(at, kind="stable")))


def _parted(
    batches: Sequence[pa.RecordBatch], edge: Instant | None
) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
    """Rows below `edge` (None: all), to which no more are added, and the others."""
    if edge is None:
        return list(batches), []
    cuts = [int(np.searchsorted(batch.column(AT).to_numpy(), edge)) for batch in batches]
    below = [batch.slice(0, cut) for batch, cut in zip(batches, cuts, strict=True) if cut]
    others = [batch.slice(cut) for batch, cut in zip(batches, cuts, strict=True) if cut < batch.num_rows]
    return below, others
