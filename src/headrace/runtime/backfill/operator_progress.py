"""Progress of operators in the archives of their streams.

An operator has folded the first `replayed` entries of its stream's archive list. It is *live* when that is all of them;
a new one starts at the beginning (or, FROM NOW, at the end), a paused one stays where it is. A backfill folds the next
entries with the punctuations that applied when they were first read, so the same rows are late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.catalog.definitions import StreamDefinition
from headrace.runtime.messages.stream_progress import StreamProgress
from headrace.runtime.messages.task_messages import Split
from headrace.runtime.progress.committed_progress import progress_of
from headrace.store.logs.committed import CommittedStream, OperatorProgress
from headrace.store.logs.radix_list import RadixList
from headrace.time import BEGINNING, FOREVER, Instant


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """One epoch of one stream: what was read, the files of its copy, the punctuation before and after.

    `relations` are the files of the versions that applied, so that a lookup in a backfill has the same result. `keep` is the
    share of its rows that queries WITH SHEDDING saw, so that they see the same rows again.
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
        """The entry of the manifest's list."""
        value = asdict(self)
        if self.keep == 1:
            del value["keep"]
        return value

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
    stream: StreamDefinition, archive: RadixList, committed: CommittedStream, *, from_now: bool
) -> OperatorProgress:
    """The progress of a new operator: the start of the archive, or FROM NOW (or without an archive) its end.

    `committed` is the progress of the stream.
    """
    progress = progress_of(committed)
    if from_now or stream.archive == "none":
        nothing_missed = beyond(progress)
        return OperatorProgress(
            progress.punctuation, archive.length, archive.length, complete_since=nothing_missed
        )
    expired = BEGINNING
    if archive.start:
        expired = beyond(progress) if committed.retained_since == BEGINNING else committed.retained_since
    return OperatorProgress(replayed=archive.start, since=archive.start, complete_since=expired)


def beyond(progress: StreamProgress) -> Instant:
    """The least instant that is after all rows that any query has seen."""
    if progress.max_event_time == BEGINNING:
        return progress.punctuation
    if progress.punctuation == FOREVER:
        return progress.max_event_time + 1
    return max(progress.punctuation, progress.max_event_time + 1)


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


def splits_of(
    entry: ArchiveEntry, stream: StreamDefinition, records: Mapping[int, Mapping[str, Any]]
) -> tuple[Split, ...]:
    """The splits that read an entry's rows again: of its copy, or in place of the source."""
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
