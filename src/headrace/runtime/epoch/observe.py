"""The observations of an epoch, in figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from headrace.observation import EpochObservation, OperatorObservation, StreamObservation, WorkObservation
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.epoch_work import EpochWork
from headrace.runtime.messages.task_messages import ScanReceipt, StateReceipt, StreamReceipt, stream_receipts
from headrace.runtime.plan import derived_streams, union_streams
from headrace.store.logs.committed import CommittedStream
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, Instant


def scans_of(receipts: Sequence[StateReceipt]) -> tuple[ScanReceipt, ...]:
    """The scan tasks' receipts, which the first state task forwards."""
    return next((receipt.scans for receipt in receipts if receipt.task == 0), ())


def observe(
    after: Manifest,
    work: EpochWork,
    receipts: Sequence[StateReceipt],
    plan: EpochPlan,
    seconds: Mapping[str, float],
    now: Instant,
) -> EpochObservation:
    """What the epoch measured. Stage times are the longest task's."""
    scans = scans_of(receipts)
    seen = stream_receipts(scans, plan)
    sources = [known for name, known in seen.items() if not _is_derived(plan, name)]
    stages = dict(seconds)
    for measured in [scan.seconds for scan in scans] + [receipt.seconds for receipt in receipts]:
        for stage, spent in measured.items():
            stages[stage] = max(stages.get(stage, 0.0), spent)
    return EpochObservation(
        epoch=after.epoch,
        kind=work.kind,
        rows=sum(stream.rows for stream in sources),
        bytes=sum(stream.bytes for stream in sources),
        seconds=stages,
        streams={
            name: _stream_seen(known, seen.get(name, StreamReceipt()), now)
            for name, known in after.streams.items()
        },
        operators=added([*(scan.operators for scan in scans), *(receipt.operators for receipt in receipts)]),
        work=added([*(scan.work for scan in scans), *(receipt.work for receipt in receipts)]),
        state_bytes=sum(run.bytes for run in after.state),
        state_runs=len(after.state),
    )


def _is_derived(plan: EpochPlan, stream: str) -> bool:
    """Whether a stream's rows are results of queries, or rows of other streams: read here, but no input."""
    definition = plan.streams.get(stream)
    return definition is not None and definition.using in (derived_streams.USING, union_streams.USING)


def _stream_seen(known: CommittedStream, seen: StreamReceipt, now: Instant) -> StreamObservation:
    is_known = BEGINNING < known.punctuation < now
    return StreamObservation(
        rows=seen.rows,
        bytes=seen.bytes,
        late=seen.late,
        rejected=seen.rejected,
        shed=seen.shed,
        keep=known.keep,
        punctuation=known.punctuation,
        lag=now - known.punctuation if is_known else None,
    )


_Seen = TypeVar("_Seen", OperatorObservation, WorkObservation)


def added(parts: Sequence[Mapping[str, _Seen]]) -> dict[str, _Seen]:
    """What all tasks have measured, by name."""
    found: dict[str, _Seen] = {}
    for part in parts:
        for name, seen in part.items():
            known = found.get(name)
            found[name] = seen if known is None else known.plus(seen)
    return found
