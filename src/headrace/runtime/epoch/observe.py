"""The measurements of an epoch (`EpochObservation`: rows, bytes, times, and work by stream and operator), added over the
receipts of its tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headrace.observation import EpochObservation, StreamObservation, WorkObservation
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.epoch_work import EpochWork
from headrace.runtime.messages.operator_observations import OperatorObservations, added
from headrace.runtime.messages.task_messages import ScanReceipt, StateReceipt, StreamReceipt, stream_receipts
from headrace.runtime.plan import derived_streams, union_streams
from headrace.runtime.plan.adaptive.filter_orders import observed_filters
from headrace.runtime.plan.adaptive.join_caches import observed_caches
from headrace.runtime.plan.adaptive.join_orders import observed_probes
from headrace.runtime.plan.adaptive.partner_bounds import observed_delays
from headrace.runtime.plan.adaptive.split_keys import task_loads
from headrace.store.logs.committed import NEW_STREAM
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, Instant


def scans_of(receipts: Sequence[StateReceipt]) -> tuple[ScanReceipt, ...]:
    """The scan tasks' receipts, which are in the first state task's of each round."""
    return tuple(scan for receipt in receipts if receipt.task == 0 for scan in receipt.scans)


def operators_by_task(
    scans: Sequence[ScanReceipt], receipts: Sequence[StateReceipt]
) -> list[OperatorObservations]:
    """The measurements of operators in each task."""
    by_task = [*(scan.operators for scan in scans), *(receipt.operators for receipt in receipts)]
    return [OperatorObservations.of(operators) for operators in by_task]


def observe(
    after: Manifest,
    work: EpochWork,
    receipts: Sequence[StateReceipt],
    plan: EpochPlan,
    seconds: Mapping[str, float],
    now: Instant,
) -> EpochObservation:
    """The measurements of an epoch. The time of a stage is that of the longest task."""
    scans = scans_of(receipts)
    seen = stream_receipts(scans, plan)
    inputs = [receipt for name, receipt in seen.items() if not _is_derived(plan, name)]
    stages = dict(seconds)
    for measured in [scan.seconds for scan in scans] + [receipt.seconds for receipt in receipts]:
        for stage, spent in measured.items():
            stages[stage] = max(stages.get(stage, 0.0), spent)
    return EpochObservation(
        epoch=after.epoch,
        kind=work.kind,
        rows=sum(stream.rows for stream in inputs),
        bytes=sum(stream.bytes for stream in inputs),
        late=sum(stream.late for stream in inputs),
        rejected=sum(stream.rejected for stream in inputs),
        seconds=stages,
        streams={
            name: _stream_seen(after, name, seen.get(name, StreamReceipt()), now)
            for name in {**after.streams.moving, **seen}
        },
        operators=added(operators_by_task(scans, receipts)),
        work=_work([*(scan.work for scan in scans), *(receipt.work for receipt in receipts)]),
        state_bytes=sum(run.bytes for run in after.state),
        state_runs=len(after.state),
        filters=observed_filters(scans),
        joins=observed_probes(receipts),
        caches=observed_caches(receipts),
        delays=observed_delays(receipts),
        loads=task_loads(receipts, after),
    )


def _is_derived(plan: EpochPlan, stream: str) -> bool:
    """Whether a stream's rows are results of queries, or rows of other streams: read here, but no input."""
    definition = plan.streams.get(stream)
    return definition is not None and definition.using in (derived_streams.USING, union_streams.USING)


def _stream_seen(after: Manifest, name: str, seen: StreamReceipt, now: Instant) -> StreamObservation:
    punctuation = after.punctuation(name)
    is_known = BEGINNING < punctuation < now
    return StreamObservation(
        rows=seen.rows,
        bytes=seen.bytes,
        late=seen.late,
        rejected=seen.rejected,
        shed=seen.shed,
        keep=after.streams.get(name, NEW_STREAM).keep,
        punctuation=punctuation,
        lag=now - punctuation if is_known else None,
    )


def _work(parts: Iterable[Mapping[str, WorkObservation]]) -> dict[str, WorkObservation]:
    """The work of all tasks, added by name."""
    sums: dict[str, WorkObservation] = {}
    for part in parts:
        for name, seen in part.items():
            total = sums.get(name)
            sums[name] = seen if total is None else total.plus(seen)
    return sums
