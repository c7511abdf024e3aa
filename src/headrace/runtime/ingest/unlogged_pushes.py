"""Pushes that return before their rows are durable, to streams whose options allow that: when they are logged at the latest, and the report
after a crash in which some may have been lost.

A mark in the home, made durable before the first of these pushes returns, is deleted when the hub closes with everything logged. So a mark
that is there when a hub opens is of a process that ended otherwise. Source: Aurora (Carney et al. 2002, TR 828-832), partial amnesia.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import field
from typing import Any, Final

from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.records.ingest_record import IngestRecord
from headrace.dataclass import dataclass
from headrace.errors import StoreError
from headrace.runtime.ingest.ingest_queue import Intake
from headrace.time import SECOND, Duration, Instant

_FOLDER: Final = "unlogged/"
_LOST: Final = f"{_FOLDER}lost-"


@dataclass(frozen=True, slots=True)
class Amnesia:
    """A crash after which rows of a stream may be missing: those pushed after `durable_to`, less than `within` before the crash.

    `since` is when the process that crashed pushed the first such rows; `durable_to` when the last durable ones came, None without any.
    """

    stream: str
    since: Instant
    within: Duration
    durable_to: Instant | None = None

    def as_json(self) -> dict[str, Any]:
        """JSON values; the constructor takes them back."""
        return {name: getattr(self, name) for name in Amnesia.__slots__}


@dataclass(slots=True)
class UnloggedPushes:
    """Those of one hub. A thread logs what waits, if no epoch and no other push has done it before."""

    intake: Intake
    _marked: dict[str, str] = field(default_factory=dict)
    _due: float | None = None
    _timer: threading.Timer | None = None
    _is_closed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def find_lost(self) -> None:
        """Turn the marks of processes that crashed into reports, before this one makes any."""
        store = self.intake.home.store
        marks = [file.name for file in store.list(_FOLDER) if not file.name.startswith(_LOST)]
        for name in marks:
            mark = Amnesia(**json.loads(store.read(name)))
            lost = Amnesia(mark.stream, mark.since, mark.within, self._durable_to(mark.stream))
            store.put_if_absent(f"{_LOST}{name.removeprefix(_FOLDER)}", json.dumps(lost.as_json()).encode())
            store.delete(name, durable=True)

    def lost(self) -> list[Amnesia]:
        """The crashes of this home after which rows may be missing."""
        store = self.intake.home.store
        return [Amnesia(**json.loads(store.read(file.name))) for file in store.list(_LOST)]

    def acknowledge(self, stream: str | None = None) -> int:
        """Delete the reports of losses of a stream, or of all; how many there were."""
        store, deleted = self.intake.home.store, 0
        for file in store.list(_LOST):
            lost = Amnesia(**json.loads(store.read(file.name)))
            if stream in (None, lost.stream):
                deleted += store.delete(file.name, durable=True)
        return deleted

    def hand_in(
        self, record: IngestRecord, definition: StreamDefinition, files: tuple[str, ...], within: Duration
    ) -> None:
        """Queue the segment of a push; it is durable after `within` at the latest, and at once after `close`. Raises `StoreError`."""
        with self._lock:
            waits = not self._is_closed
            if waits:
                self._mark(definition, within)
                self.intake.hand_in_later(record, definition, files)
        if waits:
            self._log_within(within / SECOND)
        else:
            self.intake.hand_in(record, definition, files)

    def close(self) -> None:
        """Log what waits, delete the marks, and start no timer again. Raises `StoreError`, and leaves the marks."""
        with self._lock:
            self._is_closed = True
            timer = self._timer
        if timer is not None:
            timer.cancel()
            timer.join()
        # With the lock no append of the timer or of a push is under way, and what it could not log waits again.
        with self.intake.lock:
            self.intake.log_queued()
        for name in self._marked.values():
            self.intake.home.store.delete(name, durable=True)
        self._marked.clear()

    def _mark(self, definition: StreamDefinition, within: Duration) -> None:
        if definition.name not in self._marked:
            name = f"{_FOLDER}{uuid.uuid4().hex}.json"
            mark = Amnesia(definition.name, self.intake.clock(), within)
            self.intake.home.store.put_if_absent(name, json.dumps(mark.as_json()).encode())
            self._marked[definition.name] = name

    def _log_within(self, seconds: float) -> None:
        with self._lock:
            due = time.monotonic() + seconds
            if not self._is_closed and (self._due is None or due < self._due):
                self._due = due
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = threading.Timer(seconds, self._log, (seconds,))
                self._timer.daemon = True
                self._timer.start()

    def _log(self, seconds: float) -> None:
        with self._lock:
            self._due = None
            if self._is_closed:
                return
        try:
            self.intake.log_queued()
        except StoreError:  # the next epoch, push or close meets it and raises it
            self._log_within(seconds)

    def _durable_to(self, stream: str) -> Instant | None:
        return max(self._arrivals(stream), default=None)

    def _arrivals(self, stream: str) -> Iterator[Instant]:
        log = self.intake.home.ingest_log
        for _, entry in log.read(log.start):
            record = IngestRecord.from_json(entry)
            if record.stream == stream:
                yield record.arrival
