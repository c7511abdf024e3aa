"""How far a stream has come: its punctuation after an epoch.

Punctuation v promises that no later row has an event time below v (Li 2008, section 4). It never goes back. What it is
taken from is the stream's choice: slack in time or rows, promises of its rows, its slowest source, the clock, a program.
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
    """Progress after an epoch whose rows reach `greatest` and whose data or programs promised `marked` (BEGINNING: nothing).

    `sources` are the marks of its sources before and in the epoch, `groups` the promises for single groups. A bound guessed
    from rows is rounded down to PROGRESS STEP, which keeps it true; a promise counts as it was given.
    """
    reached = max(before.max_event_time, max_event_time)
    known = sources or {}
    if definition.progress.has_sources:
        promised = least_of_sources(definition, known)
    else:
        promised = promised_by(definition, SourceProgress(reached))
    promised = max(stepped(promised, definition.progress.step), data_punctuation)
    punctuation = max(before.punctuation, promised, before.min_punctuation)
    ahead = {**before.groups}
    for name, at in (groups or {}).items():
        ahead[name] = max(at, ahead.get(name, BEGINNING))
    ahead = {name: at for name, at in ahead.items() if at > punctuation}
    if definition.progress.patterns:
        ahead = rolled_up(ahead)
    return StreamProgress(punctuation, reached, sources=known, groups=ahead)


def promised_by(definition: StreamDefinition, source: SourceProgress) -> Instant:
    """What one source's rows promise, by the stream's rule."""
    rule = definition.progress
    if definition.punctuated_by is not None or source.max_event_time == BEGINNING:
        return source.promised
    if rule.external or (rule.groups and not definition.slack and rule.behind is None):
        return source.promised
    if rule.behind is not None:
        return max(source.promised, source.settled_event_time)
    return max(source.promised, source.max_event_time - definition.slack)


def least_of_sources(definition: StreamDefinition, sources: Mapping[str, SourceProgress]) -> Instant:
    """The slowest source's promise; nothing until all expected ones were seen."""
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
    found: dict[str, StreamProgress] = {}
    for name, progress in before.items():
        if name in streams and streams[name].using != union_streams.USING:
            definition, seen = streams[name], receipts.get(name, StreamReceipt())
            sources = _sources(definition, progress, seen)
            found[name] = after_epoch(
                definition, progress, seen.greatest, seen.data_punctuation, sources, seen.groups
            )
    for name, progress in before.items():
        if name in streams and streams[name].using == union_streams.USING:
            found[name] = union_progress.progress(streams[name], progress, found)
    now = union_progress.nows(streams, before, found)
    return {name: replace(progress, max_event_time=now[name]) for name, progress in found.items()}


def _sources(
    definition: StreamDefinition, before: StreamProgress, receipt: StreamReceipt
) -> dict[str, SourceProgress]:
    """Marks after the epoch."""
    found = dict(before.sources)
    for source, mark in receipt.sources.items():
        found[source] = found.get(source, SourceProgress()).then(mark, definition.progress.behind or 0)
    return found


def progress_of(known: CommittedStream, min_punctuation: Instant = BEGINNING) -> StreamProgress:
    """A stream's progress as a manifest tells it, and the least punctuation the driver wants after the epoch."""
    sources = {
        name: SourceProgress(source.greatest, source.passed, source.tail, source.promised)
        for name, source in known.sources.items()
    }
    return StreamProgress(known.punctuation, known.greatest, min_punctuation, sources, known.groups)


def as_known(
    known: CommittedStream, progress: StreamProgress, seen: Iterable[str], now: Instant
) -> CommittedStream:
    """What a manifest keeps of a stream's progress; `seen` are the sources that had rows, `now` when that was."""
    fresh, sources = set(seen), known.sources
    if progress.sources:
        sources = {
            name: CommittedSource(
                source.max_event_time,
                source.settled_event_time,
                source.reorder_buffer,
                source.promised,
                now if name in fresh or name not in known.sources else known.sources[name].arrived,
            )
            for name, source in progress.sources.items()
        }
    return replace(
        known,
        punctuation=progress.punctuation,
        greatest=progress.max_event_time,
        sources=sources,
        groups=dict(progress.groups),
    )
