"""The scan task: read, archive first, then give every operator its rows; deltas leave as one blob for each state task.

The order matters: a row is in the archive, with its fate, before any query sees it (architecture, section 6).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.archive.blocks import blocks_of, seed_of
from headrace.archive.runs import Ints, RunWriter
from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.records.ingest_record import ALL, PUNCTUATION
from headrace.observation import OperatorObservation
from headrace.operators.base.batch import Rejected
from headrace.operators.base.group_codes import ints
from headrace.operators.base.operator import SLOT
from headrace.operators.base.query_failures import QueryFailure, of_query
from headrace.operators.families.family import state_name
from headrace.operators.families.harvest import ScanOutput, gathered
from headrace.operators.scalar.evaluation.user_functions import registered
from headrace.runtime.backfill.pane_backfill import backfilled_panes
from headrace.runtime.home import file_names
from headrace.runtime.home.gc_control import MANY, no_cycles_sought
from headrace.runtime.home.reject_files import RejectWriter, read_refused
from headrace.runtime.home.run_cache import load_relation
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.exchange_blob import ScanBlob
from headrace.runtime.messages.task_messages import (
    PaneBackfill,
    RejectsFile,
    ScanMessage,
    ScanReceipt,
    Split,
)
from headrace.runtime.plan import union_streams
from headrace.runtime.plan.plan_files import load_plan
from headrace.runtime.plan.user_functions import callable_by_name
from headrace.runtime.tasks.scan.archive_writer import Archiving
from headrace.runtime.tasks.scan.column_pruning import columns_of, columns_read
from headrace.runtime.tasks.scan.deduplicate import encode_keys, max_event_time_of, open_keys
from headrace.runtime.tasks.scan.row_reader import arrivals
from headrace.runtime.tasks.scan.shed_rows import SampledRows
from headrace.runtime.tasks.scan.stream_monitor import Watch
from headrace.runtime.tasks.scan.stream_scan import StreamTask, Written
from headrace.runtime.tasks.scan.union_scan import Through
from headrace.runtime.tasks.timing import Timed, timed
from headrace.store.files.filesystem import LocalStore, Store
from headrace.store.files.shared_buffers import filtered
from headrace.store.logs.committed import KeysFile
from headrace.time import BEGINNING

MOST_BYTES: Final = (1 << 31) - 1
"""Of one state's delta: no blob of the exchange is larger, nor a column of text."""
_MANY_ROWS: Final = 1 << 13
"""Deltas of fewer rows are not measured."""


def run_scan(message: ScanMessage) -> Iterator[tuple[int, bytes]]:
    """Read the message's pieces; yield (state task, blob), one for each state task whatever was read."""
    store = LocalStore(message.root)
    with no_cycles_sought(len(message.operators) >= MANY):
        plan = load_plan(store, message.plan)
        task = _ScanTask(store, plan, message)
        started = time.perf_counter()
        with registered(callable_by_name(plan.functions)):
            for split in message.splits:
                task.read(split)
            read = time.perf_counter()
            folded = task.finish()
    seconds = {"scan": read - started, "fold": time.perf_counter() - read}
    yield from _blobs(message, replace(folded.receipt, seconds=seconds), folded)


@dataclass(frozen=True, slots=True)
class _Folded:
    """A task's rows after folding: the receipt (without times), deltas by section, rejected rows by operator."""

    receipt: ScanReceipt
    deltas: Mapping[str, pa.Table]
    rejected: Mapping[str, list[Rejected]]


class _ScanTask:
    def __init__(self, store: Store, plan: EpochPlan, message: ScanMessage) -> None:
        self._store, self._plan, self._message = store, plan, message
        self._streams: dict[str, StreamTask] = {}
        self._meetings: dict[str, list[Timed]] = {}
        self._read_by: dict[str, frozenset[str]] = {}
        self._fills: list[PaneBackfill] = []

    def read(self, split: Split) -> None:
        """Read one piece through its stream's part of the task."""
        if split.pane_backfill is not None:
            self._fills.append(split.pane_backfill)
            return
        stream = self._stream(split.stream)
        started = time.perf_counter_ns()
        self._read(split, stream)
        stream.nanoseconds += time.perf_counter_ns() - started

    def _read(self, split: Split, stream: StreamTask) -> None:
        if split.refused is not None:
            stream.refuse(read_refused(self._store, split.refused))
            return
        if split.record is not None and split.record.get("format") == PUNCTUATION:
            stream.watch.promised(split.record.get("promise", ALL), split.record["start"])
            return
        punctuation = stream.punctuation if split.before is None else split.before
        for arrival in arrivals(self._store, split, stream.definition, stream.columns, punctuation):
            stream.bytes += sum(column.nbytes for column in arrival.columns)
            stream.take(arrival, split, punctuation)

    def _stream(self, name: str) -> StreamTask:
        if name not in self._streams:
            self._streams[name] = self._open(name)
        return self._streams[name]

    def _open(self, name: str) -> StreamTask:
        definition, replay = self._plan.streams[name], self._message.replay
        operators = [self._plan.operators[each] for each in self._message.operators]
        mine = [operator for operator in operators if operator.stream == name]
        copies = definition.archive == "copy" and not replay
        message = self._message
        files = message.remembered.get(name, ())
        watch = Watch.of(
            definition, message.groups.get(name, {}), [open_keys(self._store, f) for f in files], replay
        )
        of_rows = [each for each in mine if self._plan.channels.get(each.id) != "rejects"]
        through = self._through(name)
        needed = frozenset().union(*(each.reads() for each in through))
        columns = columns_read(definition, of_rows, copies, watch.columns | needed)
        relations = {r: self._relation(r) for each in mine for r in each.relations}
        channels = {each.id: self._plan.channels.get(each.id, "rows") for each in mine}
        revising = {
            each.id: self._plan.revisions[each.id] for each in mine if each.id in self._plan.revisions
        }
        rows, late, rejects, kept = (
            timed(
                [e for e in mine if channels[e.id] == channel and e.id not in revising],
                relations,
                self._message.row_layout_states,
                self._message.separate,
            )
            for channel in ("rows", "late", "rejects", "kept")
        )
        wanted = frozenset().union(*(columns_of(each) for each in mine if channels[each.id] == "kept"))
        fields = [definition.schema.arrow().field(column) for column in columns]
        new_run = partial(file_names.archive_run, name, self._message.epoch, self._message.task)
        return StreamTask(
            definition,
            columns,
            self._message.punctuation.get(name, BEGINNING),
            rows,
            late,
            rejects,
            SampledRows.of(name, self._plan.sample_rate_of(name), kept, wanted),
            [
                (
                    within,
                    timed(
                        [each for each in mine if revising.get(each.id, -1) == within],
                        relations,
                        separate=self._message.separate,
                    ),
                )
                for within in dict.fromkeys(revising.values())
            ],
            through,
            Archiving(
                self._store, RunWriter(pa.schema(fields), definition.time, _blocks(definition)), new_run
            )
            if copies
            else None,
            watch,
            RejectWriter(),
        )

    def _through(self, name: str) -> list[Through]:
        """Those who read the stream with others as one; in a task they fold the rows of all of these."""
        found = []
        for meeting, number, member in union_streams.unions_with(self._plan.streams, name):
            if meeting not in self._meetings:
                operators = [self._plan.operators[each] for each in self._message.operators]
                mine = [operator for operator in operators if operator.stream == meeting]
                relations = {r: self._relation(r) for each in mine for r in each.relations}
                self._meetings[meeting] = timed(
                    mine, relations, self._message.row_layout_states, self._message.separate
                )
                self._read_by[meeting] = frozenset().union(*(columns_of(each) for each in mine))
            if self._meetings[meeting]:
                found.append(Through(member, number, self._meetings[meeting], self._read_by[meeting]))
        return found

    def _relation(self, name: str) -> pa.Table:
        """The version that was in force when the rows were first read, unless it has been given other columns since."""
        current = load_relation(self._store, self._plan.relations[name])
        file = self._message.relations.get(name)
        then = load_relation(self._store, file) if file is not None else current
        return then if then.schema == current.schema else current

    def finish(self) -> _Folded:
        """Write the archive and reject files; what the task's rows came to."""
        scan_output = ScanOutput()
        for stream in self._streams.values():
            scan_output.join(stream.scan_output())
        together = [scanner for scanners in self._meetings.values() for scanner in scanners]
        for scanner in together:
            scan_output.join(scanner.finish())
        for fill in self._fills:
            new_operator = self._plan.operators[fill.new_operator].over_panes
            assert new_operator is not None
            scan_output.add(new_operator, backfilled_panes(self._store, fill, new_operator))
        seen = {
            each: OperatorObservation(
                scanned.rows_in,
                scanned.rows_kept,
                scan_output.delta_rows[each],
                groups=scanned.groups,
                sparse_groups=scanned.sparse_groups,
            )
            for each, scanned in scan_output.scanned.items()
        }
        rejected = {
            each: list(scanned.rejected) for each, scanned in scan_output.scanned.items() if scanned.rejected
        }
        failures = {name: found for each in together for name, found in each.failures().items()}
        for stream in self._streams.values():
            failures |= stream.failures()
        deltas = self._deltas(scan_output, failures)
        written = {name: self._write(name, stream) for name, stream in self._streams.items()}
        streams = self._streams
        receipt = ScanReceipt(
            task=self._message.task,
            streams={name: stream.receipt(written[name]) for name, stream in streams.items()},
            operators=seen,
            work={name: each for stream in streams.values() for name, each in stream.work().items()}
            | {f"fold {each.representative}": each.seen() for each in together},
            failures=failures,
        )
        return _Folded(receipt, deltas, rejected)

    def _deltas(self, scan_output: ScanOutput, failures: dict[str, QueryFailure]) -> Mapping[str, pa.Table]:
        """The deltas by section; operators of a state that is more than can be sent are among the `failures` then."""
        found = {}
        for section, tables in scan_output.sections.items():
            try:
                found[section] = _within_capacity(gathered(tables))
            except Exception as failure:  # noqa: BLE001 - of whatever kind it is, it is that state's
                reason, state = of_query(failure), section.partition("/")[0]
                for name in self._message.operators:
                    if state_name(self._plan.operators[name]) == state:
                        failures[name] = QueryFailure(reason, name in self._message.separate)
        return found

    def _write(self, name: str, stream: StreamTask) -> Written:
        """Write what is to outlive the task of one stream: archive, rejects, keys that later rows may repeat."""
        keys = self._keys(name, stream)
        started = time.perf_counter_ns()
        archived = tuple(stream.archive.finish()) if stream.archive is not None else ()
        rejects: tuple[RejectsFile, ...] = ()
        if stream.rejects.rows and not self._message.replay:
            file = file_names.stream_rejects(name, self._message.epoch, self._message.task)
            self._store.write_once(file, [stream.rejects.encode()], durable=False)
            rejects = (RejectsFile(file, stream.rejects.rows),)
        stream.nanoseconds += time.perf_counter_ns() - started
        return Written(archived, rejects, keys)

    def _keys(self, name: str, stream: StreamTask) -> tuple[KeysFile, ...]:
        """The file of keys that later rows may repeat."""
        new_keys = stream.watch.new_keys(stream.punctuation)
        if new_keys is None:
            return ()
        keys, whole = new_keys
        file = file_names.repeat_keys(name, self._message.epoch, self._message.task)
        self._store.write_once(file, encode_keys(keys), durable=False)
        return (KeysFile(file, keys.num_rows, max_event_time_of(keys), whole),)


def _within_capacity(delta: pa.Table) -> pa.Table:
    """A delta that can be sent.

    Raises `MemoryError` for a greater one.
    """
    if delta.num_rows >= _MANY_ROWS and delta.nbytes > MOST_BYTES:
        raise MemoryError(f"its rows of one scan task take {delta.nbytes:,} bytes, more than {MOST_BYTES:,}")
    return delta


def _blobs(message: ScanMessage, receipt: ScanReceipt, folded: _Folded) -> Iterator[tuple[int, bytes]]:
    """One blob for each state task: its share of the deltas; the first also carries what queries rejected."""
    shares: list[dict[str, pa.Table]] = [{} for _ in message.owners]
    for section, table in folded.deltas.items():
        for owner, part in _split(table, message.owners):
            shares[owner][section] = part
    brief = replace(receipt, operators={}, work={})  # the first forwards what was measured of thousands
    for owner, share in enumerate(shares):
        rejected = folded.rejected if owner == 0 else {}
        yield owner, ScanBlob(receipt if owner == 0 else brief, rejected, share).pack()


def _split(table: pa.Table, owners: tuple[int, ...]) -> Iterator[tuple[int, pa.Table]]:
    """A delta's rows by the task that owns their slot, in their order."""
    if len(owners) == 1:
        yield 0, table
        return
    slots = ints(table, SLOT)
    owner = np.searchsorted(np.asarray(owners), slots, side="right") - 1
    for task in np.flatnonzero(np.bincount(owner, minlength=len(owners))).tolist():
        mine = owner == task
        yield task, table if mine.all() else filtered(table, pa.array(mine))


def _blocks(stream: StreamDefinition) -> Callable[[Ints], np.ndarray] | None:
    """What says each row's block of its run, for a stream that wants blocks."""
    if stream.blocks == 1:
        return None
    return partial(blocks_of, seed=seed_of(stream.name), blocks=stream.blocks)
