"""What waits to be read: listings of sources, written to the ingest log before anything uses them (decision D9)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.records.ingest_record import IngestRecord
from headrace.connectors.records.options import FILES, producers_remembered, reads_appended
from headrace.connectors.records.producers import Producers
from headrace.connectors.sources.known_files import ChangedFile, KnownFile, changed_files
from headrace.connectors.sources.listing import list_changed
from headrace.connectors.sources.rate_source import due
from headrace.errors import AlreadyPublished, StoreError, WriteOutcome
from headrace.runtime.backfill.operator_progress import ArchiveEntry
from headrace.runtime.home.home import Home
from headrace.runtime.ingest import ingest_summary
from headrace.runtime.ingest.admission import Pending
from headrace.runtime.plan import derived_streams
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.record_log import INGEST_LOG, RecordLog
from headrace.time import DAY, SECOND, Clock, Duration, Instant

_LOOK_BACK: Final[Duration] = 5 * SECOND
_PER_FILE: Final[Duration] = SECOND // 1000
"""How seldom files that were listed before are looked at again: to do so takes microseconds a file."""


@dataclass(slots=True)
class Intake:
    """Listings of every stream, and the records that wait. The driver alone appends to the ingest log.

    A record is durable in the log before it may be read; listing happens once, and what it said is what counts.
    """

    home: Home
    clock: Clock
    _waiting: dict[str, list[Pending]] = field(default_factory=dict)
    changed: dict[str, list[ChangedFile]] = field(default_factory=dict)
    """Stream → its files that grew or were replaced after they were listed, of which it lacks what is new."""
    _looked: dict[str, Instant] = field(default_factory=dict)
    _seen: dict[str, dict[str, KnownFile]] = field(default_factory=dict)
    _batches: dict[str, int] = field(default_factory=dict)
    _positions: dict[str, Any] = field(default_factory=dict)
    _rate: dict[str, tuple[Instant, int]] = field(default_factory=dict)
    _producers: dict[str, Producers] = field(default_factory=dict)
    _handed: list[IngestRecord] = field(default_factory=list)
    _known: int = 0
    _in_doubt: bool = False
    """An append has failed, and whether its records are in the log could not be found out yet."""

    def resume(self, manifest: Manifest) -> None:
        """Read the ingest log from its summary on: what was listed is known, what was not consumed waits.

        What was known before goes.
        """
        for gone in self._by_stream:
            gone.clear()
        upto, summaries = ingest_summary.load(self.home, manifest)
        for name, known in summaries.items():
            self._seen[name] = dict(known.seen)
            self._batches[name] = known.batch
            self._producers[name] = known.producers
            if known.rate is not None:
                self._rate[name] = known.rate
        self._known = upto
        for ordinal, entry in self.home.ingest_log.read(max(upto, self.home.ingest_log.start)):
            self._known = ordinal + 1
            record = IngestRecord.from_json(entry)
            if ordinal < self.home.born(record.stream):
                continue  # of a stream that was dropped before this one of the same name was made
            self._remember(record)
            consumed = manifest.stream(record.stream).next
            if ordinal >= consumed:
                self._enqueue(ordinal, record)
        self._in_doubt = False

    @property
    def _by_stream(self) -> tuple[dict[str, Any], ...]:
        return (
            *(self._waiting, self._seen, self._batches, self._positions, self._rate, self._producers),
            *(self.changed, self._looked),
        )

    def listen(self, streams: Iterable[StreamDefinition], *, thorough: bool = False) -> int:
        """List every source once; returns how many records were new. `thorough`: look at known files again, too."""
        self.settle_doubt()
        found: list[IngestRecord] = []
        for stream in streams:
            found += self._new_records(stream)
            if stream.using in FILES:
                self._look_back(stream, thorough=thorough)
        handed = tuple(self._handed)
        found += self._first_of_each(handed)
        self._append(found)
        del self._handed[: len(handed)]  # only now: a log that cannot be written must not lose them
        return len(found)

    def hand_in(self, record: IngestRecord) -> None:
        """Take a segment from a push; it is logged at once, so an acknowledged row is never lost.

        After a `StoreError` the record may be in the log all the same: `find_out` says.
        """
        if not self._is_there(record):
            self._append([record])

    def find_out(self, record: IngestRecord) -> WriteOutcome:
        """Whether a record whose append failed is in the log, durably."""
        try:
            log, news = self._news()
            is_replaced = self.home.latest().incarnation != self.home.incarnation
        except StoreError:
            self._in_doubt = True
            return "unknown"
        if not is_replaced:
            self._take_in(log, news)
        return "present" if any(each.uri == record.uri for _, each in news) else "absent"

    def settle_doubt(self) -> None:
        """Take in what an append that failed may have put in the log. Raises `StoreError` when that still cannot be read."""
        if self._in_doubt:
            self.home.fence()
            self._take_in(*self._news())

    def producers(self, stream: StreamDefinition) -> Producers:
        """The producers of pushed batches that the stream still remembers."""
        found = self._producers.setdefault(stream.name, Producers())
        found.forget_before(self.clock() - producers_remembered(stream.options))
        return found

    def queue(self, record: IngestRecord) -> None:
        """The same from another thread: logged by the next `listen`."""
        self._handed.append(record)

    def last_batch(self, stream: str) -> int:
        """The greatest micro-batch of a stream that is in the log; -1 for none."""
        return self._batches.get(stream, -1)

    def settled(
        self,
        streams: Iterable[StreamDefinition],
        taken: Mapping[str, Sequence[int]],
        oldest: Mapping[str, int],
    ) -> int:
        """How many records, from the first, nobody needs once `taken` are published.

        `oldest`: for streams that are read in place, the first ordinal that may be read again.
        """
        gone = {ordinal for ordinals in taken.values() for ordinal in ordinals}
        least = self.home.ingest_log.length
        for stream in streams:
            least = min(least, oldest.get(stream.name, least))
            waiting = self.waiting(stream.name)
            least = min(least, next((each.ordinal for each in waiting if each.ordinal not in gone), least))
        return least

    def drop_stream(self, stream: str) -> None:
        """All there is to know of a stream that was dropped: one of the same name reads its source from the start."""
        for known in self._by_stream:
            known.pop(stream, None)

    def summaries(self) -> dict[str, ingest_summary.StreamSummary]:
        """What is to be known of the records of all streams without reading them again."""
        streams = self.home.catalog.streams.values()
        return {each.name: self.summary(each) for each in streams if each.using != derived_streams.USING}

    def summary(self, stream: StreamDefinition) -> ingest_summary.StreamSummary:
        """What is to be known of a stream's records without reading them again.

        Of a stream that retains little, names of files are forgotten that are gone and were listed longer ago than that.
        """
        seen = self._seen.get(stream.name, {}) if stream.using in FILES else {}
        if stream.retain is not None:
            horizon = self.clock() - stream.retain - DAY
            gone = [uri for uri, file in seen.items() if file.arrival < horizon and not Path(uri).exists()]
            for uri in gone:
                del seen[uri]
        return ingest_summary.StreamSummary(
            self.home.born(stream.name),
            dict(seen),
            self.last_batch(stream.name),
            self._rate.get(stream.name),
            self.producers(stream),
        )

    def waiting(self, stream: str) -> Sequence[Pending]:
        """Records of a stream that were not consumed, in order."""
        return self._waiting.get(stream, ())

    def consumed(self, taken: Mapping[str, Sequence[int]]) -> None:
        """Forget records that an epoch has published."""
        for stream, ordinals in taken.items():
            gone = set(ordinals)
            self._waiting[stream] = [record for record in self.waiting(stream) if record.ordinal not in gone]

    def records(self, entries: Iterable[ArchiveEntry]) -> dict[int, Mapping[str, Any]]:
        """Ingest records by ordinal, for reading a source in place again."""
        wanted = {ordinal for entry in entries for ordinal in entry.ordinals}
        if not wanted:
            return {}
        return {
            ordinal: entry for ordinal, entry in self.home.ingest_log.read(min(wanted)) if ordinal in wanted
        }

    def _new_records(self, stream: StreamDefinition) -> list[IngestRecord]:
        if stream.using in FILES:
            known = self._seen.setdefault(stream.name, {})
            listing = list_changed(stream, known, self.clock(), self._positions.get(stream.name))
            self._positions[stream.name] = listing.position
            return list(listing.records)
        if stream.using == "rate":
            started, done = self._rate.get(stream.name, (self.clock(), 0))
            self._rate.setdefault(stream.name, (started, done))
            record = due(stream, started, done, self.clock())
            return [record] if record is not None else []
        return []

    def _look_back(self, stream: StreamDefinition, *, thorough: bool) -> None:
        """Find known files that have changed; the more of them there are, the more seldom."""
        now, known = self.clock(), self._seen.get(stream.name, {})
        if not thorough and now < self._looked.get(stream.name, now) + max(
            _LOOK_BACK, len(known) * _PER_FILE
        ):
            self._looked.setdefault(stream.name, now)
            return
        self._looked[stream.name] = now
        found = list(changed_files(known, growth_is_read=reads_appended(stream)))
        if found:
            self.changed[stream.name] = found
        else:
            self.changed.pop(stream.name, None)

    def _append(self, records: Sequence[IngestRecord]) -> None:
        if not records:
            return
        self.home.fence()
        try:
            first = self.home.ingest_log.append([record.to_json() for record in records])
        except AlreadyPublished:
            self.home.fence()
            self._take_in(*self._news())
            records = [each for each in records if not self._is_there(each)]
            first = self.home.ingest_log.append([record.to_json() for record in records])
        for place, record in enumerate(records):
            self._remember(record)
            self._enqueue(first + place, record)
        self._known = first + len(records)

    def _news(self) -> tuple[RecordLog, list[tuple[int, IngestRecord]]]:
        """The log, opened again, and its records that are not known here, made durable.

        They are of a driver that was replaced after this one had read the log, or of an append of this one that failed after
        its records were visible.
        """
        log = RecordLog(self.home.store, INGEST_LOG)
        news = [(ordinal, IngestRecord.from_json(entry)) for ordinal, entry in log.read(self._known)]
        if news:
            log.settle()
        return log, news

    def _take_in(self, log: RecordLog, news: Iterable[tuple[int, IngestRecord]]) -> None:
        """Go on after records that were appended without this object's knowledge."""
        self.home.ingest_log = log
        for ordinal, record in news:
            self._remember(record)
            self._enqueue(ordinal, record)
            self._known = ordinal + 1
        self._in_doubt = False

    def _remember(self, record: IngestRecord) -> None:
        file = KnownFile(record.arrival, record.size, record.mtime_ns)
        self._seen.setdefault(record.stream, {})[record.uri] = file
        self._producers.setdefault(record.stream, Producers()).add(record)
        if record.batch >= 0:
            self._batches[record.stream] = max(record.batch, self._batches.get(record.stream, -1))
        if record.format == "rate":
            started, _ = self._rate.get(record.stream, (record.arrival, 0))
            self._rate[record.stream] = (started, record.end)

    def _first_of_each(self, handed: Iterable[IngestRecord]) -> Iterator[IngestRecord]:
        """Records that are not in the log, each micro-batch once: one may be handed in twice before it is logged."""
        newest: dict[str, int] = {}
        for record in handed:
            if self._is_repetition(record) or 0 <= record.batch <= newest.get(record.stream, -1):
                continue
            newest[record.stream] = record.batch
            yield record

    def _is_there(self, record: IngestRecord) -> bool:
        """Whether the log has the record, or one of the same batch. Raises `UserError` where that batch has other rows."""
        stream = self.home.catalog.stream(record.stream)
        if record.producer and stream is not None:
            return self.producers(stream).has(record.producer, record.sequence, record.digest)
        return self._is_repetition(record) or record.uri in self._seen.get(record.stream, ())

    def _is_repetition(self, record: IngestRecord) -> bool:
        return 0 <= record.batch <= self.last_batch(record.stream)

    def _enqueue(self, ordinal: int, record: IngestRecord) -> None:
        rows = record.rows_hint if record.rows_hint >= 0 else None
        length = (
            record.end - record.start if record.end >= 0 and record.format in ("csv", "json") else record.size
        )
        pending = Pending(ordinal, record.stream, rows, length, record.to_json())
        self._waiting.setdefault(record.stream, []).append(pending)
