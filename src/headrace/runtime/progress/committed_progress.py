"""Conversion of a stream's progress from the form that a manifest stores (`CommittedStream`) to that of tasks
(`StreamProgress`), and back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.runtime.messages.stream_progress import SourceProgress, StreamProgress
from headrace.store.logs.committed import CommittedSource, CommittedStream
from headrace.time import BEGINNING, Instant


def progress_of(committed: CommittedStream, min_punctuation: Instant = BEGINNING) -> StreamProgress:
    """A stream's progress as committed; `min_punctuation` is the least punctuation that the driver sets after the epoch."""
    sources = {
        name: SourceProgress(source.greatest, source.passed, source.tail, source.promised)
        for name, source in committed.sources.items()
    }
    return StreamProgress(
        committed.punctuation, committed.greatest, min_punctuation, sources, committed.groups
    )


def committed_progress(
    committed: CommittedStream, progress: StreamProgress, seen: Iterable[str], clock_time: Instant
) -> dict[str, Any]:
    """What to commit of a stream's progress, as fields of `CommittedStream`; `seen` are the sources that had rows, `clock_time` the time of the epoch by the clock."""
    fresh, sources = set(seen), committed.sources
    if progress.sources:
        sources = {
            name: CommittedSource(
                source.max_event_time,
                source.settled_event_time,
                source.reorder_buffer,
                source.promised,
                clock_time
                if name in fresh or name not in committed.sources
                else committed.sources[name].arrived,
            )
            for name, source in progress.sources.items()
        }
    return {
        "punctuation": progress.punctuation,
        "greatest": progress.max_event_time,
        "sources": sources,
        "groups": dict(progress.groups),
    }
