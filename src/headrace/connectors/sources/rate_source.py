"""The rate source, which generates rows: row n has the timestamp start + n/`rowsPerSecond` and the value n. The ingest
record of the rows that are due, and the rows of a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.formats.parquet_reader import BATCH
from headrace.connectors.records.chunk import Chunk
from headrace.connectors.records.ingest_record import IngestRecord
from headrace.connectors.records.options import number
from headrace.errors import UserError
from headrace.schema import BIGINT, STAMP, TIMESTAMP, Field, Schema
from headrace.time import SECOND, Instant

SCHEMA: Final = Schema((Field("timestamp", TIMESTAMP), Field("value", BIGINT)))
_SCHEME: Final = "rate:"


def rate_record(
    definition: StreamDefinition, start: Instant, first: int, last: int, arrival: Instant
) -> IngestRecord:
    """Rows [first, last) of a rate stream that began at `start`."""
    return IngestRecord(
        definition.name, f"{_SCHEME}{start}", "rate", first, last, 0, 0, arrival, last - first
    )


def require_columns(definition: StreamDefinition) -> None:
    """Raise `UserError` unless the columns have the types of a rate stream, whatever their names."""
    if tuple(field.type for field in definition.schema) != (TIMESTAMP, BIGINT):
        raise UserError(
            f"'{definition.name}': a rate source has a TIMESTAMP and a BIGINT column",
            remedy=f"Write CREATE STREAM {definition.name} (timestamp TIMESTAMP, value BIGINT) USING rate ...",
        )


def due(definition: StreamDefinition, start: Instant, done: int, now: Instant) -> IngestRecord | None:
    """The rows that are due at `now` and not among the first `done`; None when there is none."""
    per_second = number(definition.options, "rowsPerSecond") or 1
    last = max(0, (now - start) * per_second // SECOND + 1)
    return rate_record(definition, start, done, last, now) if last > done else None


def chunks(record: IngestRecord, definition: StreamDefinition) -> Iterator[Chunk]:
    """The record's rows with all columns of the schema, which are a timestamp and a number whatever their names."""
    require_columns(definition)  # older homes were not checked at CREATE
    per_second = number(definition.options, "rowsPerSecond") or 1
    start = int(record.uri.removeprefix(_SCHEME))
    for first in range(record.start, record.end, BATCH):
        values = np.arange(first, min(first + BATCH, record.end), dtype=np.int64)
        at = pa.array(start + values * SECOND // per_second).cast(STAMP)
        batch = pa.RecordBatch.from_arrays([at, pa.array(values)], schema=definition.schema.arrow())
        yield Chunk(batch, values - record.start, [], len(values))
