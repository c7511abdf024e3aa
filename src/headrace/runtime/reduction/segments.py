"""Segments, the files of what a reduction keeps of an archive; the copies of an archive under the names of reducers; and the manifest
that names new segments in place of what they were made of.

A *copy* has the segments of the entries of the archive list before `next`; a reader takes later entries from the archive. It begins
with the segments that the archive has, whose files both then name. The archive's own segments replace its entries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final, TypeAlias

from headrace.catalog.definitions import StreamDefinition
from headrace.catalog.reductions import Reduction
from headrace.dataclass import dataclass
from headrace.runtime.backfill.archive_entries import JOINED, JOINED_REJECTS
from headrace.runtime.backfill.initial_progress import beyond
from headrace.runtime.home.home import Home
from headrace.runtime.progress.committed_progress import progress_of
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import RadixList
from headrace.time import Instant

Readers: TypeAlias = Callable[[str, RadixList], Sequence[int]]
"""The positions of a stream's readers in its archive list."""
REDUCED: Final = "reduced"
"""The fact of a manifest with the segments of each stream, oldest first."""
COPIES: Final = "reduced copies"
"""The fact of a manifest with the copies of each stream by the names of their reducers; that of the archive itself, "", has
counts and no segments."""
ARCHIVE: Final = ""
"""In place of a reducer's name: the archive itself."""


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
class Copy:
    """What a reduction keeps: of the entries of the archive list before `next`, which of the archive itself is the start of the list.

    `counts` is the file of what was counted of rows, and `reduction` the text of the one that it was made by.
    """

    next: int
    segments: tuple[Segment, ...]
    counts: str = ""
    reduction: str = ""
    by_counts: bool = False
    """Whether rows were dropped by counts alone."""


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """What a vacuum has written: `segments` replace `entries` entries of the list, and the segments `of`.

    Nothing replaces the segments `of` that have expired. `created` identifies the stream, `reducer` the copy.
    """

    stream: str
    created: int
    first: int
    entries: int
    of: tuple[Segment, ...]
    segments: tuple[Segment, ...]
    until: Instant
    """The horizon behind which entries were due."""
    reducer: str = ARCHIVE
    counts: str = ""
    reduction: str = ""
    """The text of the reduction that it followed."""


def segments_of(manifest: Manifest, stream: str) -> tuple[Segment, ...]:
    """The reduced segments of a stream's archive, oldest first."""
    return tuple(Segment(**value) for value in manifest.facts.get(REDUCED, {}).get(stream, ()))


def copy_of(manifest: Manifest, stream: str, reducer: str) -> Copy | None:
    """The copy of a stream's archive that a reducer has made; None where there is none yet."""
    value = manifest.facts.get(COPIES, {}).get(stream, {}).get(reducer)
    return None if value is None else _copy(value)


def archive_copy(manifest: Manifest, stream: str, archive: RadixList) -> Copy:
    """The archive itself, as a copy."""
    stored = copy_of(manifest, stream, ARCHIVE) or Copy(0, ())
    return replace(stored, next=archive.start, segments=segments_of(manifest, stream))


def waiting_for(manifest: Manifest, stream: StreamDefinition) -> Iterator[int]:
    """The entries of the archive list up to which each copy of a stream has been written."""
    for reducer in stream.reducers:
        copy = copy_of(manifest, stream.name, reducer.name.lower())
        if copy is not None:
            yield copy.next


def _copy(value: Mapping[str, Any]) -> Copy:
    return Copy(**{**value, "segments": tuple(Segment(**segment) for segment in value["segments"])})


def with_vacuumed(manifest: Manifest, done: Vacuumed, home: Home) -> Manifest:
    """The manifest with segments in place of what they were made of; the manifest itself where that is not there any more."""
    archive = home.list_of(manifest, f"archive:{done.stream}")
    is_there = done.created == home.created(done.stream) and done.stream in manifest.streams
    copy = (
        copy_of(manifest, done.stream, done.reducer)
        if done.reducer
        else archive_copy(manifest, done.stream, archive)
    )
    if not is_there or copy is None or (done.entries and copy.next != done.first):
        return manifest
    if (done.reducer or done.counts) and copy.reduction != done.reduction:
        return manifest
    if not set(done.of) <= set(copy.segments):
        return manifest
    after = replace(
        copy,
        next=copy.next + done.entries,
        segments=_replaced(copy.segments, done),
        counts=done.counts or copy.counts,
    )
    if done.reducer:
        return _with_copies(manifest, done.stream, {done.reducer: after})
    return _with_archive(manifest, done, after, archive)


def _replaced(segments: tuple[Segment, ...], done: Vacuumed) -> tuple[Segment, ...]:
    first = segments.index(done.of[0]) if done.of else len(segments)
    others = [segment for segment in segments if segment not in done.of]
    others[first:first] = done.segments
    return tuple(others)


def _with_archive(manifest: Manifest, done: Vacuumed, after: Copy, archive: RadixList) -> Manifest:
    """The manifest with what the archive itself has been reduced to, without the entries that became segments."""
    reduced = {
        **manifest.facts.get(REDUCED, {}),
        done.stream: [asdict(segment) for segment in after.segments],
    }
    lists, streams = manifest.lists, manifest.streams
    if done.entries:
        lists = lists.changed({f"archive:{done.stream}": archive.drop_before(after.next)})
        committed = manifest.stream(done.stream)
        since = max(min(done.until, beyond(progress_of(committed))), committed.retained_since)
        streams = streams.changed({done.stream: replace(committed, retained_since=since)})
    manifest = replace(manifest, facts={**manifest.facts, REDUCED: reduced}, lists=lists, streams=streams)
    if not after.counts:
        return manifest
    return _with_copies(manifest, done.stream, {ARCHIVE: replace(after, next=0, segments=())})


def _with_copies(manifest: Manifest, stream: str, changed: Mapping[str, Copy]) -> Manifest:
    of_all = manifest.facts.get(COPIES, {})
    of_stream = {**of_all.get(stream, {}), **{name: asdict(copy) for name, copy in changed.items()}}
    return replace(manifest, facts={**manifest.facts, COPIES: {**of_all, stream: of_stream}})


def with_copies(manifest: Manifest, streams: Iterable[StreamDefinition], home: Home) -> Manifest:
    """The manifest with a copy for every reducer, also new ones, which have nothing but what the archive has reduced; and no others.

    An archive that is reduced by counts has a place for these.
    """
    before = manifest.facts.get(COPIES, {})
    of_all = before
    for stream in streams:
        known = of_all.get(stream.name, {})
        wanted = {reducer.name.lower(): reducer.reduction for reducer in stream.reducers}
        if stream.reduce is not None and stream.reduce.counted is not None:
            wanted[ARCHIVE] = stream.reduce
        gone = {name for name in known if not _is_of(known[name], wanted.get(name))}
        new = [name for name in wanted if name not in known or name in gone]
        if not gone and not new:
            continue
        kept = {name: value for name, value in known.items() if name not in gone}
        archive = home.list_of(manifest, f"archive:{stream.name}")
        segments = segments_of(manifest, stream.name)
        kept |= {
            name: asdict(
                Copy(
                    archive.start if name else 0,
                    segments if name else (),
                    reduction=str(wanted[name]),
                    by_counts=wanted[name].is_by_counts and not segments,
                )
            )
            for name in new
        }
        of_all = {**of_all, stream.name: kept}
    if of_all is before:
        return manifest
    return replace(manifest, facts={**manifest.facts, COPIES: of_all})


def _is_of(copy: Mapping[str, Any], reduction: Reduction | None) -> bool:
    return reduction is not None and copy["reduction"] == str(reduction)


def without_dropped(facts: Mapping[str, Any], streams: Collection[str]) -> Mapping[str, Any]:
    """The facts about the archives and the rejects of these streams alone."""
    for fact in (REDUCED, JOINED, JOINED_REJECTS, COPIES):
        of_all = facts.get(fact, {})
        if not of_all.keys() <= set(streams):
            facts = {**facts, fact: {name: value for name, value in of_all.items() if name in streams}}
    return facts
