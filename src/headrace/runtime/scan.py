"""The scan task: read, archive first, then give every operator its rows; deltas leave as one blob for each state task.

The order matters: a row is in the archive, with its fate, before any query sees it (architecture, section 6).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from headrace.archive.blocks import blocks_of, seed_of
from headrace.archive.runs import Ints, RunWriter
from headrace.catalog.definitions import StreamDefinition
from headrace.observation import OperatorObservation, WorkObservation
from headrace.operators.batch import Batch, Rejected
from headrace.operators.family import Harvest, gathered
from headrace.operators.grouping import ints
from headrace.operators.operator import SLOT
from headrace.operators.scalar.users import registered
from headrace.runtime import names, several
from headrace.runtime.archiving import Archiving
from headrace.runtime.blobs import ScanBlob
from headrace.runtime.collector import MANY, no_cycles_sought
from headrace.runtime.columns_needed import columns_of, columns_read
from headrace.runtime.filling import filled
from headrace.runtime.functions import callable_by_name
from headrace.runtime.measuring import Timed, timed
from headrace.runtime.messages import (
    EpochPlan,
    Fill,
    Piece,
    RejectsFile,
    ScanMessage,
    ScanReceipt,
    StreamReceipt,
)
from headrace.runtime.plan_files import load_plan
from headrace.runtime.plans import load_relation
from headrace.runtime.reading import Arrival, arrivals
from headrace.runtime.rejects import RejectWriter, read_refused
from headrace.runtime.repeats import encode_keys, greatest_of, open_keys
from headrace.runtime.several import Through
from headrace.runtime.shedding import KeptRows
from headrace.runtime.sources.records import ALL, PUNCTUATION
from headrace.runtime.watch import Watch
from headrace.store.committed import KeysFile
from headrace.store.filesystem import LocalStore, Store
from headrace.store.shared_columns import filtered
from headrace.time import BEGINNING, FOREVER, Duration, Instant


def run_scan(message: ScanMessage) -> Iterator[tuple[int, bytes]]:
    """Read the message's pieces; yield (state task, blob), one for each state task whatever was read."""
    store = LocalStore(message.root)
    with no_cycles_sought(len(message.operators) >= MANY):
        plan = load_plan(store, message.plan)
        task = _ScanTask(store, plan, message)
        started = time.perf_counter()
        with registered(callable_by_name(plan.functions)):
            for piece in message.pieces:
                task.read(piece)
            read = time.perf_counter()
            folded = task.finish()
    seconds = {"scan": read - started, "fold": time.perf_counter() - read}
    yield from _blobs(message, replace(folded.receipt, seconds=seconds), folded)


@dataclass(frozen=True, slots=True)
class _Written:
    """Files that a task has written of one stream."""

    archived: tuple[str, ...]
    rejects: tuple[RejectsFile, ...]
    keys: tuple[KeysFile, ...]


@dataclass(slots=True)
class _StreamTask:
    """One stream's share of a scan task."""

    definition: StreamDefinition
    columns: tuple[str, ...]
    punctuation: Instant
    scanners: list[Timed]
    late_scanners: list[Timed]
    reject_scanners: list[Timed]
    kept: KeptRows
    revising: list[tuple[Duration | None, list[Timed]]]
    through: list[Through]
    """To those who read the stream with others as one; what they make of it is the whole task's."""
    archive: Archiving | None
    watch: Watch
    rejects: RejectWriter
    rows: int = 0
    late: int = 0
    deepest: int = 0
    greatest: Instant = BEGINNING
    bytes: int = 0
    nanoseconds: int = 0
    """Of everything about the stream: reading, judging, archiving, and what the scanners take."""

    def take(self, arrival: Arrival, piece: Piece, punctuation: Instant) -> None:
        """Archive a batch, then offer its accepted rows to every operator; `punctuation` was in force when it came."""
        arrival = self.watch.judge(self.columns, arrival)
        self.refuse(arrival.rejects)
        if not len(arrival.at):
            return
        if self.archive is not None:
            self.archive.add(arrival.columns, arrival.at, arrival.position, arrival.late)
        self.rows += len(arrival.at)
        self.greatest = max(self.greatest, int(arrival.at.max()))
        batch = Batch(dict(zip(self.columns, arrival.columns, strict=True)), arrival.at, arrival.position)
        self.watch.see(batch, None if piece.record is None else piece.record.get("uri"))
        if arrival.late is not None:
            self.late += int(arrival.late.sum())
            self.deepest = max(self.deepest, self.punctuation - int(arrival.at.min()))
            _offer(self.late_scanners, batch.where(arrival.late))
            for within, scanners in self.revising:
                known = arrival.at >= _reach(punctuation, within)
                _offer(scanners, batch.where(~arrival.late | known))
            batch = batch.where(~arrival.late)
        else:
            for _, scanners in self.revising:
                _offer(scanners, batch)
        _offer(self.scanners, batch)
        _offer(self.through, batch)
        self.kept.add(batch, piece.keep)

    def refuse(self, rejects: list[tuple[int, str, str]]) -> None:
        """Keep rejected rows, and offer them to queries over the rejects."""
        self.rejects.add(rejects)
        if rejects and self.reject_scanners:
            position, text, reason = zip(*rejects, strict=True)
            places = np.asarray(position, np.int64)
            texts = {"text": pa.array(text, pa.string()), "reason": pa.array(reason, pa.string())}
            columns = {"position": pa.array(places), **texts}
            _offer(self.reject_scanners, Batch(columns, np.zeros(len(places), np.int64), places))

    def harvest(self) -> Harvest:
        """What the scanners of every channel made of the rows."""
        started = time.perf_counter_ns()
        self.kept.flush()
        self.nanoseconds += time.perf_counter_ns() - started
        found = Harvest()
        for scanner in self._every:
            found.join(scanner.finish())
        return found

    def receipt(self, written: _Written) -> StreamReceipt:
        """What the task did with the stream's rows; `written` are its files."""
        return StreamReceipt(
            rows=self.rows,
            late=self.late,
            rejected=self.rejects.rows,
            shed=self.kept.shed,
            repeated=self.watch.repeated,
            bytes=self.bytes,
            slack_needed=self.deepest if self.late else 0,
            greatest=self.greatest,
            marked=self.watch.marked,
            sources=self.watch.sources,
            groups=self.watch.groups,
            archived=written.archived,
            rejects=written.rejects,
            keys=written.keys,
        )

    def work(self) -> dict[str, WorkObservation]:
        """What reading the stream, and each fold of its rows, came to."""
        folds = [(f"fold {each.folding.representative}", each.seen()) for each in self._every]
        reading = self.nanoseconds - sum(each.adding for each in self._every)
        reading -= sum(each.adding for each in self.through)
        read = WorkObservation(self.rows + self.rejects.rows, self.rows - self.late, reading)
        return {f"read {self.definition.name}": read, **dict(folds)}

    @property
    def _every(self) -> list[Timed]:
        revising = [scanner for _, scanners in self.revising for scanner in scanners]
        return [
            *self.scanners,
            *self.late_scanners,
            *self.reject_scanners,
            *self.kept.readers,
            *revising,
        ]


def _reach(punctuation: Instant, within: Duration | None) -> Instant:
    """The least event time of a late row that may still revise an answer; after a stream's end there is none."""
    if punctuation == FOREVER:
        return FOREVER
    return BEGINNING if within is None else punctuation - within


def _offer(scanners: Sequence[Timed | Through], batch: Batch) -> None:
    if batch.rows:
        for scanner in scanners:
            scanner.add(batch)


@dataclass(frozen=True, slots=True)
class _Folded:
    """A task's rows after folding: the receipt (without times), deltas by section, rejected rows by operator."""

    receipt: ScanReceipt
    deltas: Mapping[str, pa.Table]
    rejected: Mapping[str, list[Rejected]]


class _ScanTask:
    def __init__(self, store: Store, plan: EpochPlan, message: ScanMessage) -> None:
        self._store, self._plan, self._message = store, plan, message
        self._streams: dict[str, _StreamTask] = {}
        self._meetings: dict[str, list[Timed]] = {}
        self._read_by: dict[str, frozenset[str]] = {}
        self._fills: list[Fill] = []

    def read(self, piece: Piece) -> None:
        """Read one piece through its stream's part of the task."""
        if piece.fill is not None:
            self._fills.append(piece.fill)
            return
        stream = self._stream(piece.stream)
        started = time.perf_counter_ns()
        self._read(piece, stream)
        stream.nanoseconds += time.perf_counter_ns() - started

    def _read(self, piece: Piece, stream: _StreamTask) -> None:
        if piece.refused is not None:
            stream.refuse(read_refused(self._store, piece.refused))
            return
        if piece.record is not None and piece.record.get("format") == PUNCTUATION:
            stream.watch.promised(piece.record.get("promise", ALL), piece.record["start"])
            return
        punctuation = stream.punctuation if piece.before is None else piece.before
        for arrival in arrivals(self._store, piece, stream.definition, stream.columns, punctuation):
            stream.bytes += sum(column.nbytes for column in arrival.columns)
            stream.take(arrival, piece, punctuation)

    def _stream(self, name: str) -> _StreamTask:
        if name not in self._streams:
            self._streams[name] = self._open(name)
        return self._streams[name]

    def _open(self, name: str) -> _StreamTask:
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
                self._message.adapting,
            )
            for channel in ("rows", "late", "rejects", "kept")
        )
        wanted = frozenset().union(*(columns_of(each) for each in mine if channels[each.id] == "kept"))
        fields = [definition.schema.arrow().field(column) for column in columns]
        new_run = partial(names.archive_run, name, self._message.epoch, self._message.task)
        return _StreamTask(
            definition,
            columns,
            self._message.punctuation.get(name, BEGINNING),
            rows,
            late,
            rejects,
            KeptRows.of(name, self._plan.keep_of(name), kept, wanted),
            [
                (within, timed([each for each in mine if revising.get(each.id, -1) == within], relations))
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
        for meeting, number, member in several.meetings_with(self._plan.streams, name):
            if meeting not in self._meetings:
                operators = [self._plan.operators[each] for each in self._message.operators]
                mine = [operator for operator in operators if operator.stream == meeting]
                relations = {r: self._relation(r) for each in mine for r in each.relations}
                self._meetings[meeting] = timed(mine, relations, self._message.adapting)
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
        harvest = Harvest()
        for stream in self._streams.values():
            harvest.join(stream.harvest())
        together = [scanner for scanners in self._meetings.values() for scanner in scanners]
        for scanner in together:
            harvest.join(scanner.finish())
        for fill in self._fills:
            taker = self._plan.operators[fill.taker].over_panes
            assert taker is not None
            harvest.add(taker, filled(self._store, fill, taker))
        seen = {
            each: OperatorObservation(
                scanned.rows_in,
                scanned.rows_kept,
                harvest.delta_rows[each],
                groups=scanned.groups,
                few=scanned.few,
            )
            for each, scanned in harvest.scanned.items()
        }
        rejected = {
            each: list(scanned.rejected) for each, scanned in harvest.scanned.items() if scanned.rejected
        }
        written = {name: self._write(name, stream) for name, stream in self._streams.items()}
        streams = self._streams
        receipt = ScanReceipt(
            task=self._message.task,
            streams={name: stream.receipt(written[name]) for name, stream in streams.items()},
            operators=seen,
            work={name: each for stream in streams.values() for name, each in stream.work().items()}
            | {f"fold {each.folding.representative}": each.seen() for each in together},
        )
        deltas = {section: gathered(tables) for section, tables in harvest.sections.items()}
        return _Folded(receipt, deltas, rejected)

    def _write(self, name: str, stream: _StreamTask) -> _Written:
        """Write what is to outlive the task of one stream: archive, rejects, keys that later rows may repeat."""
        keys = self._keys(name, stream)
        started = time.perf_counter_ns()
        archived = tuple(stream.archive.finish()) if stream.archive is not None else ()
        rejects: tuple[RejectsFile, ...] = ()
        if stream.rejects.rows and not self._message.replay:
            file = names.stream_rejects(name, self._message.epoch, self._message.task)
            self._store.write_once(file, [stream.rejects.encode()], durable=False)
            rejects = (RejectsFile(file, stream.rejects.rows),)
        stream.nanoseconds += time.perf_counter_ns() - started
        return _Written(archived, rejects, keys)

    def _keys(self, name: str, stream: _StreamTask) -> tuple[KeysFile, ...]:
        """The file of keys that later rows may repeat."""
        new_keys = stream.watch.new_keys(stream.punctuation)
        if new_keys is None:
            return ()
        keys, whole = new_keys
        file = names.repeat_keys(name, self._message.epoch, self._message.task)
        self._store.write_once(file, encode_keys(keys), durable=False)
        return (KeysFile(file, keys.num_rows, greatest_of(keys), whole),)


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
