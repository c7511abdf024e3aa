"""Collection of files that nothing needs any more, while epochs run.

- Every `Housekeeping.every` epochs what these epochs have made garbage (`retired_names`), old manifests and ingest chunks: at
  the cost of that garbage. While the loop runs, in a thread; else between two epochs.
- At every start, and in the thread once in a `grace`, all files that no live manifest names: of attempts that failed.

Besides the files of manifests and logs a full collection keeps those of the plan in force, and micro-batches that Spark has
written and that are not in the ingest log yet: the next start logs them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Final

from headrace.catalog.folded_log import FoldedLog
from headrace.connectors.sources.segment_files import batch_name, batches_written
from headrace.dataclass import dataclass
from headrace.runtime.home.background_write import beneath_epochs, give_way
from headrace.runtime.home.file_names import segments
from headrace.runtime.home.home import Home
from headrace.runtime.ingest.ingest_queue import Intake
from headrace.store.logs.manifest import SUMMARISED, Manifest, ManifestLog
from headrace.store.logs.record_log import INGEST_LOG, QUERY_LOG, RecordLog
from headrace.store.maintenance.garbage_collection import (
    DATA_FOLDERS,
    Collected,
    LiveNames,
    collect,
)
from headrace.store.maintenance.retired_names import retired
from headrace.time import HOUR, MINUTE, Clock, Duration, Instant

GRACE: Final = HOUR
"""Unnamed files younger than this may be of a running attempt."""
READERS: Final = MINUTE
"""Files are retained for so long after the last manifest that names them: a reader in another process may be opening them."""
BY_CONTENT: Final = ("functions", "plans")
"""Folders of files that are named by their content: a new plan may name an old file again at any moment."""


@dataclass(frozen=True, slots=True)
class _Retired:
    """Names that manifests from `epoch` on do not have any more, published at `at`."""

    epoch: int
    at: Instant
    names: frozenset[str]


@dataclass(slots=True)
class Housekeeping:
    """Collects the garbage of one home. It may keep too much; it never removes a file that is needed."""

    home: Home
    intake: Intake
    clock: Clock
    every: int = 64
    grace: Duration = GRACE
    readers: Duration = READERS
    _live: LiveNames = field(init=False)
    _steps: deque[tuple[Manifest, Manifest, frozenset[str], Instant]] = field(
        init=False, default_factory=deque
    )
    """Each epoch since the last collection: the manifests before and after it, what it left behind, and when it was published."""
    _retired: deque[_Retired] = field(init=False, default_factory=deque)
    _plan: tuple[str, ...] = ()
    """The files of the last plan that was published."""
    _former_plans: deque[_Retired] = field(init=False, default_factory=deque)
    """Files of plans before it that this process has published."""
    _dropped: int = field(init=False, default=0)
    """The records of the query log before which this process has dropped all."""
    _swept: Instant = field(init=False, default=0)
    _is_background: bool = field(init=False, default=False)
    _thread: threading.Thread | None = field(init=False, default=None)
    _failure: BaseException | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._live = LiveNames(self.home.store)

    def published(self, before: Manifest, after: Manifest, superseded: Collection[str] = ()) -> None:
        """Note an epoch; `superseded` are files that one of its rounds wrote and a later one replaced."""
        self._steps.append((before, after, frozenset(superseded), self.clock()))

    def follow_plan(self, epoch: int, plan: tuple[str, ...]) -> None:
        """Note the files of the plan of an epoch that is published."""
        if plan != self._plan:
            self._former_plans.append(_Retired(epoch, self.clock(), frozenset(self._plan)))
            self._plan = plan

    def collect_if_due(self, plan: Collection[str]) -> None:
        """Collect when enough epochs have passed; `plan` are the files of the plan in force.

        Raises the error of the last collection in the thread.
        """
        if len(self._steps) < self.every or (self._thread is not None and self._thread.is_alive()):
            return
        self._delete_former_plans()
        if not self._is_background:
            self.collect_retired()
            return
        self._raise_failure()
        self._thread = threading.Thread(target=self._run, name="headrace-collection", args=(tuple(plan),))
        self._thread.start()

    @property
    def is_background(self) -> bool:
        """Whether the loop runs, and work in threads of its own is done."""
        return self._is_background

    @contextmanager
    def in_background(self) -> Iterator[None]:
        """Within it collections have a thread of their own; the last one has ended on exit."""
        self._is_background = True
        try:
            yield
        finally:
            self._is_background = False
            if self._thread is not None:
                self._thread.join()
        self._raise_failure()

    def _run(self, plan: Collection[str]) -> None:
        try:
            with beneath_epochs():
                self.collect_retired()
            if self.clock() - self._swept > self.grace:
                self._sweep(plan, [folder for folder in DATA_FOLDERS if folder not in BY_CONTENT])
        except BaseException as failure:  # noqa: BLE001 - raised by the next one
            self._failure = failure

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def collect(self, plan: Collection[str]) -> Collected:
        """Remove all files that are old enough and not needed; `plan` are the files of the plan in force."""
        self._steps.clear()
        self._retired.clear()
        self._former_plans.clear()
        self._drop_ingest_records()
        self._drop_statements()
        return self._sweep(plan, DATA_FOLDERS)

    def collect_retired(self) -> tuple[str, ...]:
        """Remove what the epochs since the last collection have made garbage; the deleted names."""
        store, log, now = self.home.store, ManifestLog(self.home.store), self.clock()
        for _ in range(len(self._steps)):
            before, after, superseded, at = self._steps.popleft()
            names = retired(before, after, store.read, store.root)
            self._retired.append(_Retired(after.epoch, at, superseded | names))
            give_way()
        self._drop_ingest_records()
        latest = self.home.latest()
        log.drop_old(latest.epoch)
        self._drop_statements()
        oldest = min(log.epochs(), default=latest.epoch)
        unneeded: list[str] = []
        while self._retired and self._retired[0].epoch <= oldest and self._is_over(self._retired[0], now):
            unneeded += self._retired.popleft().names
        unneeded += self.intake.unneeded_segments(latest.ingest, now - self.grace)
        return tuple(name for name in unneeded if self._delete(name))

    def _delete_former_plans(self) -> None:
        """Delete what only plans of dropped manifests have. Between two epochs: a new plan may name a file of a former one again."""
        former, now = self._former_plans, self.clock()
        oldest = min(ManifestLog(self.home.store).epochs(), default=0) if former else 0
        while former and former[0].epoch <= oldest and self._is_over(former[0], now):
            names = former.popleft().names
            for name in names.difference(self._plan, *(later.names for later in former)):
                self.home.store.delete(name)

    def _delete(self, name: str) -> bool:
        """Delete a file; whether it was there."""
        give_way()
        return self.home.store.delete(name)

    def _is_over(self, names: _Retired, now: Instant) -> bool:
        return now - names.at > self.readers

    def _drop_ingest_records(self) -> None:
        summarised = self.home.latest().facts.get(SUMMARISED)
        if summarised is not None:
            RecordLog(self.home.store, INGEST_LOG).drop_before(summarised["upto"])

    def _drop_statements(self) -> None:
        """Delete what the newest snapshot of the query log has, once all retained manifests have applied it."""
        snapshot_at = self.home.snapshot_at
        if self._dropped < snapshot_at <= self._oldest_statements():
            RecordLog(self.home.store, QUERY_LOG).drop_before(snapshot_at)
            self._dropped = snapshot_at

    def _oldest_statements(self) -> int:
        """The records of the query log that the oldest manifest has applied."""
        retained = ManifestLog(self.home.store).retained()
        return min((manifest.querylog for manifest in retained), default=0)

    def _sweep(self, plan: Collection[str], folders: Collection[str]) -> Collected:
        self._swept = self.clock()
        return collect(
            self.home.store,
            ManifestLog(self.home.store),
            now=self._swept,
            grace=self.grace,
            also={*plan, *self._unrecorded()},
            superseded=self._superseded_relations(),
            live=self._live,
            folders=folders,
        )

    def _superseded_relations(self) -> set[str]:
        """Versions of relations that were replaced before the oldest manifest. An archive may still name them.

        An append that is in the log several times counts once, as in the catalog.
        """
        log, superseded = RecordLog(self.home.store, QUERY_LOG), set[str]()
        first = log.oldest_snapshot() if log.start else None
        before = FoldedLog() if first is None else FoldedLog.from_json(first.snapshot)
        files = {name: stored.file for name, stored in before.catalog.relations.items()}
        appends, oldest = set(before.appends), self._oldest_statements()
        for chunk in log.chunks(before.catalog.position):
            if chunk.append in appends:
                continue
            appends |= set() if chunk.append is None else {chunk.append}
            for entry in chunk.records[: max(0, oldest - chunk.first)]:
                if entry["do"] == "put_relation":
                    name = entry["relation"]["name"].lower()
                    superseded |= {files[name]} if name in files else set()
                    files[name] = entry["file"]
                elif entry["do"] == "drop" and entry["kind"] == "relation":
                    superseded.add(files.pop(entry["name"].lower()))
        return superseded - {relation.file for relation in self.home.catalog.relations.values()}

    def _unrecorded(self) -> Iterator[str]:
        """Segments of micro-batches above the last one that is in the ingest log."""
        for stream in self.home.catalog.streams.values():
            folder = segments(stream.name)
            for batch in batches_written(Path(self.home.store.root) / folder):
                if batch > self.intake.last_batch(stream.name):
                    yield f"{folder}/{batch_name(batch)}"
