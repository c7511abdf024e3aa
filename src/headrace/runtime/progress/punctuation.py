"""The punctuation of a stream after an epoch.

Punctuation v promises that no later row has an event time below v (Li 2008, section 4). It never decreases. The stream
defines its source: slack in time or rows, promises of its rows, its slowest source, the clock, or a program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from headrace.algebra.expressions.punctuation_patterns import rolled_up
from headrace.catalog.definitions import StreamDefinition
from headrace.runtime.messages.stream_progress import SourceProgress, StreamProgress
from headrace.runtime.messages.task_messages import StreamReceipt
from headrace.runtime.plan import union_streams
from headrace.runtime.progress import union_progress
from headrace.store.logs.committed import CommittedSource, CommittedStream
from headrace.time import BEGINNING, FOREVER, Duration, Instant


def after_epoch(
    definition: StreamDefinition,
    before: StreamProgress,
    max_event_time: Instant,
    data_punctuation: Instant,
    sources: Mapping[str, SourceProgress] | None = None,
    groups: Mapping[str, Instant] | None = None,
) -> StreamProgress:
    """Progress after an epoch with rows up to `max_event_time`, in which data or programs promised `data_punctuation`.

    `sources` is the progress of its sources after the epoch, `groups` the promises for single groups. A bound computed from
    rows is rounded down to PROGRESS STEP, which keeps it true; a promise is not rounded.
    """
    latest = max(before.max_event_time, max_event_time)
    progress_of_sources = sources or {}
    if definition.progress.has_sources:
        promised = least_of_sources(definition, progress_of_sources)
    else:
        promised = promised_by(definition, SourceProgress(latest))
    promised = max(stepped(promised, definition.progress.step), data_punctuation)
    punctuation = max(before.punctuation, promised, before.min_punctuation)
    beyond = {**before.groups}
    for name, at in (groups or {}).items():
        beyond[name] = max(at, beyond.get(name, BEGINNING))
    beyond = {name: at for name, at in beyond.items() if at > punctuation}
    if definition.progress.patterns:
        beyond = rolled_up(beyond)
    return StreamProgress(punctuation, latest, sources=progress_of_sources, groups=beyond)


def promised_by(definition: StreamDefinition, source: SourceProgress) -> Instant:
    """The punctuation that one source's rows promise, by the stream's rule."""
    rule = definition.progress
    if definition.punctuated_by is not None or source.max_event_time == BEGINNING:
        return source.promised
    if rule.external or (rule.groups and not definition.slack and rule.behind is None):
        return source.promised
    if rule.behind is not None:
        return max(source.promised, source.settled_event_time)
    return max(source.promised, source.max_event_time - definition.slack)


def least_of_sources(definition: StreamDefinition, sources: Mapping[str, SourceProgress]) -> Instant:
    """The slowest source's promise; BEGINNING until all expected sources were seen."""
    if len(sources) < max(1, definition.progress.expected):
        return BEGINNING
    return min(promised_by(definition, source) for source in sources.values())


def stepped(bound: Instant, step: Duration | None) -> Instant:
    """A bound rounded down to a multiple of the step."""
    if step is None or bound in (BEGINNING, FOREVER):
        return bound
    return bound // step * step


def after_scans(
    streams: Mapping[str, StreamDefinition],
    before: Mapping[str, StreamProgress],
    receipts: Mapping[str, StreamReceipt],
) -> dict[str, StreamProgress]:
    """Every stream's progress after an epoch: a pure function of the epoch's receipts, so every task agrees on it.

    `receipts` are those of `stream_receipts`.
    """
    after: dict[str, StreamProgress] = {}
    for name, progress in before.items():
        if name in streams and streams[name].using != union_streams.USING:
            definition, seen = streams[name], receipts.get(name, StreamReceipt())
            sources = _sources(definition, progress, seen)
            after[name] = after_epoch(
                definition, progress, seen.greatest, seen.data_punctuation, sources, seen.groups
            )
    for name, progress in before.items():
        if name in streams and streams[name].using == union_streams.USING:
            after[name] = union_progress.progress(streams[name], progress, after)
    now = union_progress.nows(streams, before, after)
    return {name: replace(progress, max_event_time=now[name]) for name, progress in after.items()}


def _sources(
    definition: StreamDefinition, before: StreamProgress, receipt: StreamReceipt
) -> dict[str, SourceProgress]:
    """Progress of the sources after the epoch."""
    sources = dict(before.sources)
    for source, progress in receipt.sources.items():
        sources[source] = sources.get(source, SourceProgress()).then(
            progress, definition.progress.behind or 0
        )
    return sources


def progress_of(committed: CommittedStream, min_punctuation: Instant = BEGINNING) -> StreamProgress:
    """A stream's committed progress, and the least punctuation that the driver sets after the epoch."""
    sources = {
        name: SourceProgress(source.greatest, source.passed, source.tail, source.promised)
        for name, source in committed.sources.items()
    }
    return StreamProgress(
        committed.punctuation, committed.greatest, min_punctuation, sources, committed.groups
    )


def committed_progress(
    committed: CommittedStream, progress: StreamProgress, seen: Iterable[str], now: Instant
) -> CommittedStream:
    """The progress of a stream to commit; `seen` are the sources that had rows, `now` the time of the epoch."""
    fresh, sources = set(seen), committed.sources
    if progress.sources:
        sources = {
            name: CommittedSource(
                source.max_event_time,
                source.settled_event_time,
                source.reorder_buffer,
                source.promised,
                now if name in fresh or name not in committed.sources else committed.sources[name].arrived,
            )
            for name, source in progress.sources.items()
        }
    return replace(
        committed,
        punctuation=progress.punctuation,
        greatest=progress.max_event_time,
        sources=sources,
        groups=dict(progress.groups),
    )
