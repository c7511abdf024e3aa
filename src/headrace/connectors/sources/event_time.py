"""Check of event times: not null, within years 1 to 9999, not further ahead of the clock than the stream allows."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.records.ingest_record import IngestRecord
from headrace.time import DAY, Instant, render_duration, render_instant

FIRST: Final[Instant] = -62_135_596_800_000_000
"""0001-01-01T00:00:00Z."""
LAST: Final[Instant] = 253_402_300_799_999_999
"""9999-12-31T23:59:59.999999Z."""


def event_times(
    column: pa.Array | None, rows: int, record: IngestRecord, definition: StreamDefinition
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_] | None, list[str]]:
    """Event times in microseconds; when some are refused, a mask of them and a reason for each refused row, in order.

    `column` is the event-time column, None when the stream has none: the record's arrival is stamped.
    """
    if definition.time is None or column is None:
        return np.full(rows, record.arrival, np.int64), None, []
    nulls = column.null_count
    micros = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else _midnights(column)
    at = (micros.fill_null(0) if nulls else micros).to_numpy()
    limit = min(LAST, record.arrival + definition.max_ahead)
    if not nulls and (not rows or (int(at.min()) >= FIRST and int(at.max()) <= limit)):
        return at, None, []
    missing = pc.is_null(column).to_numpy(zero_copy_only=False)
    refused = missing | (at < FIRST) | (at > limit)
    if not refused.any():
        return at, None, []
    wrong = np.flatnonzero(refused)
    return at, refused, [_reason(bool(missing[row]), int(at[row]), record, definition) for row in wrong]


def _midnights(column: pa.Array) -> pa.Array:
    """Microseconds of a DATE; days outside the years 1 to 9999 stay outside."""
    days = column.cast(pa.int32()).cast(pa.int64())
    near = pc.min_element_wise(pc.max_element_wise(days, -_FAR, skip_nulls=False), _FAR, skip_nulls=False)
    return pc.multiply(near, DAY)


_FAR: Final = 10_000_000


def _reason(missing: bool, at: Instant, record: IngestRecord, definition: StreamDefinition) -> str:
    name = definition.time
    if missing:
        return f"event time {name} is null"
    if not FIRST <= at <= LAST:
        return f"event time {name} is outside of the years 1 to 9999 ({at} µs)"
    return (
        f"event time {name} is {render_instant(at)}, more than {render_duration(definition.max_ahead)} "
        f"after its arrival at {render_instant(record.arrival)}"
    )
