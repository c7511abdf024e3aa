"""Rows handed in by a program, for streams made USING push."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

from headrace.catalog.catalog import Catalog
from headrace.catalog.definitions import StreamDefinition
from headrace.errors import UserError, did_you_mean
from headrace.runtime.engine import Engine
from headrace.runtime.home import Home
from headrace.runtime.punctuators import promise_of
from headrace.runtime.sources.records import ALL, PUNCTUATION, IngestRecord
from headrace.runtime.sources.segments import write_push_segment
from headrace.time import FOREVER, Instant, render_duration, render_instant

When: TypeAlias = Instant | datetime | None


def require_stream(catalog: Catalog, name: str) -> StreamDefinition:
    """The stream of that name.

    Raises `UserError` that names near ones.
    """
    found = catalog.stream(name)
    if found is None:
        names = [stream.name for stream in catalog.streams.values()]
        raise UserError(f"there is no stream '{name}'", remedy=did_you_mean(name, names))
    return found


def punctuate(
    home: Home,
    engine: Engine,
    name: str,
    at: When,
    where: str | None = None,
    zone: str | None = None,
) -> None:
    """Log a promise that no row below `at`, or that matches the pattern `where`, follows the rows handed in so far.

    Raises `UserError` for a stream of another query's results, for an instant beyond the stream's maxAhead, and for what is
    no pattern of the stream.
    """
    definition, now = require_stream(home.catalog, name), engine.clock()
    bound = FOREVER if at is None else instant(at)
    promise = ALL
    if where is not None:
        promise, below = promise_of(definition, where, zone)
        bound = min(bound, below)
    if (promise == ALL or bound != FOREVER) and bound > now + definition.max_ahead:
        raise UserError(
            f"the punctuation {render_instant(bound)} is further ahead of the clock than {definition.name} allows",
            remedy=f"maxAhead is {render_duration(definition.max_ahead)}.",
        )
    uri = f"punctuation-{uuid.uuid4().hex}"
    record = IngestRecord(definition.name, uri, PUNCTUATION, bound, bound, 0, 0, now, 0, promise=promise)
    engine.intake.hand_in(record)


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
