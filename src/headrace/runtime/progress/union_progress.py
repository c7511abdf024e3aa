"""The progress of a stream that is made of several."""

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
    """How far a meeting has come: the least punctuation of its members."""
    known = [inputs.get(each.stream) for each in inputs_of(stream)]
    found = [each for each in known if each is not None]
    if len(found) < len(known):
        return before
    promised = min(each.punctuation for each in found)
    return StreamProgress(max(before.punctuation, promised), before.max_event_time, before.min_punctuation)


def nows(
    streams: Mapping[str, StreamDefinition],
    before: Mapping[str, StreamProgress],
    found: Mapping[str, StreamProgress],
) -> dict[str, Instant]:
    """The greatest event time of each stream that was `found`: of a meeting that of its members, of pairs that of what they join.

    Their own rows may lie past it: those that say where pairs and rows of relations go.
    """
    known: dict[str, Instant] = {}

    def now(name: str) -> Instant:
        if name not in known:
            made_of = _made_of(streams[name]) if name in streams else ()
            own = found if not made_of else before
            known[name] = max(own.get(name, StreamProgress()).max_event_time, *map(now, made_of), BEGINNING)
        return known[name]

    return {name: now(name) for name in found}


def _made_of(stream: StreamDefinition) -> tuple[str, ...]:
    if NOW_OF in stream.options:
        return (stream.options[NOW_OF],)
    return tuple(union_input.stream for union_input in inputs_of(stream)) if stream.using == USING else ()


def bounds(stream: StreamDefinition, inputs: Mapping[str, StreamProgress]) -> tuple[Instant, ...]:
    """The punctuation of each member; none for a stream that is no meeting."""
    if stream.using != USING:
        return ()
    return tuple(
        inputs[each.stream].punctuation if each.stream in inputs else BEGINNING for each in inputs_of(stream)
    )


def known_so_far(
    stream: StreamDefinition, new: CommittedStream, streams: Mapping[str, CommittedStream]
) -> CommittedStream:
    """What is committed of a meeting that is new to a manifest, by what is of the members."""
    known = [streams.get(each.stream, NEW_STREAM) for each in inputs_of(stream)]
    return replace(
        new,
        punctuation=min(each.punctuation for each in known),
        greatest=max(each.greatest for each in known),
    )
