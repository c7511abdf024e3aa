"""An epoch's work as messages to its tasks: the splits of each scan task, and the slots of each state task."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.operators.base.group_codes import SLOTS
from headrace.runtime.epoch.pane_layout import states_in_row_layout
from headrace.runtime.home.slots import bounds_of_slots
from headrace.runtime.ingest.admission import packed, together
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.epoch_work import EpochWork
from headrace.runtime.messages.task_messages import RunRef, ScanMessage, StateMessage
from headrace.runtime.progress.committed_progress import progress_of
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING


@dataclass(frozen=True, slots=True)
class TaskMessages:
    """The common part of an epoch's messages: the home's folder, the plan and its file, and the previous manifest."""

    root: str
    plan_file: str
    plan: EpochPlan
    manifest: Manifest


def scan_messages(orders: TaskMessages, work: EpochWork, cores: int, tasks: int) -> list[ScanMessage]:
    """A message for each group of splits of about the same weight; `tasks` state tasks take the deltas."""
    plan, manifest = orders.plan, orders.manifest
    owners = tuple(low for low, _ in bounds_of_slots(tasks, SLOTS))
    punctuation = {name: progress_of(manifest.stream(name)).punctuation for name in plan.streams}
    deduplicated = {
        name for name, stream in plan.streams.items() if stream.deduplicate and not work.is_replay
    }
    groups = {name: committed.groups for name, committed in manifest.streams.items() if committed.groups}
    keys = {
        name: tuple(file.name for file in committed.keys)
        for name, committed in manifest.streams.items()
        if committed.keys
    }
    weight = sum(weight for _, weight in work.splits)
    return [
        ScanMessage(
            orders.root,
            orders.plan_file,
            manifest.epoch + 1,
            task,
            splits,
            punctuation,
            owners,
            work.operators,
            work.is_replay,
            work.relations,
            groups,
            keys,
            states_in_row_layout(manifest),
            work.isolated,
            weight,
        )
        for task, splits in enumerate(together(packed(work.splits, work.tasks(cores)), deduplicated))
    ]


def state_messages(orders: TaskMessages, work: EpochWork, tasks: int) -> list[StateMessage]:
    """One message for each of `tasks` state tasks."""
    plan, manifest = orders.plan, orders.manifest
    streams = {
        name: replace(
            progress_of(manifest.stream(name)), min_punctuation=work.min_punctuations.get(name, BEGINNING)
        )
        for name in plan.streams
    }
    progress = manifest.operators
    emitted_to = {name: progress[name].emitted_to for name in work.operators}
    resting = {name: progress[name].emitted_to for name in plan.operators if name not in emitted_to}
    runs = [RunRef.of(run) for run in manifest.state]
    live = frozenset(run.name for run in runs)
    return [
        StateMessage(
            orders.root,
            orders.plan_file,
            manifest.epoch + 1,
            task,
            low,
            high,
            tuple(run for run in runs if run.low < high and low < run.high),
            streams,
            emitted_to,
            work.punctuations,
            work.final,
            resting,
            {name: groups for name in work.operators if (groups := progress[name].group_punctuations)},
            live=live,
            isolated=work.isolated,
        )
        for task, (low, high) in enumerate(bounds_of_slots(tasks, SLOTS))
    ]
