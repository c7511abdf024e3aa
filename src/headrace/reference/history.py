"""What has happened: finite recorded streams, each row with its time, its place and its fate, and stored relations.

Lateness is judged here by the one rule there is: a row is late if its event time is below the punctuation that all
*earlier* epochs have left behind; rows of its own epoch never make it late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, TypeAlias
from typing import Literal as Choice

from headrace.algebra.expressions.punctuation_patterns import OneOf, Pattern, Test
from headrace.algebra.query import Query, QueryScan, StreamScan, walk
from headrace.reference.values import Row
from headrace.time import BEGINNING, FOREVER, Duration, Instant

Fate = Choice["accepted", "late", "rejected"]
Source: TypeAlias = str | Query
"""What a stream is recorded under: its name, that of a registered query, or the SELECT in FROM that it is the answer of."""


@dataclass(frozen=True, slots=True)
class StreamRow:
    """A row as it was ingested. `position` is unique and increasing within its stream; epochs count from 1.

    `weight`: how many rows it stands for in queries WITH SHEDDING; 0 when they are not shown it.
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
        """The promise in force after the last epoch: no accepted row will be below it."""
        return self.punctuations[-1] if self.punctuations else BEGINNING

    def ordered(self, fates: Sequence[Fate] = ("accepted",)) -> list[StreamRow]:
        """The rows of these fates in the stream's order: event time, then position."""
        return sorted((row for row in self.rows if row.fate in fates), key=lambda row: (row.at, row.position))

    def revised(self, within: Duration | None) -> list[StreamRow]:
        """The accepted rows and the late ones that were at most `within` behind the punctuation their epoch began with.

        A stream that has ended (punctuation FOREVER) takes in nothing more.
        """
        before = (BEGINNING, *self.punctuations)

        def enters(row: StreamRow) -> bool:
            known = before[row.epoch - 1]
            return known != FOREVER and (within is None or row.at >= known - within)

        return [row for row in self.ordered(("accepted", "late")) if row.fate == "accepted" or enters(row)]

    def after(self, epochs: int) -> RecordedStream:
        """What had been recorded after so many epochs."""
        rows = tuple(row for row in self.rows if row.epoch <= epochs)
        return RecordedStream(rows, self.punctuations[:epochs])


def source_of(scan: StreamScan | QueryScan) -> Source:
    """What a scan reads: the name of a stream or a query, or a SELECT in FROM."""
    return scan.name if isinstance(scan, StreamScan) or scan.query is None else scan.query


def relation_of(scan: StreamScan | QueryScan) -> Query | None:
    """The query whose relation a scan reads, which is no stream."""
    inner = scan.query if isinstance(scan, QueryScan) else None
    return inner if inner is not None and inner.emission == "relation" else None


def sources_of(query: Query) -> tuple[Source, ...]:
    """The streams that it reads, each once; of a relation that it reads, what that reads."""
    found: dict[Source, None] = {}
    for node in walk(query.root):
        if isinstance(node, StreamScan | QueryScan):
            inner = relation_of(node)
            found |= dict.fromkeys((source_of(node),) if inner is None else sources_of(inner))
    return tuple(found)


Promise: TypeAlias = tuple[Pattern, Instant]
"""No row that matches the pattern follows below the instant."""


def record(
    epochs: Iterable[Iterable[Mapping[str, Any]]],
    time: str,
    slack: Duration = 0,
    promises: Sequence[Sequence[Promise]] = (),
) -> RecordedStream:
    """What becomes of rows that come in epoch by epoch; an epoch may be empty. A row without a time is rejected.

    `promises[i]` are those taken in with the i-th epoch, from 0: rows of later ones that break them are late.
    """
    rows: list[StreamRow] = []
    punctuations: list[Instant] = []
    punctuation = BEGINNING
    for number, epoch in enumerate(epochs, start=1):
        made = [promise for epoch_promises in promises[: number - 1] for promise in epoch_promises]
        judged = [_judge(values, time, punctuation, made) for values in epoch]
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
    """True for a row that a pattern speaks of; a column that it does not test may be anything."""

    def holds(name: str, test: Test) -> bool:
        value = values[name].isoformat() if isinstance(values[name], date) else values[name]
        return value in test.values if isinstance(test, OneOf) else test.holds(value)

    return all(holds(name, test) for name, test in pattern.tests)


@dataclass(frozen=True, slots=True)
class History:
    """All recorded streams (results of other queries too), by what they are recorded under, and the relations in force, by name."""

    streams: Mapping[Any, RecordedStream] = field(default_factory=dict)
    relations: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    def punctuation(self, query: Query) -> Instant:
        """What all streams of the query promise together: the least of their punctuations."""
        return min((self.streams[name].punctuation for name in sources_of(query)), default=BEGINNING)

    def now(self, query: Query) -> Instant | None:
        """The greatest committed event time of the query's streams; None before there is one."""
        rows = (row for name in sources_of(query) for row in self.streams[name].rows)
        return max((row.at for row in rows if row.fate == "accepted"), default=None)

    def with_results(self, name: Source, answer: Iterable[tuple[Instant, Row]], query: Query) -> History:
        """This history where the answer of `query` is a stream too, for queries over queries.

        A window's result has the event time window_end - 1 microsecond, any other result that of its instant.
        """
        shift = 1 if query.emission == "windows" else 0
        rows = tuple(StreamRow(row, at - shift, place) for place, (at, row) in enumerate(answer))
        derived = RecordedStream(rows, (self.punctuation(query),))
        return replace(self, streams={**self.streams, name: derived})
