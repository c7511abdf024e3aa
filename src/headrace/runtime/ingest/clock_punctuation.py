"""Punctuation by the clock, from idle timeouts, silent sources and heartbeats: for each stream, an instant that the
punctuation of the next epoch is not below.

Rows and promises advance punctuation in the tasks. Only the driver knows of silence; it gives the tasks a minimum
for the epoch's punctuation (Li 2008, sections 8.1 and 8.2; Srivastava and Widom 2004).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headrace.catalog.definitions import StreamDefinition
from headrace.runtime.ingest.ingest_queue import Intake
from headrace.runtime.progress.committed_progress import progress_of
from headrace.runtime.progress.punctuation import promised_by, rounded_down
from headrace.store.logs.committed import CommittedStream
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, Duration, Instant


def clock_punctuations(
    intake: Intake,
    streams: Iterable[StreamDefinition],
    manifest: Manifest,
    read_ordinals: Mapping[str, Sequence[int]],
    now: Instant,
) -> dict[str, Instant]:
    """The minimum punctuations by the clock, by stream; `read_ordinals` are the records that the next epoch reads."""
    by_stream: dict[str, Instant] = {}
    for stream in streams:
        if stream.progress.heartbeat is None and stream.idle_timeout is None:
            continue
        committed, read = manifest.stream(stream.name), frozenset(read_ordinals.get(stream.name, ()))
        with intake.lock:  # every record that has arrived before `now` is in the queue then
            waiting = [pending for pending in intake.waiting(stream.name) if pending.ordinal not in read]
        min_punctuations = []
        if stream.progress.heartbeat is not None:
            arrived = min(
                [now, *(pending.record["arrival"] for pending in waiting if "arrival" in pending.record)]
            )
            min_punctuations.append(heartbeat(*stream.progress.heartbeat, arrived))
        if stream.idle_timeout is not None and not waiting:
            busy = stream.name in read_ordinals
            min_punctuations.append(idle(stream, stream.idle_timeout, committed, now, busy=busy))
        if min_punctuations and max(min_punctuations) > BEGINNING:
            by_stream[stream.name] = max(min_punctuations)
    return by_stream


def heartbeat(every: Duration, delay: Duration, now: Instant) -> Instant:
    """No row arrives more than `delay` after its time: older rows have arrived. Rounded down to a multiple of `every`."""
    return now // every * every - delay


def idle(
    stream: StreamDefinition, timeout: Duration, committed: CommittedStream, now: Instant, *, busy: bool
) -> Instant:
    """The punctuation after the timeout without a row: event time then follows the clock, less the slack.

    Of several sources, those silent for that long do not count for the minimum until their next row; when all are silent the
    stream is. `busy`: the next epoch has rows, so the stream as a whole is not silent.
    """
    if committed.greatest == BEGINNING:
        return BEGINNING
    silent = 0 if committed.arrived is None else now - committed.arrived
    if silent >= timeout and not busy:
        return committed.greatest - stream.slack + silent
    rule = stream.progress
    if not (rule.per or rule.folder):
        return BEGINNING
    sources = progress_of(committed).sources
    active = [source for name, source in sources.items() if now - committed.sources[name].arrived < timeout]
    if not active or len(active) == len(sources):
        return BEGINNING
    return rounded_down(min(promised_by(stream, source) for source in active), rule.step)
