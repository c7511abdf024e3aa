"""What does a relation over relations, or over pairs, hold NOW? What its own operators tell up to then, level by level.

What an operator tells is read by the next one an epoch later, and only below punctuation; INVOKE wants all committed rows in the answer,
up to the greatest event time. So every level is asked what it would tell up to that, beside what the next one has not read yet.
Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from headrace.errors import QueryFailed
from headrace.operators.base.group_codes import SLOTS
from headrace.runtime.home.home import Home
from headrace.runtime.home.run_cache import section_of
from headrace.runtime.ingest import derived_input
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.task_messages import RunRef, StateMessage
from headrace.runtime.plan import derived_streams, union_streams
from headrace.runtime.plan.union_streams import inputs_of
from headrace.runtime.progress import union_progress
from headrace.runtime.progress.punctuation import progress_of
from headrace.runtime.tasks.state import provisional_results
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING


def below(plan: EpochPlan, operator: str) -> tuple[str, ...]:
    """The operators of a query's own pairs and relations that an operator reads, however far down; none for most."""
    return tuple(
        each
        for stream in _made_here(plan, operator)
        for each in (_maker(plan, stream), *below(plan, _maker(plan, stream)))
    )


def changes_now(home: Home, manifest: Manifest, plan: EpochPlan, operator: str) -> pa.Table | None:
    """The changes that an operator would tell up to NOW, after those that it has told; None when there are none."""
    chain = (operator, *below(plan, operator))
    if any(each not in manifest.operators for each in chain):
        return None
    streams = {name: progress_of(known) for name, known in manifest.streams.items() if name in plan.streams}
    now = union_progress.nows(plan.streams, streams, streams).get(plan.operators[operator].stream, BEGINNING)
    if now == BEGINNING:
        return None
    closed = {each: manifest.operators[each].emitted_to for each in chain}
    message = StateMessage(
        root=str(home.store.root),
        plan=manifest.plan or "",
        epoch=manifest.epoch + 1,
        task=0,
        low=0,
        high=SLOTS,
        runs=tuple(map(RunRef.of, manifest.state)),
        streams=streams,
        emitted_to=closed,
        punctuation={each: max(at, now + 1) for each, at in closed.items()},
    )
    unread = {
        _maker(plan, stream): table
        for each in chain
        for stream in _made_here(plan, each)
        if (table := _unread(home, manifest, plan, stream)) is not None
    }
    found = provisional_results.close(home.store, plan, message, unread)
    for reason in found.failures.values():
        raise QueryFailed(f"the answer cannot be computed: {reason}")
    return found.answers.get(operator)


def _made_here(plan: EpochPlan, operator: str) -> Iterator[str]:
    """The streams an operator reads that only are there for it: pairs, and changes of relations."""
    for member in inputs_of(plan.streams[plan.operators[operator].stream]):
        if union_streams.NOW_OF in plan.streams[member.stream].options:
            yield member.stream


def _maker(plan: EpochPlan, stream: str) -> str:
    return derived_streams.operator_of(plan.streams[stream])


def _unread(home: Home, manifest: Manifest, plan: EpochPlan, stream: str) -> pa.Table | None:
    """What was told on a stream that its reader has not taken in."""
    pending = derived_input.waiting(home, manifest, plan.streams[stream])
    tables = [section_of(home.store, each.record["results"], each.record["operator"]) for each in pending]
    return pa.concat_tables(tables) if tables else None
