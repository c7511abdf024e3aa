"""The progress of streams that are made of others: the punctuation of a union is the minimum of its inputs'; NOW (the
maximum event time) of a union, of joined pairs and of a relation's changes is that of the streams they are made of.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.catalog.definitions import StreamDefinition
from headrace.runtime.messages.stream_progress import StreamProgress
from headrace.runtime.plan.union_streams import NOW_OF, USING, bound_of, inputs_of
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, Instant


def progress(
    stream: StreamDefinition, before: StreamProgress, inputs: Mapping[str, StreamProgress]
) -> StreamProgress:
    """Progress of a union: the minimum punctuation of its inputs, or its bound."""
    bound = bound_of(stream)
    if any(name not in inputs for name in bound.names):
        return before
    promised = bound.value(lambda name: inputs[name].punctuation)
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
            sources = made_of(streams[name]) if name in streams else ()
            progress = after if not sources else before
            instants[name] = max(
                progress.get(name, StreamProgress()).max_event_time, *map(now, sources), BEGINNING
            )
        return instants[name]

    return {name: now(name) for name in after}


def committed_now(manifest: Manifest, streams: Mapping[str, StreamDefinition], name: str) -> Instant:
    """The committed maximum event time of a stream, or of those that it is made of; `BEGINNING` without rows."""
    sources = made_of(streams[name]) if name in streams else ()
    nows = (committed_now(manifest, streams, source) for source in sources)
    return max(manifest.stream(name).greatest, max(nows, default=BEGINNING))


def made_of(stream: StreamDefinition) -> tuple[str, ...]:
    """The streams whose maximum event time is that of a union, or of a relation's changes; none for other streams."""
    if NOW_OF in stream.options:
        return (stream.options[NOW_OF],)
    return tuple(union_input.stream for union_input in inputs_of(stream)) if stream.using == USING else ()
