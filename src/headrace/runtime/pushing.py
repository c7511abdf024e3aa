"""Rows handed in by a program, for streams made USING push."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from headrace.catalog.catalog import Catalog
from headrace.catalog.definitions import StreamDefinition
from headrace.errors import UserError, did_you_mean
from headrace.runtime.engine import Engine
from headrace.runtime.home import Home
from headrace.runtime.sources.records import PUNCTUATION, IngestRecord
from headrace.runtime.sources.segments import write_push_segment
from headrace.time import Instant, render_duration, render_instant


def require_stream(catalog: Catalog, name: str) -> StreamDefinition:
    """The stream of that name.

    Raises `UserError` that names near ones.
    """
    found = catalog.stream(name)
    if found is None:
        names = [stream.name for stream in catalog.streams.values()]
        raise UserError(f"there is no stream '{name}'", remedy=did_you_mean(name, names))
    return found


def punctuate(home: Home, engine: Engine, name: str, at: Instant) -> None:
    """Log a promise that no row below `at` follows the rows handed in so far.

    Raises `UserError` for a stream of another query's results, and for an instant beyond the stream's maxAhead.
    """
    definition, now = require_stream(home.catalog, name), engine.clock()
    if at > now + definition.max_ahead:
        raise UserError(
            f"the punctuation {render_instant(at)} is further ahead of the clock than {definition.name} allows",
            remedy=f"maxAhead is {render_duration(definition.max_ahead)}.",
        )
    uri = f"punctuation-{uuid.uuid4().hex}"
    engine.intake.hand_in(IngestRecord(definition.name, uri, PUNCTUATION, at, at, 0, 0, now, 0))


def instant(at: Instant | datetime) -> Instant:
    """Microseconds since 1970 UTC.

    Raises `UserError` for a datetime without a zone.
    """
    if not isinstance(at, datetime):
        return int(at)
    if at.tzinfo is None:
        raise UserError(f"the datetime {at} has no zone", remedy="Give it one, such as datetime.UTC.")
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def push(home: Home, engine: Engine, name: str, rows: Any) -> int:
    """Write rows as a segment and log it; how many rows.

    Raises `UserError` when the stream is not made for it or the rows do not fit its columns.
    """
    definition = require_stream(home.catalog, name)
    if definition.using != "push":
        raise UserError(
            f"the stream '{definition.name}' reads {definition.using}, it takes no pushed rows",
            remedy="CREATE STREAM ... USING push.",
        )
    folder = Path(home.store.root) / "segments" / definition.name
    record = write_push_segment(definition, rows, folder, f"push-{uuid.uuid4().hex}", engine.clock())
    engine.intake.hand_in(record)
    return record.rows_hint
