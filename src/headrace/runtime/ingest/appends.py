"""Appends to the ingest log by threads that push: the record of one push, and the records of an append that is under way.

An epoch may read the latter before they are in the log, while the disk syncs them. It is published after the append, or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.records.ingest_record import IngestRecord
from headrace.dataclass import dataclass
from headrace.runtime.ingest.admission import Pending


class NotLogged(Exception):
    """An epoch has read records of an append that has failed, or that has given them other ordinals: nothing of it counts."""


@dataclass(slots=True)
class Arrival:
    """A record that a thread wants to append, with the files it names; `done` once it is in the log, else its `error`.

    No thread waits for one that `may_wait`: it is tried again until it is in the log.
    """

    record: IngestRecord
    definition: StreamDefinition
    files: tuple[str, ...]
    may_wait: bool = False
    done: bool = False
    error: Exception | None = None

    @property
    def producer(self) -> tuple[str, str]:
        """Its stream and producer; without one, what no other record has."""
        return self.record.stream, self.record.producer or self.record.uri


@dataclass(slots=True)
class Append:
    """The records of one append, as they wait once it has ended. Their ordinals are those that they get if no other driver appends before."""

    records: tuple[Pending, ...]
    are_logged: bool = False
    """They are in the log, durably, and have these ordinals."""

    def after(self, waiting: Sequence[Pending], stream: str, consumed: int) -> Sequence[Pending]:
        """What waits of a stream, and after it those of these records that do not wait yet, and were not `consumed` (ordinals below that)."""
        waiting = list(waiting)  # the append's thread may queue its records meanwhile
        last = waiting[-1].ordinal if waiting else consumed - 1
        return [*waiting, *(one for one in self.records if one.stream == stream and one.ordinal > last)]

    def is_in(self, ordinals: Mapping[str, Sequence[int]]) -> bool:
        """Whether records of it are among those with these ordinals, which an epoch has read."""
        first = self.records[0].ordinal
        return any(of_stream[-1] >= first for of_stream in ordinals.values() if of_stream)
