"""The vacuum of archives and of their copies: which entries and segments are due by the reduction of a stream or of a reducer, and the
map of the space that waits to be freed.

A segment has the first blocks of the rows of several archive entries, or of segments before it; the others are dropped. It is written
whole before a manifest names it, and a manifest names either it or what it replaces: a kill between leaves a
file without a name. What is due, and the share that is kept, follow from the manifest and the files that it names, and from nothing
else: a vacuum that is killed and done again keeps the same rows. Only entries that every query has read become a segment of the
archive itself: from then on a new query starts after them, as after entries that have expired. Source: OSCAR, OnReadModify with its
vacuumer and purged original, over the blocks of RandomizeThenSort, where what is dropped is the end of a file; reduction functions by
age, load and state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import Any, Final

from headrace.archive import runs
from headrace.archive.blocks import blocks_for
from headrace.catalog.definitions import StreamDefinition
from headrace.catalog.reductions import Reduction
from headrace.dataclass import dataclass
from headrace.errors import CorruptStore
from headrace.runtime.backfill.archive_entries import ArchiveEntry, Piece, retained
from headrace.runtime.home.home import Home
from headrace.runtime.reduction.counts import LEAST
from headrace.runtime.reduction.segment_writer import SegmentWriter, bytes_of, prefixes_of, time_of
from headrace.runtime.reduction.segments import (
    ARCHIVE,
    Copy,
    Readers,
    Segment,
    Vacuumed,
    archive_copy,
    copy_of,
    segments_of,
)
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import RadixList
from headrace.time import BEGINNING, FOREVER, Instant

_MOST_ROWS: Final = 1 << 22
"""Stored rows up to which segments are merged."""
COPIED_ROWS: Final = 1 << 16
"""Rows of entries that are taken into a copy together while epochs run."""
COPIED_ENTRIES: Final = 64
"""Entries from which on they are, whatever their rows."""


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """What a vacuum will drop: so many row groups of so many files, with their rows and bytes."""

    files: int = 0
    row_groups: int = 0
    rows: int = 0
    bytes: int = 0

    def plus(self, other: FreeSpace) -> FreeSpace:
        """That of both."""
        return FreeSpace(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


@dataclass(slots=True)
class RunSizes:
    """The bytes of runs, each of which is opened once: by stream and reducer those of the last look, as files never change."""

    of_last_look: dict[tuple[str, str], dict[Piece, int]] = field(default_factory=dict)

    def total(self, home: Home, stream: str, reducer: str, pieces: Iterable[Piece]) -> int:
        """The bytes of all runs of a stream's archive or of a copy."""
        known = self.of_last_look.get((stream, reducer), {})
        sizes = {piece: known.get(piece) or bytes_of(home, piece) for piece in pieces}
        self.of_last_look[stream, reducer] = sizes
        return sum(sizes.values())


@dataclass(frozen=True, slots=True)
class Vacuum:
    """The vacuum of a home as of a manifest. Unless `at_once`, a copy takes entries when they are many."""

    home: Home
    manifest: Manifest
    readers: Readers
    at_once: bool = True
    sizes: RunSizes = field(default_factory=RunSizes)
    damaged: dict[str, CorruptStore] = field(default_factory=dict)
    """Stream → the damaged run that its reduction has met, unless `at_once`."""

    def next(self, streams: Sequence[StreamDefinition]) -> Vacuumed | None:
        """Write the next segment that is due, durably; None where none is. Streams with a damaged run are left out.

        Raises `CorruptStore` for a damaged run `at_once`.
        """
        for stream in streams:
            try:
                done = self._next_of(stream)
            except CorruptStore as error:
                if self.at_once:
                    raise
                self.damaged[stream.name] = error
                continue
            if done is not None:
                return done
        return None

    def _next_of(self, stream: StreamDefinition) -> Vacuumed | None:
        return next((done for target in self._targets(stream) if (done := target.next()) is not None), None)

    def free(self, stream: StreamDefinition) -> FreeSpace:
        """The space that rows of a stream still use although their age has reduced or expired them."""
        space = FreeSpace()
        for target in self._targets(stream):
            if not target.reducer:
                space = target.free()
        return space

    def stored(self, stream: StreamDefinition, reducer: str = ARCHIVE) -> int:
        """The bytes of a stream's archive, or of what a copy has of it."""
        return sum(target.bytes() for target in self._targets(stream) if target.reducer == reducer)

    def _targets(self, stream: StreamDefinition) -> Iterator[_Target]:
        """The copies of a stream, and the archive itself after them: what it drops they have."""
        archive = self.home.list_of(self.manifest, f"archive:{stream.name}")
        for reducer in stream.reducers:
            name = reducer.name.lower()
            copy = copy_of(self.manifest, stream.name, name)
            if copy is not None and copy.reduction == str(reducer.reduction):
                yield _Target(self, stream, name, reducer.reduction, copy, archive)
        if stream.reduce is not None:
            copy = archive_copy(self.manifest, stream.name, archive)
            if copy.reduction != str(stream.reduce):
                copy = replace(copy, counts="")
            yield _Target(self, stream, ARCHIVE, stream.reduce, copy, archive)


@dataclass(frozen=True, slots=True)
class _Target:
    """A stream's archive, or a copy of it, and the reduction that it follows."""

    vacuum: Vacuum
    stream: StreamDefinition
    reducer: str
    reduction: Reduction
    copy: Copy
    archive: RadixList

    @property
    def home(self) -> Home:
        """The home."""
        return self.vacuum.home

    @property
    def writer(self) -> SegmentWriter:
        """The writer of its segments."""
        return SegmentWriter(self.home, self.vacuum.manifest, self.stream)

    def next(self) -> Vacuumed | None:
        """Write what is due next."""
        return self._expired() or self._reduced() or self._merged() or self._sealed() or self._relieved()

    # ---------------------------------------------------------------------------------------------- what a share follows from

    def _horizon(self, age: int) -> Instant:
        """The event time before which rows are older than an age."""
        punctuation = self.vacuum.manifest.stream(self.stream.name).punctuation
        return punctuation if punctuation in (BEGINNING, FOREVER) else punctuation - age

    def _keep(self, high: Instant) -> float:
        """The share that the age of the newest row of a segment leaves: of the whole blocks that hold it."""
        reduction = 0.0
        for age, step in self.reduction.ages:
            if high < self._horizon(age):
                reduction = step
        return blocks_for(1 - reduction, self.stream.blocks) / self.stream.blocks

    def _behind(self, waiting: int) -> float:
        """The share of which the vacuum does not fall behind: half as much for twice the rows that may wait, and so on."""
        load = self.reduction.load
        if load is None or load.behind is None:
            return 1.0
        share = 1.0
        while waiting > load.behind and share > LEAST:
            waiting, share = waiting // 2, share / 2
        return share

    # ------------------------------------------------------------------------------------------------------------- entries

    def _due(self, horizon: Instant) -> list[ArchiveEntry]:
        """The entries of the list before a horizon that are not in the copy, and that every query has read where they are dropped."""
        read = self.home.store.read
        listed = self.archive.drop_before(self.copy.next)
        readers = () if self.reducer else self.vacuum.readers(self.stream.name, self.archive)
        end = retained(listed, horizon, readers, read).start
        return [
            ArchiveEntry.from_json(value)
            for index, value in _until(listed.iterate(read, self.copy.next), end)
        ]

    def _sealed(self) -> Vacuumed | None:
        """Old entries of the list that keep the same share by their age, as segments."""
        if self.reduction.first_age is None:
            return None
        horizon = self._horizon(self.reduction.first_age)
        due = self._due(horizon)
        waiting = sum(entry.rows for entry in due)
        if self.reducer and not (self.vacuum.at_once or waiting >= COPIED_ROWS or len(due) >= COPIED_ENTRIES):
            return None
        entries = self._of_one_age(due)
        return self._of_entries(entries, horizon, self._behind(waiting)) if entries else None

    def _of_one_age(self, due: Sequence[ArchiveEntry]) -> list[ArchiveEntry]:
        """The first entries of the same share: so many that they are as large as a run."""
        entries: list[ArchiveEntry] = []
        rows = 0
        for entry in due:
            if entries and (
                rows >= runs.RUN_ROWS or self._keep(entry.greatest) != self._keep(entries[0].greatest)
            ):
                break
            entries.append(entry)
            rows += entry.rows
        return entries

    def _of_entries(self, entries: Sequence[ArchiveEntry], horizon: Instant, share: float) -> Vacuumed:
        """The segments of some entries, of which at most a share is kept."""
        pieces = [piece for entry in entries for piece in entry.pieces]
        rows, high = sum(entry.rows for entry in entries), max(entry.greatest for entry in entries)
        keep = min(self._keep(high), share)
        segments, counts = tuple[Segment, ...](), ""
        if pieces and self.reduction.counted is not None:
            segments, counts = self.writer.counted(pieces, keep, self.reduction.counted, self.copy.counts)
        elif pieces:
            time = time_of(self.stream)
            prefixes = [prefixes_of(self.home, piece) for piece in pieces]
            low = min(of_run.range_of(time)[0] for of_run in prefixes)
            segments = (self.writer.written(pieces, rows, (low, high), keep),)
        return self._done((), segments, horizon, len(entries), counts)

    # ------------------------------------------------------------------------------------------------------------ segments

    def _reduced(self) -> Vacuumed | None:
        """The oldest segment that its age reduces further."""
        for segment in self.copy.segments:
            if self._keep(segment.high) < segment.keep:
                return self._again((segment,), self._keep(segment.high))
        return None

    def _merged(self) -> Vacuumed | None:
        """Two neighbours of the same share, of which the newer is at least half as large."""
        for one, other in self._neighbours():
            small = one.stored + other.stored <= _MOST_ROWS and one.stored <= 2 * other.stored
            if small and one.keep == other.keep:
                return self._again((one, other), one.keep)
        return None

    def _neighbours(self) -> Iterator[tuple[Segment, Segment]]:
        """Segments that follow each other; by counts those of one share, since others are of the same time."""
        segments = self.copy.segments
        if self.reduction.counted is None:
            yield from pairwise(segments)
            return
        for keep in sorted({segment.keep for segment in segments}):
            yield from pairwise(segment for segment in segments if segment.keep == keep)

    def _expired(self) -> Vacuumed | None:
        """The segments that are older than the stream retains; those of copies stay."""
        if self.stream.retain is None or self.reducer:
            return None
        horizon = self._horizon(self.stream.retain)
        old = tuple(segment for segment in self.copy.segments if segment.high < horizon)
        return self._done(old, (), horizon) if old else None

    def _relieved(self) -> Vacuumed | None:
        """Half of what has the greatest share, and of these the oldest, where more bytes are stored than may be."""
        load = self.reduction.load
        if load is None or load.bytes is None or self.bytes() <= load.bytes:
            return None
        due = [] if self.reducer else self._due(self._horizon(0))
        if due:
            return self._of_entries(self._of_one_age(due), self._horizon(0), 0.5)
        segments = [segment for segment in self.copy.segments if segment.stored and segment.keep > LEAST]
        if not segments:
            return None
        most = max(segments, key=lambda segment: segment.keep)
        return self._again((most,), most.keep / 2)

    def _again(self, segments: tuple[Segment, ...], keep: float) -> Vacuumed:
        between = min(segment.low for segment in segments), max(segment.high for segment in segments)
        pieces = [Piece(segment.file) for segment in segments]
        written = self.writer.written(
            pieces, sum(segment.rows for segment in segments), between, min(keep, self._keep(between[1]))
        )
        return self._done(segments, (written,), BEGINNING)

    def _done(
        self,
        of: tuple[Segment, ...],
        segments: tuple[Segment, ...],
        until: Instant,
        entries: int = 0,
        counts: str = "",
    ) -> Vacuumed:
        stream = self.stream.name
        created, first = self.home.created(stream), self.copy.next
        return Vacuumed(
            stream, created, first, entries, of, segments, until, self.reducer, counts, str(self.reduction)
        )

    # ----------------------------------------------------------------------------------------------------------- what is stored

    def bytes(self) -> int:
        """The bytes of the segments, and for the archive itself those of its entries."""
        pieces = [Piece(segment.file) for segment in self.copy.segments]
        if not self.reducer:
            entries = self.archive.iterate(self.home.store.read, self.archive.start)
            pieces += [piece for _, value in entries for piece in ArchiveEntry.from_json(value).pieces]
        return self.vacuum.sizes.total(self.home, self.stream.name, self.reducer, pieces)

    def free(self) -> FreeSpace:
        """The space that rows still use although their age has reduced them."""
        space = FreeSpace()
        if not self.reduction.ages:
            return space
        horizon = self._horizon(self.reduction.ages[0][0])
        for _, value in self.archive.iterate(self.home.store.read, self.archive.start):
            if value["greatest"] >= horizon:
                break
            for piece in ArchiveEntry.from_json(value).pieces:
                space = space.plus(self._beyond(piece, value["greatest"]))
        for segment in segments_of(self.vacuum.manifest, self.stream.name):
            if self._keep(segment.high) < segment.keep:
                space = space.plus(self._beyond(Piece(segment.file), segment.high))
        return space

    def _beyond(self, piece: Piece, high: Instant) -> FreeSpace:
        """The row groups of a file that the vacuum will not read: all that is behind the share that its age leaves; none of a damaged file."""
        try:
            prefixes = prefixes_of(self.home, piece)
        except CorruptStore:
            return FreeSpace()
        remaining = prefixes.holding(self._keep(high))
        behind = prefixes.groups_up_to(len(prefixes.groups) - 1, remaining)
        dropped = [prefixes.footer.row_group(number) for number in behind]
        size = sum(
            group.column(number).total_compressed_size
            for group in dropped
            for number in range(group.num_columns)
        )
        rows = sum(group.num_rows for group in dropped)
        return FreeSpace(1 if dropped else 0, len(dropped), rows, size)


def _until(entries: Iterator[tuple[int, Any]], end: int) -> Iterator[tuple[int, Any]]:
    for index, value in entries:
        if index >= end:
            return
        yield index, value
