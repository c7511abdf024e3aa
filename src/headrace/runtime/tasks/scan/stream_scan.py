"""One stream's share of a scan task: each batch is archived, and passed to the scan groups of operators that read its
accepted, late, rejected or sampled rows; then deltas, counts and measurements are collected for the receipt.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.catalog.definitions import StreamDefinition
from headrace.dataclass import dataclass
from headrace.observation import WorkObservation
from headrace.operators.base.batch import Batch
from headrace.operators.base.query_failures import QueryFailure
from headrace.operators.families.scan_output import ScanOutput
from headrace.operators.panes.panes import Panes
from headrace.runtime.home.reject_files import RejectWriter
from headrace.runtime.messages.task_messages import RejectsFile, Split, StreamReceipt
from headrace.runtime.tasks.scan.archive_writer import Archiving
from headrace.runtime.tasks.scan.row_reader import Arrival
from headrace.runtime.tasks.scan.shed_rows import Samples
from headrace.runtime.tasks.scan.stream_monitor import Watch
from headrace.runtime.tasks.scan.union_scan import UnionFeed
from headrace.runtime.tasks.timing import Timed
from headrace.store.logs.committed import KeysFile
from headrace.time import BEGINNING, FOREVER, Duration, Instant


@dataclass(frozen=True, slots=True)
class Written:
    """Files that a task has written of one stream."""

    archived: tuple[str, ...]
    rejects: tuple[RejectsFile, ...]
    keys: tuple[KeysFile, ...]


@dataclass(slots=True)
class StreamTask:
    """One stream's share of a scan task."""

    definition: StreamDefinition
    columns: tuple[str, ...]
    punctuation: Instant
    scanners: list[Timed]
    late_scanners: list[Timed]
    reject_scanners: list[Timed]
    sampled: Samples
    revising: list[tuple[Duration | None, list[Timed]]]
    unions: list[UnionFeed]
    """The unions that have the stream as input; their scan groups belong to the whole task."""
    archive: Archiving | None
    watch: Watch
    rejects: RejectWriter
    time_panes: Sequence[Panes] | None = None
    """The panes of event times that all readers of its rows go by; None where one reads the times themselves."""
    rows: int = 0
    late: int = 0
    deepest: int = 0
    greatest: Instant = BEGINNING
    """Of accepted rows: late ones are in no answer, so that they do not move NOW."""
    latest: Instant = BEGINNING
    """Of all rows."""
    least: Instant = FOREVER
    bytes: int = 0
    nanoseconds: int = 0
    """Time of the stream: reading, archiving and scanning."""

    def punctuation_of(self, split: Split) -> Instant:
        """The punctuation below which the split's rows are late."""
        return self.punctuation if split.before is None else split.before

    def reads_times(self, low: Instant, high: Instant) -> bool:
        """Whether the event time of each row between two instants is read; else it suffices that they are in one pane."""
        panes = self.time_panes
        return panes is None or any(comb.of_instant(low) != comb.of_instant(high) for comb in panes)

    def take(self, arrival: Arrival, split: Split, punctuation: Instant) -> None:
        """Archive a batch, then pass its accepted rows to every operator; `punctuation` is that of the batch's epoch."""
        arrival = self.watch.judge(self.columns, arrival)
        self.refuse(arrival.rejects)
        if not arrival.rows:
            return
        if self.archive is not None:
            self.archive.add(arrival.columns, arrival.at, arrival.position, arrival.late)
        self.rows += arrival.rows
        self.latest = max(self.latest, arrival.times.bounds[1])
        if arrival.late is None:
            self.greatest = max(self.greatest, arrival.times.bounds[1])
        elif not arrival.late.all():
            self.greatest = max(self.greatest, int(arrival.at[~arrival.late].max()))
        if self.sampled.parts:
            self.least = min(self.least, arrival.times.bounds[0])
        batch = Batch(dict(zip(self.columns, arrival.columns, strict=True)), arrival.times, arrival.position)
        self.watch.see(batch, None if split.record is None else split.record.get("uri"))
        if arrival.late is not None:
            self.late += int(arrival.late.sum())
            self.deepest = max(self.deepest, self.punctuation - int(arrival.at.min()))
            _offer(self.late_scanners, batch.where(arrival.late))
            for within, scanners in self.revising:
                is_in_time = arrival.at >= _revision_horizon(punctuation, within)
                _offer(scanners, batch.where(~arrival.late | is_in_time))
            batch = batch.where(~arrival.late)
        else:
            for _, scanners in self.revising:
                _offer(scanners, batch)
        _offer(self.scanners, batch)
        _offer(self.unions, batch)
        self.sampled.add(batch, split)

    def refuse(self, rejects: list[tuple[int, str, str]]) -> None:
        """Store rejected rows, and pass them to queries over the rejects."""
        self.rejects.add(rejects)
        if rejects and self.reject_scanners:
            position, text, reason = zip(*rejects, strict=True)
            positions = np.asarray(position, np.int64)
            texts = {"text": pa.array(text, pa.string()), "reason": pa.array(reason, pa.string())}
            columns = {"position": pa.array(positions), **texts}
            _offer(self.reject_scanners, Batch(columns, np.zeros(len(positions), np.int64), positions))

    def scan_output(self) -> ScanOutput:
        """The output of the scanners of every channel."""
        started = time.perf_counter_ns()
        self.sampled.flush()
        self.nanoseconds += time.perf_counter_ns() - started
        output = ScanOutput()
        for scanner in self._every:
            output.join(scanner.finish())
        return output

    def failures(self) -> dict[str, QueryFailure]:
        """Operators that failed on the stream's rows."""
        return {name: failure for scanner in self._every for name, failure in scanner.failures().items()}

    def receipt(self, written: Written) -> StreamReceipt:
        """Counts and progress of the stream's rows in the task; `written` are its files."""
        return StreamReceipt(
            rows=self.rows,
            late=self.late,
            rejected=self.rejects.rows,
            shed=self.sampled.shed,
            repeated=self.watch.repeated,
            bytes=self.bytes,
            slack_needed=self.deepest if self.late else 0,
            greatest=self.greatest,
            latest=self.latest,
            least=self.least,
            data_punctuation=self.watch.data_punctuation,
            sources=self.watch.sources,
            groups=self.watch.groups,
            archived=written.archived,
            rejects=written.rejects,
            keys=written.keys,
        )

    def work(self) -> dict[str, WorkObservation]:
        """Measurements of reading the stream, and of each fold of its rows."""
        folds = [(f"fold {scanner.representative}", scanner.seen()) for scanner in self._every]
        reading = self.nanoseconds - sum(scanner.adding for scanner in self._every)
        reading -= sum(union.adding for union in self.unions)
        read = WorkObservation(self.rows + self.rejects.rows, self.rows - self.late, reading)
        return {f"read {self.definition.name}": read, **dict(folds)}

    @property
    def _every(self) -> list[Timed]:
        revising = [scanner for _, scanners in self.revising for scanner in scanners]
        return [
            *self.scanners,
            *self.late_scanners,
            *self.reject_scanners,
            *self.sampled.readers,
            *revising,
        ]


def _revision_horizon(punctuation: Instant, within: Duration | None) -> Instant:
    """The least event time of a late row that may still revise a result; after a stream's end `FOREVER`."""
    if punctuation == FOREVER:
        return FOREVER
    return BEGINNING if within is None else punctuation - within


def _offer(scanners: Sequence[Timed | UnionFeed], batch: Batch) -> None:
    if batch.rows:
        for scanner in scanners:
            scanner.add(batch)
