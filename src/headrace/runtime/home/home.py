"""A home on disk: its store, manifests and logs, and the catalog as of the newest log entry.

A driver takes it over by its incarnation, appends to the query log and is fenced off by the next driver; the engine publishes
the manifests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, TypeVar

from headrace.catalog.catalog import Catalog
from headrace.catalog.folded_log import BORN, FoldedLog
from headrace.dataclass import dataclass
from headrace.errors import AlreadyPublished, CorruptStore, StoreError, outcome_unless_known
from headrace.store.files.disk import Disk
from headrace.store.files.filesystem import LocalStore, MissingFile
from headrace.store.logs.manifest import MANIFESTS, SUMMARISED, Manifest, ManifestLog
from headrace.store.logs.radix_list import RadixList
from headrace.store.logs.record_log import INGEST_LOG, QUERY_LOG, Chunk, RecordLog
from headrace.store.maintenance.home_format import require_format
from headrace.store.maintenance.lost_manifests import lost_manifests

_Value = TypeVar("_Value")


@dataclass(slots=True)
class Home:
    """A home that is read, or written by the driver that has taken it over."""

    store: LocalStore
    manifests: ManifestLog
    query_log: RecordLog
    ingest_log: RecordLog
    folded: FoldedLog = field(default_factory=FoldedLog)
    """The query log up to the last entry that was read."""
    snapshot_at: int = 0
    """The records of the query log that its newest snapshot is of."""
    incarnation: int = 0
    """Incarnation of the driver that writes through this object; 0 for a reader."""
    opening: object = field(default_factory=object)
    """This opening of the home: a cache of the process may have values of another home, which was in the same folder before."""
    in_doubt: bool = False
    """Whether the query log may have entries that are not in the catalog or plan: an append was interrupted, or has failed."""
    _refreshing: threading.Lock = field(default_factory=threading.Lock)
    """Held while the query log is read: threads of a reader may do so at the same time."""

    @staticmethod
    def at(path: Path, disk: Disk | None = None) -> Home:
        """The home in a folder, with its current catalog; `disk`: how it is written (default: each file is synced).

        Raises `UserError` when this program does not read its format.
        """
        store = LocalStore(str(path), disk)
        require_format(store)
        home = Home(store, ManifestLog(store), RecordLog(store, QUERY_LOG), RecordLog(store, INGEST_LOG))
        home.refresh()
        return home

    def take_over(self) -> Manifest:
        """Become the writer as a new incarnation. Appends to the logs continue after the current end, so those of an earlier driver fail.

        Raises `CorruptStore` where files of manifests or logs are missing, and leaves the home as it is.
        """
        self._require_logs()
        manifest = self.manifests.takeover(self.incarnation or None)
        self.incarnation = manifest.incarnation
        self.ingest_log = RecordLog(self.store, INGEST_LOG)
        # The last record may be of a driver that died before it was durable; from now on it counts.
        self.ingest_log.settle()
        self.find_out()
        return manifest

    def _require_logs(self) -> None:
        """Raise `CorruptStore` where the logs lack what the latest manifest needs, or it is not the last that was committed: queries would
        be dropped, and rows lost or read twice.
        """
        while True:
            manifest = self.manifests.latest()
            lost = self._lost_before(manifest or Manifest(epoch=0, incarnation=0), is_new=manifest is None)
            if lost is None:
                return
            # Else another driver has dropped what a newer manifest does not need.
            if self.manifests.latest() is manifest:
                raise CorruptStore(
                    f"the home {self.store.root} lacks files: {lost}\n"
                    "  Put them back, or a copy of the whole home. Nothing in it was changed."
                )

    def _lost_before(self, manifest: Manifest, *, is_new: bool) -> str | None:
        """What is missing of the logs and manifests; None where nothing is."""
        summarised = manifest.facts.get(SUMMARISED, {"upto": 0})["upto"]
        applied = {
            QUERY_LOG: (self.snapshot_at, manifest.querylog),
            INGEST_LOG: (summarised, manifest.ingest),
        }
        for name, (first, end) in applied.items():
            log = RecordLog(self.store, name)
            start, length = log.start, log.length
            if is_new and length:
                return f"{MANIFESTS}/ has none, and {name}/ has {length} records"
            if start > first or length < end:
                return f"{name}/ has the records from {start} to {length}, those from {first} to {end} are needed"
        shown = None if is_new else lost_manifests(self.store, manifest.epoch)
        return None if shown is None else f"{MANIFESTS}/ ends with epoch {manifest.epoch}, but {shown}"

    def find_out(self) -> None:
        """Read the query log again and make it durable, after an append whose outcome is not known."""
        self.query_log = RecordLog(self.store, QUERY_LOG)
        self.query_log.settle()
        self.refresh()

    def fence(self) -> None:
        """Raise `AlreadyPublished` before an append when another driver has taken over.

        A driver that is replaced right after this check may still append a record. The new driver then finds the next number
        taken, sees that it is not replaced itself, and continues after that record.
        """
        newest = self.latest().incarnation
        if newest != self.incarnation:
            raise AlreadyPublished(
                f"another process has taken over the home {self.store.root} (start {newest}, this one is {self.incarnation}). "
                "This one must stop; start it again to take over"
            )

    def append(self, entries: Sequence[Mapping[str, Any]], append: str) -> bool:
        """Append entries to the query log under an id; False when the log has others that are not in the catalog yet.

        In doubt from then on, until the caller has applied and planned the log's entries: see `find_out`.
        """
        with outcome_unless_known("absent"):
            self.fence()
            snapshot, position = self._snapshot(), self.catalog.position
            self.in_doubt = True
            try:
                self.query_log.append(entries, append, snapshot=snapshot)
            except AlreadyPublished:
                self.fence()
                return False
            except StoreError as error:
                self.in_doubt = error.outcome != "absent"
                raise
            if snapshot is not None:
                self.snapshot_at = position
        return True

    @property
    def catalog(self) -> Catalog:
        """The catalog as of the last entry of the query log that was read."""
        return self.folded.catalog

    def refresh(self) -> None:
        """Apply the query-log entries since the last call: all of them, or none when they cannot be read.

        Of the driver only the thread that logs calls it; others call `newest_catalog`.
        """
        with self._refreshing:
            self._apply_new_entries()

    def newest_catalog(self) -> Catalog:
        """The catalog for any thread: a reader's with what the driver has appended since; the driver's own, which has all that it logged."""
        if not self.incarnation:
            self.refresh()
        return self.catalog

    def _apply_new_entries(self) -> None:
        """Continue where the log was read to; from a snapshot where what follows was dropped."""
        folded = self.folded
        while True:
            try:
                self.folded = folded.then(self._noting(self.query_log.chunks(folded.catalog.position)))
                return
            except StoreError:
                oldest = self.query_log.oldest_snapshot()
                if oldest is None or oldest.first <= folded.catalog.position:
                    raise
                folded, self.snapshot_at = FoldedLog.from_json(oldest.snapshot), oldest.first

    def _noting(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        for chunk in chunks:
            if chunk.snapshot is not None:
                self.snapshot_at = chunk.first
            yield chunk

    def _snapshot(self) -> Mapping[str, Any] | None:
        """What the query log's records amount to, where it is due for the next append."""
        position = self.catalog.position
        is_due = self.folded.is_worth_writing(position - self.snapshot_at)
        return self.folded.as_json() if is_due and position == self.query_log.end else None

    def with_births(self, entries: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Entries for the log, with the number of ingest records before them where they make a new stream."""
        made, dropped = list[Mapping[str, Any]](), set[str]()
        for entry in entries:
            if entry["do"] == "drop":
                dropped.add(entry["name"].lower())
            name = entry["stream"]["name"] if entry["do"] == "create_stream" else None
            is_new = name is not None and (self.catalog.stream(name) is None or name.lower() in dropped)
            made.append({**entry, BORN: self.ingest_log.length} if is_new else entry)
        return made

    def born(self, stream: str) -> int:
        """Number of ingest records when the stream was created: earlier ones are of a dropped stream of the same name."""
        return self.folded.births.get(stream.lower(), (0, 0))[0]

    def created(self, stream: str) -> int:
        """The position in the query log after the entry that created the stream; another one is of another stream."""
        return self.folded.births.get(stream.lower(), (0, 0))[1]

    def latest(self) -> Manifest:
        """The newest manifest; an empty one for a new home."""
        return self.manifests.latest() or Manifest(epoch=0, incarnation=0)

    def at_newest_epoch(self, compute: Callable[[Manifest], _Value]) -> _Value:
        """The value of the newest manifest; of the next one when files are collected while they are read."""
        while True:
            manifest = self.latest()
            try:
                return compute(manifest)
            except MissingFile:
                if self.latest().epoch == manifest.epoch:
                    raise

    def entries(self, manifest: Manifest, name: str) -> Sequence[Mapping[str, Any]]:
        """Entries of one of a manifest's lists."""
        return [entry for _, entry in self.list_of(manifest, name).iterate(self.store.read)]

    def list_of(self, manifest: Manifest, name: str) -> RadixList:
        """One of a manifest's lists; empty when it has none of that name."""
        return manifest.lists.get(name, RadixList())
