"""Event times of a source's rows: the column or expression that gives them, and the check of each.

An event time is not null, within years 1 to 9999, and not further ahead of the clock than the stream allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.expressions.expression import Expression, columns_of
from headrace.catalog.definitions import StreamDefinition, TimeExpression
from headrace.connectors.records.ingest_record import IngestRecord
from headrace.language.statements.clauses.event_time import bind_time
from headrace.operators.base.batch import EventTimes
from headrace.operators.scalar import Evaluation
from headrace.schema import Schema
from headrace.time import DAY, Instant, render_duration, render_instant

FIRST: Final[Instant] = -62_135_596_800_000_000
"""0001-01-01T00:00:00Z."""
LAST: Final[Instant] = 253_402_300_799_999_999
"""9999-12-31T23:59:59.999999Z."""


def time_columns(definition: StreamDefinition) -> tuple[str, ...]:
    """The columns that a row's event time is computed from, in the order of the schema."""
    if definition.time_expression is not None:
        used = columns_of(_bound(definition.time_expression, definition.schema))
        return tuple(name for name in definition.schema.names if name in used)
    return () if definition.time is None else (definition.time,)


def event_times(
    batch: pa.RecordBatch, record: IngestRecord, definition: StreamDefinition
) -> tuple[EventTimes, npt.NDArray[np.bool_] | None, list[str]]:
    """Event times; when some are refused, a mask of them and a reason for each refused row, in order.

    `batch` has the columns of `time_columns`. A stream that has none gets the record's arrival.
    """
    rows = batch.num_rows
    failures: Mapping[int, str] = {}
    if definition.time_expression is not None:
        bound = _bound(definition.time_expression, definition.schema)
        evaluation = Evaluation({name: batch.column(name) for name in columns_of(bound)}, rows, {})
        column = evaluation.values(bound)
        if evaluation.errors is not None:
            failures = evaluation.errors.reasons
    elif definition.time is not None:
        column = batch.column(definition.time)
    else:
        return EventTimes.of(np.full(rows, record.arrival, np.int64)), None, []
    nulls = column.null_count
    micros = column.view(pa.int64()) if pa.types.is_timestamp(column.type) else _midnights(column)
    at = (micros.fill_null(0) if nulls else micros).to_numpy()
    times, (first, last) = EventTimes.of(at), accepted(record, definition)
    if not nulls and (not rows or (times.bounds[0] >= first and times.bounds[1] <= last)):
        return times, None, []
    missing = pc.is_null(column).to_numpy(zero_copy_only=False)
    refused = missing | (at < first) | (at > last)
    if not refused.any():
        return times, None, []
    wrong = np.flatnonzero(refused)
    return (
        times,
        refused,
        [
            f"event time {definition.event_time}: {failures[row]}"
            if row in failures
            else _reason(bool(missing[row]), int(at[row]), record, definition)
            for row in wrong.tolist()
        ],
    )


def accepted(record: IngestRecord, definition: StreamDefinition) -> tuple[Instant, Instant]:
    """The first and the last event time that a row of the record may have."""
    return FIRST, min(LAST, record.arrival + definition.max_ahead)


@lru_cache(maxsize=256)
def _bound(time: TimeExpression, schema: Schema) -> Expression:
    return bind_time(time, schema)


def _midnights(column: pa.Array) -> pa.Array:
    """Microseconds of a DATE; days outside the years 1 to 9999 stay outside."""
    days = column.cast(pa.int32()).cast(pa.int64())
    near = pc.min_element_wise(pc.max_element_wise(days, -_FAR, skip_nulls=False), _FAR, skip_nulls=False)
    return pc.multiply(near, DAY)


_FAR: Final = 10_000_000


def _reason(missing: bool, at: Instant, record: IngestRecord, definition: StreamDefinition) -> str:
    name = definition.event_time
    if missing:
        return f"event time {name} is null"
    if not FIRST <= at <= LAST:
        return f"event time {name} is outside of the years 1 to 9999 ({at} µs)"
    return (
        f"event time {name} is {render_instant(at)}, more than {render_duration(definition.max_ahead)} "
        f"after its arrival at {render_instant(record.arrival)}"
    )
