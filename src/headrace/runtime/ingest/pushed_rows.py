"""Ingest of a table of rows: a segment file, and its record in the ingest log under a producer's number; durable when it returns, unless
the caller takes less.
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
from headrace.connectors.sources.segment_files import write_table_segment
from headrace.errors import PushFailed, StoreError, WriteOutcome
from headrace.runtime.home.file_names import segments
from headrace.runtime.ingest.ingest_queue import Intake

HandIn = Callable[[IngestRecord, StreamDefinition, tuple[str, ...]], None]
"""Passes a segment's record on to the log, with the files that it names."""


def ingest_once(
    intake: Intake,
    definition: StreamDefinition,
    table: pa.Table,
    producer: str,
    sequence: int,
    hand_in: HandIn | None = None,
) -> None:
    """Write rows that have the stream's schema, unless the producer's batch of that number is in the log.

    Raises `UserError` where its number is taken by other rows, and `PushFailed` when the rows were not written, or that is in doubt.
    """
    digest = content_digest(table)
    with intake.lock:
        is_there = intake.producers(definition).has(producer, sequence, digest)
    if not is_there:
        ingest(intake, definition, table, digest, producer, sequence, hand_in)


def ingest(
    intake: Intake,
    definition: StreamDefinition,
    table: pa.Table,
    digest: str,
    producer: str,
    sequence: int,
    hand_in: HandIn | None = None,
) -> None:
    """Write rows as a segment, and its record to the log, by `hand_in` if that is given. Raises `PushFailed`."""
    home = intake.home
    folder, segment = segments(definition.name), f"push-{uuid.uuid4().hex}"
    outcome: WriteOutcome = "absent"
    try:
        written = write_table_segment(
            *(definition, table, Path(home.store.root) / folder, segment, intake.clock()),
            durable=False,
        )
        record = replace(written, producer=producer, sequence=sequence, digest=digest)
        try:
            (hand_in or intake.hand_in)(record, definition, (f"{folder}/{segment}.arrow",))
        except StoreError:
            outcome = intake.find_out(record)
            if outcome != "present":
                raise
    except StoreError as error:
        raise PushFailed(definition.name, producer, sequence, outcome, error) from error
