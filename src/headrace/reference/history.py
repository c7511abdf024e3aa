"""Recorded histories: stored relations and finite streams, each row with its time, position and fate (accepted, late
or rejected); and the recording of a stream from epochs of rows.

A row is late if its event time is below the punctuation after all *earlier* epochs; rows of its own epoch never
make it late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import date
from typing import Any, TypeAlias
from typing import Literal as Choice

from headrace.algebra.expressions.punctuation_patterns import OneOf, Pattern, Test
from headrace.algebra.query import Query, QueryScan, StreamScan, walk
from headrace.dataclass import dataclass
from headrace.reference.values import Row
from headrace.time import BEGINNING, FOREVER, Duration, Instant

Fate = Choice["accepted", "late", "rejected"]
Source: TypeAlias = str | Query
"""The key of a recorded stream: its name, that of a registered query, or the SELECT in FROM that it is the answer of."""


@dataclass(frozen=True, slots=True)
class StreamRow:
    """A row as it was ingested. `position` is unique and increasing within its stream; epochs count from 1.

    `weight`: the number of rows that it represents in queries WITH SHEDDING; 0 for a shed row.
    """

    values: Mapping[str, Any]
    at: Instant
    position: int
    epoch: int = 1
    fate: Fate = "accepted"
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class RecordedStream:
    """The rows of a stream in order of ingestion, and the punctuation after each epoch."""

    rows: tuple[StreamRow, ...]
    punctuations: tuple[Instant, ...] = ()

    @property
    def punctuation(self) -> Instant:
        """The punctuation after the last epoch: no later accepted row is below it."""
        return self.punctuations[-1] if self.punctuations else BEGINNING

    def ordered(self, fates: Sequence[Fate] = ("accepted",)) -> list[StreamRow]:
        """The rows of these fates in the stream's order: event time, then position."""
        return sorted((row for row in self.rows if row.fate in fates), key=lambda row: (row.at, row.position))

    def revised(self, within: Duration | None) -> list[StreamRow]:
        """The accepted rows and the late ones at most `within` below the punctuation at the start of their epoch.

        A stream that has ended (punctuation `FOREVER`) accepts no rows.
        """
        before = (BEGINNING, *self.punctuations)

        def enters(row: StreamRow) -> bool:
            punctuation = before[row.epoch - 1]
            return punctuation != FOREVER and (within is None or row.at >= punctuation - within)

        return [row for row in self.ordered(("accepted", "late")) if row.fate == "accepted" or enters(row)]

    def after(self, epochs: int) -> RecordedStream:
        """The stream as recorded after `epochs` epochs."""
        rows = tuple(row for row in self.rows if row.epoch <= epochs)
        return RecordedStream(rows, self.punctuations[:epochs])


def source_of(scan: StreamScan | QueryScan) -> Source:
    """The source of a scan: the name of a stream or a query, or a SELECT in FROM."""
    return scan.name if isinstance(scan, StreamScan) or scan.query is None else scan.query


def relation_of(scan: StreamScan | QueryScan) -> Query | None:
    """The query whose relation a scan reads; None for a stream."""
    inner = scan.query if isinstance(scan, QueryScan) else None
    return inner if inner is not None and inner.emission == "relation" else None


def sources_of(query: Query) -> tuple[Source, ...]:
    """The streams that it reads, each once, also those of relations that it reads."""
    sources: dict[Source, None] = {}
    for node in walk(query.root):
        if isinstance(node, StreamScan | QueryScan):
            inner = relation_of(node)
            sources |= dict.fromkeys((source_of(node),) if inner is None else sources_of(inner))
    return tuple(sources)


Promise: TypeAlias = tuple[Pattern, Instant]
"""No row that matches the pattern follows below the instant."""


def record(
    epochs: Iterable[Iterable[Mapping[str, Any]]],
    time: str,
    slack: Duration = 0,
    promises: Sequence[Sequence[Promise]] = (),
) -> RecordedStream:
    """The fates of rows that arrive epoch by epoch; an epoch may be empty. A row without a time is rejected.

    `promises[i]` are accepted with the i-th epoch, from 0: rows of later epochs that break them are late.
    """
    rows: list[StreamRow] = []
    punctuations: list[Instant] = []
    punctuation = BEGINNING
    for number, epoch in enumerate(epochs, start=1):
        promised = [promise for epoch_promises in promises[: number - 1] for promise in epoch_promises]
        judged = [_judge(values, time, punctuation, promised) for values in epoch]
        rows += [
            StreamRow(values, at, len(rows) + offset, number, fate)
            for offset, (values, at, fate) in enumerate(judged)
        ]
        greatest = max((at for _, at, fate in judged if fate == "accepted"), default=BEGINNING)
        punctuation = max(punctuation, greatest - slack)
        punctuations.append(punctuation)
    return RecordedStream(tuple(rows), tuple(punctuations))


def _judge(
    values: Mapping[str, Any], time: str, punctuation: Instant, promises: Sequence[Promise]
) -> tuple[Mapping[str, Any], Instant, Fate]:
    at = values[time]
    if at is None:
        return values, BEGINNING, "rejected"
    broken = any(at < bound and matches(pattern, values) for pattern, bound in promises)
    return values, at, "late" if at < punctuation or broken else "accepted"


def matches(pattern: Pattern, values: Mapping[str, Any]) -> bool:
    """True for a row that matches a pattern; columns without a test may have any value."""

    def holds(name: str, test: Test) -> bool:
        value = values[name].isoformat() if isinstance(values[name], date) else values[name]
        return value in test.values if isinstance(test, OneOf) else test.holds(value)

    return all(holds(name, test) for name, test in pattern.tests)


@dataclass(frozen=True, slots=True)
class History:
    """All recorded streams (results of other queries too), by key, and the current relations, by name."""

    streams: Mapping[Any, RecordedStream] = field(default_factory=dict)
    relations: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    def punctuation(self, query: Query) -> Instant:
        """The punctuation of a query: the minimum over its streams."""
        return min((self.streams[name].punctuation for name in sources_of(query)), default=BEGINNING)

    def now(self, query: Query) -> Instant | None:
        """The maximum committed event time of the query's streams; None without rows."""
        rows = (row for name in sources_of(query) for row in self.streams[name].rows)
        return max((row.at for row in rows if row.fate == "accepted"), default=None)

    def with_results(self, name: Source, answer: Iterable[tuple[Instant, Row]], query: Query) -> History:
        """This history with the answer of `query` as a stream, for queries over queries.

        A window's result has the event time window_end - 1 microsecond, any other result that of its instant.
        """
        shift = 1 if query.emission == "windows" else 0
        rows = tuple(StreamRow(row, at - shift, position) for position, (at, row) in enumerate(answer))
        derived = RecordedStream(rows, (self.punctuation(query),))
        return replace(self, streams={**self.streams, name: derived})
