"""Collection of the stored sums of archive runs, `sums/STREAM/SIGNATURE/…`: a file stays as long as a run of it does, unless later files
of the same signature have the sums of all of these; and of all files the newest stay, up to some bytes.

No manifest names them: they are copies of what the runs have, which any reader of the home may write.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Final

from headrace.errors import CorruptStore
from headrace.store.files.container import Container
from headrace.store.files.filesystem import Store, StoredFile
from headrace.time import Duration, Instant

SUMS: Final = "sums"
"""The folder."""
RUNS: Final = "runs"
"""In the header of a file: the runs whose sums it has, each as the name of its file, a space and its first row group."""
MOST_BYTES: Final = 1 << 28
"""Bytes of all files, at most."""


def sweep_sums(store: Store, live: Collection[str], *, now: Instant, grace: Duration) -> list[StoredFile]:
    """Delete what is not needed and older than the grace; what was deleted."""
    files = sorted(store.list(f"{SUMS}/"), key=lambda file: (file.modified, file.name), reverse=True)
    gone = [file for file in _unneeded(store, files, set(live)) if now - file.modified > grace]
    return [file for file in gone if store.delete(file.name)]


def _unneeded(store: Store, newest_first: Collection[StoredFile], live: set[str]) -> Iterator[StoredFile]:
    known: defaultdict[str, set[str]] = defaultdict(set)
    size = 0
    for file in newest_first:
        runs = {run for run in runs_of(store, file.name) if run.rpartition(" ")[0] in live}
        of_signature = known[file.name.rpartition("/")[0]]
        if runs <= of_signature or size + file.bytes > MOST_BYTES:
            yield file
        else:
            of_signature |= runs
            size += file.bytes


def runs_of(store: Store, name: str) -> list[str]:
    """The runs whose sums a file has; none of one that is damaged."""
    try:
        return list(Container.open(store.map(name), name).header.get(RUNS, ()))
    except CorruptStore:
        return []
