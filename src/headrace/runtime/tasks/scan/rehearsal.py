"""A rehearsal of a scan, which warms up a worker that has nothing to do yet: a few rows that no source has are encoded,
read and folded.

A process that was just forked shares its memory with others, and copies each page when it first writes to it; Arrow and numpy find their
functions when they are first called. Both took a tenth of a second of a worker's first scan.
"""

from __future__ import annotations

import io
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.expressions.expression import Column, Named
from headrace.archive.runs import RunWriter
from headrace.connectors.formats import parquet_reader
from headrace.connectors.records.ingest_record import WHOLE, IngestRecord
from headrace.operators.aggregates.cell_table import merge
from headrace.operators.aggregates.group_by import Grouped, fold
from headrace.operators.scalar import Evaluation
from headrace.runtime.messages.exchange_blob import ScanBlob
from headrace.runtime.messages.task_messages import ScanReceipt
from headrace.schema import BIGINT, DOUBLE, TIMESTAMP, Field, Schema

_ROWS: Final = 1 << 11
_SCHEMA: Final = Schema((Field("at", TIMESTAMP), Field("key", BIGINT), Field("value", DOUBLE)))


def rehearse() -> None:
    """Encode rows as the archive does, read them, fold them and pack the result; nothing is left of it."""
    numbers = np.arange(_ROWS)
    writer = RunWriter(_SCHEMA.arrow(), "at")
    columns = [
        pa.array(numbers).cast(pa.timestamp("us", "UTC")),
        pa.array(numbers % 8),
        pa.array(numbers / 2),
    ]
    writer.add(columns, numbers, numbers, None)
    (run,) = writer.finish()
    record = IngestRecord("", "", "parquet", 0, WHOLE, run.size, 0, 0)
    key, value = Column("key", BIGINT), Column("value", DOUBLE)
    calls = (
        AggregateCall("count", None, BIGINT),
        AggregateCall("sum", value, DOUBLE),
        AggregateCall("max", value, DOUBLE),
    )
    grouped = Grouped((Named("key", key),), tuple(NamedAggregate(call.function, call) for call in calls))
    for chunk in parquet_reader.chunks(io.BytesIO(run.to_pybytes()), record, _SCHEMA, _SCHEMA.names):
        evaluation = Evaluation(
            dict(zip(_SCHEMA.names, chunk.batch.columns, strict=True)), chunk.batch.num_rows
        )
        values = [evaluation.values(expression) for expression in grouped.inputs()]
        tables = fold(grouped, chunk.rows // 100, values, None)
        ScanBlob(ScanReceipt(0), {}, {"": merge(grouped.layouts[0], [*tables, *tables])}).pack()
