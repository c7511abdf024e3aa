"""Execution of one epoch on an executor, up to its manifest: all levels of queries over queries at once, or in rounds level
by level. It runs again without operators that failed, and with an earlier instant to stop at for those with too much to
emit.

Nothing of it counts before the manifest is published.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final

from headrace.adaptive.settling.settled_order import ChoiceTime
from headrace.catalog.catalog import Catalog
from headrace.dataclass import dataclass
from headrace.operators.base.made_once import MadeOnce
from headrace.operators.base.query_failures import QueryFailure
from headrace.overload.memory import Limits
from headrace.runtime.backfill.pane_backfill import BackfillPlanner
from headrace.runtime.epoch import commit
from headrace.runtime.epoch.executor import Executor
from headrace.runtime.epoch.observe import scans_of
from headrace.runtime.epoch.task_orders import (
    Rehearsals,
    TaskMessages,
    reads_rows_once,
    scan_messages,
    state_messages,
    upper_levels,
)
from headrace.runtime.home.home import Home
from headrace.runtime.home.run_cache import keep_received_results
from headrace.runtime.ingest.admission import TaskSize
from headrace.runtime.ingest.level_input import Due, LevelInput
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.epoch_work import EpochWork
from headrace.runtime.messages.task_messages import Participants, ScanMessage, StateReceipt
from headrace.runtime.plan.adaptive.filter_orders import FilterOrders, observed_filters
from headrace.runtime.plan.adaptive.join_caches import JoinCaches, observed_caches
from headrace.runtime.plan.adaptive.join_orders import JoinOrders, observed_probes
from headrace.runtime.plan.adaptive.join_trees import JoinTrees
from headrace.runtime.plan.adaptive.memory_budget import MemoryBudget
from headrace.runtime.plan.adaptive.partner_bounds import PartnerBounds, observed_delays
from headrace.runtime.plan.adaptive.spilled_rows import with_spill_counts
from headrace.runtime.plan.adaptive.split_keys import SplitKeys
from headrace.runtime.plan.plan_files import NO_PLAN, SavedPlan
from headrace.runtime.progress.failing_queries import FailingQueries, failures_of
from headrace.runtime.progress.participants import Pauses, backfilling, participants
from headrace.runtime.progress.plan_index import index_of
from headrace.runtime.repair.repair_facts import held
from headrace.runtime.tasks.state.emission_limits import least
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import ListFiles
from headrace.time import FOREVER, Clock, Instant

_SETTLED: Final = 32
"""Epochs with one number of state tasks before runs of another number are rewritten: standing tasks start and end."""


_AT_ONCE_ROWS: Final = 100_000
"""Rows from which on rounds cost little compared with the work, and a second run, after too much to emit, costs much."""


def rows_of(work: EpochWork) -> int:
    """The rows that an epoch takes, as estimated; without end where panes of other queries are copied."""
    return FOREVER if work.kind == "fill" else sum(weight for _, weight in work.splits)


class LeftOut(Exception):
    """Operators failed above the first level: the epoch runs again without them."""

    def __init__(self, operators: Collection[str]) -> None:
        super().__init__(", ".join(operators))
        self.operators = operators


@dataclass(slots=True)
class Epoch:
    """The work of an epoch after the manifest `began`, and its receipts; `execution` is the last that counts.

    `backlog` are the operators that emit in epochs of their own, `named` those that took part with progress of their own. It has `tasks` state tasks.
    """

    began: Manifest
    work: EpochWork
    execution: str
    files: ListFiles
    tasks: int
    manifest: Manifest = field(init=False)
    receipts: list[StateReceipt] = field(default_factory=list)
    named: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.manifest = self.began

    @property
    def backlog(self) -> Mapping[str, Instant]:
        """Operators that were to stop at an instant from the start."""
        return self.work.punctuations if self.work.operators.followers else {}

    def take(
        self, work: EpochWork, receipts: Sequence[StateReceipt], execution: str, manifest: Manifest
    ) -> None:
        """Take in a round: its work as it was done, and the manifest after it."""
        if not work.level:
            self.work = work
        self.receipts += receipts
        self.named |= work.operators.named
        self.execution, self.manifest = execution, manifest


@dataclass(slots=True)
class Rounds:
    """Runs the epochs of a home on an executor, in up to `tasks` state tasks."""

    home: Home
    executor: Executor
    clock: Clock
    tasks: int
    backfill_planner: BackfillPlanner
    failing: FailingQueries = field(default_factory=FailingQueries)
    memory: MemoryBudget = field(init=False)
    catalog: Catalog = field(default_factory=Catalog)
    plan: EpochPlan = field(default_factory=EpochPlan)
    saved: SavedPlan = NO_PLAN
    """The plan that is in force, its catalog and its files; the home's catalog may have later queries."""
    is_last: bool = False
    """The home is deleted after the epochs to come, and no statement follows."""
    _has_gaps: bool = False
    """Rows were not archived."""
    _task_size: TaskSize = field(default_factory=TaskSize)
    _rehearsals: Rehearsals = field(default_factory=Rehearsals)
    _pauses: Pauses = field(default_factory=Pauses)
    _participants: MadeOnce[Participants] = field(default_factory=lambda: MadeOnce(1))
    _due: Due = field(default_factory=Due)
    _filter_orders: FilterOrders = field(default_factory=FilterOrders)
    _join_orders: JoinOrders = field(default_factory=JoinOrders)
    _join_caches: JoinCaches = field(default_factory=JoinCaches)
    _join_trees: JoinTrees = field(default_factory=JoinTrees)
    _partner_bounds: PartnerBounds = field(default_factory=PartnerBounds)
    _split_keys: SplitKeys = field(init=False)
    _accepted: str = ""
    """The last execution that was published."""
    _executions: int = 0
    _opening: str = field(init=False, default_factory=lambda: uuid.uuid4().hex[:12])
    """The first part of executions: another home, which was in the same folder before, has left agendas in workers that stay."""
    _failing_before: FailingQueries = field(default_factory=FailingQueries)
    """As they were when the epoch began."""
    _last_tasks: tuple[int, int] = (0, 0)
    """The number of state tasks of the last epoch, and how many epochs in a row have had it."""

    def __post_init__(self) -> None:
        self.memory = MemoryBudget(self.home.store)
        self._split_keys = SplitKeys(self.tasks)

    def entries(self, published: Manifest) -> list[dict[str, Any]]:
        """Entries of the query log that follow from the last epochs: of queries that failed too often, for the memory budget, and of trees
        of joins that grow or come into force.
        """
        catalog = self.home.catalog
        trees = self._join_trees.entries(published, catalog, self.plan)
        return [*self.failing.entries(catalog), *self.memory.entries(published, catalog), *trees]

    def forget(self) -> None:
        """Start as after a take-over: no execution counts any more."""
        self._accepted, self._due, self._rehearsals = "", Due(), Rehearsals()

    def accept(self, epoch: Epoch) -> None:
        """Take in that an epoch was published."""
        self._accepted, scans = epoch.execution, scans_of(epoch.receipts)
        rows = sum(stream.rows for scan in scans for stream in scan.streams.values())
        seconds = sum(sum(scan.seconds.values()) for scan in scans)
        self._task_size.saw(replay=epoch.work.is_replay, rows=rows, seconds=seconds)
        if not epoch.work.is_replay:
            self._join_trees.take(epoch.receipts, self.catalog, self.plan)
        tasks, epochs = self._last_tasks
        self._last_tasks = epoch.tasks, epochs + 1 if epoch.tasks == tasks else 1

    def discard(self) -> None:
        """Take in that the epoch that was run is not published: its executions do not count, and neither do operators that failed in it."""
        self.forget()
        self.failing = self._failing_before

    def begin(self, manifest: Manifest, work: EpochWork) -> Epoch:
        """An epoch after a manifest, of which nothing has run yet."""
        tasks = self.executor.state_tasks(self.tasks, rows_of(work), index_of(self.plan).levels)
        return Epoch(manifest, work, self._accepted, ListFiles(self.home.store), tasks)

    def run(self, manifest: Manifest, work: EpochWork) -> Epoch:
        """Run an epoch; operators that fail above the first level are left out of all of it."""
        assert not (self._has_gaps and work.is_replay), "rows that a query reads were not archived"
        work = held(manifest, self.plan, work)
        self._failing_before = self.failing.copy()
        while True:
            epoch = self.begin(manifest, work)
            try:
                if not self._at_once(epoch):
                    self._round(epoch, work)
                    if epoch.work.kind != "seal" and not epoch.work.alone:
                        self._upper_rounds(epoch)
            except LeftOut as failed:
                manifest = epoch.began
                work = replace(work, operators=epoch.work.operators.without(failed.operators))
            else:
                return epoch

    def participants(
        self, manifest: Manifest, level: int = 0, left_out: frozenset[str] = frozenset()
    ) -> Participants:
        """The operators that take part in the round of a level; those of the first one are found once for a manifest."""
        if level or left_out:
            return participants(self.plan, manifest, self.paused, level, left_out)
        plan, paused = self.plan, self.paused
        known = self._participants
        return known.of((plan, manifest, paused), lambda: participants(plan, manifest, paused, 0, left_out))

    @property
    def paused(self) -> frozenset[str]:
        """The operators of paused queries."""
        return self._pauses.of(self.catalog)

    def level_input(self, began: Manifest, manifest: Manifest) -> LevelInput:
        """The input of the levels of an epoch."""
        return LevelInput(self.home, index_of(self.plan), began, manifest)

    def planned_after(self, epoch: Epoch, work: EpochWork, receipts: Sequence[StateReceipt]) -> Manifest:
        """The manifest after an execution of an epoch."""
        done, position = self._done(epoch, work, receipts), self.catalog.position
        after = commit.next_manifest(done, self.plan, self.saved.files, position, self.clock(), epoch.files)
        after = self._filter_orders.decided(after, observed_filters(scans_of(receipts)))
        after = self._join_orders.decided(after, observed_probes(receipts), self.plan)
        after = self._join_caches.decided(after, observed_caches(receipts), self.plan)
        delays = observed_delays(receipts)
        after = with_spill_counts(after, delays, self.plan)
        after = self._split_keys.decided(after, receipts, self.plan)
        return self._partner_bounds.decided(after, delays, self.plan)

    @property
    def choices(self) -> Mapping[str, ChoiceTime]:
        """By conjunction and side of a join, what the choice of its order took after the last epoch."""
        return {**self._filter_orders.spent, **self._join_orders.spent}

    def messages(self, manifest: Manifest, epoch: Epoch | None = None) -> TaskMessages:
        """The common part of the messages of a new execution after a manifest, in an epoch or by itself."""
        self._executions += 1
        once = self.is_last and self.memory.limits == Limits() and reads_rows_once(self.plan)
        archives = not once or bool(backfilling(self.plan, manifest))
        self._has_gaps |= not archives
        return TaskMessages(
            str(self.home.store.root),
            self.saved.name,
            self.plan,
            manifest,
            manifest if epoch is None else epoch.began,
            f"{self._opening}.{self._executions}",
            "" if epoch is None else epoch.execution,
            self.home.store.synced,
            archives,
            None if epoch is None else self._task_size.rows(replay=epoch.work.is_replay),
        )

    def _rewrites(self, epoch: Epoch) -> bool:
        """Whether runs of another number of tasks are divided: it has not changed for a while."""
        tasks, epochs = self._last_tasks
        return epoch.tasks == tasks and epochs >= _SETTLED

    def _done(self, epoch: Epoch, work: EpochWork, receipts: Sequence[StateReceipt]) -> commit.Round:
        return commit.Round(epoch.began, epoch.manifest, work, receipts)

    def _at_once(self, epoch: Epoch) -> bool:
        """Run all levels in one execution; False where they need rounds, or have to run again with less."""
        work = epoch.work
        few = not work.is_replay and rows_of(work) <= _AT_ONCE_ROWS
        has_all_levels = few and index_of(self.plan).levels and self.executor.has_all_slots(epoch.tasks)
        if not (has_all_levels and self.level_input(epoch.began, epoch.began).is_computed(work)):
            return False
        orders = self.messages(epoch.manifest, epoch)
        scans = self._scans(orders, work, epoch.tasks)
        upper, rewrites = upper_levels(orders, epoch.tasks), self._rewrites(epoch)
        states = state_messages(orders, work, epoch.tasks, upper=upper, rewrites=rewrites)
        receipts = self.executor.run(scans, states)
        if failures_of(receipts) or least(receipts):
            return False
        read = commit.with_upper_levels(self._done(epoch, work, receipts), self.plan, states[0])
        self._take(epoch, work, receipts, orders, self.planned_after(epoch, read, receipts))
        return True

    def _scans(self, orders: TaskMessages, work: EpochWork, tasks: int) -> list[ScanMessage]:
        """The scan messages of an execution."""
        cores = self.executor.cores
        return scan_messages(orders, work, cores, tasks, self._rehearsals.due(orders, work))

    def _upper_rounds(self, epoch: Epoch) -> None:
        """The rounds of an epoch for queries over queries, which read what the rounds before have made."""
        index, left_out = index_of(self.plan), epoch.work.operators.absent
        for level in range(1, index.levels + 1):
            taking_part = self.participants(epoch.manifest, level, left_out)
            level_input, moved = self.level_input(epoch.began, epoch.manifest), index.downstream(epoch.named)
            work = level_input.work(level, taking_part, moved, self._due)
            if work is not None:
                backlog = {name: at for name, at in epoch.backlog.items() if name in taking_part.named}
                self._round(epoch, replace(work, punctuations=backlog))

    def _round(self, epoch: Epoch, work: EpochWork) -> None:
        """Run a round; it runs again with less for operators with too many windows, and without those that failed."""
        while True:
            orders = self.messages(epoch.manifest, epoch)
            scans = self._scans(orders, work, epoch.tasks)
            states = state_messages(orders, work, epoch.tasks, rewrites=self._rewrites(epoch))
            receipts = self.executor.run(scans, states)
            if failed := failures_of(receipts):
                without = self._without(epoch, work, failed)
                if work.level and without.operators != work.operators:
                    raise LeftOut(without.operators.absent - work.operators.absent)
                work = without
            elif limits := least(receipts):
                work = replace(work, punctuations={**work.punctuations, **limits})
            else:
                self._take(epoch, work, receipts, orders, self.planned_after(epoch, work, receipts))
                return

    def _take(
        self,
        epoch: Epoch,
        work: EpochWork,
        receipts: Sequence[StateReceipt],
        orders: TaskMessages,
        after: Manifest,
    ) -> None:
        """Take in an execution that has succeeded."""
        for file in commit.result_files(receipts):
            if file.content:
                keep_received_results(self.home.store, file.name, file.content)
        self.failing.succeeded(work.operators)
        self._due.follow(receipts)
        epoch.take(work, receipts, orders.execution, after)

    def _without(self, epoch: Epoch, work: EpochWork, failed: Mapping[str, QueryFailure]) -> EpochWork:
        """The rest of a round's work. Operators that cannot take over panes read the archive from the next epoch on."""
        left = self.failing.without(work, failed)
        if work.kind == "fill":
            began = epoch.began
            progress = {
                name: self.backfill_planner.after_failure(
                    began, self.plan, self.plan.operators[name], failed[name].reason
                )
                for name in work.operators.named - left.operators.named
            }
            epoch.began = epoch.manifest = replace(began, operators=began.operators.changed(progress))
        return left
