"""A home on disk: its store, manifests and logs, and the catalog as of the newest log entry.

A driver takes it over by its incarnation, appends to the query log and is fenced off by the next driver; the engine publishes
the manifests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final, TypeVar

from headrace.catalog.catalog import Catalog, is_of_query
from headrace.dataclass import dataclass
from headrace.errors import AlreadyPublished, CorruptStore, StoreError, outcome_unless_known
from headrace.store.files.disk import Disk
from headrace.store.files.filesystem import LocalStore, MissingFile
from headrace.store.logs.manifest import MANIFESTS, SUMMARISED, Manifest, ManifestLog
from headrace.store.logs.radix_list import RadixList
from headrace.store.logs.record_log import INGEST_LOG, QUERY_LOG, RecordLog
from headrace.store.maintenance.home_format import require_format

_Value = TypeVar("_Value")
BORN: Final = "ingest"
"""In the query log's entry of a new stream: how many ingest records there were."""
_COMPARED: Final = 1024
"""Appends to the query log, the newest, whose ids are compared with the next one's: a repetition follows few others."""


@dataclass(slots=True)
class Home:
    """A home that is read, or written by the driver that has taken it over."""

    store: LocalStore
    manifests: ManifestLog
    query_log: RecordLog
    ingest_log: RecordLog
    catalog: Catalog = field(default_factory=Catalog)
    incarnation: int = 0
    """Incarnation of the driver that writes through this object; 0 for a reader."""
    opening: object = field(default_factory=object)
    """This opening of the home: a cache of the process may have values of another home, which was in the same folder before."""
    in_doubt: bool = False
    """Whether the query log may have entries that are not in the catalog or plan: an append was interrupted, or has failed."""
    _born: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of each stream: how many ingest records there were when it was created, and the position after its entry."""
    _appends: dict[str, None] = field(default_factory=dict)
    """Ids of the newest appends to the query log that are in the catalog, in order."""
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
        """Raise `CorruptStore` where the logs lack what the latest manifest needs: queries would be dropped, and rows lost or read twice."""
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
        applied = {QUERY_LOG: (0, manifest.querylog), INGEST_LOG: (summarised, manifest.ingest)}
        for name, (first, end) in applied.items():
            log = RecordLog(self.store, name)
            start, length = log.start, log.length
            if is_new and length:
                return f"{MANIFESTS}/ has none, and {name}/ has {length} records"
            if start > first or length < end:
                return f"{name}/ has the records from {start} to {length}, those from {first} to {end} are needed"
        return None

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
            self.in_doubt = True
            try:
                self.query_log.append(entries, append)
            except AlreadyPublished:
                self.fence()
                return False
            except StoreError as error:
                self.in_doubt = error.outcome != "absent"
                raise
        return True

    def refresh(self) -> None:
        """Apply the query-log entries since the last call: all of them, or none when they cannot be read.

        An append that is in the log several times, with fewer than a thousand others between, counts once. Of the driver only the
        thread that logs calls it; others call `newest_catalog`.
        """
        with self._refreshing:
            self._apply_new_entries()

    def newest_catalog(self) -> Catalog:
        """The catalog for any thread: a reader's with what the driver has appended since; the driver's own, which has all that it logged."""
        if not self.incarnation:
            self.refresh()
        return self.catalog

    def _apply_new_entries(self) -> None:
        catalog, born, appends = self.catalog, dict(self._born), dict(self._appends)
        of_queries: list[Mapping[str, Any]] = []
        for chunk in self.query_log.chunks(catalog.position):
            if chunk.append in appends:
                catalog = catalog.apply_all(of_queries).without_effect(len(chunk.records))
                of_queries.clear()
                continue
            for entry in chunk.records:
                if is_of_query(entry):
                    of_queries.append(entry)
                    continue
                catalog = catalog.apply_all(of_queries)
                of_queries.clear()
                if entry["do"] == "create_stream" and catalog.stream(entry["stream"]["name"]) is None:
                    born[entry["stream"]["name"].lower()] = entry.get(BORN, 0), catalog.position + 1
                catalog = catalog.apply(entry)
            if chunk.append is not None:
                appends[chunk.append] = None
                if len(appends) > _COMPARED:  # here: the catalog does not depend on how much is read at once
                    del appends[next(iter(appends))]
        self.catalog, self._born, self._appends = catalog.apply_all(of_queries), born, appends

    def born(self, stream: str) -> int:
        """Number of ingest records when the stream was created: earlier ones are of a dropped stream of the same name."""
        return self._born.get(stream.lower(), (0, 0))[0]

    def created(self, stream: str) -> int:
        """The position in the query log after the entry that created the stream; another one is of another stream."""
        return self._born.get(stream.lower(), (0, 0))[1]

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
