"""How far a stream has come: its punctuation after an epoch.

Punctuation v promises that no later row has an event time below v (Li 2008, section 4). It never goes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.catalog.definitions import StreamDefinition
from headrace.runtime.messages import ScanReceipt, StreamProgress
from headrace.time import BEGINNING, Instant


def after_epoch(
    definition: StreamDefinition, before: StreamProgress, greatest: Instant, marked: Instant
) -> StreamProgress:
    """Progress after an epoch whose rows reach `greatest` and whose data promised `marked` (BEGINNING: nothing).

    Slack trails the greatest event time; a stream PUNCTUATED BY its data listens to nothing but that promise.
    """
    reached = max(before.greatest, greatest)
    if definition.punctuated_by is not None:
        promised = marked
    else:
        promised = reached - definition.slack if reached != BEGINNING else BEGINNING
    return StreamProgress(max(before.punctuation, promised, before.floor), reached)


def merged(receipts: Iterable[ScanReceipt], stream: str) -> tuple[Instant, Instant]:
    """The greatest event time and the greatest promise of all scan tasks for a stream."""
    reached, promised = BEGINNING, BEGINNING
    for receipt in receipts:
        reached = max(reached, receipt.greatest.get(stream, BEGINNING))
        promised = max(promised, receipt.marked.get(stream, BEGINNING))
    return reached, promised


def after_scans(
    streams: Mapping[str, StreamDefinition],
    before: Mapping[str, StreamProgress],
    receipts: Iterable[ScanReceipt],
) -> dict[str, StreamProgress]:
    """Every stream's progress after an epoch: a pure function of the epoch's receipts, so every task agrees on it."""
    seen = list(receipts)
    return {
        name: after_epoch(streams[name], progress, *merged(seen, name))
        for name, progress in before.items()
        if name in streams
    }
