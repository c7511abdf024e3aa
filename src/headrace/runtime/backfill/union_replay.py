"""The archives of a union's inputs, read together epoch by epoch in a backfill, and the punctuation of the union when an
archived epoch began.

An operator that reads one stream has a position in that stream's archive list. One that reads a union has an epoch as its
position, since rows that the inputs took in one epoch are folded together: it has folded all epochs before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any

from headrace.catalog.definitions import StreamDefinition
from headrace.dataclass import dataclass
from headrace.runtime.backfill.archive_entries import ArchiveEntry
from headrace.runtime.plan.union_streams import bound_of, inputs_of
from headrace.store.logs.radix_list import RadixList
from headrace.time import Instant

Lists = Callable[[str], RadixList]
"""The archive list of a stream."""
Read = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class Bundle:
    """The entries of several streams in one epoch; `position` is that of operators that have folded them."""

    position: int
    entries: tuple[tuple[str, ArchiveEntry], ...]

    @property
    def rows(self) -> int:
        """Number of rows of all entries."""
        return sum(entry.rows for _, entry in self.entries)

    @property
    def relations(self) -> Mapping[str, str]:
        """The versions of relations in force in the epoch."""
        return self.entries[0][1].relations


def length_of_new(stream: StreamDefinition, lists: Lists, read: Read) -> int:
    """The length of a union that is not in a manifest yet."""
    newest = (
        next(lists(union_input.stream).iterate(read, reverse=True), None) for union_input in inputs_of(stream)
    )
    return 1 + max(-1 if entry is None else int(entry[1]["epoch"]) for entry in newest)


def bundles(stream: StreamDefinition, lists: Lists, read: Read, start: int) -> Iterator[Bundle]:
    """The archived epochs of a union's inputs from epoch `start` on."""
    names = dict.fromkeys(union_input.stream for union_input in inputs_of(stream))
    all_entries = merge(
        *(_entries_since(name, lists(name), read, start) for name in names), key=itemgetter(0)
    )
    for epoch, entries in groupby(all_entries, key=itemgetter(0)):
        yield Bundle(epoch + 1, tuple((name, ArchiveEntry.from_json(entry)) for _, name, entry in entries))


def _entries_since(name: str, archive: RadixList, read: Read, start: int) -> Iterator[tuple[int, str, Any]]:
    for _, entry in _since(archive, read, start):
        yield entry["epoch"], name, entry


def _since(archive: RadixList, read: Read, epoch: int) -> Iterator[tuple[int, Any]]:
    return archive.iterate(read, first_from(archive, read, epoch))


def first_from(archive: RadixList, read: Read, epoch: int) -> int:
    """Index of the first entry with an epoch of at least `epoch`; the length when there is none."""
    low, high = archive.start, archive.length
    while low < high:
        middle = (low + high) // 2
        _, entry = next(archive.iterate(read, middle))
        low, high = (middle + 1, high) if entry["epoch"] < epoch else (low, middle)
    return low


def punctuation_at(
    stream: StreamDefinition, lists: Lists, read: Read, position: int, now: Mapping[str, Instant]
) -> Instant:
    """The punctuation of a union when an epoch began; `now` has the current one of each input.

    An entry has the punctuation before it; an input without a later entry has the punctuation it had then.
    """
    punctuations = {}
    for union_input in inputs_of(stream):
        next_entry = next(_since(lists(union_input.stream), read, position), None)
        then = now[union_input.stream] if next_entry is None else next_entry[1]["before"]
        punctuations[union_input.stream] = then
    return bound_of(stream).of_inputs.value(punctuations.__getitem__)
