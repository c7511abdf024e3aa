"""The punctuation (watermark) of streams after an epoch, with the rest of their progress (maximum event time, sources,
groups): computed from the progress before it and the receipts of its scan tasks.

Punctuation v promises that no later row has an event time below v (Li 2008, section 4). It never decreases. The stream
defines its source: slack in time or rows, promises of its rows, its slowest source, the clock, or a program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.algebra.expressions.punctuation_patterns import rolled_up
from headrace.catalog.definitions import StreamDefinition
from headrace.runtime.messages.stream_progress import SourceProgress, StreamProgress
from headrace.runtime.messages.task_messages import StreamReceipt
from headrace.runtime.plan import union_streams
from headrace.runtime.progress import union_progress
from headrace.time import BEGINNING, FOREVER, Duration, Instant


def after_epoch(
    definition: StreamDefinition,
    before: StreamProgress,
    max_event_time: Instant,
    data_punctuation: Instant,
    sources: Mapping[str, SourceProgress] | None = None,
    groups: Mapping[str, Instant] | None = None,
    *,
    latest: Instant = BEGINNING,
) -> StreamProgress:
    """Progress after an epoch with accepted rows up to `max_event_time`, in which data or programs promised `data_punctuation`.

    `latest` is the maximum event time of late rows too, which count for a bound that is computed from rows. `sources` is the
    progress of its sources after the epoch, `groups` the promises for single groups. A bound computed from rows is rounded down to
    PROGRESS STEP, which keeps it true; a promise is not rounded.
    """
    now = max(before.max_event_time, max_event_time)
    progress_of_sources = sources or {}
    if definition.progress.has_sources:
        promised = slowest_promise(definition, progress_of_sources)
    else:
        promised = promised_by(definition, SourceProgress(max(now, latest)))
    promised = max(rounded_down(promised, definition.progress.step), data_punctuation)
    punctuation = max(before.punctuation, promised, before.min_punctuation)
    group_promises = {**before.groups}
    for name, at in (groups or {}).items():
        group_promises[name] = max(at, group_promises.get(name, BEGINNING))
    group_promises = {name: at for name, at in group_promises.items() if at > punctuation}
    if definition.progress.patterns:
        group_promises = rolled_up(group_promises)
    return StreamProgress(punctuation, now, sources=progress_of_sources, groups=group_promises)


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


def slowest_promise(definition: StreamDefinition, sources: Mapping[str, SourceProgress]) -> Instant:
    """The slowest source's promise, BEGINNING until all expected sources were seen; or what SKEW promises, if that is later."""
    promised = BEGINNING
    if len(sources) >= max(1, definition.progress.expected):
        promised = min(promised_by(definition, source) for source in sources.values())
    latest = max((source.max_event_time for source in sources.values()), default=BEGINNING)
    if definition.progress.skew is None or latest == BEGINNING:
        return promised
    return max(promised, latest - definition.progress.skew)


def rounded_down(bound: Instant, step: Duration | None) -> Instant:
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
                definition,
                progress,
                seen.greatest,
                seen.data_punctuation,
                sources,
                seen.groups,
                latest=seen.latest,
            )
    for name, progress in before.items():
        if name in streams and streams[name].using == union_streams.USING:
            after[name] = union_progress.progress(streams[name], progress, after)
    now = union_progress.nows(streams, before, after)
    return {
        name: progress
        if progress.max_event_time == now[name]
        else replace(progress, max_event_time=now[name])
        for name, progress in after.items()
    }


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
