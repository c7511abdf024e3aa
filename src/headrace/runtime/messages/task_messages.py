"""What travels between the driver and its tasks: small immutable values, pickled in flight and never at rest.

Everything a task needs that is not data is here; time, names of files and punctuations are arguments, so that a task run
twice does the same (decision D15).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.observation import OperatorObservation, WorkObservation
from headrace.operators.base.query_failures import QueryFailure
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.result_entry import as_entry
from headrace.runtime.messages.stream_progress import SourceProgress, StreamProgress
from headrace.store.logs.committed import KeysFile
from headrace.store.logs.manifest import StateRun
from headrace.time import BEGINNING, Duration, Instant


@dataclass(frozen=True, slots=True)
class PaneBackfill:
    """Panes that one operator holds for another one that has seen nothing: those from `since` on.

    They lie in state runs of these names, written while the donor had answered up to `closed`.
    """

    source_operator: PaneAggregate
    new_operator: str
    since: Instant
    emitted_to: Instant
    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """Something a scan task reads: an ingest record, or a run of the archive when the past is read again.

    `refused` is a file of rejects, for operators that read a stream's rejects over the past; `fill` another's panes.
    `before` is the punctuation by which lateness is judged when it differs from the message's, `keep` the share of its rows
    that was kept when they came, where the past is read again.
    """

    stream: str
    ordinal: int
    record: Mapping[str, Any] | None = None
    archived: str | None = None
    before: Instant | None = None
    refused: str | None = None
    pane_backfill: PaneBackfill | None = None
    sample_rate: float | None = None


@dataclass(frozen=True, slots=True)
class ScanMessage:
    """One scan task's orders. `owners[i]` is the first slot of state task i; `relations` are files other than the plan's."""

    root: str
    plan: str
    epoch: int
    task: int
    splits: tuple[Split, ...]
    punctuation: Mapping[str, Instant]
    owners: tuple[int, ...]
    operators: tuple[str, ...]
    replay: bool = False
    relations: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, Instant]] = field(default_factory=dict)
    """Stream → punctuations of single groups, by which lateness is judged too."""
    remembered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Stream → files of the keys of rows that a later one may repeat."""
    row_layout_states: frozenset[str] = frozenset()
    """States in which groups of few rows lie as these, as the manifest before the epoch says."""
    separate: frozenset[str] = frozenset()
    """As in `EpochWork`."""


@dataclass(frozen=True, slots=True)
class RunRef:
    """A state run: file name, the slots [low, high) it holds, and the epoch it was written in."""

    name: str
    low: int
    high: int
    level: int
    bytes: int
    epoch: int = 0

    @staticmethod
    def of(run: StateRun) -> RunRef:
        """What a task is told of a committed run."""
        return RunRef(run.name, run.low_slot, run.high_slot, run.level, run.bytes, run.epoch)


@dataclass(frozen=True, slots=True)
class StateMessage:
    """One state task's orders: its slots [low, high), its runs, and where each operator stands.

    `closed` has the operators that take part. `now` fixes an operator's new punctuation (replay, final); without it the
    streams' progress decides. `resting` are the others, paused or behind: their state must outlive a merge.
    """

    root: str
    plan: str
    epoch: int
    task: int
    low: int
    high: int
    runs: tuple[RunRef, ...]
    streams: Mapping[str, StreamProgress]
    emitted_to: Mapping[str, Instant]
    punctuation: Mapping[str, Instant] = field(default_factory=dict)
    final: bool = False
    resting: Mapping[str, Instant] = field(default_factory=dict)
    group_punctuations: Mapping[str, Mapping[str, Instant]] = field(default_factory=dict)
    """Operator → groups it has answered further than the stream."""
    provisionally_emitted_to: Mapping[str, Instant] = field(default_factory=dict)
    """Operator → up to where a provisional end has told its windows already."""
    live: frozenset[str] | None = None
    """Names of the state runs of all tasks: a worker closes others that it has open. None: it does not say."""
    separate: frozenset[str] = frozenset()
    """As in `EpochWork`."""


@dataclass(frozen=True, slots=True)
class RejectsFile:
    """A file of rejected rows."""

    name: str
    rows: int

    def as_entry(self, epoch: int) -> dict[str, Any]:
        """The entry of the list of rejects."""
        return {"epoch": epoch, "name": self.name, "rows": self.rows}


@dataclass(frozen=True, slots=True)
class StreamReceipt:
    """What scan tasks did with the rows of one stream.

    `rejected` counts rows that `rejects` holds. `shed`: accepted rows that queries WITH SHEDDING were not shown.
    `slack_needed`: how far the latest row was below the punctuation, in microseconds. `marked`: the punctuation that rows
    or programs gave. `sources` and `groups` as in `StreamProgress`. `archived`: files of the archive. `keys`: files of keys
    that later rows may repeat; `repeated` counts rows that repeated one.
    """

    rows: int = 0
    late: int = 0
    rejected: int = 0
    shed: int = 0
    repeated: int = 0
    bytes: int = 0
    slack_needed: Duration = 0
    greatest: Instant = BEGINNING
    data_punctuation: Instant = BEGINNING
    sources: Mapping[str, SourceProgress] = field(default_factory=dict)
    groups: Mapping[str, Instant] = field(default_factory=dict)
    archived: tuple[str, ...] = ()
    rejects: tuple[RejectsFile, ...] = ()
    keys: tuple[KeysFile, ...] = ()

    def plus(self, later: StreamReceipt, behind: int) -> StreamReceipt:
        """With the rows of a later task; `behind` is the stream's SLACK in rows."""
        sources = {**self.sources}
        for source, mark in later.sources.items():
            sources[source] = sources.get(source, SourceProgress()).then(mark, behind)
        groups = {**self.groups}
        for group, at in later.groups.items():
            groups[group] = max(at, groups.get(group, BEGINNING))
        return StreamReceipt(
            rows=self.rows + later.rows,
            late=self.late + later.late,
            rejected=self.rejected + later.rejected,
            shed=self.shed + later.shed,
            repeated=self.repeated + later.repeated,
            bytes=self.bytes + later.bytes,
            slack_needed=max(self.slack_needed, later.slack_needed),
            greatest=max(self.greatest, later.greatest),
            data_punctuation=max(self.data_punctuation, later.data_punctuation),
            sources=sources,
            groups=groups,
            archived=self.archived + later.archived,
            rejects=self.rejects + later.rejects,
            keys=self.keys + later.keys,
        )

    @property
    def files(self) -> tuple[str, ...]:
        """Every file it names."""
        return (*self.archived, *(file.name for file in self.rejects), *(file.name for file in self.keys))


@dataclass(frozen=True, slots=True)
class ScanReceipt:
    """What a scan task did: what it read of each stream, what it made for each operator, and what that took."""

    task: int
    streams: Mapping[str, StreamReceipt] = field(default_factory=dict)
    operators: Mapping[str, OperatorObservation] = field(default_factory=dict)
    work: Mapping[str, WorkObservation] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    failures: Mapping[str, QueryFailure] = field(default_factory=dict)
    """Operators that could not take the task's rows."""


def stream_receipts(scans: Iterable[ScanReceipt], plan: EpochPlan) -> dict[str, StreamReceipt]:
    """What all scan tasks did with each stream they read. Tasks take a stream's pieces in order, so tasks in order are rows in order."""
    added: dict[str, StreamReceipt] = {}
    for scan in sorted(scans, key=lambda scan: scan.task):
        for name, receipt in scan.streams.items():
            behind = plan.streams[name].progress.behind or 0
            added[name] = added[name].plus(receipt, behind) if name in added else receipt
    return added


@dataclass(frozen=True, slots=True)
class ResultsFile:
    """A run of results; `queries` maps an operator to (rows, least emission instant, greatest emission instant)."""

    name: str
    retention: str
    queries: Mapping[str, tuple[int, int, int]]

    def as_entry(self, epoch: int) -> dict[str, Any]:
        """The entry of the results list."""
        return {"epoch": epoch, "name": self.name, "class": self.retention, **as_entry(self.queries)}


@dataclass(frozen=True, slots=True)
class StateReceipt:
    """What a state task did: files it wrote, runs it replaced, and what was measured.

    `results` has a file for each class of retention.
    """

    task: int
    run: RunRef | None = None
    replaced: tuple[str, ...] = ()
    results: tuple[ResultsFile, ...] = ()
    rejects: Mapping[str, RejectsFile] = field(default_factory=dict)
    """Operator → the rows on which its expressions failed."""
    scans: tuple[ScanReceipt, ...] = ()
    operators: Mapping[str, OperatorObservation] = field(default_factory=dict)
    work: Mapping[str, WorkObservation] = field(default_factory=dict)
    punctuation: Mapping[str, Instant] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    emission_limits: Mapping[str, Instant] = field(default_factory=dict)
    """Operators with too much to tell for one epoch, and how far to go in it; when there are any, nothing else was done."""
    failures: Mapping[str, QueryFailure] = field(default_factory=dict)
    """Operators that could not do their part, here or in a scan task; when there are any, nothing of the rest counts."""
