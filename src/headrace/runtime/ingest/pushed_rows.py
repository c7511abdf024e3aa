"""Ingest of a table of rows: its record in the ingest log under a producer's number, with the rows if they are few, else with a
segment file; durable when it returns, unless the caller takes less.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.records.ingest_record import IngestRecord
from headrace.connectors.sources.content_digest import content_digest
from headrace.connectors.sources.segment_files import record_with_rows, write_table_segment
from headrace.errors import PushFailed, StoreError, WriteOutcome
from headrace.runtime.home.file_names import segments
from headrace.runtime.ingest.ingest_queue import Intake

HandIn = Callable[[IngestRecord, StreamDefinition, tuple[str, ...]], None]
"""Passes a segment's record on to the log, with the files that it names."""
Admit = Callable[[StreamDefinition], None]
"""Returns when there is room for rows of a stream, or raises `StoreError`."""


def ingest_once(
    intake: Intake,
    definition: StreamDefinition,
    table: pa.Table,
    producer: str,
    sequence: int,
    hand_in: HandIn | None = None,
    admit: Admit | None = None,
) -> None:
    """Write rows that have the stream's schema, unless the producer's batch of that number is in the log.

    Raises `UserError` where its number is taken by other rows, and `PushFailed` when the rows were not written, or that is in doubt.
    """
    digest = content_digest(table)
    with intake.lock:
        is_there = intake.producers(definition).has(producer, sequence, digest)
    if not is_there:
        ingest(intake, definition, table, digest, producer, sequence, hand_in, admit)


def ingest(
    intake: Intake,
    definition: StreamDefinition,
    table: pa.Table,
    digest: str,
    producer: str,
    sequence: int,
    hand_in: HandIn | None = None,
    admit: Admit | None = None,
) -> None:
    """Write rows, once `admit` returns, and their record to the log, by `hand_in` if that is given. Raises `PushFailed`."""
    outcome: WriteOutcome = "absent"
    try:
        if admit is not None:
            admit(definition)
        written, files = _written(intake, definition, table)
        record = replace(written, producer=producer, sequence=sequence, digest=digest)
        try:
            (hand_in or intake.hand_in)(record, definition, files)
        except StoreError:
            outcome = intake.find_out(record)
            if outcome != "present":
                raise
    except StoreError as error:
        raise PushFailed(definition.name, producer, sequence, outcome, error) from error


def _written(
    intake: Intake, definition: StreamDefinition, table: pa.Table
) -> tuple[IngestRecord, tuple[str, ...]]:
    """A record with its rows, if they are few; else one of a file, which is written here, and the file."""
    segment, now = f"push-{uuid.uuid4().hex}", intake.clock()
    if intake.takes_rows():
        record = record_with_rows(definition, table, segment, now)
        if record is not None:
            return record, ()
    folder = segments(definition.name)
    root = Path(intake.home.store.root)
    record = write_table_segment(definition, table, root / folder, segment, now, root=root, durable=False)
    return record, (f"{folder}/{segment}.arrow",)
