"""Garbage collection of a home: deletes old manifests, and the data files that neither the other manifests nor the two
logs name and that are older than a grace period; also the names that a manifest needs (`LiveNames`).

The grace protects what a running attempt has written and not published yet. The file of an abandoned attempt is named by
nothing and is deleted once it is old enough. The driver that publishes collects between two epochs.

Law: too much may be retained, nothing that is named is ever deleted. So every text in a manifest, in an entry of its lists
or in a record of the two logs counts as the name of a file when it begins with the name of a data folder.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from headrace.dataclass import dataclass
from headrace.store.files.filesystem import Store
from headrace.store.logs.manifest import KEPT, Manifest, ManifestLog
from headrace.store.logs.radix_list import leaf_entries
from headrace.store.logs.record_log import INGEST_LOG, QUERY_LOG, RecordLog
from headrace.store.maintenance.retention_classes import class_of, expired_of, is_expired
from headrace.store.maintenance.sums_collection import sweep_sums
from headrace.time import Duration, Instant

DATA_FOLDERS: Final = (
    *("archive", "blobs", "functions", "lists", "plans", "rejects"),
    *("relations", "results", "samples", "segments", "state"),
)
_DATA_PREFIXES: Final = tuple(f"{folder}/" for folder in DATA_FOLDERS)


@dataclass(frozen=True, slots=True)
class Collected:
    """Deleted names of data files and of manifests, bytes of the data files, and how many files are too young."""

    deleted: tuple[str, ...]
    manifests: tuple[str, ...]
    bytes: int
    spared: int


def names_in(value: Any, root: str) -> Iterator[str]:
    """Every text anywhere in a JSON value that could name a data file of the home `root`, relative to it or absolute."""
    if isinstance(value, str):
        name = value.rpartition(f"{root}/")[2]
        if name.startswith(_DATA_PREFIXES):
            yield name
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from names_in(key, root)
            yield from names_in(item, root)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from names_in(item, root)


class LiveNames:
    """Names in manifests. Keep one object for a home: it caches sealed list segments, which never change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._segments: dict[str, list[tuple[str, tuple[str, ...]]]] = {}

    def of(self, manifest: Manifest) -> set[str]:
        """Names of all data files a manifest needs."""
        body = manifest.as_json()
        live = set(names_in(body, self._store.root))
        for name, radix_list in manifest.lists.items():
            live.update(radix_list.segments(self._store.read))
            expired = expired_of(manifest, name)
            for index, entry in radix_list.newest():
                if not is_expired(expired, index, entry):
                    live.update(names_in(entry, self._store.root))
            for first, leaf in radix_list.leaves(self._store.read):
                for index, (retention_class, names) in enumerate(self._of_leaf(leaf), first):
                    if index >= radix_list.start and index >= expired.get(retention_class, 0):
                        live.update(names)
        return live

    def of_all(self, manifests: Iterable[Manifest]) -> set[str]:
        """Names of all data files that any of the manifests needs."""
        names = set[str]().union(*map(self.of, manifests))
        self._segments = {name: stored for name, stored in self._segments.items() if name in names}
        return names

    def _of_leaf(self, name: str) -> list[tuple[str, tuple[str, ...]]]:
        """The class of each entry of a sealed segment, and what it names."""
        stored = self._segments.get(name)
        if stored is None:
            entries = leaf_entries(self._store.read, name)
            stored = self._segments[name] = [
                (class_of(entry), tuple(names_in(entry, self._store.root))) for entry in entries
            ]
        return stored


def names_in_logs(store: Store, latest: Manifest | None, superseded: Collection[str] = ()) -> set[str]:
    """Data files that the query log mentions, and the ingest log from where the latest manifest has read it.

    Without those that are `superseded`: a later record names their replacement.
    """
    names: set[str] = set()
    consumed = latest.ingest if latest else 0
    for name, applied in ((QUERY_LOG, 0), (INGEST_LOG, consumed)):
        log = RecordLog(store, name)
        for chunk in log.chunks(max(applied, log.start)):
            names.update(names_in(chunk.snapshot, store.root))
            for record in chunk.records:
                names.update(names_in(record, store.root))
    return names.difference(superseded)


def sweep(
    store: Store,
    live: Collection[str],
    *,
    now: Instant,
    grace: Duration,
    folders: Iterable[str] = DATA_FOLDERS,
) -> Collected:
    """Delete files of the folders that are not live and older than the grace, and unfinished ones in the whole home."""
    candidates = [file for folder in folders for file in store.list(f"{folder}/") if file.name not in live]
    candidates += store.list(unfinished=True)
    old = [file for file in candidates if now - file.modified > grace]
    deleted = [file for file in old if store.delete(file.name)]
    return Collected(
        deleted=tuple(file.name for file in deleted),
        manifests=(),
        bytes=sum(file.bytes for file in deleted),
        spared=len(candidates) - len(old),
    )


def collect(
    store: Store,
    log: ManifestLog,
    *,
    now: Instant,
    grace: Duration,
    keep: int = KEPT,
    also: Collection[str] = (),
    superseded: Collection[str] = (),
    live: LiveNames | None = None,
    folders: Iterable[str] = DATA_FOLDERS,
) -> Collected:
    """Drop old manifests, then files that none of the others names.

    `also` are names that are needed although neither a manifest nor a log has them yet, `superseded` such that the query
    log has but that are needed only if a manifest names them. Other folders than `folders` are left as they are.
    """
    latest = log.latest()
    named = names_in_logs(store, latest, superseded).union(also)
    if latest is None:
        return sweep(store, named, now=now, grace=grace, folders=folders)
    dropped = log.drop_old(latest.epoch, keep)
    names = (live or LiveNames(store)).of_all(log.retained())
    swept = sweep(store, names | named, now=now, grace=grace, folders=folders)
    sums = sweep_sums(store, names | named, now=now, grace=grace)
    deleted = (*swept.deleted, *(file.name for file in sums))
    return Collected(deleted, dropped, swept.bytes + sum(file.bytes for file in sums), swept.spared)
