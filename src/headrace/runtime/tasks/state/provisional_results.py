"""The provisional end of a run: what every query would answer if the streams ended here. Nothing is written.

Queries over queries see the closing answers of those they read, so they are asked level by level.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.errors import QueryFailed
from headrace.operators.base.batch import Batch, Rejected
from headrace.operators.base.group_codes import flat, ints
from headrace.operators.base.operator import AT, Operator
from headrace.operators.base.query_failures import QueryFailure, of_query
from headrace.operators.base.union_positions import placed
from headrace.operators.families.family import state_name
from headrace.operators.scalar.evaluation.user_functions import registered
from headrace.runtime.home.run_cache import load_relation
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.exchange_blob import ScanBlob
from headrace.runtime.messages.task_messages import ScanReceipt, StateMessage, StreamReceipt
from headrace.runtime.plan import derived_streams
from headrace.runtime.plan.union_streams import inputs_of
from headrace.runtime.plan.user_functions import callable_by_name
from headrace.runtime.tasks.state.state_task import Peek, emission_limits_of, peek_all
from headrace.store.files.filesystem import Store
from headrace.time import Instant


@dataclass(frozen=True, slots=True)
class Closing:
    """By operator: the closing rows, for each row on which an expression failed the reason, and why it has no closing rows."""

    answers: Mapping[str, pa.Table]
    rejected: Mapping[str, tuple[str, ...]]
    failures: Mapping[str, str]


def close(
    store: Store, plan: EpochPlan, message: StateMessage, unread: Mapping[str, pa.Table] | None = None
) -> Closing:
    """What all operators say; `message` asks all of them to close, or how far each goes.

    `unread`: what operators have told before and those who read it have not taken in yet.
    """
    found: dict[str, pa.Table] = {}
    rejected: dict[str, tuple[str, ...]] = {}
    failures: dict[str, str] = {}
    left, seen = dict(message.emitted_to), dict[str, Instant]()
    while left:
        ready = {name: at for name, at in left.items() if not _sources(plan, name) & left.keys()}
        with registered(callable_by_name(plan.functions)):
            blobs = [_blob(store, plan, plan.operators[name], (unread or {}, found)) for name in ready]
        failures |= {name: each.reason for blob in blobs for name, each in blob.receipt.failures.items()}
        blobs = [blob for blob in blobs if not blob.receipt.failures]
        left = {name: at for name, at in left.items() if name not in failures}
        ready = {name: at for name, at in ready.items() if name not in failures}
        for blob in blobs:
            seen |= {name: stream.greatest for name, stream in blob.receipt.streams.items()}
        blobs.append(ScanBlob(_reached(seen), {}, {}))  # NOW is that of all that was told below
        asked = replace(message, emitted_to=ready)
        far = {
            name: stop
            for name, stop in emission_limits_of(asked, blobs).items()
            if plan.operators[name].ends_in_parts
        }
        near = {name: at for name, at in ready.items() if name not in far}
        told = peek_all(replace(asked, emitted_to=near), blobs) if near else Peek({}, {}, {})
        found |= told.results
        failed = dict(told.rejected)
        failures |= {name: each.reason for name, each in told.failures.items()}
        for name, stop in far.items():
            try:
                found[name], failed[name] = _in_parts(
                    replace(asked, emitted_to={name: ready[name]}), name, stop, blobs
                )
            except QueryFailed as failure:
                failures[name] = str(failure)
        for operator, parts in failed.items():
            rejected[operator] = tuple(reason for part in parts for reason in part.reasons)
        left = {name: at for name, at in left.items() if name not in ready}
    return Closing(found, rejected, failures)


def in_order(plan: EpochPlan, operators: Iterable[str]) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Operators in the order in which they end, at least once: those that end together, and the streams that have ended then."""
    left = dict.fromkeys(operators)
    while True:
        ready = tuple(name for name in left if not _sources(plan, name) & left.keys())
        yield ready, tuple(name for name in plan.streams if not _producers_of(plan, name) & left.keys())
        left = dict.fromkeys(name for name in left if name not in ready)
        if not left:
            return


def _sources(plan: EpochPlan, operator: str) -> set[str]:
    """The operators whose results this one reads; none for one that reads sources alone."""
    return _producers_of(plan, plan.operators[operator].stream)


def _producers_of(plan: EpochPlan, stream: str) -> set[str]:
    """The operators whose results a stream is made of."""
    streams = [plan.streams[each.stream] for each in inputs_of(plan.streams[stream])]
    return {
        derived_streams.operator_of(stream) for stream in streams if stream.using == derived_streams.USING
    }


def _in_parts(
    message: StateMessage, name: str, stop: Instant | None, blobs: Sequence[ScanBlob]
) -> tuple[pa.Table, list[Rejected]]:
    """What an operator with very much to tell says, a part at a time; the parts lie in a file that goes with the table."""
    rejected: list[Rejected] = []
    with tempfile.TemporaryDirectory(prefix="headrace-closing-") as folder:
        path, writer = Path(folder) / "told.arrow", None
        while True:
            now = {} if stop is None else {name: stop}
            told = peek_all(replace(message, punctuation=now), blobs)
            for failure in told.failures.values():
                raise QueryFailed(failure.reason)
            rejected += told.rejected.get(name, [])
            if name in told.results:
                writer = writer or pa.ipc.new_file(path, told.results[name].schema)
                writer.write_table(told.results[name])
            if stop is None:
                break
            message = replace(message, provisionally_emitted_to={name: stop})
            stop = emission_limits_of(message, blobs).get(name)
        assert writer is not None  # there was too much to tell at once
        writer.close()
        # An open map outlives the file's name.
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all(), rejected


def _blob(
    store: Store,
    plan: EpochPlan,
    operator: Operator,
    provisionally_emitted_to: Sequence[Mapping[str, pa.Table]],
) -> ScanBlob:
    """What a scan task would send of the rows that the operator reads, emitted by other operators before or now."""
    try:
        return _scanned(store, plan, operator, provisionally_emitted_to)
    except Exception as failure:  # noqa: BLE001 - of whatever kind it is, it is the operator's
        failed = {operator.id: QueryFailure(of_query(failure))}
        return ScanBlob(ScanReceipt(0, failures=failed), {}, {})


def _scanned(
    store: Store,
    plan: EpochPlan,
    operator: Operator,
    provisionally_emitted_to: Sequence[Mapping[str, pa.Table]],
) -> ScanBlob:
    relations = {name: load_relation(store, plan.relations[name]) for name in operator.relations}
    scanner, max_event_time = operator.scanner(relations), dict[str, int]()
    for number, member in enumerate(inputs_of(plan.streams[operator.stream])):
        stream = plan.streams[member.stream]
        maker = derived_streams.operator_of(stream) if stream.using == derived_streams.USING else ""
        tables = [
            rows
            for each in provisionally_emitted_to
            if (rows := each.get(maker)) is not None and rows.num_rows
        ]
        if not tables:
            continue
        rows = pa.concat_tables(table.select([*stream.schema.names, AT]) for table in tables)
        at = ints(rows, AT) - int(stream.options["shift"])
        columns = {among: flat(rows.column(own)) for own, among in member.columns}
        position = placed(np.arange(len(at)) + (1 << 62), number)
        scanner.add(Batch(columns, at, position))
        max_event_time[stream.name] = int(at.max())
    if not max_event_time:
        return ScanBlob(ScanReceipt(0), {}, {})
    scanned = scanner.finish()
    deltas, state = operator.for_family(scanned.deltas), state_name(operator)
    sections = {f"{state}/{name}": table for name, table in deltas.items()}
    rejected = {operator.id: list(scanned.rejected)} if scanned.rejected else {}
    return ScanBlob(_reached(max_event_time), rejected, sections)


def _reached(max_event_time: Mapping[str, Instant]) -> ScanReceipt:
    """The receipt of a task that read rows up to these event times, by stream."""
    return ScanReceipt(0, {name: StreamReceipt(greatest=at) for name, at in max_event_time.items()})
