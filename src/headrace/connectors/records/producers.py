"""Producers of pushed batches, and which of their sequence numbers are in the ingest log.

A producer numbers its batches upwards. A number that is in the log is acknowledged again without writing anything, so a
call may be repeated until it returns. Of a producer's newest batches the digest of the content is stored too: other rows
under a number that is taken are refused. A producer is retained after its last batch as long as its stream defines.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from headrace.connectors.records.ingest_record import IngestRecord
from headrace.dataclass import dataclass
from headrace.errors import BatchTaken, UserError
from headrace.time import Instant

COMPARED: Final = 64
"""Batches of a producer, the newest, of which the content is compared."""
_BEFORE_BATCHES: Final = 3
"""Values of a producer in JSON before those of its batches."""


@dataclass(slots=True)
class Producer:
    """The numbers of one producer: `digests` of the newest batches by number, ascending, and `first` to `end` (exclusive),
    an unbroken range of older numbers. `at` is the arrival of its last batch.
    """

    at: Instant
    digests: dict[int, str] = field(default_factory=dict)
    first: int = 0
    end: int = 0

    @property
    def last(self) -> int:
        """The greatest number in the log."""
        return next(reversed(self.digests))

    def add(self, sequence: int, digest: str, at: Instant) -> None:
        """Store a batch; one that was stored before changes nothing."""
        if self.digests and sequence <= self.last:
            return
        self.digests[sequence], self.at = digest, max(self.at, at)
        if len(self.digests) > COMPARED:
            oldest = next(iter(self.digests))
            del self.digests[oldest]
            if oldest != self.end:
                self.first = oldest
            self.end = oldest + 1

    def as_json(self) -> list[Any]:
        """JSON values; the inverse is `from_json`."""
        return [self.at, self.first, self.end, *([number, digest] for number, digest in self.digests.items())]

    @staticmethod
    def batches_of(values: Sequence[Any]) -> int:
        """How many batches its JSON values have one by one."""
        return len(values) - _BEFORE_BATCHES

    @staticmethod
    def from_json(values: Sequence[Any]) -> Producer:
        """The inverse of `as_json`."""
        at, first, end, *digests = values
        return Producer(at, dict(digests), first, end)


@dataclass(slots=True)
class Producers:
    """The producers of one stream, by id."""

    by_name: dict[str, Producer] = field(default_factory=dict)
    _by_age: list[tuple[Instant, str]] = field(init=False)
    """A heap with each producer once, and an instant that its last batch did not arrive before."""

    def __post_init__(self) -> None:
        """Order the producers by their last batches."""
        self._by_age = [(producer.at, name) for name, producer in self.by_name.items()]
        heapq.heapify(self._by_age)

    def add(self, record: IngestRecord) -> None:
        """Store a record of the ingest log; one without a producer is ignored."""
        if record.producer:
            producer = self.by_name.get(record.producer)
            if producer is None:
                producer = self.by_name[record.producer] = Producer(record.arrival)
                heapq.heappush(self._by_age, (record.arrival, record.producer))
            producer.add(record.sequence, record.digest, record.arrival)

    def last(self, producer: str) -> int | None:
        """The greatest number of a producer that is in the log; None for one that is not retained."""
        latest = self.by_name.get(producer)
        return None if latest is None else latest.last

    def has(self, name: str, sequence: int, digest: str) -> bool:
        """Whether the batch is in the log already.

        Raises `BatchTaken` where its number is taken by other rows, and `UserError` where it was left out.
        """
        producer = self.by_name.get(name)
        if producer is None or sequence > producer.last:
            return False
        if producer.first <= sequence < producer.end or producer.digests.get(sequence) == digest:
            return True
        if sequence in producer.digests:
            raise BatchTaken(
                f"batch {sequence} of the producer '{name}' is there already, with other rows",
                remedy=f"A repeated call passes the same rows. New rows get a number above {producer.last}.",
            )
        raise UserError(
            f"batch {sequence} of the producer '{name}' cannot be taken: batch {producer.last} is there already, and "
            f"{sequence} was left out, or is too old to be remembered",
            remedy=f"Numbers of a producer increase: take one above {producer.last}. These rows were not taken now.",
        )

    def holds(self, record: IngestRecord) -> bool:
        """Whether the batch of a record is in the log, with its rows."""
        try:
            return self.has(record.producer, record.sequence, record.digest)
        except UserError:
            return False

    def forget_before(self, horizon: Instant) -> None:
        """Expire the producers whose last batch arrived before an instant."""
        while self._by_age and self._by_age[0][0] < horizon:
            name = self._by_age[0][1]
            at = self.by_name[name].at
            if at < horizon:
                heapq.heappop(self._by_age)
                del self.by_name[name]
            else:
                heapq.heapreplace(self._by_age, (at, name))

    def as_json(self) -> dict[str, list[Any]]:
        """JSON values, which later batches do not change; the inverse is `from_json`."""
        return {name: producer.as_json() for name, producer in self.by_name.items()}

    @staticmethod
    def from_json(values: Mapping[str, Sequence[Any]]) -> Producers:
        """The inverse of `as_json`."""
        return Producers({name: Producer.from_json(producer) for name, producer in values.items()})
