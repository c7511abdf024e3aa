"""Streams and files for the tests of sources."""

from __future__ import annotations

from pathlib import Path

from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.records.ingest_record import IngestRecord
from headrace.connectors.records.options import settle
from headrace.connectors.sources.listing import list_new
from headrace.connectors.sources.source_reader import read
from headrace.schema import DOUBLE, INT, STRING, TIMESTAMP, Field, Schema

ARRIVAL = 1_800_000_000_000_000
"""2027-01-15T08:00:00Z."""
SCHEMA = Schema((Field("k", INT), Field("v", DOUBLE), Field("s", STRING), Field("at", TIMESTAMP)))


def stream(
    path: Path, using: str, schema: Schema = SCHEMA, time: str | None = "at", **options: str
) -> StreamDefinition:
    definition = StreamDefinition("s", schema, using, {"path": str(path), **options}, time=time)
    return settle(definition, Path("/"))


def everything(
    definition: StreamDefinition, records: list[IngestRecord] | None = None, root: Path | None = None
) -> tuple[list[dict], list[str]]:
    """All rows in order, and the reasons of all rejects; numbers must increase within a record."""
    rows, reasons = [], []
    for record in list_new(definition, (), ARRIVAL) if records is None else records:
        last = -1
        for batch in read(record, definition, root=None if root is None else str(root)):
            assert batch.table.schema == definition.schema.arrow()
            assert len(batch.at) == len(batch.rows) == batch.table.num_rows
            numbers = sorted([*batch.rows.tolist(), *batch.rejects.column("row").to_pylist()])
            assert len(set(numbers)) == len(numbers)
            assert not numbers or numbers[0] > last
            last = numbers[-1] if numbers else last
            rows += batch.table.to_pylist()
            reasons += batch.rejects.column("reason").to_pylist()
    return rows, reasons


def rejected(definition: StreamDefinition) -> list[tuple[int, str, str]]:
    return [
        tuple(row.values())
        for record in list_new(definition, (), ARRIVAL)
        for batch in read(record, definition)
        for row in batch.rejects.to_pylist()
    ]
