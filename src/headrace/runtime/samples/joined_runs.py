"""Joined archive runs: the runs of many small epochs of a stream as row groups of one file, their writer, and the manifest that
names the file in their place.

A row group stays as it was, with its rows, their order and the share of its run that it ends; so the slices that a backfill has
read, the samples that a question reads and the positions of rows do not change. An entry of the archive list keeps its index, and
names the file and its own row groups. Only sealed parts of the list are joined, 64 entries at a time and once: a row is written
twice at most, and not in runs that are large. So there are about as many files as the archive has epochs by 64 and rows by 65,536. A file
is durable before a manifest names it, and a manifest names either it or the runs that it replaces, as for results (decision 54).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa

from headrace.archive import runs
from headrace.archive.prefixes import Prefixes
from headrace.archive.run_file import RunFile
from headrace.catalog.definitions import StreamDefinition
from headrace.dataclass import dataclass
from headrace.errors import CorruptStore
from headrace.runtime.backfill.archive_entries import JOINED, ArchiveEntry
from headrace.runtime.home import file_names
from headrace.runtime.home.background_write import give_way
from headrace.runtime.home.home import Home
from headrace.runtime.samples.periodic_write import PeriodicWrite
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import ListFiles, covered, flat_segment

LARGE: Final = 1 << 16
"""Rows of an entry whose runs stay as they are: a file of so many is read well."""
_MOST_ROWS: Final = 1 << 20
"""Rows of a file in which runs are joined, at most."""
_ROWS_AT_ONCE: Final = 1 << 21
"""Rows of all streams that are written after one epoch: no more start."""


@dataclass(frozen=True, slots=True)
class Joined:
    """What was written: `files` with so many rows, and the segment that names them in place of the sealed file `replaces` of a stream's archive list,
    whose first entry is `first`.

    Without a segment nothing is replaced: all has expired, or runs are large. `created` identifies the stream.
    """

    stream: str
    created: int
    first: int
    replaces: str = ""
    segment: str | None = None
    files: tuple[str, ...] = ()
    rows: int = 0

    def settled(self, manifest: Manifest, home: Home, lists: ListFiles) -> Manifest:
        """The manifest with the joined runs; without them where it has another sealed file there by now, or files were collected."""
        if self.stream not in manifest.streams or self.created != home.created(self.stream):
            return manifest
        listed = home.list_of(manifest, f"archive:{self.stream}")
        if self.segment is not None:
            name = listed.segment_at(0, self.first, lists.read)
            if name is not None:
                if name != self.replaces or not all(map(home.store.exists, (self.segment, *self.files))):
                    return manifest
                listed = listed.with_segment(0, self.first, self.segment, lists.write, lists.read)
        marks = {**manifest.facts.get(JOINED, {}), self.stream: self.first + covered(0)}
        changed = manifest.lists.changed({f"archive:{self.stream}": listed})
        return replace(manifest, lists=changed, facts={**manifest.facts, JOINED: marks})


def due(home: Home, manifest: Manifest, stream: StreamDefinition) -> int | None:
    """The first entry of the next sealed part of a stream's archive list whose runs are joined; None where there is none."""
    if stream.archive != "copy":
        return None
    listed = home.list_of(manifest, f"archive:{stream.name}")
    mark = manifest.facts.get(JOINED, {}).get(stream.name, 0)
    first: int = max(mark, listed.start - listed.start % covered(0))
    return first if first + covered(0) <= listed.length - len(listed.tail) else None


@dataclass(frozen=True, slots=True)
class Joiner:
    """The writer of joined runs as of a manifest."""

    home: Home
    manifest: Manifest

    def joined(self, streams: Sequence[StreamDefinition]) -> list[Joined]:
        """Write what is due next of streams, durably, up to some rows."""
        done: list[Joined] = []
        for stream in streams:
            first = due(self.home, self.manifest, stream)
            if first is not None and sum(one.rows for one in done) < _ROWS_AT_ONCE:
                done.append(self._joined(stream.name, first))
        return done

    def _joined(self, stream: str, first: int) -> Joined:
        store, nothing = self.home.store, Joined(stream, self.home.created(stream), first)
        listed = self.home.list_of(self.manifest, f"archive:{stream}")
        sealed = listed.sealed(0, first, store.read)
        if sealed is None or first < listed.start:
            return nothing
        entries = [ArchiveEntry.from_json(value) for value in sealed.entries]
        after: list[ArchiveEntry] = []
        files, rows = list[str](), 0
        for group in neighbours(entries):
            if sum(len(entry.files) for entry in group) > 1:
                name = file_names.joined_runs(stream, first + len(after), len(group))
                try:
                    after += self._written(name, group)
                except CorruptStore:  # it stays where it is, for its readers and the check to report
                    after += group
                    continue
                files.append(name)
                rows += sum(entry.rows for entry in group)
            else:
                after += group
        if not files:
            return nothing
        lists = ListFiles(store)
        segment = lists.write(flat_segment(0, [entry.as_json() for entry in after]))
        store.sync(lists.unsynced)
        return replace(nothing, replaces=sealed.name, segment=segment, files=tuple(files), rows=rows)

    def _written(self, name: str, entries: Sequence[ArchiveEntry]) -> list[ArchiveEntry]:
        """Write one file with all row groups of some entries; the entries that name it."""
        store = self.home.store
        files, counts = [file for entry in entries for file in entry.files], dict[str, int]()
        schema = runs.with_nullable(self._opened(files[0]).file.metadata.schema.to_arrow_schema())

        def groups() -> Iterator[tuple[pa.Table, float | None]]:
            for file in files:
                run = self._opened(file)
                prefixes = Prefixes.of(run.footer)
                counts[file] = prefixes.footer.num_row_groups
                for number in range(counts[file]):
                    share = prefixes.shares[number] if prefixes.has_parts else None
                    rows = run.read(groups=[number])
                    yield rows if rows.schema.equals(schema) else rows.cast(schema), share
                    give_way()

        store.write_once(name, [runs.joined(schema, groups())])
        return list(_within(name, entries, counts))

    def _opened(self, file: str) -> RunFile:
        give_way()
        return RunFile.of(self.home.store.map(file), file)


def neighbours(entries: Sequence[ArchiveEntry]) -> Iterator[list[ArchiveEntry]]:
    """The entries in order, divided into those whose runs are in one file: small ones, as many as have not too many rows together."""
    group: list[ArchiveEntry] = []
    for entry in entries:
        is_large = entry.rows >= LARGE or bool(entry.within)
        if group and (is_large or sum(one.rows for one in group) + entry.rows > _MOST_ROWS):
            yield group
            group = []
        group.append(entry)
        if is_large:
            yield group
            group = []
    if group:
        yield group


def _within(name: str, entries: Sequence[ArchiveEntry], counts: dict[str, int]) -> Iterator[ArchiveEntry]:
    """The entries as parts of a file that has so many row groups of each of their runs, one after the other."""
    first = 0
    for entry in entries:
        own = []
        for file in entry.files:
            own.append((first, counts[file]))
            first += counts[file]
        yield replace(entry, files=(name,) * len(own), within=name, joined=tuple(own))


class Joining(PeriodicWrite):
    """The joining of a home's archive runs while its epochs run."""

    thread = "headrace-joining"

    def due(
        self, manifest: Manifest, streams: Sequence[StreamDefinition]
    ) -> Callable[[], list[Joined]] | None:
        """Those of streams with a sealed part of their list."""
        waiting = [stream for stream in streams if due(self.home, manifest, stream) is not None]
        return partial(Joiner(self.home, manifest).joined, waiting) if waiting else None
