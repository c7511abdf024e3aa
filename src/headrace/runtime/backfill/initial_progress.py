"""Initial progress of a new operator: at the start of its stream's archive, or FROM NOW (or without an archive) at its end;
and since when it has every row.
"""

from __future__ import annotations

from headrace.catalog.definitions import StreamDefinition
from headrace.runtime.messages.stream_progress import StreamProgress
from headrace.runtime.progress.committed_progress import progress_of
from headrace.store.logs.committed import CommittedStream, OperatorProgress
from headrace.store.logs.radix_list import RadixList
from headrace.time import BEGINNING, FOREVER, Instant


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
