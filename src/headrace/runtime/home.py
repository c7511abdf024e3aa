"""A home on disk: its store, manifests and logs, and the catalog as of the newest log entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.catalog.catalog import Catalog
from headrace.store.filesystem import LocalStore
from headrace.store.log import INGEST_LOG, QUERY_LOG, RecordLog
from headrace.store.manifest import Manifest, ManifestLog
from headrace.store.radix_list import RadixList


@dataclass(slots=True)
class Home:
    """Read access to a home; the engine adds the writing side."""

    store: LocalStore
    manifests: ManifestLog
    query_log: RecordLog
    ingest_log: RecordLog
    catalog: Catalog = field(default_factory=Catalog)

    @staticmethod
    def at(path: Path) -> Home:
        """The home in a folder, with its catalog folded up to date."""
        store = LocalStore(str(path))
        home = Home(store, ManifestLog(store), RecordLog(store, QUERY_LOG), RecordLog(store, INGEST_LOG))
        home.refresh()
        return home

    def reopen_logs(self) -> None:
        """Fix where appends go on: after a takeover, so that whoever wrote before cannot append any more."""
        self.query_log = RecordLog(self.store, QUERY_LOG)
        self.ingest_log = RecordLog(self.store, INGEST_LOG)
        self.refresh()

    def refresh(self) -> None:
        """Fold query-log entries that have come since."""
        for _, entry in self.query_log.read(self.catalog.position):
            self.catalog = self.catalog.apply(entry)

    def latest(self) -> Manifest:
        """The newest manifest; an empty one for a new home."""
        return self.manifests.latest() or Manifest(epoch=0, incarnation=0)

    def entries(self, manifest: Manifest, name: str, start: int = 0) -> Sequence[Mapping[str, Any]]:
        """Entries of one of a manifest's lists, from an index on."""
        return [entry for _, entry in self.list_of(manifest, name).iterate(self.store.read, start)]

    def list_of(self, manifest: Manifest, name: str) -> RadixList:
        """One of a manifest's lists; empty when it has none of that name."""
        return manifest.lists.get(name, RadixList())
