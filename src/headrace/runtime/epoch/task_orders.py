"""An epoch's work as messages to its tasks: the splits of each scan task, and the slots of each state task."""

from __future__ import annotations

from dataclasses import field, replace

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import SLOTS
from headrace.runtime.home.gc_control import MANY
from headrace.runtime.home.slots import bounds_of_slots
from headrace.runtime.ingest.admission import balanced, in_parts, together
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.epoch_work import EpochWork, enough_rows
from headrace.runtime.messages.stream_progress import StreamProgress
from headrace.runtime.messages.task_messages import (
    Origin,
    RunRef,
    ScanMessage,
    Split,
    StateMessage,
    UpperLevels,
)
from headrace.runtime.plan import derived_streams, union_streams
from headrace.runtime.plan.adaptive.filter_orders import filter_orders
from headrace.runtime.plan.adaptive.join_caches import join_caches
from headrace.runtime.plan.adaptive.join_orders import join_orders
from headrace.runtime.plan.adaptive.key_samples import key_shares
from headrace.runtime.plan.adaptive.memory_budget import bytes_for_archive
from headrace.runtime.plan.adaptive.overload_control import chosen_shares, doubled_errors
from headrace.runtime.plan.adaptive.partner_bounds import partner_bounds
from headrace.runtime.plan.adaptive.split_keys import split_keys
from headrace.runtime.progress.committed_progress import progress_of
from headrace.runtime.progress.pane_layout import states_in_row_layout
from headrace.runtime.progress.plan_index import index_of
from headrace.runtime.repair.repair_facts import damages
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import RadixList
from headrace.time import BEGINNING


@dataclass(frozen=True, slots=True)
class TaskMessages:
    """The common part of an epoch's messages: the home's folder, the plan and its file, and the previous manifest.

    `began` is the manifest that the epoch began with; `execution`, `after` and `synced` as in `StateMessage`, `archives` as in `ScanMessage`.
    `dear_rows` as in `EpochWork.tasks`.
    """

    root: str
    plan_file: str
    plan: EpochPlan
    manifest: Manifest
    began: Manifest
    execution: str = ""
    after: str = ""
    synced: bool = True
    archives: bool = True
    dear_rows: int | None = None

    @property
    def epoch(self) -> int:
        """The epoch's number, in each of its rounds."""
        return self.began.epoch + 1


def reads_rows_once(plan: EpochPlan) -> bool:
    """Whether no operator reads the archive, nor another one that the plan may put in its place while it runs.

    Not for joins, nor for queries over queries or in samples, whose plans change with what is measured; nor where an archive has parts, or copies of them.
    """
    operators = all(
        one.operator.on_request is None
        and one.operator.stream in plan.streams
        and plan.streams[one.operator.stream].using not in (union_streams.USING, derived_streams.USING)
        and (one.channel, one.revisions, one.quality) == ("rows", None, None)
        for one in plan.planned.values()
    )
    return operators and all(stream.blocks == 1 and not stream.reducers for stream in plan.streams.values())


@dataclass(slots=True)
class Rehearsals:
    """What all processes were asked to compile for scans: the streams of a plan, and how many readers a stream had."""

    _plan: str = ""
    _streams: set[str] = field(default_factory=set)
    _readers: dict[str, int] = field(default_factory=dict)

    def due(self, orders: TaskMessages, work: EpochWork) -> tuple[str, ...]:
        """The streams of an epoch that have so many more readers that every process compiles them now.

        Of fewer new ones a process derives the conditions from those that it has. Backfills have other readers.
        """
        if work.is_replay:
            return ()
        if self._plan != orders.plan_file:
            self._plan, self._streams = orders.plan_file, set()
        read = {split.stream for split, _ in work.splits} - self._streams
        self._streams |= read
        return tuple(sorted(stream for stream in read if self._has_many_more(orders.plan, stream)))

    def _has_many_more(self, plan: EpochPlan, stream: str) -> bool:
        now = len(index_of(plan).readers.get(stream, ()))
        before = min(now, self._readers.get(stream, 0))
        is_due = now - before >= MANY
        self._readers[stream] = now if is_due else before
        return is_due


def scan_messages(
    orders: TaskMessages, work: EpochWork, cores: int, tasks: int, rehearsed: tuple[str, ...] = ()
) -> list[ScanMessage]:
    """A message for each group of splits, or of parts of them, of about the same weight; `tasks` state tasks take the deltas.

    With streams to be `rehearsed` there is one for each core; those without splits only rehearse.
    """
    plan, manifest = orders.plan, orders.manifest
    owners = owners_of(tasks)
    streams = {split.stream: plan.streams[split.stream] for split, _ in work.splits}
    committed = {name: orders.began.stream(name) for name in streams}
    deduplicated = {name for name, stream in streams.items() if stream.deduplicate and not work.is_replay}
    weight = sum(weight for _, weight in work.splits)
    splits = in_parts(work.splits, enough_rows(orders.dear_rows), cores)
    if len(splits) > len(work.splits):
        work = replace(work, splits=tuple(splits))
    most = work.tasks(cores, orders.dear_rows)
    groups = together(balanced(work.splits, cores, most), deduplicated)
    idle: list[tuple[Split, ...]] = [()] * (cores - len(groups)) if rehearsed else []
    return [
        ScanMessage(
            orders.root,
            orders.plan_file,
            orders.epoch,
            task,
            splits,
            {name: stream.punctuation for name, stream in committed.items()},
            owners,
            work.operators,
            work.is_replay,
            work.relations,
            {name: stream.groups for name, stream in committed.items() if stream.groups},
            {
                name: tuple(file.name for file in stream.keys)
                for name, stream in committed.items()
                if stream.keys
            },
            states_in_row_layout(manifest),
            work.isolated,
            weight,
            filter_orders(manifest),
            {} if work.is_replay else chosen_shares(orders.began),
            doubled_errors(orders.began),
            split_keys(manifest),
            bytes_for_archive(orders.began, most),
            synced=orders.synced,
            archives=orders.archives,
            rehearsed=() if splits else rehearsed,
        )
        for task, splits in enumerate([*groups, *idle])
    ]


def state_messages(
    orders: TaskMessages,
    work: EpochWork,
    tasks: int,
    *,
    whole: bool = False,
    upper: UpperLevels | None = None,
    rewrites: bool = False,
) -> list[StateMessage]:
    """One message for each of `tasks` state tasks; with `whole` it has the progress of every stream."""
    plan, manifest = orders.plan, orders.manifest
    all_progress = own_progress(manifest, plan)
    emitted_to = {name: emitted for name, emitted in all_progress.operators.items() if name in work.operators}
    for name in work.operators.named - emitted_to.keys():
        progress = manifest.operator(name)
        assert progress is not None
        emitted_to[name] = progress.emitted_to
    resting = {name: emitted for name, emitted in all_progress.operators.items() if name not in emitted_to}
    for name in work.operators.absent - resting.keys():
        if (left_out := orders.began.find_operator(name)) is not None:
            resting[name] = left_out.emitted_to
    groups = {name: manifest.operators[name].group_punctuations for name in emitted_to}
    runs, live = [RunRef.of(run) for run in manifest.state], frozenset(run.name for run in manifest.state)
    chosen, caches, bounds = join_orders(manifest), join_caches(manifest), partner_bounds(manifest)
    damage, keys = damages(manifest, plan, work), split_keys(manifest)
    return [
        StateMessage(
            orders.root,
            orders.plan_file,
            orders.epoch,
            task,
            low,
            high,
            tuple(run for run in runs if run.low < high and low < run.high),
            progress_before(orders.began, manifest, plan, work, whole=whole),
            emitted_to,
            work.punctuations,
            work.final,
            resting,
            {name: promised for name, promised in groups.items() if promised},
            live=None if work.level else live,
            synced=orders.synced,
            isolated=work.isolated,
            followers=work.operators.followers,
            level=work.level,
            origin=own_progress(orders.began, plan) if orders.began is not manifest else None,
            moved=work.moved,
            execution=orders.execution,
            after=orders.after,
            upper=upper,
            key_shares=key_shares(manifest),
            rewrites=rewrites,
            join_orders=chosen,
            join_caches=caches,
            partner_bounds=bounds,
            damage=damage,
            doubled_errors=doubled_errors(orders.began),
            split_keys=keys,
        )
        for task, (low, high) in enumerate(bounds_of_slots(tasks, SLOTS))
    ]


def upper_levels(orders: TaskMessages, tasks: int) -> UpperLevels:
    """What `tasks` state tasks of one process need to run all levels of an epoch."""
    return UpperLevels(
        index_of(orders.plan).levels,
        orders.began.lists.get("results", RadixList()).length,
        owners_of(tasks),
        states_in_row_layout(orders.manifest),
        filter_orders(orders.manifest),
    )


def owners_of(tasks: int) -> tuple[int, ...]:
    """The first slot of each of so many state tasks."""
    return tuple(low for low, _ in bounds_of_slots(tasks, SLOTS))


def own_progress(manifest: Manifest, plan: EpochPlan) -> Origin:
    """The progress that is not computed from others: of sources, and of streams and operators that do not follow."""
    return Origin(
        {
            name: stream.punctuation
            for name, stream in manifest.streams.moving.items()
            if name in plan.streams
        },
        {
            name: progress.emitted_to
            for name, progress in manifest.operators.moving.items()
            if name in plan.operators
        },
    )


def progress_before(
    began: Manifest, manifest: Manifest, plan: EpochPlan, work: EpochWork, *, whole: bool = False
) -> dict[str, StreamProgress]:
    """The progress in the messages to a round's tasks, as in the manifest before it: of every stream that does not follow others.

    Of the streams of results that the round reads, it is that when the epoch began: no row of theirs is late.
    """
    read = {**work.min_punctuations, **work.taken}
    names = plan.streams if whole else {**manifest.streams.moving, **read}
    return {
        name: progress_of(
            (began if name in read else manifest).stream(name), work.min_punctuations.get(name, BEGINNING)
        )
        for name in names
        if name in plan.streams
    }
