"""A home on disk: its store, manifests and logs, and the catalog as of the newest log entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headrace.catalog.catalog import Catalog, is_of_query
from headrace.errors import AlreadyPublished
from headrace.store.filesystem import LocalStore
from headrace.store.home_format import require_format
from headrace.store.log import INGEST_LOG, QUERY_LOG, RecordLog
from headrace.store.manifest import Manifest, ManifestLog
from headrace.store.radix_list import RadixList

BORN: Final = "ingest"
"""In the query log's entry of a new stream: how many ingest records there were."""


@dataclass(slots=True)
class Home:
    """Read access to a home; the engine adds the writing side."""

    store: LocalStore
    manifests: ManifestLog
    query_log: RecordLog
    ingest_log: RecordLog
    catalog: Catalog = field(default_factory=Catalog)
    incarnation: int = 0
    """Of the driver that writes through this object; 0 for a reader."""
    _born: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def at(path: Path) -> Home:
        """The home in a folder, with its catalog folded up to date.

        Raises `UserError` when this program does not read its format.
        """
        store = LocalStore(str(path))
        require_format(store)
        home = Home(store, ManifestLog(store), RecordLog(store, QUERY_LOG), RecordLog(store, INGEST_LOG))
        home.refresh()
        return home

    def taken_over(self, incarnation: int) -> None:
        """Write as that incarnation. Appends to the logs go on from what is there now, so an earlier driver's fail."""
        self.incarnation = incarnation
        self.query_log = RecordLog(self.store, QUERY_LOG)
        self.ingest_log = RecordLog(self.store, INGEST_LOG)
        self.refresh()

    def fence(self) -> None:
        """Before an append: raises `AlreadyPublished` when another driver has taken over.

        One that is replaced right after this look may still get a record in. The new driver then finds its next number
        taken, sees that it is not replaced itself, and goes on after that record.
        """
        newest = self.latest().incarnation
        if newest != self.incarnation:
            raise AlreadyPublished(
                f"another process has taken over the home {self.store.root} (start {newest}, this one is {self.incarnation}). "
                "This one must stop; start it again to take over"
            )

    def refresh(self) -> None:
        """Fold query-log entries that have come since."""
        of_queries: list[Mapping[str, Any]] = []
        for _, entry in self.query_log.read(self.catalog.position):
            if is_of_query(entry):
                of_queries.append(entry)
                continue
            self.catalog = self.catalog.apply_all(of_queries)
            of_queries.clear()
            if entry["do"] == "create_stream" and self.catalog.stream(entry["stream"]["name"]) is None:
                self._born[entry["stream"]["name"].lower()] = entry.get(BORN, 0)
            self.catalog = self.catalog.apply(entry)
        self.catalog = self.catalog.apply_all(of_queries)

    def born(self, stream: str) -> int:
        """How many ingest records there were when the stream was created: earlier ones are of another of its name."""
        return self._born.get(stream.lower(), 0)

    def latest(self) -> Manifest:
        """The newest manifest; an empty one for a new home."""
        return self.manifests.latest() or Manifest(epoch=0, incarnation=0)

    def entries(self, manifest: Manifest, name: str, start: int = 0) -> Sequence[Mapping[str, Any]]:
        """Entries of one of a manifest's lists, from an index on."""
        return [entry for _, entry in self.list_of(manifest, name).iterate(self.store.read, start)]

    def list_of(self, manifest: Manifest, name: str) -> RadixList:
        """One of a manifest's lists; empty when it has none of that name."""
        return manifest.lists.get(name, RadixList())
