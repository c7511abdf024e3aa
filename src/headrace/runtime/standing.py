"""Where each operator stands between past and present.

An operator has folded the first `replayed` entries of its stream's archive list. It is *live* when that is all of them;
a new one starts at the beginning (or, FROM NOW, at the end), a paused one stays where it was. Replaying is folding the
next entries with the punctuations that were in force when they were first read, so lateness is judged as it was then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.catalog.definitions import StreamDefinition
from headrace.runtime.messages import Piece
from headrace.store.radix_list import RadixList
from headrace.time import BEGINNING, Instant


@dataclass(frozen=True, slots=True)
class Standing:
    """`closed`: the punctuation up to which it has answered. `since`: the first entry it has seen.

    `ahead`: groups that it has answered further than that, by their name.
    """

    closed: Instant = BEGINNING
    replayed: int = 0
    since: int = 0
    ahead: Mapping[str, Instant] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """For the manifest."""
        found = asdict(self)
        return found if self.ahead else {name: each for name, each in found.items() if name != "ahead"}


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """One epoch of one stream: what was read, where its copy is, the punctuation before and after, and which versions of
    relations were in force (by name, the file): a row read again meets the same.
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

    def as_json(self) -> dict[str, Any]:
        """For the manifest's list."""
        return asdict(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> ArchiveEntry:
        """The inverse."""
        return ArchiveEntry(
            **{
                **value,
                "ordinals": tuple(value["ordinals"]),
                **{name: tuple(value[name]) for name in ("files", "rejects")},
            }
        )


def retained(
    entries: RadixList, horizon: Instant, readers: Sequence[int], read: Callable[[str], bytes]
) -> RadixList:
    """The list without its oldest entries whose rows all lie before the horizon and which every operator has folded.

    `readers` are the operators' places; a paused one holds back what it has not seen.
    """
    keep = min(readers, default=entries.length)
    for index, entry in entries.iterate(read):
        if index >= keep or entry["greatest"] >= horizon:
            return entries.drop_before(index)
    return entries.drop_before(keep)


def pieces_of(
    entry: ArchiveEntry, stream: StreamDefinition, records: Mapping[int, Mapping[str, Any]]
) -> tuple[Piece, ...]:
    """What to read to see an entry's rows again: its copy, or in place the source itself."""
    refused = tuple(Piece(stream.name, 0, refused=name) for name in entry.rejects)
    if entry.files:
        return refused + tuple(
            Piece(stream.name, 0, archived=name, before=entry.before) for name in entry.files
        )
    if stream.archive == "in place":
        return tuple(
            Piece(stream.name, ordinal, record=records[ordinal], before=entry.before)
            for ordinal in entry.ordinals
        )
    return refused
