"""The queue of input: files and rates that are listed, rows that are pushed and micro-batches of Spark, recorded in the
ingest log before any answer counts that has read them (decision D9); records wait here until an epoch has published them.

Pushes append to it from their own threads while an epoch runs; those that arrive during an append are the next append.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final

from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.records.ingest_record import IngestRecord
from headrace.connectors.records.options import FILES, producers_remembered, reads_appended
from headrace.connectors.records.producers import Producers
from headrace.connectors.sources.known_files import ChangedFile, KnownFile, changed_files
from headrace.connectors.sources.listing import list_changed
from headrace.connectors.sources.rate_source import due
from headrace.dataclass import dataclass
from headrace.errors import AlreadyPublished, StoreError, UserError, WriteOutcome
from headrace.runtime.home.file_names import segments
from headrace.runtime.home.home import Home
from headrace.runtime.ingest import ingest_summary
from headrace.runtime.ingest.admission import Pending
from headrace.runtime.ingest.appends import Append, Arrival, NotLogged
from headrace.runtime.plan import derived_streams
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.record_log import INGEST_LOG, RecordLog
from headrace.time import DAY, SECOND, Clock, Duration, Instant

_BETWEEN_CHECKS: Final[Duration] = 5 * SECOND
_PER_FILE: Final[Duration] = SECOND // 1000
"""The least time between two checks of the files that were listed before, for each file: a check takes microseconds a file."""

_MOST_WITH_ROWS: Final = 64
"""Records that wait at most for another to have its rows itself: what waits is in memory, and in the messages to tasks."""


@dataclass(slots=True)
class Intake:
    """Listings of every stream, and the records that wait. The driver alone appends to the ingest log.

    A record is durable in the log before an epoch is published that has read it; a source is listed once, and the logged listing is what counts.
    `lock` is held while the log is appended to; a thread that also holds the engine's lock has taken that one first.
    """

    home: Home
    clock: Clock
    lock: threading.RLock = field(default_factory=threading.RLock)
    news: threading.Event = field(default_factory=threading.Event)
    """Set when there may be something for an epoch to do."""
    taken: threading.Condition = field(default_factory=threading.Condition)
    """Notified when an epoch has published records that waited."""
    is_held_back: Callable[[StreamDefinition], bool] = lambda _: False
    """Whether epochs leave the records of a stream for later, since the disk has no room for its rows."""
    under_way: Append | None = None
    """The append under way of pushed rows that are in their records: an epoch may read them before it ends, see `require_logged`."""
    held_back: set[str] = field(default_factory=set)
    """The streams whose records an epoch could have taken when it was last asked."""
    _waiting: dict[str, list[Pending]] = field(default_factory=dict)
    changed: dict[str, list[ChangedFile]] = field(default_factory=dict)
    """Stream → its files that grew or were replaced after they were listed."""
    _checked: dict[str, Instant] = field(default_factory=dict)
    _seen: dict[str, dict[str, KnownFile]] = field(default_factory=dict)
    _batches: dict[str, int] = field(default_factory=dict)
    _consumed: dict[str, int] = field(default_factory=dict)
    """The last ordinal of each stream that an epoch has published."""
    _positions: dict[str, Any] = field(default_factory=dict)
    _rate: dict[str, tuple[Instant, int]] = field(default_factory=dict)
    _producers: dict[str, Producers] = field(default_factory=dict)
    _queued: list[IngestRecord] = field(default_factory=list)
    _arrivals: deque[Arrival] = field(default_factory=deque)
    _segments: dict[str, deque[tuple[int, Instant | None, str]]] = field(default_factory=dict)
    """The segments of each stream that are not deleted: ordinal, arrival (None for pushed rows) and name."""
    _logged: int = 0
    _in_doubt: bool = False
    """An append has failed, and it is not known yet whether its records are in the log."""

    def resume(self, manifest: Manifest) -> None:
        """Replace the queue by the ingest log from its summary on: listed records are known, those not consumed wait.

        The caller holds `lock`.
        """
        for by_stream in self._by_stream:
            by_stream.clear()
        if self._in_doubt:
            self.home.ingest_log.settle()  # an epoch acts on what is read now
        upto, summaries = ingest_summary.load(self.home, manifest)
        for name, summary in summaries.items():
            self._seen[name] = dict(summary.seen)
            self._batches[name] = summary.batch
            self._producers[name] = Producers.from_json(summary.producers)
            if summary.rate is not None:
                self._rate[name] = summary.rate
        self._logged = upto
        for ordinal, entry in self.home.ingest_log.read(max(upto, self.home.ingest_log.start)):
            self._logged = ordinal + 1
            record = IngestRecord.from_json(entry)
            if ordinal < self.home.born(record.stream):
                continue  # of a dropped stream of the same name
            self._remember(record)
            consumed = manifest.stream(record.stream).next
            if ordinal >= consumed:
                self._enqueue(ordinal, record)
        self._in_doubt = False

    @property
    def _by_stream(self) -> tuple[dict[str, Any], ...]:
        return (
            *(self._waiting, self._seen, self._batches, self._positions, self._rate, self._producers),
            *(self.changed, self._checked, self._segments, self._consumed),
        )

    def listen(self, streams: Iterable[StreamDefinition], *, thorough: bool = False) -> int:
        """List these sources once; returns how many records were new. `thorough`: check listed files for changes in any case."""
        self.settle_doubt()
        self.log_queued()
        records: list[IngestRecord] = []
        for stream in streams:
            records += self._new_records(stream)
            if stream.using in FILES:
                self._check_listed(stream, thorough=thorough)
        queued = tuple(self._queued)
        if not (records or queued):
            return 0
        with self.lock:
            records += self._first_of_each(queued)
            self._append(records)
        del self._queued[: len(queued)]  # after the append: a failed one must not lose them
        return len(records)

    def takes_rows(self) -> bool:
        """Whether the record of a small push may have its rows itself: few records wait."""
        return sum(map(len, tuple(self._waiting.values()))) + len(self._arrivals) < _MOST_WITH_ROWS

    def hand_in(
        self, record: IngestRecord, definition: StreamDefinition, files: tuple[str, ...] = ()
    ) -> None:
        """Log a segment of a push at once, so that an acknowledged row is never lost; its `files` are durable before.

        After a `StoreError` the record may be in the log all the same: see `find_out`. Raises `UserError` when its stream was
        dropped meanwhile.
        """
        arrival = Arrival(record, definition, files)
        self._arrivals.append(arrival)
        with self.lock:
            while not (arrival.done or arrival.error):
                if not any(one is arrival for one in self._arrivals.copy()):
                    self._arrivals.append(arrival)  # a thread that had taken it was interrupted
                self._log_arrivals()
        if arrival.error is not None:
            raise arrival.error
        self.news.set()

    def hand_in_later(
        self, record: IngestRecord, definition: StreamDefinition, files: tuple[str, ...]
    ) -> None:
        """Queue a push that need not be durable yet: the next append, listing or `log_queued` logs it, by its producer's number once."""
        self._arrivals.append(Arrival(record, definition, files, may_wait=True))
        self.news.set()

    def log_queued(self) -> None:
        """Log the pushes for which no thread waits. Raises `StoreError`, and they continue to wait."""
        if not self._has_queued():
            return
        self.settle_doubt()
        with self.lock:
            while self._has_queued():
                error = self._log_arrivals()
                if error is not None:
                    raise error

    def _has_queued(self) -> bool:
        return any(arrival.may_wait for arrival in self._arrivals.copy())

    def _log_arrivals(self) -> Exception | None:
        """One append of what has arrived: the first record of each producer, those after it in the next append."""
        arrived: dict[tuple[str, str], Arrival] = {}
        for _ in range(len(self._arrivals)):
            arrival = self._arrivals.popleft()
            if arrived.setdefault(arrival.producer, arrival) is not arrival:
                self._arrivals.append(arrival)
        fresh = [arrival for arrival in arrived.values() if self._is_fresh(arrival)]
        now, before = self.clock(), self._logged
        files = [file for arrival in fresh for file in arrival.files]
        try:
            self._append(
                [replace(arrival.record, arrival=now) for arrival in fresh], files, is_shown=not files
            )
        except Exception as error:  # noqa: BLE001 - each raises it
            if not isinstance(error, StoreError):
                self._doubt(before)
            self._fail(fresh, error)
            return error
        except BaseException:
            self._doubt(before)
            self._fail(fresh, StoreError("the append was interrupted", outcome="unknown"))
            raise
        finally:
            self.under_way = None
        for arrival in fresh:
            arrival.done = True
        return None

    def _doubt(self, logged: int) -> None:
        """Read the log again from that ordinal on before anything else: its records may be in it, and not in the queue."""
        self._logged, self._in_doubt = min(self._logged, logged), True

    def _fail(self, arrivals: Sequence[Arrival], error: Exception) -> None:
        """The error of an append, for the threads that wait; what may wait is first again, and may be in the log already."""
        for arrival in reversed(arrivals):
            if arrival.may_wait:
                self._arrivals.appendleft(arrival)
                self._in_doubt = True
            else:
                arrival.error = error

    def _is_fresh(self, arrival: Arrival) -> bool:
        """Whether a record has to be logged; if not it is done, or has an error."""
        try:
            self._require_same_stream(arrival.definition)
            arrival.done = self._is_there(arrival.record)
        except UserError as error:
            arrival.error = error
        return not (arrival.done or arrival.error)

    def _require_same_stream(self, definition: StreamDefinition) -> None:
        """Raises `UserError` for a stream that was dropped since its definition was read."""
        current = self.home.catalog.stream(definition.name)
        if current is None or (current.using, current.schema) != (definition.using, definition.schema):
            raise UserError(f"the stream '{definition.name}' was dropped meanwhile: nothing was pushed")

    def find_out(self, record: IngestRecord) -> WriteOutcome:
        """Whether a producer's record whose append failed is in the log, durably, and of the stream that there is."""
        with self.lock:
            try:
                log, news = self._news()
                is_replaced = self.home.latest().incarnation != self.home.incarnation
            except StoreError:
                self._in_doubt = True
                return "unknown"
            if not is_replaced:
                self._take_in(log, news)
            self.news.set()
            producers = self._producers.get(record.stream, Producers())
            return "present" if producers.holds(record) else "absent"

    def settle_doubt(self) -> None:
        """Queue the records of a failed append that are in the log. Raises `StoreError` when the log still cannot be read."""
        if self._in_doubt:
            with self.lock:
                self.home.fence()
                self._take_in(*self._news())

    def producers(self, stream: StreamDefinition) -> Producers:
        """The producers of pushed batches that have not expired. The caller holds `lock`."""
        producers = self._producers.setdefault(stream.name, Producers())
        producers.forget_before(self.clock() - producers_remembered(stream.options))
        return producers

    def queue(self, record: IngestRecord) -> None:
        """Queue a record from another thread; the next `listen` logs it."""
        self._queued.append(record)
        self.news.set()

    def last_batch(self, stream: str) -> int:
        """The last micro-batch of a stream that is in the log; -1 for none."""
        return self._batches.get(stream, -1)

    def settled(
        self,
        streams: Iterable[StreamDefinition],
        read_ordinals: Mapping[str, Sequence[int]],
        oldest: Mapping[str, int],
    ) -> int:
        """Number of records, from the first, that no epoch reads once `read_ordinals` are published.

        `oldest`: for streams that are read in place, the first ordinal that may be read again.
        """
        published = {ordinal for ordinals in read_ordinals.values() for ordinal in ordinals}
        least = self._logged  # read before what waits: a push may append meanwhile
        for stream in streams:
            least = min(least, oldest.get(stream.name, least))
            waiting = self.waiting(stream.name)
            least = min(
                least,
                next((pending.ordinal for pending in waiting if pending.ordinal not in published), least),
            )
        return least

    def drop_stream(self, stream: str) -> None:
        """Remove a dropped stream: one of the same name reads its source from the start."""
        for by_stream in self._by_stream:
            by_stream.pop(stream, None)

    def summaries(self) -> dict[str, ingest_summary.StreamSummary]:
        """Summaries of the records of all streams, by which they need not be read again."""
        streams = self.home.catalog.streams.values()
        with self.lock:
            return {
                stream.name: self.summary(stream)
                for stream in streams
                if stream.using != derived_streams.USING
            }

    def summary(self, stream: StreamDefinition) -> ingest_summary.StreamSummary:
        """The summary of a stream's records. The caller holds `lock`.

        Of a stream with `retain`, files that were deleted and listed longer ago than that are removed from it.
        """
        seen = self._seen.get(stream.name, {}) if stream.using in FILES else {}
        if stream.retain is not None:
            horizon = self.clock() - stream.retain - DAY
            deleted = [uri for uri, file in seen.items() if file.arrival < horizon and not Path(uri).exists()]
            for uri in deleted:
                del seen[uri]
        return ingest_summary.StreamSummary(
            self.home.born(stream.name),
            dict(seen),
            self.last_batch(stream.name),
            self._rate.get(stream.name),
            self.producers(stream).as_json(),
        )

    def unneeded_segments(self, ingest: int, before: Instant) -> list[str]:
        """Names of segments whose records are below `ingest`, each given once; Spark's if they arrived `before`.

        Spark repeats a micro-batch that it was killed in, and its rows are compared.
        """
        names = []
        for listed in list(self._segments.values()):
            while listed and listed[0][0] < ingest and (listed[0][1] is None or listed[0][1] < before):
                names.append(listed.popleft()[2])
        return names

    def waiting(self, stream: str) -> Sequence[Pending]:
        """Records of a stream that were not consumed, in order."""
        return self._waiting.get(stream, ())

    def require_logged(self, append: Append | None, ordinals: Mapping[str, Sequence[int]]) -> None:
        """Wait for the end of an append whose records an epoch has read; raises `NotLogged` unless they are in the log at these ordinals."""
        if append is None or not append.is_in(ordinals):
            return
        with self.lock:
            if self.under_way is append:  # its thread was interrupted before it could remove it
                self.under_way = None
            if not append.are_logged:
                raise NotLogged

    def available(
        self, definition: StreamDefinition, append: Append | None = None, consumed: int = 0
    ) -> Sequence[Pending]:
        """Those that an epoch may take now: none of a stream that is held back.

        With those of an `append` under way that are not `consumed`: ordinals from that on.
        """
        name = definition.name
        waiting = self.waiting(name) if append is None else append.after(self.waiting(name), name, consumed)
        if waiting and self.is_held_back(definition):
            self.held_back.add(name)
            return ()
        self.held_back.discard(name)
        return waiting

    def consumed(self, read_ordinals: Mapping[str, Sequence[int]]) -> None:
        """Remove records that an epoch has published: the first of each stream. A push may append others meanwhile."""
        for stream, ordinals in read_ordinals.items():
            last = self._consumed[stream] = max((self._consumed.get(stream, -1), *ordinals))
            waiting = self._waiting.get(stream, [])
            del waiting[: sum(record.ordinal <= last for record in waiting[: len(ordinals)])]
        with self.taken:
            self.taken.notify_all()

    def _new_records(self, stream: StreamDefinition) -> list[IngestRecord]:
        if stream.using in FILES:
            seen = self._seen.setdefault(stream.name, {})
            listing = list_changed(stream, seen, self.clock(), self._positions.get(stream.name))
            self._positions[stream.name] = listing.position
            return list(listing.records)
        if stream.using == "rate":
            started, rows = self._rate.get(stream.name, (self.clock(), 0))
            self._rate.setdefault(stream.name, (started, rows))
            record = due(stream, started, rows, self.clock())
            return [record] if record is not None else []
        return []

    def _check_listed(self, stream: StreamDefinition, *, thorough: bool) -> None:
        """Find listed files that have changed; the more files there are, the less often."""
        now, listed = self.clock(), self._seen.get(stream.name, {})
        if not thorough and now < self._checked.get(stream.name, now) + max(
            _BETWEEN_CHECKS, len(listed) * _PER_FILE
        ):
            self._checked.setdefault(stream.name, now)
            return
        self._checked[stream.name] = now
        changed = list(changed_files(dict(listed), growth_is_read=reads_appended(stream)))
        if changed:
            self.changed[stream.name] = changed
        else:
            self.changed.pop(stream.name, None)

    def _append(
        self, records: Sequence[IngestRecord], files: Sequence[str] = (), *, is_shown: bool = False
    ) -> None:
        """Log records, after the files that they name, durably; an epoch may read what `is_shown` meanwhile. The caller holds `lock`."""
        if not records:
            return
        self.home.fence()
        if self._in_doubt:
            self._take_in(*self._news())
            records = [record for record in records if not self._is_there(record)]
        if is_shown and records:
            next_ordinals = enumerate(records, self.home.ingest_log.end)
            self.under_way = Append(tuple(Pending.of(ordinal, record) for ordinal, record in next_ordinals))
            self.news.set()
        try:
            first = self.home.ingest_log.append([record.to_json() for record in records], after=files)
        except AlreadyPublished:
            self.home.fence()
            self._take_in(*self._news())
            records = [record for record in records if not self._is_there(record)]
            first = self.home.ingest_log.append([record.to_json() for record in records], after=files)
        for offset, record in enumerate(records):
            self._remember(record)
            self._enqueue(first + offset, record)
        self._logged = first + len(records)
        if is_shown and self.under_way is not None:
            self.under_way.are_logged = first == self.under_way.records[0].ordinal

    def _news(self) -> tuple[RecordLog, list[tuple[int, IngestRecord]]]:
        """The log, opened again, with its records that are not queued here, made durable.

        They are of a driver that was replaced after this one had read the log, or of an append of this one that failed after
        its records were visible.
        """
        log = RecordLog(self.home.store, INGEST_LOG)
        news = [(ordinal, IngestRecord.from_json(entry)) for ordinal, entry in log.read(self._logged)]
        if news:
            log.settle()
        return log, news

    def _take_in(self, log: RecordLog, news: Iterable[tuple[int, IngestRecord]]) -> None:
        """Queue records that were appended without this object's knowledge. The caller holds `lock`."""
        self.home.ingest_log = log
        for ordinal, record in news:
            if ordinal >= self.home.born(record.stream):  # not of a dropped stream of the same name
                self._remember(record)
                self._enqueue(ordinal, record)
            self._logged = ordinal + 1
        self._in_doubt = False

    def _remember(self, record: IngestRecord) -> None:
        stream = self.home.catalog.stream(record.stream)
        if stream is not None and stream.using in FILES:
            file = KnownFile(record.arrival, record.size, record.mtime_ns)
            self._seen.setdefault(record.stream, {})[record.uri] = file
        self._producers.setdefault(record.stream, Producers()).add(record)
        if record.batch >= 0:
            self._batches[record.stream] = max(record.batch, self._batches.get(record.stream, -1))
        if record.format == "rate":
            started, _ = self._rate.get(record.stream, (record.arrival, 0))
            self._rate[record.stream] = (started, record.end)

    def _first_of_each(self, queued: Iterable[IngestRecord]) -> Iterator[IngestRecord]:
        """Records that are not in the log, each micro-batch once: a caller may queue one twice before it is logged."""
        newest: dict[str, int] = {}
        for record in queued:
            if self._is_repetition(record) or 0 <= record.batch <= newest.get(record.stream, -1):
                continue
            newest[record.stream] = record.batch
            yield record

    def _is_there(self, record: IngestRecord) -> bool:
        """Whether the log has the record, or one of the same batch. Raises `UserError` where that batch has other rows."""
        stream = self.home.catalog.stream(record.stream)
        if record.producer and stream is not None:
            return self.producers(stream).has(record.producer, record.sequence, record.digest)
        is_listed = record.uri in self._seen.get(record.stream, ())
        is_given = record.format == "rate" and record.start < self._rate.get(record.stream, (0, 0))[1]
        return self._is_repetition(record) or is_listed or is_given

    def _is_repetition(self, record: IngestRecord) -> bool:
        return 0 <= record.batch <= self.last_batch(record.stream)

    def _enqueue(self, ordinal: int, record: IngestRecord) -> None:
        waiting = self._waiting.setdefault(record.stream, [])
        if ordinal <= (waiting[-1].ordinal if waiting else self._consumed.get(record.stream, -1)):
            return  # the append that has queued it was interrupted
        waiting.append(Pending.of(ordinal, record))
        name = record.uri.removeprefix(f"{self.home.store.root}/")
        if name.startswith(f"{segments(record.stream)}/"):
            arrival = record.arrival if record.batch >= 0 else None
            self._segments.setdefault(record.stream, deque()).append((ordinal, arrival, name))
