"""Rows in a request's body, JSON lines, CSV with a header or an Arrow table: `SentRows`, what of them a segment stores, and
which ones the stream rejects.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.formats import csv_reader, json_reader
from headrace.connectors.formats.refused_rows import with_refused
from headrace.connectors.records.chunk import Chunk
from headrace.connectors.records.ingest_record import NO_REJECTS, WHOLE, IngestRecord
from headrace.connectors.records.options import text_options
from headrace.connectors.sources.segment_files import as_rows
from headrace.connectors.sources.source_reader import judged
from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.time import Instant

_NAME: Final = "the rows sent"


@dataclass(frozen=True, slots=True)
class SentRows:
    """Rows of one request for a stream. `table` has all of them; one with a cell that does not fit has its text and the reason,
    and no values. `rejects` are those and the rows whose event time is refused when the segment is read (`REJECTS`).
    """

    definition: StreamDefinition
    table: pa.Table
    rejects: pa.Table

    @property
    def accepted(self) -> int:
        """How many rows become rows of the stream."""
        return int(self.table.num_rows - self.rejects.num_rows)

    def rows_of(self, definition: StreamDefinition) -> pa.Table:
        """The table, for the stream as it is now.

        Raises `UserError` when its columns are others than those that the rows were read for.
        """
        if definition.schema != self.definition.schema:
            raise UserError(f"the stream '{definition.name}' was dropped meanwhile: nothing was pushed")
        return self.table


def sent_as_text(definition: StreamDefinition, kind: str, body: bytes, now: Instant) -> SentRows:
    """Rows that a client sent as JSON lines or as CSV with a header.

    `kind` is "json" or "csv". The rules are those of a file of the same format. Raises `UserError` for CSV without a header: its
    first row would be lost as one.
    """
    record = IngestRecord(definition.name, _NAME, kind, 0, WHOLE, len(body), 0, now)
    headed = replace(definition, using=kind, options={**definition.options, "header": "true"})
    if kind == "csv":
        _check_header(headed, record, body)
    reader = csv_reader if kind == "csv" else json_reader
    return _sent(definition, headed, record, reader.chunks(io.BytesIO(body), record, headed))


def _check_header(definition: StreamDefinition, record: IngestRecord, body: bytes) -> None:
    names = csv_reader.header_names(io.BytesIO(body), record, text_options(definition.options))
    columns = definition.schema.names
    if names and not any(column.lower() in names for column in columns):
        raise UserError(
            f"the first line of the CSV names no column of stream '{definition.name}'",
            remedy=f"Begin with a header: {','.join(columns)}.",
        )


def sent_as_table(definition: StreamDefinition, table: pa.Table, now: Instant) -> SentRows:
    """Rows that a client sent as an Arrow table.

    Raises `UserError` when it does not fit the stream, as for a push.
    """
    table = as_rows(definition, table)
    record = IngestRecord(definition.name, _NAME, "arrow", 0, WHOLE, table.nbytes, 0, now)
    return _sent(definition, definition, record, _chunks(table))


def _chunks(table: pa.Table) -> Iterable[Chunk]:
    first = 0
    for batch in table.to_batches():
        yield Chunk(batch, np.arange(first, first + batch.num_rows), [], batch.num_rows)
        first += batch.num_rows


def _sent(
    definition: StreamDefinition, read_as: StreamDefinition, record: IngestRecord, chunks: Iterable[Chunk]
) -> SentRows:
    batches, rows, refused, rejects = [], [np.zeros(0, np.int64)], [], [NO_REJECTS]
    for chunk in chunks:
        batches.append(chunk.batch)
        rows.append(chunk.rows)
        refused += chunk.refused
        rejects.append(judged(chunk, record, read_as, ()).rejects)
    table = pa.Table.from_batches(batches, schema=definition.schema.arrow())
    return SentRows(definition, with_refused(table, np.concatenate(rows), refused), pa.concat_tables(rejects))
