"""The vacuum of archives that a stream's option `reduce` thins by age: which entries and segments are due, the segment that
replaces them, the manifest that names it in their place, and the map of the space that waits to be freed.

A reduced segment has the first blocks of the rows of several archive entries, or of segments before it; the others are dropped.
It is written whole before a manifest names it, and a manifest names either it or what it replaces: a kill between leaves a
file without a name. Only entries that every query has read become a segment: from then on a new query starts after them, as
after entries that have expired. Source: OSCAR, OnReadModify with its vacuumer and purged original, over the blocks of
RandomizeThenSort, where what is dropped is the end of a file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Final, TypeAlias

import pyarrow as pa

from headrace.archive import runs
from headrace.archive.blocks import blocks_for
from headrace.archive.prefixes import Prefixes
from headrace.archive.run_file import RunFile
from headrace.catalog.definitions import StreamDefinition
from headrace.operators.base.group_codes import as_int64, flat, ints
from headrace.runtime.backfill.archive_entries import JOINED, ArchiveEntry, Piece, retained
from headrace.runtime.backfill.initial_progress import beyond
from headrace.runtime.home import file_names
from headrace.runtime.home.block_draws import blocks_of_runs, draws_of
from headrace.runtime.home.home import Home
from headrace.runtime.progress.committed_progress import progress_of
from headrace.store.files.filesystem import MissingFile
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import RadixList
from headrace.time import BEGINNING, FOREVER, Instant

Readers: TypeAlias = Callable[[str, RadixList], Sequence[int]]
"""The positions of a stream's readers in its archive list."""
REDUCED: Final = "reduced"
"""The fact of a manifest with the segments of each stream, oldest first."""
_MOST_ROWS: Final = 1 << 22
"""Stored rows up to which segments are merged."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A file with the share `keep` of `rows` rows, whose event times are from `low` to `high`, also of those that were dropped."""

    file: str
    rows: int
    stored: int
    keep: float
    low: Instant
    high: Instant


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


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """What a vacuum of a stream's archive has written: `segment` replaces `entries` entries of the list, and the segments `of`.

    `segment` is None where the segments `of` have expired. `created` identifies the stream.
    """

    stream: str
    created: int
    first: int
    entries: int
    of: tuple[Segment, ...]
    segment: Segment | None
    until: Instant
    """The horizon behind which entries were due."""


def segments_of(manifest: Manifest, stream: str) -> tuple[Segment, ...]:
    """The reduced segments of a stream, oldest first."""
    return tuple(Segment(**value) for value in manifest.facts.get(REDUCED, {}).get(stream, ()))


@dataclass(frozen=True, slots=True)
class Vacuum:
    """The vacuum of a home as of a manifest."""

    home: Home
    manifest: Manifest
    readers: Readers

    def next(self, streams: Sequence[StreamDefinition]) -> Vacuumed | None:
        """Write the next segment that is due, durably; None where none is."""
        for stream in streams:
            if stream.reduce:
                done = (
                    self._expired(stream)
                    or self._reduced(stream)
                    or self._merged(stream)
                    or self._sealed(stream)
                )
                if done is not None:
                    return done
        return None

    def free(self, stream: StreamDefinition) -> FreeSpace:
        """The space that rows of a stream still use although their age has reduced or expired them."""
        space = FreeSpace()
        if not stream.reduce:
            return space
        archive, read = self.home.list_of(self.manifest, f"archive:{stream.name}"), self.home.store.read
        horizon = self._horizon(stream, stream.reduce[0][0])
        for _, value in archive.iterate(read, archive.start):
            if value["greatest"] >= horizon:
                break
            for piece in ArchiveEntry.from_json(value).pieces:
                space = space.plus(self._beyond(piece, stream, value["greatest"]))
        for segment in self._segments(stream):
            if self._keep(stream, segment.high) < segment.keep:
                space = space.plus(self._beyond(Piece(segment.file), stream, segment.high))
        return space

    def _beyond(self, piece: Piece, stream: StreamDefinition, high: Instant) -> FreeSpace:
        """The row groups of a file that the vacuum will not read: all that is behind the share that its age leaves."""
        prefixes = Prefixes.of(self.home.store.map(piece.file), piece.groups)
        remaining = prefixes.holding(self._keep(stream, high))
        behind = prefixes.groups_up_to(len(prefixes.groups) - 1, remaining)
        dropped = [prefixes.footer.row_group(number) for number in behind]
        size = sum(
            group.column(number).total_compressed_size
            for group in dropped
            for number in range(group.num_columns)
        )
        rows = sum(group.num_rows for group in dropped)
        return FreeSpace(1 if dropped else 0, len(dropped), rows, size)

    def _sealed(self, stream: StreamDefinition) -> Vacuumed | None:
        """Old entries of the list that keep the same share, as a segment: so many that it is as large as a run."""
        archive = self.home.list_of(self.manifest, f"archive:{stream.name}")
        horizon = self._horizon(stream, stream.reduce[0][0])
        read = self.home.store.read
        end = retained(archive, horizon, self.readers(stream.name, archive), read).start
        entries: list[ArchiveEntry] = []
        keep = 1.0
        for index, value in archive.iterate(read, archive.start):
            is_full = sum(entry.rows for entry in entries) >= runs.RUN_ROWS
            if index >= end or is_full or (entries and self._keep(stream, value["greatest"]) != keep):
                break
            entries.append(ArchiveEntry.from_json(value))
            keep = self._keep(stream, value["greatest"])
        if not entries:
            return None
        pieces = [piece for entry in entries for piece in entry.pieces]
        rows, high = sum(entry.rows for entry in entries), max(entry.greatest for entry in entries)
        time = _time_of(stream)
        prefixes = [Prefixes.of(self.home.store.map(piece.file), piece.groups) for piece in pieces]
        low = min((of_run.range_of(time)[0] for of_run in prefixes), default=high)
        segment = self._written(stream, pieces, rows, (low, high)) if pieces else None
        return self._done(stream, (), segment, horizon, archive.start, len(entries))

    def _reduced(self, stream: StreamDefinition) -> Vacuumed | None:
        """The oldest segment that its age reduces further."""
        for segment in self._segments(stream):
            if self._keep(stream, segment.high) < segment.keep:
                return self._again(stream, (segment,))
        return None

    def _merged(self, stream: StreamDefinition) -> Vacuumed | None:
        """Two neighbours of the same share, of which the newer is at least half as large."""
        segments = self._segments(stream)
        for one, other in pairwise(segments):
            small = one.stored + other.stored <= _MOST_ROWS and one.stored <= 2 * other.stored
            if small and one.keep == other.keep:
                return self._again(stream, (one, other))
        return None

    def _expired(self, stream: StreamDefinition) -> Vacuumed | None:
        """The segments that are older than the stream retains."""
        if stream.retain is None:
            return None
        horizon = self._horizon(stream, stream.retain)
        old = tuple(segment for segment in self._segments(stream) if segment.high < horizon)
        return self._done(stream, old, None, horizon) if old else None

    def _again(self, stream: StreamDefinition, segments: tuple[Segment, ...]) -> Vacuumed:
        segment = self._written(
            stream,
            [Piece(segment.file) for segment in segments],
            sum(segment.rows for segment in segments),
            (min(segment.low for segment in segments), max(segment.high for segment in segments)),
            min(segment.keep for segment in segments),
        )
        return self._done(stream, segments, segment, BEGINNING)

    def _done(
        self,
        stream: StreamDefinition,
        of: tuple[Segment, ...],
        segment: Segment | None,
        until: Instant,
        first: int = 0,
        entries: int = 0,
    ) -> Vacuumed:
        return Vacuumed(stream.name, self.home.created(stream.name), first, entries, of, segment, until)

    def _segments(self, stream: StreamDefinition) -> tuple[Segment, ...]:
        return segments_of(self.manifest, stream.name)

    def _horizon(self, stream: StreamDefinition, age: int) -> Instant:
        """The event time before which rows are older than an age."""
        punctuation = self.manifest.stream(stream.name).punctuation
        return punctuation if punctuation in (BEGINNING, FOREVER) else punctuation - age

    def _keep(self, stream: StreamDefinition, high: Instant) -> float:
        """The share that the age of the newest row of a segment leaves: of the whole blocks that hold it."""
        reduction = 0.0
        for age, step in stream.reduce:
            if high < self._horizon(stream, age):
                reduction = step
        return blocks_for(1 - reduction, stream.blocks) / stream.blocks

    def _written(
        self,
        stream: StreamDefinition,
        pieces: Sequence[Piece],
        rows: int,
        between: tuple[Instant, Instant],
        most: float = 1.0,
    ) -> Segment:
        """One segment of several files, with rows between two instants: of each the share that remains, `most` of which is there."""
        low, high = between
        keep, store = min(self._keep(stream, high), most), self.home.store
        tables = [_prefix(store.map(piece.file), piece.groups, keep) for piece in pieces]
        table = pa.concat_tables(tables).combine_chunks()
        blocks = blocks_of_runs(stream)
        assert blocks is not None
        draws = draws_of(stream, table.column, ints(table, runs.POSITION))
        remains = blocks.within(draws, keep)
        draws, table = draws[remains], table.filter(pa.array(remains))
        block = pa.field(runs.BLOCK, pa.int16(), nullable=False)
        table = table.append_column(block, pa.array(blocks.of(draws)))
        at, position = as_int64(flat(table.column(_time_of(stream)))), ints(table, runs.POSITION)
        by = runs.Order(at, position, draws)
        buffer, facts = runs.randomised(table, by, blocks, of=rows, keep=keep)
        name = file_names.archive_run(stream.name, self.manifest.epoch, 0)
        store.write_once(name, [buffer])
        return Segment(name, rows, facts.rows, keep, low, high)


def _time_of(stream: StreamDefinition) -> str:
    """The stored column with event times."""
    time = stream.time
    return time if time is not None and runs.has_own_time(stream.schema.arrow(), time) else runs.AT


def _prefix(file: pa.Buffer, own: Sequence[int] | None, keep: float) -> pa.Table:
    """The first row groups of a run, which have all rows of a share; without blocks, which may be others than the stream has now."""
    prefixes = Prefixes.of(file, own)
    rows = RunFile.of(file, prefixes.footer).read(groups=prefixes.groups_up_to(prefixes.holding(keep)))
    return rows.drop_columns([runs.BLOCK]) if runs.BLOCK in rows.column_names else rows


def with_vacuumed(manifest: Manifest, done: Vacuumed, home: Home) -> Manifest:
    """The manifest with a segment in place of what it was made of; the manifest itself where that is not there any more."""
    archive = home.list_of(manifest, f"archive:{done.stream}")
    segments = segments_of(manifest, done.stream)
    is_there = done.created == home.created(done.stream) and done.stream in manifest.streams
    if not is_there or (done.entries and archive.start != done.first) or not set(done.of) <= set(segments):
        return manifest
    first = segments.index(done.of[0]) if done.of else len(segments)
    others = [segment for segment in segments if segment not in done.of]
    if done.segment is not None:
        others.insert(first, done.segment)
    reduced = {**manifest.facts.get(REDUCED, {}), done.stream: [asdict(segment) for segment in others]}
    lists, streams = manifest.lists, manifest.streams
    if done.entries:
        lists = lists.changed({f"archive:{done.stream}": archive.drop_before(done.first + done.entries)})
        committed = manifest.stream(done.stream)
        since = max(min(done.until, beyond(progress_of(committed))), committed.retained_since)
        streams = streams.changed({done.stream: replace(committed, retained_since=since)})
    return replace(manifest, facts={**manifest.facts, REDUCED: reduced}, lists=lists, streams=streams)


def without_dropped(facts: Mapping[str, Any], streams: Collection[str]) -> Mapping[str, Any]:
    """The facts about the archives of these streams alone."""
    for fact in (REDUCED, JOINED):
        of_all = facts.get(fact, {})
        if not of_all.keys() <= set(streams):
            facts = {**facts, fact: {name: value for name, value in of_all.items() if name in streams}}
    return facts


@dataclass(slots=True)
class Vacuuming:
    """The vacuum of a home while its epochs run: a segment is written in a thread, and the next epoch's manifest names it."""

    home: Home
    every: int = 8
    """Epochs after which it looks for what is due."""
    written: Vacuumed | None = None
    """What the next manifest takes in."""
    _thread: threading.Thread | None = None
    _failure: BaseException | None = None

    def settled(self, planned: Manifest, readers: Readers) -> Manifest:
        """An epoch's manifest with the segment that was written, once every reader has read what it replaces."""
        done = None if self._is_busy else self.written
        if done is None:
            return planned
        archive = self.home.list_of(planned, f"archive:{done.stream}")
        if done.entries and min(readers(done.stream, archive), default=FOREVER) < done.first + done.entries:
            return planned
        self.written = None
        return with_vacuumed(planned, done, self.home)

    def look(
        self, manifest: Manifest, streams: Sequence[StreamDefinition], readers: Readers, *, in_thread: bool
    ) -> None:
        """Write what is due after an epoch, in a thread of its own with `in_thread`. Raises the failure of the last time."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if manifest.epoch % self.every or self.written is not None or self._is_busy:
            return
        reducing = [stream for stream in streams if stream.reduce]
        if not reducing:
            return
        vacuum = Vacuum(self.home, manifest, readers)
        if not in_thread:
            self.written = vacuum.next(reducing)
            return
        self._thread = threading.Thread(target=self._run, args=(vacuum, reducing), name="headrace-vacuum")
        self._thread.start()

    def due(
        self, manifest: Manifest, streams: Sequence[StreamDefinition], readers: Readers
    ) -> Vacuumed | None:
        """What the next manifest takes in: written before, or now; None where nothing is due."""
        if self._thread is not None:
            self._thread.join()
        if self.written is None:
            self.written = Vacuum(self.home, manifest, readers).next(streams)
        return self.written

    @property
    def _is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _run(self, vacuum: Vacuum, streams: Sequence[StreamDefinition]) -> None:
        try:
            self.written = vacuum.next(streams)
        except MissingFile:  # an epoch has replaced and collected it meanwhile
            return
        except BaseException as failure:  # noqa: BLE001 - raised by the next look
            self._failure = failure
