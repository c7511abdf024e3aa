"""Messages between the driver and its scan and state tasks: the work of each task, with its splits and runs, and the
receipt that it returns. They are small immutable values, pickled in flight and never stored.

A message has everything that a task needs and that is not data. Time, names of files and punctuations are arguments, so
that a task that runs twice does the same (decision D15).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

import pyarrow as pa

from headrace.adaptive.constraints.partner_delays import PartnerBound
from headrace.adaptive.filters.ordering import OrderInForce
from headrace.dataclass import dataclass
from headrace.observation import (
    CacheObservation,
    DelayObservation,
    FilterObservation,
    HeavyKey,
    OperatorObservation,
    ProbeObservation,
    WorkObservation,
)
from headrace.operators.base.query_failures import QueryFailure
from headrace.operators.joins.hot_keys.key_layouts import SplitKey
from headrace.operators.panes.damage import Damage
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.message import Message
from headrace.runtime.messages.stream_progress import Clock, SourceProgress, StreamProgress
from headrace.store.logs.committed import KeysFile
from headrace.store.logs.manifest import StateRun
from headrace.store.maintenance.retention_classes import PART
from headrace.time import BEGINNING, FOREVER, Duration, Instant


@dataclass(frozen=True, slots=True)
class PaneBackfill(Message):
    """Panes from `since` on that a new operator takes from the state of another.

    They are in the state runs `runs`, written when the source operator had emitted up to `emitted_to`.
    """

    source_operator: PaneAggregate
    new_operator: str
    since: Instant
    emitted_to: Instant
    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RejectsFile(Message):
    """Rejected rows of an epoch: all rows of a file, or those from row `part` on of one that several epochs share."""

    name: str
    rows: int
    part: int | None = None

    def as_entry(self, epoch: int) -> dict[str, Any]:
        """The entry of the list of rejects."""
        return {"epoch": epoch, "name": self.name, "rows": self.rows, PART: self.part}

    @staticmethod
    def of_entry(entry: Mapping[str, Any]) -> RejectsFile:
        """The inverse, without the epoch."""
        return RejectsFile(entry["name"], entry["rows"], entry.get(PART))


@dataclass(frozen=True, slots=True)
class Split(Message):
    """A unit of input of a scan task: an ingest record, or a run of the archive in a backfill, or some of its `row_groups`.

    With a `part` (k, n), where 0 ≤ k < n, the rows of a run are the k-th of n parts of about equal size.
    `refused` are rejected rows of a file, for operators that read a stream's rejects in a backfill; `pane_backfill` panes of another
    operator. `before` is the punctuation by which rows are late, where it is not the message's; `sample_rate` the share of
    rows that were not shed when they arrived, in a backfill; `shares` of operators for which they were chosen. With `repairs`, the rows are
    read of which others were shed. `made` are results that this epoch has made, not in a file yet.
    """

    stream: str
    ordinal: int
    record: Mapping[str, Any] | None = None
    archived: str | None = None
    row_groups: tuple[int, ...] | None = None
    part: tuple[int, int] = (0, 1)
    before: Instant | None = None
    refused: RejectsFile | None = None
    pane_backfill: PaneBackfill | None = None
    sample_rate: float | None = None
    shares: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    made: pa.Table | None = None
    repairs: bool = False


@dataclass(frozen=True, slots=True)
class Participants(Message):
    """The operators that take part: those `named`, and with `followers` all of the plan but the `absent`.

    Thousands that follow their streams are not named.
    """

    named: frozenset[str] = frozenset()
    followers: bool = False
    absent: frozenset[str] = frozenset()

    def __contains__(self, operator: object) -> bool:
        return operator in self.named or (self.followers and operator not in self.absent)

    def without(self, operators: Iterable[str]) -> Participants:
        """The others."""
        left_out = frozenset(operators)
        return Participants(self.named - left_out, self.followers, self.absent | left_out)

    def of(self, operators: Iterable[str]) -> tuple[str, ...]:
        """Those of the operators that take part, in their order."""
        return tuple(operator for operator in operators if operator in self)


@dataclass(frozen=True, slots=True)
class Origin(Message):
    """Progress when an epoch began, of what is not computed from others: punctuations by stream, and by operator."""

    streams: Mapping[str, Instant] = field(default_factory=dict)
    operators: Mapping[str, Instant] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScanMessage(Message):
    """The work of one scan task. `owners[i]` is the first slot of state task i; `relations` are files other than the plan's."""

    root: str
    plan: str
    epoch: int
    task: int
    splits: tuple[Split, ...]
    punctuation: Mapping[str, Instant]
    owners: tuple[int, ...]
    operators: Participants
    replay: bool = False
    relations: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, Instant]] = field(default_factory=dict)
    """Stream → punctuations of single groups, below which rows are late too."""
    remembered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Stream → files of keys, for the elimination of repeated rows."""
    row_layout_states: frozenset[str] = frozenset()
    """States that store small groups as rows, by the manifest before the epoch."""
    isolated: frozenset[str] = frozenset()
    """As in `EpochWork`."""
    weight: int = 0
    """An estimate of the rows of the epoch, in all of its scan tasks."""
    filter_orders: Mapping[str, OrderInForce] = field(default_factory=dict)
    """Conjunction → the order of its terms, by the manifest before the epoch."""
    shares: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Operator → the shares of its rows that it sees, as chosen by the manifest before the epoch; others see all."""
    doubled_errors: Mapping[str, int] = field(default_factory=dict)
    """Operator → how often the error of its synopses is doubled, by the same manifest."""
    split_keys: Mapping[str, tuple[SplitKey, ...]] = field(default_factory=dict)
    """Join → its keys with layouts of their own, by the manifest before the epoch."""
    archive_bytes: int | None = None
    """What the task's archive writers may buffer; None: a few batches, and two files."""
    synced: bool = True
    """Whether durable files are synced: not those of a temporary home."""
    archives: bool = True
    """Whether rows are archived: not where no query will read them again."""
    rehearsed: tuple[str, ...] = ()
    """Streams whose conditions the task compiles for later tasks of its process; it reads no row."""


@dataclass(frozen=True, slots=True)
class RunRef(Message):
    """A state run: file name, the slots [low, high) it holds, and the epoch it was written in."""

    name: str
    low: int
    high: int
    level: int
    bytes: int
    epoch: int = 0

    @staticmethod
    def of(run: StateRun) -> RunRef:
        """The reference to a committed run."""
        return RunRef(run.name, run.low_slot, run.high_slot, run.level, run.bytes, run.epoch)


@dataclass(frozen=True, slots=True)
class UpperLevels(Message):
    """The levels of queries over queries that state tasks run in the same execution, as they are all in one process.

    `count` of them. `results`: how long the list of results was when the epoch began; `owners`, `row_layout_states` and
    `filter_orders` as in `ScanMessage`.
    """

    count: int
    results: int
    owners: tuple[int, ...]
    row_layout_states: frozenset[str] = frozenset()
    filter_orders: Mapping[str, OrderInForce] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StateMessage(Message):
    """The work of one state task: its slots [low, high), its runs, and the progress of operators.

    `emitted_to` has operators that take part; with `followers` all others do too that are not `resting`, each having emitted
    up to the punctuation of its stream. `punctuation` fixes an operator's new punctuation (backfill, final); without it the
    streams' progress decides. `resting` are paused or backfilling: a merge must keep their state. `streams` may lack streams
    that follow others.
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
    """Operator → groups whose results were emitted beyond the stream's punctuation."""
    provisionally_emitted_to: Mapping[str, Instant] = field(default_factory=dict)
    """Operator → instant up to which a provisional end has emitted its windows."""
    live: frozenset[str] | None = None
    """Names of the state runs of all tasks: a worker closes the others. None: not known."""
    isolated: frozenset[str] = frozenset()
    """As in `EpochWork`."""
    followers: bool = False
    level: int = 0
    """The round of the epoch: streams up to this level advance, and the others are where they were when the epoch began."""
    origin: Origin | None = None
    """Progress when the epoch began; None: as in the message."""
    moved: tuple[str, ...] = ()
    """Streams whose readers are visited in any case."""
    execution: str = ""
    after: str = ""
    """This execution, and the one before it whose receipts count: see `Agenda`."""
    upper: UpperLevels | None = None
    """None: a round of the epoch has one level."""
    key_shares: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Join → the shares of keys that it joins and stores, by the manifest before the epoch; joins of all keys are left out."""
    rewrites: bool = False
    """Whether runs that have slots of several tasks are divided: not while the number of tasks changes back and forth."""
    join_orders: Mapping[str, OrderInForce] = field(default_factory=dict)
    """Side of a join → the order in which its new rows probe the others, by the manifest before the epoch."""
    join_caches: Mapping[str, Mapping[int, tuple[int, ...]]] = field(default_factory=dict)
    """Join → the sides whose new rows look up a cache, each with the sides of which it has the combinations, by the same manifest."""
    partner_bounds: Mapping[str, tuple[PartnerBound, ...]] = field(default_factory=dict)
    """Join that finds constraints → the bounds by which it drops rows, by the same manifest."""

    damage: Mapping[str, Damage] = field(default_factory=dict)
    """Operator → where its answers are from samples, around this epoch; of all others they are exact."""
    doubled_errors: Mapping[str, int] = field(default_factory=dict)
    """As in `ScanMessage`."""
    split_keys: Mapping[str, tuple[SplitKey, ...]] = field(default_factory=dict)
    """As in `ScanMessage`."""
    synced: bool = True
    """As in `ScanMessage`."""

    @property
    def participants(self) -> Participants:
        """The operators that take part."""
        return Participants(frozenset(self.emitted_to), self.followers, frozenset(self.resting))


@dataclass(frozen=True, slots=True)
class StreamReceipt(Message):
    """Counts, progress and files of the rows of one stream that scan tasks have read.

    `rejected` counts rows in `rejects`. `greatest` is the greatest event time of accepted rows, `latest` of late ones too.
    `shed`: accepted rows that queries WITH SHEDDING did not see.
    `slack_needed`: how far the latest row was below the punctuation, in microseconds. `least`: the least event time, of a stream
    with queries WITH SHEDDING. `data_punctuation`: the punctuation that
    rows or programs gave. `sources` and `groups` as in `StreamProgress`. `archived`: files of the archive. `keys`: files of
    keys, for the elimination of repeated rows; `repeated` counts rows that were eliminated.
    """

    rows: int = 0
    late: int = 0
    rejected: int = 0
    shed: int = 0
    repeated: int = 0
    bytes: int = 0
    slack_needed: Duration = 0
    greatest: Instant = BEGINNING
    latest: Instant = BEGINNING
    least: Instant = FOREVER
    data_punctuation: Instant = BEGINNING
    sources: Mapping[str, SourceProgress] = field(default_factory=dict)
    groups: Mapping[str, Instant] = field(default_factory=dict)
    archived: tuple[str, ...] = ()
    rejects: tuple[RejectsFile, ...] = ()
    keys: tuple[KeysFile, ...] = ()

    def plus(self, later: StreamReceipt, slack_rows: int) -> StreamReceipt:
        """The receipt with the rows of a later task; `slack_rows` is the stream's SLACK in rows."""
        sources = {**self.sources}
        for source, progress in later.sources.items():
            sources[source] = sources.get(source, SourceProgress()).then(progress, slack_rows)
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
            latest=max(self.latest, later.latest),
            least=min(self.least, later.least),
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
class ScanReceipt(Message):
    """The result of a scan task: by stream what it read, by operator what it made, and the time that took."""

    task: int
    streams: Mapping[str, StreamReceipt] = field(default_factory=dict)
    operators: Mapping[str, OperatorObservation] = field(default_factory=dict)
    work: Mapping[str, WorkObservation] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    failures: Mapping[str, QueryFailure] = field(default_factory=dict)
    """Operators that failed on the task's rows."""
    filters: Mapping[str, FilterObservation] = field(default_factory=dict)
    """Conjunction → what was observed of its terms."""
    arrived: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Operator whose share of the rows is chosen → rows that arrived for it, by interval of importance."""
    buffered: int = 0
    """The most bytes that its archive writers have held at a time: rows, and files that were not written yet."""


def stream_receipts(scans: Iterable[ScanReceipt], plan: EpochPlan) -> dict[str, StreamReceipt]:
    """Receipts by stream, added over all scan tasks in the order of rows: tasks take the splits of a stream in order."""
    added: dict[str, StreamReceipt] = {}
    for scan in sorted(scans, key=lambda scan: scan.task):
        for name, receipt in scan.streams.items():
            slack_rows = plan.streams[name].progress.behind or 0
            added[name] = added[name].plus(receipt, slack_rows) if name in added else receipt
    return added


@dataclass(frozen=True, slots=True)
class ResultsFile(Message):
    """A run of results; `facts` are those of its queries as JSON values, see `result_entry`.

    `number`: its place among those of a process's state tasks, in the order in which they got results. `content`: the bytes of a
    small one, so that followers in the driver's process do not open it.
    """

    name: str
    retention: str
    facts: Mapping[str, Any]
    number: int = 0
    content: bytes = b""

    def as_entry(self, epoch: int) -> dict[str, Any]:
        """The entry of the results list."""
        return {"epoch": epoch, "name": self.name, "class": self.retention, **self.facts}


@dataclass(frozen=True, slots=True)
class StateReceipt(Message):
    """The result of a state task: files it wrote, runs it replaced, and what was measured.

    `results` has a file for each class of retention.
    """

    task: int
    runs: tuple[RunRef, ...] = ()
    """Those it wrote, oldest rows first."""
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
    """Operators with too many windows to emit in one epoch → instant to stop at; if there are any, nothing was written."""
    failures: Mapping[str, QueryFailure] = field(default_factory=dict)
    """Operators that failed, here or in a scan task; if there are any, nothing was written."""
    due: Mapping[Clock, Instant] = field(default_factory=dict)
    """Clock → the punctuation from which an operator is due without new rows."""
    joins: Mapping[str, ProbeObservation] = field(default_factory=dict)
    """Side of a join → what was observed of its probes."""
    caches: Mapping[str, CacheObservation] = field(default_factory=dict)
    """Side of a join → what was observed of its cache, or without one."""
    delays: Mapping[str, DelayObservation] = field(default_factory=dict)
    """Join of windows → the delays between rows that it joined."""
    heavy: Mapping[str, tuple[HeavyKey, ...]] = field(default_factory=dict)
    """Join of windows → the keys with much of its work, if there are any."""
