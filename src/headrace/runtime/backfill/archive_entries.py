"""Entries of a stream's archive list (what one epoch read, with the punctuation before and after): as JSON of the manifest,
as splits that a backfill reads, and dropped from the list when they have expired.

A backfill reads an entry's rows again, from its copy or in place of the source, with the punctuation that applied then, so that the
same rows are late. Retention drops the oldest entries once every operator has folded them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cache
from itertools import takewhile
from typing import Any, Final

from headrace.catalog.definitions import StreamDefinition
from headrace.dataclass import dataclass
from headrace.runtime.messages.task_messages import RejectsFile, Split
from headrace.store.logs.radix_list import RadixList
from headrace.time import Instant

JOINED: Final = "joined archives"
"""The fact of a manifest with the entries of each stream's archive list up to which small runs were joined in one file."""
JOINED_REJECTS: Final = "joined rejects"
"""The same for each stream's list of rejects: the entries up to which files were joined, by 64, and by 4,096."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of the archive: a file, or its own row groups of one in which runs are joined."""

    file: str
    groups: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """One epoch of one stream: what was read, the files of its copy, the punctuation before and after.

    `relations` are the files of the versions that applied, so that a lookup in a backfill has the same result. `keep` is the
    share of its rows that queries WITH SHEDDING saw, so that they see the same rows again; `shares` those of operators for which
    they were chosen, if less than all. Where runs of several entries are in one file, `within` is its name, also in entries without rows,
    and `joined` has of each run the first row group and their number. `rejected` are the indexes of its rejected rows in the stream's
    list of rejects; `rejects` are names of their files, in entries of earlier versions.
    """

    epoch: int
    ordinals: tuple[int, ...]
    files: tuple[str, ...]
    rejects: tuple[str, ...]
    rows: int
    late: int
    before: Instant
    after: Instant
    greatest: Instant
    relations: Mapping[str, str] = field(default_factory=dict)
    keep: float = 1.0
    shares: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    latest: Instant | None = None
    """The greatest event time of this entry and all before it; None where an earlier version has written it."""
    within: str = ""
    joined: tuple[tuple[int, int], ...] = ()
    rejected: tuple[int, ...] = ()

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The runs."""
        if not self.within:
            return tuple(map(Piece, self.files))
        return tuple(
            Piece(file, tuple(range(first, first + count)))
            for file, (first, count) in zip(self.files, self.joined, strict=True)
        )

    def as_json(self) -> dict[str, Any]:
        """The entry of the manifest's list."""
        value = {name: getattr(self, name) for name in self.__slots__}
        if self.keep == 1:
            del value["keep"]
        if not self.shares:
            del value["shares"]
        if self.latest is None:
            del value["latest"]
        if not self.within:
            del value["within"], value["joined"]
        if not self.rejected:
            del value["rejected"]
        return value

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> ArchiveEntry:
        """The inverse."""
        return ArchiveEntry(
            **{
                **value,
                "ordinals": tuple(value["ordinals"]),
                **{name: tuple(value[name]) for name in ("files", "rejects")},
                "shares": {name: tuple(shares) for name, shares in value.get("shares", {}).items()},
                "joined": tuple((first, count) for first, count in value.get("joined", ())),
                "rejected": tuple(value.get("rejected", ())),
            }
        )


def spanning(entries: RadixList, begin: Instant, end: Instant, read: Callable[[str], bytes]) -> range:
    """The entries that may have accepted rows from one instant to another, and perhaps others between them.

    Punctuation and the greatest event time so far never go back, so a few entries are read to find the first one and the last.
    """
    read = cache(read)
    _, oldest = next(entries.iterate(read), (0, None))
    known = oldest is not None and oldest.get("latest") is not None
    first = entries.first_where(lambda entry: entry["latest"] >= begin, read) if known else entries.start
    return range(first, entries.first_where(lambda entry: entry["before"] > end, read))


def retained(
    entries: RadixList, horizon: Instant, readers: Sequence[int], read: Callable[[str], bytes]
) -> RadixList:
    """The list without its oldest entries whose rows are all before the horizon and which every operator has folded.

    `readers` are the operators' positions; a paused one keeps the entries it has not read.
    """
    end = min(readers, default=entries.length)
    for index, entry in entries.iterate(read):
        if index >= end or entry["greatest"] >= horizon:
            return entries.drop_before(index)
    return entries.drop_before(end)


def rejects_of(
    entries: Iterable[ArchiveEntry], listed: RadixList, read: Callable[[str], bytes]
) -> dict[int, RejectsFile]:
    """Where the rejected rows of neighbouring entries are, by index in the stream's list of rejects."""
    numbers = [number for entry in entries for number in entry.rejected]
    if not numbers:
        return {}
    found = takewhile(lambda one: one[0] <= max(numbers), listed.iterate(read, min(numbers)))
    return {number: RejectsFile.of_entry(value) for number, value in found}


def splits_of(
    entry: ArchiveEntry,
    stream: StreamDefinition,
    records: Mapping[int, Mapping[str, Any]],
    rejects: Mapping[int, RejectsFile],
) -> tuple[Split, ...]:
    """The splits that read an entry's rows again: of its copy, or in place of the source; and its rejected rows."""
    files = [RejectsFile(name, 0) for name in entry.rejects] + [rejects[number] for number in entry.rejected]
    refused = tuple(Split(stream.name, 0, refused=file) for file in files)
    if entry.files:
        return refused + tuple(
            Split(
                stream.name,
                0,
                archived=piece.file,
                row_groups=piece.groups,
                before=entry.before,
                sample_rate=entry.keep,
                shares=entry.shares,
            )
            for piece in entry.pieces
        )
    if stream.archive == "in place":
        return tuple(
            Split(
                stream.name,
                ordinal,
                record=records[ordinal],
                before=entry.before,
                sample_rate=entry.keep,
                shares=entry.shares,
            )
            for ordinal in entry.ordinals
        )
    return refused
