"""Joined files of rejected rows: those of many epochs of one stream, or of one query, in one file, and the manifest that names it in
their place.

A rejected row is rare or a sign of trouble; in trouble each epoch writes a small file for each stream and each query that it is
about. As results are merged (decision 54), 64 entries of such a list become parts of one file, and 64 such files one of 4,096
entries. An entry keeps its index and its epoch, and names the file and the first of its own rows there, so the readers of a
stream's rejects and the positions of backfills do not notice. A file is durable before a manifest names it, and a manifest names
either it or those that it replaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, Final

import pyarrow as pa

from headrace.catalog.definitions import StreamDefinition
from headrace.dataclass import dataclass
from headrace.errors import CorruptStore
from headrace.runtime.backfill.archive_entries import JOINED_REJECTS
from headrace.runtime.home import file_names
from headrace.runtime.home.home import Home
from headrace.runtime.home.reject_files import encode_rejects, read_rejects
from headrace.runtime.messages.task_messages import RejectsFile
from headrace.runtime.progress.failing_queries import FAILED_ROWS
from headrace.runtime.results.merging import next_range
from headrace.runtime.samples.periodic_write import PeriodicWrite
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import ListFiles, RadixList, covered, flat_segment
from headrace.store.maintenance.retention_classes import PART

JOINED_FAILURES: Final = "joined failures"
"""The fact of a manifest with the same marks as `JOINED_REJECTS`, of the lists of rows on which operators failed."""
LARGE: Final = 1 << 16
"""Rows of a file that stays as it is."""
_MOST_ROWS: Final = 1 << 20
"""Rows of a file in which others are joined, at most; also those that are written after one epoch: no more start."""
_MOST_PARTS: Final = 64
"""Sealed parts of a list that are tried after one epoch."""
_FACTS: Final = {"rejects": JOINED_REJECTS, "failures": JOINED_FAILURES}
"""By kind of list, the fact with its marks."""


@dataclass(frozen=True, slots=True)
class JoinedRejects:
    """What was written: `files`, and the segment that names them in place of the sealed file `replaces` of a list, of a height, whose
    first entry is `first`.

    Without a segment nothing is replaced: all has expired, or files are large or damaged.
    """

    kind: str
    of: str
    height: int
    first: int
    replaces: str = ""
    segment: str | None = None
    files: tuple[str, ...] = ()
    rows: int = 0

    def settled(self, manifest: Manifest, home: Home, lists: ListFiles) -> Manifest:
        """The manifest with the joined files; without them where it has another sealed file there by now, or files were collected."""
        name, fact = f"{self.kind}:{self.of}", _FACTS[self.kind]
        listed = manifest.lists.get(name)
        if listed is None or listed.length < self.first + covered(self.height):  # of another stream
            return manifest
        if self.segment is not None:
            there = listed.segment_at(self.height, self.first, lists.read)
            if there is not None:
                if there != self.replaces or not all(map(home.store.exists, (self.segment, *self.files))):
                    return manifest
                listed = listed.with_segment(self.height, self.first, self.segment, lists.write, lists.read)
        marks = list(_marks(manifest, self.kind, self.of))
        marks[self.height] = self.first + covered(self.height)
        of_all = {**manifest.facts.get(fact, {}), self.of: marks}
        changed = manifest.lists.changed({name: listed})
        return replace(manifest, lists=changed, facts={**manifest.facts, fact: of_all})


def _marks(manifest: Manifest, kind: str, of: str) -> Sequence[int]:
    marks: Sequence[int] = manifest.facts.get(_FACTS[kind], {}).get(of, (0, 0))
    return marks


def due(home: Home, manifest: Manifest, kind: str, of: str) -> tuple[int, int] | None:
    """Height and first entry of the next sealed part of a list whose files are joined; None where there is none."""
    return next_range(home.list_of(manifest, f"{kind}:{of}"), _marks(manifest, kind, of))


@dataclass(frozen=True, slots=True)
class Joiner:
    """The writer of joined files as of a manifest."""

    home: Home
    manifest: Manifest

    def joined(self, lists: Sequence[tuple[str, str]]) -> list[JoinedRejects]:
        """Write what is due of lists, durably, up to some rows."""
        done: list[JoinedRejects] = []
        for kind, of in lists:
            listed = self.home.list_of(self.manifest, f"{kind}:{of}")
            marks = list(_marks(self.manifest, kind, of))
            begun = len(done)
            while len(done) < begun + _MOST_PARTS and sum(one.rows for one in done) < _MOST_ROWS:
                due = next_range(listed, marks)
                if due is None or (due[0] and len(done) > begun):  # of files that a manifest names already
                    break
                done.append(self._joined(JoinedRejects(kind, of, *due), listed))
                marks[due[0]] = due[1] + covered(due[0])
        return done

    def _joined(self, nothing: JoinedRejects, listed: RadixList) -> JoinedRejects:
        store, first = self.home.store, nothing.first
        sealed = listed.sealed(nothing.height, first, store.read)
        if sealed is None:
            return nothing
        entries, files, rows = list(sealed.entries), list[str](), 0
        for places in _files(nothing.kind, entries, max(0, listed.start - first)):
            name = file_names.joined_rejects(entries[places[0]]["name"], first + places[0], len(places))
            try:
                tables = self._tables([entries[at] for at in places])
            except CorruptStore:  # it stays where it is, for its readers and the check to report
                continue
            store.write_once(name, [encode_rejects(tables)])
            files.append(name)
            begin = 0
            for at in places:
                entries[at] = {**entries[at], "name": name, PART: begin}
                begin += entries[at]["rows"]
            rows += begin
        if not files:
            return nothing
        segments = ListFiles(store)
        segment = segments.write(flat_segment(nothing.height, entries))
        store.sync(segments.unsynced)
        return replace(nothing, replaces=sealed.name, segment=segment, files=tuple(files), rows=rows)

    def _tables(self, entries: Sequence[Mapping[str, Any]]) -> list[pa.Table]:
        """The rows of successive entries, each file read once."""
        tables = []
        for name, of_file in groupby(map(RejectsFile.of_entry, entries), lambda file: file.name):
            parts = list(of_file)
            rows = sum(part.rows for part in parts)
            table = read_rejects(self.home.store, name, parts[0].part or 0, rows)
            tables.append(table)
        return tables


def _files(kind: str, entries: Sequence[Mapping[str, Any]], start: int) -> Iterator[list[int]]:
    """The places of entries from `start` on, divided into those whose rows are written into one file: of two small files at least."""
    places: list[int] = []
    rows = names = 0
    for _, same in groupby(range(start, len(entries)), lambda at: entries[at]["name"]):
        of_file = list(same)
        more = sum(entries[at]["rows"] for at in of_file)
        stays = more >= LARGE or not all(_may_move(kind, entries[at]) for at in of_file)
        if stays or rows + more > _MOST_ROWS:
            if names > 1:
                yield places
            places, rows, names = [], 0, 0
        if not stays:
            places, rows, names = places + of_file, rows + more, names + 1
    if names > 1:
        yield places


def _may_move(kind: str, entry: Mapping[str, Any]) -> bool:
    """Whether no other list names the file of an entry too, as the archives of earlier versions do."""
    return PART in entry or kind == "failures"


class JoiningRejects(PeriodicWrite):
    """The joining of a home's files of rejected rows while its epochs run."""

    thread = "headrace-rejects"

    def due(
        self, manifest: Manifest, streams: Sequence[StreamDefinition]
    ) -> Callable[[], list[JoinedRejects]] | None:
        """Those of lists with a sealed part."""
        lists = [("rejects", stream.name) for stream in streams]
        lists += [("failures", operator) for operator in manifest.facts.get(FAILED_ROWS, {})]
        waiting = [one for one in lists if due(self.home, manifest, *one) is not None]
        return partial(Joiner(self.home, manifest).joined, waiting) if waiting else None
