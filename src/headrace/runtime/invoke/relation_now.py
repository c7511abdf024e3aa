"""The changes of a query over relations, or over the pairs of a join, up to NOW and beyond what it has emitted, for INVOKE:
computed from committed state through all operators that it reads, level by level.

An operator's results are read by the next one only below punctuation; INVOKE returns an answer over all
committed rows, up to the maximum event time. So every operator is advanced up to that, with the results of the others that
it has not read yet. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from headrace.errors import QueryFailed
from headrace.operators.base.group_codes import SLOTS
from headrace.runtime.home.home import Home
from headrace.runtime.home.merged_runs import results_named
from headrace.runtime.ingest import derived_input
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.stream_progress import StreamProgress
from headrace.runtime.messages.task_messages import RunRef, StateMessage
from headrace.runtime.plan import derived_streams, union_streams
from headrace.runtime.plan.union_streams import inputs_of
from headrace.runtime.progress import union_progress
from headrace.runtime.progress.committed_progress import progress_of
from headrace.runtime.tasks.state import provisional_results
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, Instant


def upstream_operators(plan: EpochPlan, operator: str) -> tuple[str, ...]:
    """The operators of a query's own pairs and relations that an operator reads, at all levels."""
    return tuple(
        id_
        for stream in _internal_streams(plan, operator)
        for id_ in (_producer(plan, stream), *upstream_operators(plan, _producer(plan, stream)))
    )


def changes_now(home: Home, manifest: Manifest, plan: EpochPlan, operator: str) -> pa.Table | None:
    """The changes that an operator would emit up to NOW, after those it has emitted; None when there are none."""
    chain = (operator, *upstream_operators(plan, operator))
    if any(id_ not in manifest.operators for id_ in chain):
        return None
    streams = {name: progress_of(manifest.stream(name)) for name in manifest.streams if name in plan.streams}
    now = union_progress.committed_now(manifest, plan.streams, plan.operators[operator].stream)
    if now == BEGINNING:
        return None
    message = message_up_to_now(home, manifest, streams, chain, now)
    unread = {
        _producer(plan, stream): table
        for id_ in chain
        for stream in _internal_streams(plan, id_)
        if (table := _unread(home, manifest, plan, stream)) is not None
    }
    closing = provisional_results.close(home.store, plan, message, unread)
    for reason in closing.failures.values():
        raise QueryFailed(f"the answer cannot be computed: {reason}")
    return closing.answers.get(operator)


def message_up_to_now(
    home: Home,
    manifest: Manifest,
    streams: Mapping[str, StreamProgress],
    operators: Iterable[str],
    now: Instant,
) -> StateMessage:
    """The message with all committed state, by which operators close every window up to `now`."""
    emitted_to = {id_: manifest.operator(id_).emitted_to for id_ in operators}
    return StateMessage(
        root=str(home.store.root),
        plan=manifest.plan or "",
        epoch=manifest.epoch + 1,
        task=0,
        low=0,
        high=SLOTS,
        runs=tuple(map(RunRef.of, manifest.state)),
        streams=streams,
        emitted_to=emitted_to,
        punctuation={id_: max(at, now + 1) for id_, at in emitted_to.items()},
    )


def _internal_streams(plan: EpochPlan, operator: str) -> Iterator[str]:
    """The streams an operator reads that exist only for it: pairs, and changes of relations."""
    for union_input in inputs_of(plan.streams[plan.operators[operator].stream]):
        if union_streams.NOW_OF in plan.streams[union_input.stream].options:
            yield union_input.stream


def _producer(plan: EpochPlan, stream: str) -> str:
    return derived_streams.operator_of(plan.streams[stream])


def _unread(home: Home, manifest: Manifest, plan: EpochPlan, stream: str) -> pa.Table | None:
    """The results on a stream that its reader has not read."""
    pending = derived_input.waiting(home, manifest, plan.streams[stream])
    tables = [results_named(home.store, run.record) for run in pending]
    return pa.concat_tables(tables) if tables else None
