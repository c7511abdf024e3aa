"""The engine, the one writer of a home: it logs and plans changes of the catalog, chooses the work of the next epoch (live
input, a chunk of a backfill, windows left to emit), has it run, and publishes its manifest.

An epoch takes the next ingest records, also while they are logged, and the newest plan, runs one job, and publishes one manifest. Nothing
counts before that, which is atomic: a kill leaves the home of the previous epoch. A backfill reads the archive.
"""

from __future__ import annotations

import threading
import time as stopwatch
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import field, replace
from functools import partial
from typing import Any, Final

from headrace.catalog.folded_log import BORN
from headrace.connectors.records.ingest_record import SourceChanged
from headrace.connectors.records.options import FILES
from headrace.dataclass import dataclass
from headrace.errors import EpochFailed, StoreError, outcome_unless_known
from headrace.observation import EpochObservation
from headrace.runtime.backfill.backfill_scheduler import Chunk, Position, ReplaySchedule
from headrace.runtime.backfill.former_states import under_current_names
from headrace.runtime.backfill.pane_backfill import BackfillPlanner
from headrace.runtime.backfill.replay import Archives, Records
from headrace.runtime.epoch import commit
from headrace.runtime.epoch.executor import Executor
from headrace.runtime.epoch.garbage_collection import Housekeeping
from headrace.runtime.epoch.observe import observe
from headrace.runtime.epoch.retention import Retention
from headrace.runtime.epoch.rounds import Epoch, Rounds
from headrace.runtime.epoch.task_orders import state_messages
from headrace.runtime.home.home import Home
from headrace.runtime.ingest import derived_input
from headrace.runtime.ingest.admission import Admission, Pending
from headrace.runtime.ingest.appends import Append, NotLogged
from headrace.runtime.ingest.ingest_queue import Intake
from headrace.runtime.ingest.live_input import LiveInput
from headrace.runtime.ingest.system_streams.system_feed import SystemFeed
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.epoch_work import EpochWork
from headrace.runtime.messages.task_messages import Participants
from headrace.runtime.plan import derived_streams
from headrace.runtime.plan.adaptive.overload_control import FinishedEpoch, decided, rows_by_turns
from headrace.runtime.plan.epoch_planner import Replanned, make_plan, plan_after
from headrace.runtime.plan.plan_files import NO_PLAN, SavedPlan, is_readable, save_plan
from headrace.runtime.plan.stale_statements import adds_query, refuse_if_idle, refuse_if_overtaken
from headrace.runtime.progress.emission_backlog import BacklogSchedule, emission_backlog
from headrace.runtime.progress.group_progress import has_unheard_promises
from headrace.runtime.progress.participants import backfilling
from headrace.runtime.progress.plan_index import index_of
from headrace.runtime.reduction.vacuuming import Vacuuming
from headrace.runtime.results.merging import Merging
from headrace.runtime.samples.archive_files import ArchiveFiles
from headrace.runtime.tasks.state import provisional_results
from headrace.store.logs.manifest import Manifest
from headrace.store.maintenance.garbage_collection import Collected
from headrace.time import FOREVER, Clock, Instant

_APPENDS: Final = 4  # attempts to plan and append entries while other writers append before them


@dataclass(slots=True)
class Engine:
    """Runs the epochs of a home. Not thread-safe: one thread steps, others use the hub. Only `log_ahead` may run during an epoch."""

    home: Home
    executor: Executor
    clock: Clock
    tasks: int = 2
    admission: Admission = field(default_factory=Admission)
    manifest: Manifest = field(init=False)
    published: Manifest = field(init=False)
    plan: EpochPlan = field(init=False)
    """The plan that is in force: that of the epoch under way."""
    logged: Replanned = field(init=False, default=Replanned(EpochPlan()))
    """The plan of all that is logged, and what it changes of `plan`; in force from the next epoch."""
    intake: Intake = field(init=False)
    housekeeping: Housekeeping = field(init=False)
    backfill_planner: BackfillPlanner = field(init=False)
    replay_schedule: ReplaySchedule = field(default_factory=ReplaySchedule)
    backlog_schedule: BacklogSchedule = field(default_factory=BacklogSchedule)
    retention: Retention = field(default_factory=Retention)
    vacuuming: Vacuuming = field(init=False)
    merging: Merging = field(init=False)
    archive_files: ArchiveFiles = field(init=False)
    on_published: Callable[[], None] = lambda: None
    """Called as soon as an epoch is published."""
    unread: dict[str, SourceChanged] = field(default_factory=dict)
    """Operators whose backfill cannot read a file of a source in place, which was deleted or replaced.

    They wait while all others continue, until the home is opened again or a statement changes the plan.
    """
    rounds: Rounds = field(init=False)
    system_feed: SystemFeed = field(init=False)
    gathers_until: Instant | None = field(init=False, default=None)
    """When the rows that wait for others to arrive (`latency` of their streams) are due; None where none do."""
    _saved: SavedPlan = field(init=False, default=NO_PLAN)
    _is_saved: bool = field(init=False, default=False)
    _planned: int = field(init=False, default=-1)
    _logged_to: int = field(init=False, default=-1)
    """The positions in the query log of `plan` and `logged`."""
    _log_lock: threading.RLock = field(init=False, default_factory=threading.RLock)
    """Of the query log, the catalog and `logged`; taken after the loop's lock, and before the intake's."""
    _append: Append | None = field(init=False, default=None)
    """That was under way when the epoch's input was taken: its records may be a part of it."""
    _reads_ahead: bool = field(init=False, default=True)
    _heard: int = field(init=False, default=-1)
    """The epoch after which no operator had a promise for groups left to emit by."""

    def __post_init__(self) -> None:
        self.intake = Intake(self.home, self.clock)
        self.housekeeping = Housekeeping(self.home, self.intake, self.clock)
        self.backfill_planner = BackfillPlanner(self.home)
        self.vacuuming, self.merging = Vacuuming(self.home), Merging(self.home)
        self.archive_files = ArchiveFiles(self.home)
        self.rounds = Rounds(self.home, self.executor, self.clock, self.tasks, self.backfill_planner)
        self.system_feed = SystemFeed(self.intake)
        self.take_over()
        self.collect()

    def take_over(self) -> None:
        """Become the home's writer as a new incarnation, also after a failed epoch, and continue from its manifest.

        Raises `AlreadyPublished` when another driver has taken over from this one.
        """
        with self._log_lock, self.intake.lock:  # pushes wait, and then write as the new incarnation
            self.manifest = self.published = self.home.take_over()
            self.intake.resume(self.manifest)
            self._planned = self._logged_to = -1
        self._saved = NO_PLAN
        self.rounds.forget()
        self.backfill_planner.due.clear()
        self.replan()
        if self.published.plan and not is_readable(self.home.store, self.published.plan):
            self.manifest = under_current_names(self.home, self.manifest, self.plan)
            self._in_files()
            epoch = self.rounds.begin(self.manifest, EpochWork("tick"))
            epoch.take(epoch.work, (), "", self.rounds.planned_after(epoch, epoch.work, ()))
            self._publish(epoch)

    def collect(self) -> Collected:
        """Remove all files that are old enough and not needed; called at every start."""
        self.merging.discard()
        return self.housekeeping.collect(self._saved.files)

    # -- the catalog -------------------------------------------------------------------------------------------------

    def log(self, *entries: Mapping[str, Any]) -> None:
        """Append entries to the query log, durable before they count; they are in force from the next epoch.

        Raises `UserError` when entries that are in the log before them make them invalid.
        """
        judged, append = self.home.catalog, uuid.uuid4().hex
        for _ in range(_APPENDS):
            with outcome_unless_known("absent"):
                self.find_out()
            refuse_if_overtaken(judged, self.home.catalog, entries)
            with self._log_lock:
                if self._appended(entries, append):
                    with outcome_unless_known("present"):
                        self.replan()
                    self.home.in_doubt = False
                    self.intake.news.set()
                    return
        others = f"other writers of the home {self.home.store.root} appended first, {_APPENDS} times"
        raise StoreError(others, outcome="absent")

    def log_ahead(self, *entries: Mapping[str, Any]) -> bool:
        """As `log`, but from any thread, during an epoch; False for entries that have to wait for its end: all but new queries.

        An epoch reads the plan and the catalog that it began with, and no other query depends on a new one.
        """
        with self._log_lock:
            catalog = self.home.catalog
            is_known = not self.home.in_doubt and self._logged_to == catalog.position
            if not is_known or not all(adds_query(catalog, entry) for entry in entries):
                return False
            if not self._appended(entries, uuid.uuid4().hex):
                return False
            self.home.in_doubt = False
        self.intake.news.set()
        return True

    def _appended(self, entries: Sequence[Mapping[str, Any]], append: str) -> bool:
        """Plan entries and append them; False when there are others before them that were not planned."""
        home, before = self.home, self.home.catalog
        # An entry that cannot be planned must not get into the log: the home could not be opened.
        after = before.apply_all(entries)
        refuse_if_idle(before, after, entries)
        replanned = plan_after(self.logged.plan, before, after, entries)
        if not self._logged(entries, append):
            return False
        if home.catalog.position == after.position:  # else `replan` makes the plan
            self.logged, self._logged_to = self.logged.then(replanned), after.position
        return True

    def _logged(self, entries: Sequence[Mapping[str, Any]], append: str) -> bool:
        """Append entries and apply them to the catalog; pushes wait where streams are made, which count the records before them."""
        makes_streams = any(entry["do"] == "create_stream" for entry in entries)
        with self.intake.lock if makes_streams else nullcontext():
            born = self.home.with_births(entries)
            if not self.home.append(born, append):
                return False
            with outcome_unless_known("present"):
                self.home.refresh()
            for entry in born:
                if BORN in entry:
                    self.intake.drop_stream(entry["stream"]["name"])
        return True

    def find_out(self) -> None:
        """Read and plan the query log after an append whose outcome is not known."""
        with self._log_lock:
            was_in_doubt = self.home.in_doubt
            if was_in_doubt:
                self.home.find_out()
                self._planned = self._logged_to = -1
            self.replan()
            if was_in_doubt:
                with self.intake.lock:  # the entries may replace a stream
                    self.intake.resume(self.manifest)
            self.home.in_doubt = False

    def replan(self) -> None:
        """Put the plan of the catalog in force, if that has changed."""
        with self._log_lock:
            catalog = self.rounds.catalog = self.home.catalog
            if catalog.position == self._planned:
                return
            replanned = self.logged if catalog.position == self._logged_to else Replanned(make_plan(catalog))
            self.logged, self._logged_to = Replanned(replanned.plan, frozenset()), catalog.position
        self.unread.clear()
        self._is_saved = self._is_saved and replanned.plan is self.plan
        self.plan = self.rounds.plan = replanned.plan
        self._planned = catalog.position
        self.manifest = commit.without_dropped_streams(self.manifest, self.plan, self.home)
        progress, operators = self.manifest.operators, self.plan.planned
        changed = progress.keys() ^ operators.keys() if replanned.changed is None else replanned.changed
        added = sorted(name for name in changed if name in operators and name not in progress)
        dropped = [name for name in changed if name in progress and name not in operators]
        initial = self.backfill_planner.progress_of_new(self.manifest, self.published, self.plan, added)
        self.manifest = replace(self.manifest, operators=progress.changed(initial, dropped))

    def _in_files(self) -> SavedPlan:
        """The plan's files, written at first use: registrations between two epochs make one version."""
        if not self._is_saved:
            self._saved = save_plan(self.home.store, self.plan, self._saved)
            self.rounds.saved = self._saved
            self._is_saved = True
        return self._saved

    # -- one epoch ---------------------------------------------------------------------------------------------------

    def step(self, *, live_first: bool = False, polls: bool = True) -> EpochObservation | None:
        """Run the next epoch; None when there is nothing to do.

        Backfills go before new rows, or with `live_first` in the time that live epochs leave. With `polls` sources are listed.
        """
        self.find_out()
        self.system_feed.ingest(self.published)
        self.intake.listen(index_of(self.plan).sources if polls else ())
        self._reads_ahead = True
        while (work := self._next_epoch(live_first)) is not None:
            try:
                return self._run(work)
            except SourceChanged as change:
                if not work.is_replay:
                    raise
                self.unread |= dict.fromkeys(work.operators.named, change)
            except NotLogged:
                self.rounds.discard()
                self._reads_ahead = False  # else pushes that fail hold up all other rows
        return None

    def _next_epoch(self, live_first: bool) -> EpochWork | None:
        work = self.backfill_planner.next_epoch(self.manifest)
        if work is None:
            backlog = self._emission_backlog()
            work = self.backlog_schedule.next_epoch(backlog)
            if work is None:
                work = self._round_robin() if live_first else self._reread(Chunk()) or self._live()
            work = work or self.backlog_schedule.epoch_now(backlog)
        self.backlog_schedule.chosen(work)
        return work

    def _emission_backlog(self) -> dict[str, Instant]:
        return emission_backlog(self.rounds.participants(self.manifest).named, self.plan, self.manifest)

    def has_emission_backlog(self) -> bool:
        """True while an operator that has read all input has closed windows to emit."""
        return bool(self._emission_backlog())

    def _round_robin(self) -> EpochWork | None:
        live = self._live(gathers=True)
        size = self.replay_schedule.turn(live_waits=live is not None)
        if size is None:
            return live
        replay = self._reread(size)
        if replay is None:
            self.replay_schedule.nothing_to_read()
        return replay or live

    def is_polled(self) -> bool:
        """Whether epochs may become due by the clock, or by files, which wake no one."""
        return any(
            stream.using in (*FILES, "rate") or stream.progress.heartbeat is not None or stream.idle_timeout
            for stream in self.plan.streams.values()
        )

    def seal(self) -> EpochObservation:
        """End every stream for good: all windows close, and no rows are accepted any more.

        A query over another one ends after it, when it has read its last results.
        """
        if (due := self.backfill_planner.next_epoch(self.manifest)) is not None:
            self._run(due)
        self.find_out()
        live = self.rounds.participants(self.manifest).of(self.plan.operators)
        self.manifest = commit.each_by_itself(self.manifest)
        for ending, ended in provisional_results.in_order(self.plan, live):
            min_punctuations = dict.fromkeys(ended, FOREVER)
            ends = Participants(frozenset(ending))
            seen = self._run(EpochWork("seal", (), ends, min_punctuations=min_punctuations, final=True))
            while (work := self.backlog_schedule.epoch_now(self._emission_backlog())) is not None:
                seen = self._run(work)
            while self.has_unread_results():
                unread = self.rounds.level_input(self.manifest, self.manifest)
                named = Participants(self.rounds.participants(self.manifest).named)
                self._run(unread.work_of_all(named, self._emission_backlog()))
        return seen

    def closing(self) -> provisional_results.Closing:
        """The results of operators if the streams ended here, by operator. Nothing is published (provisional)."""
        self.find_out()
        live = Participants(frozenset(self.rounds.participants(self.manifest).of(self.plan.operators)))
        work = EpochWork("closing", operators=live, final=True)
        self._in_files()
        (message,) = state_messages(self.rounds.messages(self.manifest), work, 1, whole=True)
        return provisional_results.close(self.home.store, self.plan, message)

    def _live(self, *, gathers: bool = False) -> EpochWork | None:
        """The next records of every source; without any, a tick when punctuation or the catalog has changed.

        With `gathers` rows wait for others as long as their stream's `latency` allows.
        """
        sources, most = index_of(self.plan).sources, rows_by_turns(self.manifest, self.intake.waiting)

        def limits(name: str, waiting: Sequence[Pending]) -> Admission:
            return self.admission.at_most(most(name)).for_easy(waiting, self.executor.easy_rows)

        append = self._append = self.intake.under_way if self._reads_ahead else None
        found = LiveInput.of(self.intake, sources, self.manifest, limits, self.clock, append)
        is_due = bool(found.min_punctuations) or self.manifest.querylog != self._planned
        self.gathers_until = None
        if not (is_due or self.has_unread_results() or self._has_unheard_promises()):
            if not found.splits:
                return None
            if gathers and found.due > self.clock():
                self.gathers_until = found.due
                return None
        # An operator with an emission backlog takes its rows; it emits in epochs of its own.
        return EpochWork(
            "epoch" if found.splits else "tick",
            found.splits,
            self.rounds.participants(self.manifest),
            punctuations=self._emission_backlog(),
            min_punctuations=found.min_punctuations,
            taken=found.ordinals,
        )

    def _has_unheard_promises(self) -> bool:
        """Whether a query has read the archive after a promise for a group, whose closed windows it has not emitted yet."""
        if self._heard != self.manifest.epoch:
            backlog = self._emission_backlog()
            live = (name for name in self.rounds.participants(self.manifest).named if name not in backlog)
            if has_unheard_promises(live, self.plan, self.manifest):
                return True
            self._heard = self.manifest.epoch
        return False

    def has_unread_results(self) -> bool:
        """True while a query has results, or a later punctuation, that the queries over it have not read."""
        return self.rounds.level_input(self.manifest, self.manifest).is_unread()

    def has_system_rows(self) -> bool:
        """True while rows of built-in streams wait for an epoch."""
        return self.system_feed.is_behind(self.published, index_of(self.plan).system_streams)

    def _records(self) -> Records:
        return partial(derived_input.read_again, self.home, self.manifest)

    def is_catching_up(self) -> bool:
        """True while an operator that is not paused has not read all of its archive."""
        return bool(self._runnable_backfills())

    def _runnable_backfills(self) -> dict[str, tuple[str, Position]]:
        """Operators that are backfilling and may continue, each with its stream and its position in the archive."""
        positions = backfilling(self.plan, self.manifest)
        paused = self.rounds.paused if positions else ()
        return {
            name: (self.plan.operators[name].stream, (position, self.manifest.operators[name].slices))
            for name, position in positions.items()
            if derived_streams.owner_of(name) not in paused and name not in self.unread
        }

    def _reread(self, size: Chunk) -> EpochWork | None:
        """A chunk of the archive for the operators with the most entries left, else for those that were answered from samples."""
        if backfills := self._runnable_backfills():
            return Archives(self.home, self.manifest, self.plan).chunk(backfills, size, self._records())
        if not self.plan.repairing:
            return None
        from headrace.runtime.repair.repair_epochs import Repairs  # noqa: PLC0415 - after an overload

        resting = {*backfilling(self.plan, self.manifest), *self._emission_backlog(), *self.rounds.paused}
        repairs = Repairs(self.home, self.manifest, self.plan)
        return repairs.epoch(resting | self.unread.keys(), size, self._records())

    def _run(self, work: EpochWork) -> EpochObservation:
        if self.published.kind == "takeover":  # the first epoch of a process may be its last
            self._write_due()
        started = stopwatch.perf_counter()
        self._in_files()
        append, self._append = self._append, None
        try:
            epoch = self.rounds.run(self.manifest, work)
        except (StoreError, OSError, EpochFailed):
            self.intake.require_logged(append, work.taken)  # on a full disk both fail
            raise
        executed = stopwatch.perf_counter()
        self.intake.require_logged(append, work.taken)
        planned, seen = self._publish(epoch, executed - started)
        self.intake.consumed(epoch.work.taken)
        self.housekeeping.collect_if_due(self._saved.files)
        self._write_due()
        seconds = {"execute": executed - started, "publish": stopwatch.perf_counter() - executed}
        seen = seen or observe(planned, epoch.work, epoch.receipts, self.plan, {}, self.clock())
        seen = replace(seen, seconds={**seen.seconds, **seconds}, choices=self.rounds.choices)
        self.replay_schedule.saw(replay=work.is_replay, rows=seen.rows, seconds=sum(seconds.values()))
        if entries := self.rounds.entries(self.manifest):
            self.log(*entries)
        return seen

    def _write_due(self) -> None:
        """Write what the next manifest takes in: the vacuum's segments, joined and merged files, and samples."""
        manifest, in_thread = self.manifest, self.housekeeping.is_background
        sources = index_of(self.plan).sources
        readers = commit.archive_readers(manifest, self.plan, self.home.store.read)
        self.vacuuming.look(manifest, sources, readers, in_thread=in_thread)
        self.archive_files.look(manifest, sources, in_thread=in_thread)
        self.merging.look(manifest, self.plan, in_thread=in_thread)

    def vacuum(self) -> None:
        """Reduce the archives by the present age of their rows, and publish it."""
        due = None
        while True:
            readers = commit.archive_readers(self.manifest, self.plan, self.home.store.read)
            before, due = due, self.vacuuming.due(self.manifest, index_of(self.plan).sources, readers)
            if due is None or due is before:
                return
            self._run(EpochWork("tick"))

    def _publish(self, epoch: Epoch, seconds: float = 0.0) -> tuple[Manifest, EpochObservation | None]:
        """Publish the manifest of an epoch that took so many seconds, under the newest plan; what was measured, if it has rows about it."""
        files, work, intake = epoch.files, epoch.work, self.intake
        settled = self.retention.settled(epoch.manifest, work.taken, self.plan, intake, files)
        index, before, seen = index_of(self.plan), self.published, None
        of_archives = commit.archive_readers(settled, self.plan, files.read)
        settled = self.vacuuming.settled(settled, index.sources, of_archives)
        settled = self.archive_files.settled(self.merging.settled(settled, files), files)
        finished = FinishedEpoch(work, epoch.receipts, seconds, self.clock())
        settled = decided(settled, self.plan, finished, intake.waiting, lambda of: index.clock_of(of).sources)
        settled = self.rounds.memory.decided(settled, self.plan, self.rounds.catalog, epoch.receipts)
        if self.system_feed.has_rows(before, settled, work, index):
            seen = observe(settled, work, epoch.receipts, self.plan, {"execute": seconds}, self.clock())
            settled = self.system_feed.with_rows(before, settled, seen, index, files.write)
        planned = settled.with_base(files.write)
        self.executor.await_files()
        self.home.manifests.publish(planned, [*commit.files_named(epoch.receipts), *files.unsynced])
        self.rounds.accept(epoch)
        self.housekeeping.published(self.published, planned, commit.superseded(epoch.receipts))
        self.housekeeping.follow_plan(planned.epoch, self._saved.files)
        self.manifest = self.published = planned
        self.on_published()
        self.backfill_planner.published(self._in_files().name, self.plan)
        return planned, seen
