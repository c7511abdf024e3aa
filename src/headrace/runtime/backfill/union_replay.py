"""The past of several streams that are read as one: where do their readers stand in it, and what comes next?

An operator that reads one stream stands at an entry of that stream's archive. One that reads several stands at an epoch,
since what the streams took in together belongs together: it has folded all that they took in before that epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any

from headrace.catalog.definitions import StreamDefinition
from headrace.runtime.backfill.operator_progress import ArchiveEntry
from headrace.runtime.plan.union_streams import USING, inputs_of
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import RadixList
from headrace.time import Instant

Lists = Callable[[str], RadixList]
"""The archive list of a stream."""
Read = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class Bundle:
    """What several streams took in, in one epoch; whoever has folded it stands at `place`."""

    place: int
    entries: tuple[tuple[str, ArchiveEntry], ...]

    @property
    def rows(self) -> int:
        """Of all entries."""
        return sum(entry.rows for _, entry in self.entries)

    @property
    def relations(self) -> Mapping[str, str]:
        """The versions of relations in force in the epoch."""
        return self.entries[0][1].relations


def length(stream: StreamDefinition, manifest: Manifest) -> int:
    """Where a reader of a stream, or of several, stands who has folded all of the past."""
    if stream.using == USING:
        return manifest.streams[stream.name].until
    return manifest.lists.get(f"archive:{stream.name}", RadixList()).length


def length_of_new(stream: StreamDefinition, lists: Lists, read: Read) -> int:
    """The same for a meeting that no manifest knows yet."""
    newest = (next(lists(each.stream).iterate(read, reverse=True), None) for each in inputs_of(stream))
    return 1 + max(-1 if each is None else int(each[1]["epoch"]) for each in newest)


def ends_after(streams: Mapping[str, StreamDefinition], taken: Iterable[str], epoch: int) -> dict[str, int]:
    """Meetings of which an epoch takes in rows → where their readers stand after it."""
    fresh = set(taken)
    return {
        stream.name: epoch + 1
        for stream in streams.values()
        if stream.using == USING and any(each.stream in fresh for each in inputs_of(stream))
    }


def bundles(stream: StreamDefinition, lists: Lists, read: Read, start: int) -> Iterator[Bundle]:
    """The past of a meeting's members from epoch `start` on, epoch by epoch."""
    names = dict.fromkeys(each.stream for each in inputs_of(stream))
    every = merge(*(_entries_since(name, lists(name), read, start) for name in names), key=itemgetter(0))
    for epoch, entries in groupby(every, key=itemgetter(0)):
        yield Bundle(epoch + 1, tuple((name, ArchiveEntry.from_json(entry)) for _, name, entry in entries))


def _entries_since(name: str, archive: RadixList, read: Read, start: int) -> Iterator[tuple[int, str, Any]]:
    for _, entry in _since(archive, read, start):
        yield entry["epoch"], name, entry


def _since(archive: RadixList, read: Read, epoch: int) -> Iterator[tuple[int, Any]]:
    return archive.iterate(read, first_from(archive, read, epoch))


def first_from(archive: RadixList, read: Read, epoch: int) -> int:
    """Index of the first entry of an epoch from `epoch` on; the length when there is none."""
    low, high = archive.start, archive.length
    while low < high:
        middle = (low + high) // 2
        _, entry = next(archive.iterate(read, middle))
        low, high = (middle + 1, high) if entry["epoch"] < epoch else (low, middle)
    return low


def punctuation_at(
    stream: StreamDefinition, lists: Lists, read: Read, place: int, now: Mapping[str, Instant]
) -> Instant:
    """What the members had promised together when an epoch began; `now` has each one's punctuation today.

    Entries say what was promised before them; a member that took in nothing since has promised no less than it has today.
    """
    found = []
    for member in inputs_of(stream):
        following = next(_since(lists(member.stream), read, place), None)
        found.append(now[member.stream] if following is None else following[1]["before"])
    return min(found)
