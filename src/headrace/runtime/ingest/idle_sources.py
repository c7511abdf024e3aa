"""How far has a stream come by the clock: idle timeouts, sources that fell silent, heartbeats?

Rows and promises move punctuation in the tasks. What passes in silence only the driver can tell; it hands the tasks a
floor for the epoch's punctuation (Li 2008, sections 8.1 and 8.2; Srivastava and Widom 2004).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headrace.catalog.definitions import StreamDefinition
from headrace.runtime.ingest.ingest_queue import Intake
from headrace.runtime.progress.punctuation import progress_of, promised_by, stepped
from headrace.store.logs.committed import CommittedStream
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, Duration, Instant


def clock_punctuations(
    intake: Intake,
    streams: Iterable[StreamDefinition],
    manifest: Manifest,
    taken: Mapping[str, Sequence[int]],
    now: Instant,
) -> dict[str, Instant]:
    """The least punctuations that time alone gives, by stream; `taken` are the records that the coming epoch reads."""
    found: dict[str, Instant] = {}
    for stream in streams:
        known = manifest.stream(stream.name)
        waiting = [
            each for each in intake.waiting(stream.name) if each.ordinal not in taken.get(stream.name, ())
        ]
        min_punctuations = []
        if stream.progress.heartbeat is not None:
            arrived = min([now, *(each.record["arrival"] for each in waiting if "arrival" in each.record)])
            min_punctuations.append(heartbeat(*stream.progress.heartbeat, arrived))
        if stream.idle_timeout is not None and not waiting:
            busy = stream.name in taken
            min_punctuations.append(idle(stream, stream.idle_timeout, known, now, busy=busy))
        if min_punctuations and max(min_punctuations) > BEGINNING:
            found[stream.name] = max(min_punctuations)
    return found


def heartbeat(every: Duration, delay: Duration, now: Instant) -> Instant:
    """No row takes longer than `delay`: what is older has arrived. It beats at multiples of `every`."""
    return now // every * every - delay


def idle(
    stream: StreamDefinition, timeout: Duration, known: CommittedStream, now: Instant, *, busy: bool
) -> Instant:
    """After the timeout without a row, event time is taken to pass as the clock does, slack included.

    Of several sources, those silent that long are left out of the minimum until they speak again; when all are silent the
    stream is. `busy`: the coming epoch has rows, so the stream as a whole is not silent.
    """
    if known.greatest == BEGINNING:
        return BEGINNING
    silent = 0 if known.arrived is None else now - known.arrived
    if silent >= timeout and not busy:
        return known.greatest - stream.slack + silent
    rule = stream.progress
    if not (rule.per or rule.folder):
        return BEGINNING
    sources = progress_of(known).sources
    active = [source for name, source in sources.items() if now - known.sources[name].arrived < timeout]
    if not active or len(active) == len(sources):
        return BEGINNING
    return stepped(min(promised_by(stream, source) for source in active), rule.step)
