"""Pushes: rows that a program passes to streams made USING push, each numbered batch of a producer counted once; and
punctuation (a watermark) that a program declares for a stream.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypeAlias

from headrace.catalog.catalog import Catalog
from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.records.ingest_record import ALL, PUNCTUATION, IngestRecord
from headrace.connectors.records.options import durable_within
from headrace.connectors.sources.content_digest import content_digest
from headrace.connectors.sources.segment_files import as_rows
from headrace.errors import UnknownName, UserError, did_you_mean
from headrace.language.statements.options import known_zone
from headrace.runtime.epoch.engine import Engine
from headrace.runtime.home.deadline import change
from headrace.runtime.home.home import Home
from headrace.runtime.ingest.backpressure import Backpressure
from headrace.runtime.ingest.pushed_rows import ingest, ingest_once
from headrace.runtime.ingest.unlogged_pushes import UnloggedPushes
from headrace.runtime.progress.punctuators import promise_of
from headrace.time import FOREVER, Instant, render_duration, render_instant

When: TypeAlias = Instant | datetime | None
LONGEST_ID: Final = 200
"""Characters of a producer's id."""


def require_stream(catalog: Catalog, name: str) -> StreamDefinition:
    """The stream of that name.

    Raises `UserError` with similar names when there is none.
    """
    stream = catalog.stream(name)
    if stream is None:
        names = [definition.name for definition in catalog.streams.values()]
        raise UnknownName(f"there is no stream '{name}'", remedy=did_you_mean(name, names))
    return stream


def punctuate(
    home: Home,
    engine: Engine,
    name: str,
    at: When,
    where: str | None = None,
    zone: str | None = None,
) -> None:
    """Log a promise that no row after those pushed so far is below `at`, or matches the pattern `where`.

    Raises `UserError` for a stream of another query's results, for an instant beyond the stream's maxAhead, and for a text that
    is no pattern of the stream.
    """
    definition, now = require_stream(home.catalog, name), engine.clock()
    bound = FOREVER if at is None else instant(at)
    promise = ALL
    if where is not None:
        promise, below = promise_of(definition, where, None if zone is None else known_zone(zone))
        bound = min(bound, below)
    if (promise == ALL or bound != FOREVER) and bound > now + definition.max_ahead:
        raise UserError(
            f"the punctuation {render_instant(bound)} is further ahead of the clock than {definition.name} allows",
            remedy=f"maxAhead is {render_duration(definition.max_ahead)}.",
        )
    uri = f"punctuation-{uuid.uuid4().hex}"
    record = IngestRecord(definition.name, uri, PUNCTUATION, bound, bound, 0, 0, now, 0, promise=promise)
    change(lambda: engine.intake.hand_in(record, definition))


def instant(at: Instant | datetime) -> Instant:
    """Microseconds since 1970 UTC.

    Raises `UserError` for a datetime without a zone.
    """
    if not isinstance(at, datetime):
        if isinstance(at, bool) or not isinstance(at, int):
            raise UserError(
                f"the instant is {at!r}",
                remedy="Pass a datetime with a zone, or microseconds since 1970 as an int.",
            )
        return at
    if at.tzinfo is None:
        raise UserError(f"the datetime {at} has no zone", remedy="Give it one, such as datetime.UTC.")
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


class Pushing:
    """Pushes of one hub, from any thread. For calls without a producer the hub has its own, one for each call under way."""

    def __init__(self, home: Home, engine: Engine, backpressure: Backpressure) -> None:
        self._home, self._engine, self.backpressure = home, engine, backpressure
        self.unlogged = UnloggedPushes(engine.intake)
        self._resting: list[tuple[str, int]] = []
        """Producers of the hub that no call uses, each with its next number."""

    def push(
        self, name: str, rows: Any, producer: str | None, sequence: int | None, *, durable: bool = False
    ) -> int:
        """Write rows as a segment and log it, unless the producer's batch of that number is in the log.

        Returns the number of rows. Raises `UserError` when the stream takes no pushes, the rows do not fit its columns, or the
        number is not valid; `PushFailed` when the rows were not written, since there was no room for them too, or that is in doubt. Rows are durable when it returns, but for
        streams that are created with the option durability, unless `durable`.
        """
        definition, intake = self._stream(name), self._engine.intake
        within, hand_in = durable_within(definition.options), None
        if within and not durable:
            hand_in = partial(self.unlogged.hand_in, within=within)
        from headrace.connectors.sources.sent_rows import SentRows  # noqa: PLC0415 - with the first push

        table = rows.rows_of(definition) if isinstance(rows, SentRows) else as_rows(definition, rows)
        if producer is None and sequence is None:
            # A call that fails retains its producer: the number is free for its repetition.
            producer, sequence = self._resting.pop() if self._resting else (f"hub-{uuid.uuid4().hex}", 0)
            digest, admit = content_digest(table), self.backpressure.admit
            ingest(intake, definition, table, digest, producer, sequence, hand_in, admit)
            self._resting.append((producer, sequence + 1))
            return int(table.num_rows)
        producer, sequence = _checked(producer, sequence)
        ingest_once(intake, definition, table, producer, sequence, hand_in, self.backpressure.admit)
        return int(table.num_rows)

    def pushed(self, name: str, producer: str) -> int | None:
        """The last batch number of a producer that is durable; None for a producer that is not known.

        Raises `StoreError` while the log cannot be read.
        """
        intake = self._engine.intake
        with intake.lock:
            intake.settle_doubt()
            return intake.producers(self._stream(name)).last(producer)

    def _stream(self, name: str) -> StreamDefinition:
        definition = require_stream(self._home.catalog, name)
        if definition.using != "push":
            raise UserError(
                f"the stream '{definition.name}' reads {definition.using}, it takes no pushed rows",
                remedy="CREATE STREAM ... USING push.",
            )
        return definition


def _checked(producer: Any, sequence: Any) -> tuple[str, int]:
    """A producer and number that a caller has given. Raises `UserError` for others than a text and a number."""
    if not isinstance(producer, str) or not 0 < len(producer) <= LONGEST_ID:
        raise UserError(
            f"the producer is {producer!r}",
            remedy=f"A sequence needs the id of its producer: a text of 1 to {LONGEST_ID} characters.",
        )
    if not isinstance(sequence, int) or isinstance(sequence, bool) or not 0 <= sequence < 1 << 63:
        raise UserError(
            f"the sequence is {sequence!r}",
            remedy="A producer numbers its batches: a whole number from 0 to 2^63 - 1, greater for every new batch.",
        )
    return producer, sequence
