"""The scan task: it reads rows, archives them, then folds them for every operator into one blob of deltas for each state task.

A row is in the archive, with its fate, before any query reads it (architecture, section 6).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.archive.blocks import seed_of
from headrace.archive.runs import RunWriter
from headrace.catalog.definitions import StreamDefinition
from headrace.connectors.records.ingest_record import ALL, PUNCTUATION
from headrace.dataclass import dataclass
from headrace.observation import OperatorObservation
from headrace.operators.base.batch import Rejected
from headrace.operators.base.group_codes import SLOTS, ints
from headrace.operators.base.operator import SLOT, Operator
from headrace.operators.base.query_failures import QueryFailure, of_query
from headrace.operators.families.scan_output import ScanOutput, gathered
from headrace.operators.joins.hot_keys.routing import dividing
from headrace.operators.rows.filter_profiles import profiling
from headrace.operators.scalar.evaluation.user_functions import registered
from headrace.runtime.backfill.pane_backfill import backfilled_panes
from headrace.runtime.home import file_names
from headrace.runtime.home.block_draws import blocks_of_runs, draws_of
from headrace.runtime.home.gc_control import MANY, collector_disabled
from headrace.runtime.home.reject_files import RejectWriter, read_refused
from headrace.runtime.home.run_cache import load_relation
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.exchange_blob import ScanBlob
from headrace.runtime.messages.operator_observations import OperatorObservations
from headrace.runtime.messages.task_messages import (
    PaneBackfill,
    RejectsFile,
    ScanMessage,
    ScanReceipt,
    Split,
)
from headrace.runtime.plan.plan_files import plan_in_force
from headrace.runtime.plan.user_functions import callable_by_name
from headrace.runtime.progress.plan_index import index_of
from headrace.runtime.tasks.file_writes import AT_ONCE, FileWrites
from headrace.runtime.tasks.scan.alternative_rows import AlternativeRows
from headrace.runtime.tasks.scan.archive_writer import Archiving
from headrace.runtime.tasks.scan.deduplicate import encode_keys, max_event_time_of, open_keys
from headrace.runtime.tasks.scan.groups.results_scan import ResultsScan, added
from headrace.runtime.tasks.scan.read_ahead import read_ahead
from headrace.runtime.tasks.scan.row_reader import Arrival, arrivals
from headrace.runtime.tasks.scan.shed_rows import Part, SampledRows, Samples
from headrace.runtime.tasks.scan.stream_monitor import Watch
from headrace.runtime.tasks.scan.stream_readers import StreamReaders, columns_of
from headrace.runtime.tasks.scan.stream_scan import StreamTask, Written
from headrace.runtime.tasks.scan.union_scan import UnionFeed
from headrace.runtime.tasks.timing import Timed, timed
from headrace.store.files.filesystem import LocalStore, Store
from headrace.store.files.shared_buffers import filtered
from headrace.store.logs.committed import KeysFile
from headrace.time import BEGINNING

MOST_BYTES: Final = (1 << 31) - 1
"""The size limit of one state's delta, as of a blob of the exchange and of a column of text."""
_LARGE_CHUNKS: Final = 1 << 16
"""Rows of the chunks of a delta on average, from which it is divided chunk by chunk."""
_MANY_ROWS: Final = 1 << 13
"""Deltas of fewer rows are not measured."""


def scan_blobs(message: ScanMessage, writes: FileWrites = AT_ONCE) -> Iterator[tuple[int, ScanBlob]]:
    """Read the message's splits; yield (state task, blob) for each state task, also without rows."""
    store = LocalStore.at(message.root, synced=message.synced)
    with collector_disabled(message.operators.followers or len(message.operators.named) >= MANY):
        plan = plan_in_force(store, message.plan, message.doubled_errors)
        task = _ScanTask(store, plan, message, writes)
        started = time.perf_counter()
        users, orders = callable_by_name(plan.functions), message.filter_orders
        profiling_terms = profiling(orders, time.perf_counter_ns)
        with registered(users), dividing(message.split_keys), profiling_terms as profiles:
            task.rehearse(message.rehearsed)
            task.read(message.splits)
            read = time.perf_counter()
            folded = task.finish()
    seconds = {"scan": read - started, "fold": time.perf_counter() - read}
    receipt = replace(folded.receipt, seconds=seconds, filters=profiles.observed())
    yield from _blobs(message, receipt, folded)


@dataclass(frozen=True, slots=True)
class _Folded:
    """A task's rows after folding: the receipt (without times), deltas by section, rejected rows by operator."""

    receipt: ScanReceipt
    deltas: Mapping[str, pa.Table]
    rejected: Mapping[str, list[Rejected]]


_Arrived: TypeAlias = tuple[Split, StreamTask, Arrival | None]
"""A batch of a split, and its stream."""


def _rows(arrived: _Arrived) -> int:
    arrival = arrived[2]
    return 0 if arrival is None else arrival.rows


def _is_promise(split: Split) -> bool:
    return split.record is not None and split.record.get("format") == PUNCTUATION


class _ScanTask:
    def __init__(self, store: Store, plan: EpochPlan, message: ScanMessage, writes: FileWrites) -> None:
        self._store, self._plan, self._message, self._writes = store, plan, message, writes
        self._index = index_of(plan)
        self._streams: dict[str, StreamTask] = {}
        self._unions: dict[str, list[Timed]] = {}
        self._read_by: dict[str, frozenset[str]] = {}
        self._fills: list[PaneBackfill] = []
        self._results = ResultsScan(self._index, message)

    def rehearse(self, streams: Iterable[str]) -> None:
        """Compile the conditions of the readers of accepted rows, which this process then has for later tasks."""
        for name in streams:
            readers = StreamReaders.of(self._plan, self._readers(name))
            relations = {relation: self._relation(relation) for relation in readers.relations}
            timed(readers.accepted, relations, self._message.row_layout_states, self._message.isolated)

    def read(self, splits: Sequence[Split]) -> None:
        """Read splits in their order."""
        self._fills += [split.pane_backfill for split in splits if split.pane_backfill is not None]
        splits = self._results.read(splits)
        reading = [
            (split, self._stream(split.stream))  # all are open before one is read ahead
            for split in splits
            if split.pane_backfill is None
        ]
        started = time.perf_counter_ns()
        with closing(read_ahead(self._arrivals(reading), _rows)) as arrived:
            for split, stream, arrival in arrived:
                if arrival is None:
                    self._take_over(split, stream)
                else:
                    stream.bytes += sum(column.nbytes for column in arrival.columns)
                    stream.take(arrival, split, stream.punctuation_of(split))
                now = time.perf_counter_ns()
                stream.nanoseconds, started = stream.nanoseconds + now - started, now

    def _arrivals(self, reading: Sequence[tuple[Split, StreamTask]]) -> Iterator[_Arrived]:
        """The batches of splits; None, once, for a split that has no rows of its own."""
        for split, stream in reading:
            if split.refused is not None or _is_promise(split):
                yield split, stream, None
                continue
            bound = stream.punctuation_of(split)
            columns, reads_times = stream.columns, stream.reads_times
            for arrival in arrivals(self._store, split, stream.definition, columns, bound, reads_times):
                yield split, stream, arrival

    def _take_over(self, split: Split, stream: StreamTask) -> None:
        """Rejects that a backfill reads again, or a promise."""
        if split.refused is not None:
            file = split.refused
            stream.refuse(read_refused(self._store, file.name, file.part, file.rows))
        elif split.record is not None:
            stream.watch.promised(split.record.get("promise", ALL), split.record["start"])

    def _stream(self, name: str) -> StreamTask:
        if name not in self._streams:
            self._streams[name] = self._open(name)
        return self._streams[name]

    def _open(self, name: str) -> StreamTask:
        definition = self._plan.streams[name]
        has_rows = any(split.stream == name and not _is_promise(split) for split in self._message.splits)
        readers = StreamReaders.of(self._plan, self._readers(name) if has_rows else ())
        unions, watch = self._feeds_of(name) if has_rows else [], self._watch(definition)
        columns = readers.columns(
            definition,
            archived=self._is_copied(definition),
            also=watch.columns | frozenset().union(*(union.reads() for union in unions)),
        )
        relations = {relation: self._relation(relation) for relation in readers.relations}
        rows, late, rejects = (
            timed(operators, relations, self._message.row_layout_states, self._message.isolated)
            for operators in (readers.accepted, readers.late, readers.rejected)
        )
        samples, others = self._samples(name, readers.sampled, relations), (unions, readers.revising)
        are_read = watch.reads_times or samples.parts or any(others)
        return StreamTask(
            definition,
            columns,
            self._message.punctuation.get(name, BEGINNING),
            rows,
            late,
            rejects,
            samples,
            [
                (within, timed(operators, relations, isolated=self._message.isolated))
                for within, operators in readers.revising.items()
            ],
            unions,
            self._archiving(definition),
            watch,
            RejectWriter(),
            None if are_read else readers.time_panes,
        )

    def _samples(
        self, stream: str, readers: Sequence[Operator], relations: Mapping[str, pa.Table]
    ) -> Samples:
        """One sample for all readers that see the same share, and one for each whose share is chosen for it."""
        qualities, layouts = self._plan.qualities, self._message.row_layout_states
        rate, isolated = self._plan.sample_rate_of(stream), self._message.isolated
        chosen = {
            operator.id: operator
            for operator in readers
            if operator.id in qualities and qualities[operator.id].is_flexible
        }
        others = [operator for operator in readers if operator.id not in chosen]
        parts: list[Part] = [
            AlternativeRows(
                timed([operator], relations, layouts, isolated),
                columns_of(operator),
                seed_of(stream),
                name,
                self._message.shares.get(name, (1.0,)),
                rate if qualities[name].loss is not None else None,
            )
            if qualities[name].sketches is not None
            else SampledRows(
                timed([operator], relations, layouts, isolated),
                columns_of(operator),
                seed_of(stream),
                rate,
                name,
                qualities[name].importance,
                self._message.shares.get(name, (1.0,)),
                repairs=name in self._plan.repairing,
            )
            for name, operator in chosen.items()
        ]
        repairing = self._plan.repairing.keys()
        for repairs in (False, True):
            reading = [operator for operator in others if (operator.id in repairing) == repairs]
            if reading:
                columns = frozenset().union(*map(columns_of, reading))
                scanners = timed(reading, relations, layouts, isolated)
                parts.append(SampledRows.of(stream, rate, scanners, columns, repairs=repairs))
        return Samples(parts)

    def _readers(self, stream: str) -> Sequence[Operator]:
        """The operators of a stream that take part."""
        readers, taking_part = self._index.readers.get(stream, ()), self._message.operators
        if taking_part.followers and not taking_part.absent:
            return readers
        return [operator for operator in readers if operator.id in taking_part]

    def _is_copied(self, definition: StreamDefinition) -> bool:
        """Whether the task copies the stream's rows to the archive."""
        return definition.archive == "copy" and not self._message.replay

    def _watch(self, definition: StreamDefinition) -> Watch:
        files = self._message.remembered.get(definition.name, ())
        return Watch.of(
            definition,
            self._message.groups.get(definition.name, {}),
            [open_keys(self._store, file) for file in files],
            self._message.replay,
        )

    def _archiving(self, definition: StreamDefinition) -> Archiving | None:
        """What archives the stream's rows, which then have all of its columns; None where they are not archived."""
        if not (self._message.archives and self._is_copied(definition)):
            return None
        new_run = partial(file_names.archive_run, definition.name, self._message.epoch, self._message.task)
        most = self._message.archive_bytes
        if most is not None:
            most //= max(1, len({split.stream for split in self._message.splits}))
        writer = RunWriter(
            definition.schema.arrow(),
            definition.time,
            blocks_of_runs(definition),
            most_bytes=None if most is None else most // 4,
        )
        names = definition.schema.names
        return Archiving(
            self._store,
            writer,
            new_run,
            lambda batch, position: draws_of(definition, lambda name: batch[names.index(name)], position),
            most,
            self._writes,
        )

    def _feeds_of(self, name: str) -> list[UnionFeed]:
        """The unions that have the stream as input; the scan groups of a union fold the rows of all its inputs."""
        feeds = self._results.feeds(name)
        for union, number, union_input in self._index.unions_with.get(name, ()):
            if self._results.reads(union):
                continue
            if union not in self._unions:
                readers = self._readers(union)
                relations = {r: self._relation(r) for operator in readers for r in operator.relations}
                self._unions[union] = timed(
                    readers, relations, self._message.row_layout_states, self._message.isolated
                )
                self._read_by[union] = frozenset().union(*(columns_of(operator) for operator in readers))
            if self._unions[union]:
                feeds.append(UnionFeed(union_input, number, self._unions[union], self._read_by[union]))
        return feeds

    def _relation(self, name: str) -> pa.Table:
        """The version with which the rows were first read, or the current one if its columns differ."""
        current = load_relation(self._store, self._plan.relations[name])
        file = self._message.relations.get(name)
        then = load_relation(self._store, file) if file is not None else current
        return then if then.schema == current.schema else current

    def finish(self) -> _Folded:
        """Write the archive and reject files; returns the receipt and the deltas."""
        scan_output = ScanOutput()
        for stream in self._streams.values():
            scan_output.join(stream.scan_output())
        of_unions = [scanner for scanners in self._unions.values() for scanner in scanners]
        of_unions += self._results.scanners
        for scanner in of_unions:
            scan_output.join(scanner.finish())
        failures = self._take_over_panes(scan_output)
        observations = _observed(scan_output)
        rejected = {
            operator: list(scanned.rejected)
            for operator, scanned in scan_output.scanned.items()
            if scanned.rejected
        }
        for scanner in of_unions:
            failures |= scanner.failures()
        for stream in self._streams.values():
            failures |= stream.failures()
        deltas = self._deltas(scan_output, failures)
        written = {name: self._write(name, stream) for name, stream in self._streams.items()}
        streams = self._streams
        receipt = ScanReceipt(
            task=self._message.task,
            streams=added(
                self._results.receipts,
                {name: stream.receipt(written[name]) for name, stream in streams.items()},
            ),
            operators=OperatorObservations.of(observations),
            work=self._results.work
            | {name: seen for stream in streams.values() for name, seen in stream.work().items()}
            | {f"fold {scanner.representative}": scanner.seen() for scanner in of_unions},
            failures=failures,
            arrived={
                name: rows for stream in streams.values() for name, rows in stream.sampled.arrived.items()
            },
            buffered=sum(
                stream.archive.held.most for stream in streams.values() if stream.archive is not None
            ),
        )
        return _Folded(receipt, deltas, rejected)

    def _take_over_panes(self, scan_output: ScanOutput) -> dict[str, QueryFailure]:
        """Add the panes of other operators; returns the operators that cannot take them over, each by itself."""
        failures = {}
        for fill in self._fills:
            new_operator = self._plan.operators[fill.new_operator].over_panes
            assert new_operator is not None
            try:
                scan_output.add(new_operator, backfilled_panes(self._store, fill, new_operator))
            except Exception as failure:  # noqa: BLE001 - of any kind: it is that operator's
                failures[fill.new_operator] = QueryFailure(of_query(failure))
        return failures

    def _deltas(self, scan_output: ScanOutput, failures: dict[str, QueryFailure]) -> Mapping[str, pa.Table]:
        """The deltas by section; the operators of a state too large to send are added to `failures`."""
        deltas = {}
        for section, tables in scan_output.sections.items():
            try:
                deltas[section] = _within_capacity(gathered(tables))
            except Exception as failure:  # noqa: BLE001 - of any kind: it is that state's
                reason, state = of_query(failure), section.partition("/")[0]
                for operator in self._index.by_state.get(state, ()):
                    if operator.id in self._message.operators:
                        failures[operator.id] = QueryFailure(reason, operator.id in self._message.isolated)
        return deltas

    def _write(self, name: str, stream: StreamTask) -> Written:
        """Write the archive, the rejects and the keys of one stream."""
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


def _observed(scan_output: ScanOutput) -> dict[str, OperatorObservation]:
    """By operator; one for all that a scan group has given the same record, such as thousands that got no rows."""
    observations: dict[str, OperatorObservation] = {}
    shared: dict[tuple[int, int], OperatorObservation] = {}
    for operator, scanned in scan_output.scanned.items():
        key = id(scanned), scan_output.delta_rows[operator]
        if key not in shared:
            shared[key] = OperatorObservation(
                scanned.rows_in,
                scanned.rows_kept,
                key[1],
                groups=scanned.groups,
                sparse_groups=scanned.sparse_groups,
            )
        observations[operator] = shared[key]
    return observations


def _within_capacity(delta: pa.Table) -> pa.Table:
    """A delta that can be sent.

    Raises `MemoryError` for a greater one.
    """
    if delta.num_rows >= _MANY_ROWS and delta.nbytes > MOST_BYTES:
        raise MemoryError(f"its rows of one scan task take {delta.nbytes:,} bytes, more than {MOST_BYTES:,}")
    return delta


def _blobs(message: ScanMessage, receipt: ScanReceipt, folded: _Folded) -> Iterator[tuple[int, ScanBlob]]:
    """One blob for each state task: its share of the deltas; the first also has the rejected rows of queries."""
    shares: list[dict[str, pa.Table]] = [{} for _ in message.owners]
    for section, table in folded.deltas.items():
        for owner, part in _split(table, message.owners):
            shares[owner][section] = part
    yield 0, ScanBlob(receipt, folded.rejected, shares[0])
    if len(shares) > 1:  # the measurements of thousands of operators are in the first blob only
        brief = replace(receipt, operators={}, work={}, filters={}, arrived={})
        for owner, share in enumerate(shares[1:], 1):
            yield owner, ScanBlob(brief, {}, share)


def _split(table: pa.Table, owners: tuple[int, ...]) -> Iterator[tuple[int, pa.Table]]:
    """A delta's rows by the task that owns their slot, in their order."""
    if len(owners) == 1:
        yield 0, table
        return
    owner_of_slot = np.searchsorted(np.asarray(owners), np.arange(SLOTS), side="right") - 1
    shares: dict[int, list[pa.Table]] = {}
    for part in _parts(table):
        slots = ints(part, SLOT)
        low, high = owner_of_slot[slots.min()], owner_of_slot[slots.max()]
        if low == high:
            shares.setdefault(int(low), []).append(part)
            continue
        owner = owner_of_slot[slots]
        for task in np.flatnonzero(np.bincount(owner, minlength=len(owners))).tolist():
            shares.setdefault(task, []).append(filtered(part, pa.array(owner == task)))
    for task, parts in sorted(shares.items()):
        yield task, parts[0] if len(parts) == 1 else pa.concat_tables(parts)


def _parts(table: pa.Table) -> Iterator[pa.Table]:
    """A table of large chunks by chunk, as each may be of one task; nothing of an empty one."""
    if not table.num_rows:
        return
    if table.num_rows < _LARGE_CHUNKS * table.column(SLOT).num_chunks:
        yield table
        return
    for batch in table.to_batches():
        if batch.num_rows:
            yield pa.Table.from_batches([batch])
