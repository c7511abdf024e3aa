"""The progress of a union of streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.catalog.definitions import StreamDefinition
from headrace.runtime.messages.stream_progress import StreamProgress
from headrace.runtime.plan.union_streams import NOW_OF, USING, inputs_of
from headrace.store.logs.committed import NEW_STREAM, CommittedStream
from headrace.time import BEGINNING, Instant


def progress(
    stream: StreamDefinition, before: StreamProgress, inputs: Mapping[str, StreamProgress]
) -> StreamProgress:
    """Progress of a union: the minimum punctuation of its inputs."""
    inputs_progress = [inputs.get(union_input.stream) for union_input in inputs_of(stream)]
    available = [part for part in inputs_progress if part is not None]
    if len(available) < len(inputs_progress):
        return before
    promised = min(part.punctuation for part in available)
    return StreamProgress(max(before.punctuation, promised), before.max_event_time, before.min_punctuation)


def nows(
    streams: Mapping[str, StreamDefinition],
    before: Mapping[str, StreamProgress],
    after: Mapping[str, StreamProgress],
) -> dict[str, Instant]:
    """The maximum event time (NOW) of each stream of `after`; of a union that of its inputs, of pairs that of the joined
    streams.

    Rows of pairs and of changelogs may have later event times, which only order them.
    """
    instants: dict[str, Instant] = {}

    def now(name: str) -> Instant:
        if name not in instants:
            made_of = _made_of(streams[name]) if name in streams else ()
            progress = after if not made_of else before
            instants[name] = max(
                progress.get(name, StreamProgress()).max_event_time, *map(now, made_of), BEGINNING
            )
        return instants[name]

    return {name: now(name) for name in after}


def _made_of(stream: StreamDefinition) -> tuple[str, ...]:
    if NOW_OF in stream.options:
        return (stream.options[NOW_OF],)
    return tuple(union_input.stream for union_input in inputs_of(stream)) if stream.using == USING else ()


def bounds(stream: StreamDefinition, inputs: Mapping[str, StreamProgress]) -> tuple[Instant, ...]:
    """The punctuation of each input of a union; none for other streams."""
    if stream.using != USING:
        return ()
    return tuple(
        inputs[union_input.stream].punctuation if union_input.stream in inputs else BEGINNING
        for union_input in inputs_of(stream)
    )


def committed_union(
    stream: StreamDefinition, new: CommittedStream, streams: Mapping[str, CommittedStream]
) -> CommittedStream:
    """The committed progress of a union that is new to a manifest, from that of its inputs."""
    inputs = [streams.get(union_input.stream, NEW_STREAM) for union_input in inputs_of(stream)]
    return replace(
        new,
        punctuation=min(committed.punctuation for committed in inputs),
        greatest=max(committed.greatest for committed in inputs),
    )
