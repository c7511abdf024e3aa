"""Provisional results: what every query would emit if the streams ended now, computed from committed state and stored
nowhere; and the order in which operators end.

Queries over queries read the closing results of others, so operators close level by level.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.errors import QueryFailed
from headrace.operators.base.batch import Batch, Rejected
from headrace.operators.base.group_codes import as_int64, flat, ints
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
from headrace.runtime.tasks.state.peek import NOTHING, emission_limits_of, peek_all
from headrace.store.files.filesystem import Store
from headrace.time import Instant


@dataclass(frozen=True, slots=True)
class Closing:
    """By operator: the closing rows, the reason of each row on which an expression failed, and why it failed altogether."""

    answers: Mapping[str, pa.Table]
    rejected: Mapping[str, tuple[str, ...]]
    failures: Mapping[str, str]


def close(
    store: Store, plan: EpochPlan, message: StateMessage, unread: Mapping[str, pa.Table] | None = None
) -> Closing:
    """The closing results of all operators; `message` has each one's punctuation, or closes all.

    `unread`: rows that operators have emitted before and their readers have not read yet.
    """
    answers: dict[str, pa.Table] = {}
    rejected: dict[str, tuple[str, ...]] = {}
    failures: dict[str, str] = {}
    remaining, seen = dict(message.emitted_to), dict[str, Instant]()
    while remaining:
        ready = {name: at for name, at in remaining.items() if not _sources(plan, name) & remaining.keys()}
        with registered(callable_by_name(plan.functions)):
            blobs = [_blob(store, plan, plan.operators[name], (unread or {}, answers)) for name in ready]
        failures |= _reasons(failed for blob in blobs for failed in blob.receipt.failures.items())
        blobs = [blob for blob in blobs if not blob.receipt.failures]
        remaining = {name: at for name, at in remaining.items() if name not in failures}
        ready = {name: at for name, at in ready.items() if name not in failures}
        for blob in blobs:
            seen |= {name: stream.greatest for name, stream in blob.receipt.streams.items()}
        blobs.append(ScanBlob(_receipt_up_to(seen), {}, {}))  # NOW is that of all rows emitted so far
        message_of_level = replace(message, emitted_to=ready)
        limits = {
            name: stop
            for name, stop in emission_limits_of(message_of_level, blobs).items()
            if plan.operators[name].ends_in_parts
        }
        at_once = {name: at for name, at in ready.items() if name not in limits}
        peeked = peek_all(replace(message_of_level, emitted_to=at_once), blobs) if at_once else NOTHING
        answers |= peeked.results
        rejects = dict(peeked.rejected)
        failures |= _reasons(peeked.failures.items())
        for name, stop in limits.items():
            try:
                answers[name], rejects[name] = _in_parts(
                    replace(message_of_level, emitted_to={name: ready[name]}), name, stop, blobs
                )
            except QueryFailed as failure:
                failures[name] = str(failure)
        for operator, parts in rejects.items():
            rejected[operator] = tuple(reason for part in parts for reason in part.reasons)
        remaining = {name: at for name, at in remaining.items() if name not in ready}
    return Closing(answers, rejected, failures)


def _reasons(failures: Iterable[tuple[str, QueryFailure]]) -> dict[str, str]:
    return {name: failure.reason for name, failure in failures}


def in_order(plan: EpochPlan, operators: Iterable[str]) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Operators in the order in which they end, at least once: those that end together, and the streams that have ended.

    What reads another operator, for example one that is paused, does not end before it.
    """
    remaining, unfinished = tuple(operators), set(plan.operators)
    ready = tuple(name for name in remaining if not _sources(plan, name) & unfinished)
    while True:
        yield ready, tuple(name for name in plan.streams if not _producers_of(plan, name) & unfinished)
        unfinished.difference_update(ready)
        remaining = tuple(name for name in remaining if name in unfinished)
        ready = tuple(name for name in remaining if not _sources(plan, name) & unfinished)
        if not ready:
            return


def _sources(plan: EpochPlan, operator: str) -> set[str]:
    """The operators whose results this one reads."""
    return _producers_of(plan, plan.operators[operator].stream)


def _producers_of(plan: EpochPlan, stream: str) -> set[str]:
    """The operators whose results are in a stream."""
    streams = [plan.streams[union_input.stream] for union_input in inputs_of(plan.streams[stream])]
    return {
        derived_streams.operator_of(stream) for stream in streams if stream.using == derived_streams.USING
    }


def _in_parts(
    message: StateMessage, name: str, limit: Instant | None, blobs: Sequence[ScanBlob]
) -> tuple[pa.Table, list[Rejected]]:
    """The closing results of an operator with many windows, computed in parts; they are mapped from a file without a name."""
    rejected: list[Rejected] = []
    with tempfile.TemporaryDirectory(prefix="headrace-closing-") as folder:
        path, writer = Path(folder) / "results.arrow", None
        while True:
            punctuation = {} if limit is None else {name: limit}
            peeked = peek_all(replace(message, punctuation=punctuation), blobs)
            for failure in peeked.failures.values():
                raise QueryFailed(failure.reason)
            rejected += peeked.rejected.get(name, [])
            if name in peeked.results:
                writer = writer or pa.ipc.new_file(path, peeked.results[name].schema)
                writer.write_table(peeked.results[name])
            if limit is None:
                break
            message = replace(message, provisionally_emitted_to={name: limit})
            limit = emission_limits_of(message, blobs).get(name)
        assert writer is not None  # there were too many windows for one part
        writer.close()
        # An open map outlives the file's name.
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all(), rejected


def _blob(
    store: Store,
    plan: EpochPlan,
    operator: Operator,
    provisionally_emitted_to: Sequence[Mapping[str, pa.Table]],
) -> ScanBlob:
    """The blob of a scan task that read the operator's input, emitted by other operators before or now."""
    try:
        return _scanned(store, plan, operator, provisionally_emitted_to)
    except Exception as failure:  # noqa: BLE001 - of any kind: it is the operator's
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
    for number, union_input in enumerate(inputs_of(plan.streams[operator.stream])):
        stream = plan.streams[union_input.stream]
        producer = derived_streams.operator_of(stream) if stream.using == derived_streams.USING else ""
        tables = [
            rows
            for tables_of in provisionally_emitted_to
            if (rows := tables_of.get(producer)) is not None and rows.num_rows
        ]
        if not tables:
            continue
        rows = pa.concat_tables(table.select([*stream.schema.names, AT]) for table in tables)
        at = ints(rows, AT) - int(stream.options["shift"])
        columns = {name: flat(rows.column(column)) for column, name in union_input.columns}
        position = placed(np.arange(len(at)) + (1 << 62), number)
        times = as_int64(flat(rows.column(union_input.time))) if union_input.time else at
        scanner.add(Batch(columns, times, position))
        max_event_time[stream.name] = int(at.max())
    if not max_event_time:
        return ScanBlob(ScanReceipt(0), {}, {})
    scanned = scanner.finish()
    deltas, state = operator.for_family(scanned.deltas), state_name(operator)
    sections = {f"{state}/{name}": table for name, table in deltas.items()}
    rejected = {operator.id: list(scanned.rejected)} if scanned.rejected else {}
    return ScanBlob(_receipt_up_to(max_event_time), rejected, sections)


def _receipt_up_to(max_event_time: Mapping[str, Instant]) -> ScanReceipt:
    """The receipt of a task that read rows up to these event times, by stream."""
    return ScanReceipt(0, {name: StreamReceipt(greatest=at) for name, at in max_event_time.items()})
