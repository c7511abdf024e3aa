"""An epoch's work as messages to its tasks: what each scan task reads, and which slots each state task owns."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.operators.base.group_codes import SLOTS
from headrace.runtime.epoch.pane_layout import states_in_row_layout
from headrace.runtime.home.slots import bounds_of_slots
from headrace.runtime.ingest.admission import packed, together
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.epoch_work import EpochWork
from headrace.runtime.messages.task_messages import RunRef, ScanMessage, StateMessage
from headrace.runtime.progress.punctuation import progress_of
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING


@dataclass(frozen=True, slots=True)
class TaskMessages:
    """What every message of an epoch says: the home's folder, the plan and its file, and the manifest before."""

    root: str
    plan_file: str
    plan: EpochPlan
    manifest: Manifest


def scan_messages(orders: TaskMessages, work: EpochWork, cores: int, tasks: int) -> list[ScanMessage]:
    """Pieces of about the same weight, a message each; `tasks` state tasks will take what they make."""
    plan, manifest = orders.plan, orders.manifest
    owners = tuple(low for low, _ in bounds_of_slots(tasks, SLOTS))
    punctuation = {name: progress_of(manifest.stream(name)).punctuation for name in plan.streams}
    whole = {name for name, stream in plan.streams.items() if stream.deduplicate and not work.is_replay}
    groups = {name: known.groups for name, known in manifest.streams.items() if known.groups}
    keys = {
        name: tuple(file.name for file in known.keys)
        for name, known in manifest.streams.items()
        if known.keys
    }
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
            work.separate,
        )
        for task, splits in enumerate(together(packed(work.splits, work.tasks(cores)), whole))
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
    places = manifest.operators
    closed = {name: places[name].emitted_to for name in work.operators}
    resting = {name: places[name].emitted_to for name in plan.operators if name not in closed}
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
            closed,
            work.punctuations,
            work.final,
            resting,
            {name: ahead for name in work.operators if (ahead := places[name].group_punctuations)},
            live=live,
            separate=work.separate,
        )
        for task, (low, high) in enumerate(bounds_of_slots(tasks, SLOTS))
    ]
