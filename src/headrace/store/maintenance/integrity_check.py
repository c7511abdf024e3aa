"""Integrity check of a home: reads its manifests, all files that they name, and both logs, and reports damage, gaps and
files that nothing names, without changing anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.dataclass import dataclass
from headrace.errors import CorruptStore, StoreError
from headrace.store.files.checksums.chunk_checksums import ChunkChecksums
from headrace.store.files.checksums.piece_checksums import damaged_bytes
from headrace.store.files.container import Container
from headrace.store.files.container_index import MAGIC
from headrace.store.files.filesystem import Store
from headrace.store.logs.manifest import MANIFESTS, SUMMARISED, Manifest, ManifestLog
from headrace.store.logs.numbered_files import NumberedFiles
from headrace.store.logs.radix_list import RadixList
from headrace.store.logs.record_log import INGEST_LOG, QUERY_LOG, RecordLog
from headrace.store.maintenance.garbage_collection import DATA_FOLDERS, LiveNames, names_in_logs
from headrace.store.maintenance.lost_manifests import lost_manifests, positions_behind
from headrace.time import FOREVER, Duration, Instant

Severity: TypeAlias = Literal["fault", "garbage", "note"]
"""Garbage is a file that the next start of the home collects."""

_PARQUET: Final = b"PAR1"
_SEGMENTS: Final = "segments/"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `headrace check`. A `fault` needs a person; a `note` does not."""

    severity: Severity
    name: str
    message: str


def check_home(store: Store, *, now: Instant, grace: Duration) -> tuple[Finding, ...]:
    """All findings; empty for a home that is whole and tidy."""
    log = ManifestLog(store)
    findings: list[Finding] = []
    manifests = list(_manifests(log, findings))
    findings += _history(manifests)
    if manifests:
        findings += _lost_manifests(store, manifests[-1])
    summarised = manifests[-1].facts.get(SUMMARISED, {}).get("upto", 0) if manifests else 0
    for folder, needed in ((MANIFESTS, None), (INGEST_LOG, summarised), (QUERY_LOG, _oldest_snapshot(store))):
        findings += _gaps(store, folder, needed)
    live: set[str] = set()
    names = LiveNames(store)
    for manifest in manifests:
        try:
            live |= names.of(manifest)
        except StoreError as error:
            findings.append(Finding("fault", f"epoch {manifest.epoch}", f"a list cannot be read: {error}"))
    sizes = {run.name: run.bytes for manifest in manifests for run in manifest.state}
    findings += [finding for name in sorted(live) for finding in _file(store, name, sizes.get(name))]
    findings += _logs(store, manifests[-1] if manifests else None)
    try:
        named = names_in_logs(store, manifests[-1] if manifests else None)
    except StoreError:
        return tuple(findings)  # the damage of the log is among the findings; what it names is unknown
    waiting = [name for name in sorted(named) if name.startswith(_SEGMENTS) and store.exists(name)]
    findings += [finding for name in waiting for finding in _file(store, name, None)]
    live |= named
    findings += _orphans(store, live, now, grace)
    return tuple(findings)


def _manifests(log: ManifestLog, findings: list[Finding]) -> Iterator[Manifest]:
    for epoch in log.epochs():
        try:
            yield log.read(epoch)
        except StoreError as error:
            findings.append(Finding("fault", f"epoch {epoch}", str(error)))


def _lost_manifests(store: Store, newest: Manifest) -> Iterator[Finding]:
    """What shows that manifests after the newest one are missing."""
    if shown := lost_manifests(store, newest.epoch):
        yield Finding("fault", f"{MANIFESTS}/", f"ends with epoch {newest.epoch}, but {shown}")
    results = newest.lists.get("results", RadixList()).length
    for name in positions_behind(store, results):
        yield Finding("fault", name, f"is a position behind all {results} entries of results")


def _history(manifests: list[Manifest]) -> Iterator[Finding]:
    """Numbers that must never decrease from one epoch to the next."""
    for before, after in itertools.pairwise(manifests):
        for what in ("incarnation", "querylog", "ingest"):
            was, became = getattr(before, what), getattr(after, what)
            if became < was:
                message = f"{what} went back from {was} at epoch {before.epoch} to {became}"
                yield Finding("fault", f"epoch {after.epoch}", message)


def _gaps(store: Store, folder: str, needed: int | None) -> Iterator[Finding]:
    """Files below a gap: harmless in a log whose records from `needed` on are above it; None for manifests, always harmless."""
    files = NumberedFiles(store, folder)
    whole = files.range()
    harmless = needed is None or _first_record(store, folder) <= needed
    severity: Severity = "note" if harmless else "fault"
    for number in files.listed():
        if number not in whole:
            message = (
                f"is below a gap: {files.name(whole.start - 1)} is missing, or this one should not be there"
            )
            yield Finding(severity, files.name(number), message)


def _first_record(store: Store, name: str) -> int:
    """The first record of a log that is not dropped; beyond all others if the log cannot be read, which is another finding."""
    try:
        return RecordLog(store, name).start
    except StoreError:
        return FOREVER


def _oldest_snapshot(store: Store) -> int:
    """The records of the query log that its oldest snapshot is of; 0 where none has one, or the log cannot be read."""
    try:
        oldest = RecordLog(store, QUERY_LOG).oldest_snapshot()
    except StoreError:
        return 0
    return 0 if oldest is None else oldest.first


def _file(store: Store, name: str, size: int | None) -> Iterator[Finding]:
    try:
        buffer = store.map(name)
        if size is not None and buffer.size != size:
            yield Finding("fault", name, f"{buffer.size} bytes long, the manifest records {size}")
        _verify(buffer, name)
    except StoreError as error:
        yield Finding("fault", name, str(error))


def _verify(buffer: pa.Buffer, name: str) -> None:
    """Checksums of containers, Parquet and pushed rows, the footer of Parquet that has none; other files have been read as part of what names them."""
    start = buffer.slice(0, min(len(MAGIC), buffer.size)).to_pybytes()
    if start == MAGIC or name.startswith(("state/", "results/")):
        Container.open(buffer, name).verify()
    elif start[: len(_PARQUET)] == _PARQUET or name.endswith(".parquet"):
        checksums = ChunkChecksums.of(buffer, name)
        try:
            file = pq.ParquetFile(pa.BufferReader(buffer))
            if checksums is not None:
                checksums.compare(file, None, range(file.num_row_groups))
        except (pa.ArrowInvalid, OSError) as error:
            raise CorruptStore(f"the Parquet file '{name}' is damaged: {error}") from error
    elif name.startswith(_SEGMENTS) and (damaged := damaged_bytes(buffer)):
        raise CorruptStore(f"the pushed rows in '{name}' are damaged in bytes {damaged[0]} to {damaged[1]}")
    elif not start:
        raise CorruptStore(f"the file '{name}' is empty")


def _logs(store: Store, latest: Manifest | None) -> Iterator[Finding]:
    applied = {INGEST_LOG: latest.ingest if latest else 0, QUERY_LOG: latest.querylog if latest else 0}
    for name, needed in applied.items():
        try:
            log = RecordLog(store, name)
            for _ in log.read(log.start):
                pass
            length = log.length
        except StoreError as error:
            yield Finding("fault", f"{name}/", str(error))
            continue
        if length < needed:
            message = f"holds {length} records, the latest manifest has applied {needed}"
            yield Finding("fault", f"{name}/", message)
        if latest is None and length:
            yield Finding("fault", f"{MANIFESTS}/", f"there is none, but {length} records in {name}/")


def _orphans(store: Store, live: set[str], now: Instant, grace: Duration) -> Iterator[Finding]:
    files = [file for folder in _folders() for file in store.list(folder) if file.name not in live]
    for file in [*files, *store.list(unfinished=True)]:
        age = now - file.modified
        if age > grace:
            message = f"named by no manifest, {file.bytes} bytes, {age // 1_000_000} s old; the next start collects it"
            yield Finding("garbage", file.name, message)
        else:
            message = f"named by no manifest yet, {file.bytes} bytes; collected when older than the grace"
            yield Finding("note", file.name, message)


def _folders() -> Iterable[str]:
    return (f"{folder}/" for folder in DATA_FOLDERS)
