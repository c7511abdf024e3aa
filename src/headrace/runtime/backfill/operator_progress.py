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
from headrace.runtime.messages.stream_progress import StreamProgress
from headrace.runtime.messages.task_messages import Split
from headrace.runtime.progress.punctuation import progress_of
from headrace.store.logs.committed import CommittedStream, OperatorProgress
from headrace.store.logs.radix_list import RadixList
from headrace.time import BEGINNING, FOREVER, Instant


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """One epoch of one stream: what was read, where its copy is, the punctuation before and after, and which versions of
    relations were in force (by name, the file): a row read again meets the same. `keep`: the share of its rows that queries
    WITH SHEDDING were shown, so that they are shown the same rows again.
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

    def as_json(self) -> dict[str, Any]:
        """For the manifest's list."""
        found = asdict(self)
        if self.keep == 1:
            del found["keep"]
        return found

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


def initial_progress(
    stream: StreamDefinition, archive: RadixList, known: CommittedStream, *, from_now: bool
) -> OperatorProgress:
    """Where a new operator begins: with the archive, or FROM NOW (or without an archive) with what comes next.

    `known` is what is committed of the stream.
    """
    progress = progress_of(known)
    if from_now or stream.archive == "none":
        nothing_missed = beyond(progress)
        return OperatorProgress(
            progress.punctuation, archive.length, archive.length, complete_since=nothing_missed
        )
    expired = BEGINNING
    if archive.start:
        expired = beyond(progress) if known.retained_since == BEGINNING else known.retained_since
    return OperatorProgress(replayed=archive.start, since=archive.start, complete_since=expired)


def beyond(progress: StreamProgress) -> Instant:
    """The least event time that no row has had so far that any query was shown."""
    if progress.max_event_time == BEGINNING:
        return progress.punctuation
    if progress.punctuation == FOREVER:
        return progress.max_event_time + 1
    return max(progress.punctuation, progress.max_event_time + 1)


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


def splits_of(
    entry: ArchiveEntry, stream: StreamDefinition, records: Mapping[int, Mapping[str, Any]]
) -> tuple[Split, ...]:
    """What to read to see an entry's rows again: its copy, or in place the source itself."""
    refused = tuple(Split(stream.name, 0, refused=name) for name in entry.rejects)
    if entry.files:
        return refused + tuple(
            Split(stream.name, 0, archived=name, before=entry.before, sample_rate=entry.keep)
            for name in entry.files
        )
    if stream.archive == "in place":
        return tuple(
            Split(stream.name, ordinal, record=records[ordinal], before=entry.before, sample_rate=entry.keep)
            for ordinal in entry.ordinals
        )
    return refused
