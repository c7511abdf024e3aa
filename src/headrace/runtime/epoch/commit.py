"""The next manifest, from an epoch's receipts: only files that successful tasks have named count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from headrace.runtime.backfill import union_replay
from headrace.runtime.backfill.operator_progress import ArchiveEntry, beyond, retained
from headrace.runtime.epoch.observe import added, scans_of
from headrace.runtime.epoch.pane_layout import with_row_layout_states
from headrace.runtime.home.home import Home
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.epoch_work import EpochWork
from headrace.runtime.messages.stream_progress import StreamProgress
from headrace.runtime.messages.task_messages import ScanReceipt, StateReceipt, StreamReceipt, stream_receipts
from headrace.runtime.plan import union_streams
from headrace.runtime.progress import union_progress
from headrace.runtime.progress.committed_progress import committed_progress, progress_of
from headrace.runtime.progress.group_progress import groups_after
from headrace.runtime.progress.punctuation import after_scans
from headrace.runtime.tasks.scan.deduplicate import retained_files
from headrace.store.logs.committed import CommittedStream, OperatorProgress
from headrace.store.logs.manifest import Manifest, StateRun
from headrace.store.logs.radix_list import ListFiles, RadixList
from headrace.store.maintenance.retention_classes import with_classes
from headrace.time import BEGINNING, FOREVER, Instant

PLAN_SEGMENTS: Final = "plan segments"
"""In a manifest's facts: the files that the plan's own file needs."""


def next_manifest(
    before: Manifest,
    work: EpochWork,
    receipts: Sequence[StateReceipt],
    plan: EpochPlan,
    plan_files: Sequence[str],
    position: int,
    now: Instant,
    files: ListFiles,
) -> Manifest:
    """The manifest after an epoch; `plan_files` as in `SavedPlan.files`. Writes full list segments; publishes nothing."""
    scans = scans_of(receipts)
    seen = {} if work.is_replay else stream_receipts(scans, plan)
    progress = before_epoch(before, plan, work)
    progress_after = after_scans(plan.streams, progress, seen)
    lists = dict(before.lists)
    if not work.is_replay:
        for name, entry in _archived(before.epoch + 1, work, seen, progress, progress_after, plan).items():
            _append(lists, f"archive:{name}", [entry.as_json()], files)
    operators = _operators(before, work, plan, progress_after)
    retained_since = _expire_archives(lists, plan, operators, progress_after, files)
    results = [file.as_entry(before.epoch + 1) for receipt in receipts for file in receipt.results]
    facts = _counted(before.facts, seen, receipts)
    with_groups = {name for scan in scans for name, observed in scan.operators.items() if observed.groups}
    observed_by_task = [task.operators for task in scans] + [task.operators for task in receipts]
    by_task = [
        {name: observed[name] for name in with_groups & observed.keys()}
        for observed in (observed_by_task if with_groups else [])
    ]
    facts = with_row_layout_states(facts, plan, added(by_task))
    if results:
        facts = with_classes(facts, "results", lists.get("results", RadixList()), results)
        _append(lists, "results", results, files)
    _append_rejects(lists, before.epoch + 1, receipts, scans, files)
    return replace(
        before,
        epoch=before.epoch + 1,
        kind=work.kind,
        plan=plan_files[0],
        querylog=position,
        streams=_with_retained_since(_streams(before, plan, work, seen, progress_after, now), retained_since),
        operators=operators,
        state=_state(before, receipts),
        lists=lists,
        facts={**facts, PLAN_SEGMENTS: list(plan_files[1:])},
    )


def _expire_archives(
    lists: dict[str, RadixList],
    plan: EpochPlan,
    operators: Mapping[str, OperatorProgress],
    progress: Mapping[str, StreamProgress],
    files: ListFiles,
) -> dict[str, Instant]:
    """Remove archive entries that have expired and were read by all.

    Returns, by stream with removed entries, the instant since which its archive has all rows.
    """
    retained_since = {}
    for name, stream in plan.streams.items():
        archive = lists.get(f"archive:{name}")
        if archive is None or (stream.retain is None and stream.archive != "none"):
            continue
        horizon = FOREVER if stream.archive == "none" else progress[name].punctuation - (stream.retain or 0)
        readers = [operators[id_].replayed for id_, reader in plan.operators.items() if reader.stream == name]
        unions = {union for union, _, _ in union_streams.unions_with(plan.streams, name)}
        epochs = [
            operators[id_].replayed for id_, reader in plan.operators.items() if reader.stream in unions
        ]
        readers += [union_replay.first_from(archive, files.read, min(epochs))] if epochs else []
        lists[f"archive:{name}"] = shortened = retained(archive, horizon, readers, files.read)
        if shortened.start > archive.start:
            retained_since[name] = min(horizon, beyond(progress[name]))
    return retained_since


def _with_retained_since(
    streams: Mapping[str, CommittedStream], retained_since: Mapping[str, Instant]
) -> dict[str, CommittedStream]:
    return {
        name: replace(
            committed, retained_since=max(retained_since.get(name, BEGINNING), committed.retained_since)
        )
        for name, committed in streams.items()
    }


def without_dropped_streams(old: Manifest, plan: EpochPlan, home: Home) -> Manifest:
    """The manifest without the progress, archive and rejects of dropped streams.

    A stream of the same name starts from scratch.
    """
    remaining = {
        name
        for name, committed in old.streams.items()
        if committed.born == home.born(name) and committed.created in (0, home.created(name))
    }
    remaining &= set(plan.streams)
    dropped = {f"{kind}:{name}" for name in set(old.streams) - remaining for kind in ("archive", "rejects")}
    streams = {name: committed for name, committed in old.streams.items() if name in remaining}
    for name in sorted(
        set(plan.streams) - remaining, key=lambda name: plan.streams[name].using == union_streams.USING
    ):
        streams[name] = CommittedStream(born=home.born(name), created=home.created(name))
        if plan.streams[name].using == union_streams.USING:
            archive_of = lambda stream: old.lists.get(f"archive:{stream}", RadixList())  # noqa: E731
            until = union_replay.length_of_new(plan.streams[name], archive_of, home.store.read)
            streams[name] = replace(
                union_progress.committed_union(plan.streams[name], streams[name], streams), until=until
            )
    return replace(
        old,
        streams=streams,
        lists={name: listed for name, listed in old.lists.items() if name not in dropped},
    )


def files_named(receipts: Sequence[StateReceipt]) -> list[str]:
    """Every file that an epoch's tasks wrote and its manifest will name: made durable before it is published."""
    names = [run.name for receipt in receipts if (run := receipt.run) is not None]
    names += [file.name for receipt in receipts for file in receipt.results]
    names += [file.name for receipt in receipts for file in receipt.rejects.values()]
    for scan in scans_of(receipts):
        names += [file for stream in scan.streams.values() for file in stream.files]
    return names


def before_epoch(before: Manifest, plan: EpochPlan, work: EpochWork) -> dict[str, StreamProgress]:
    """Every stream's progress as in the messages to the epoch's tasks."""
    return {
        name: progress_of(before.stream(name), work.min_punctuations.get(name, BEGINNING))
        for name in plan.streams
    }


def _append(
    lists: dict[str, RadixList], name: str, entries: Sequence[Mapping[str, Any]], files: ListFiles
) -> None:
    lists[name] = lists.get(name, RadixList()).append(entries, files.write)


def _archived(
    epoch: int,
    work: EpochWork,
    receipts: Mapping[str, StreamReceipt],
    progress: Mapping[str, StreamProgress],
    progress_after: Mapping[str, StreamProgress],
    plan: EpochPlan,
) -> dict[str, ArchiveEntry]:
    entries = {}
    for name, ordinals in work.taken.items():
        receipt = receipts.get(name, StreamReceipt())
        entries[name] = ArchiveEntry(
            epoch,
            ordinals,
            receipt.archived,
            tuple(file.name for file in receipt.rejects),
            receipt.rows,
            receipt.late,
            progress[name].punctuation,
            progress_after[name].punctuation,
            receipt.greatest,
            plan.relations,
            plan.sample_rate_of(name),
        )
    return entries


def _append_rejects(
    lists: dict[str, RadixList],
    epoch: int,
    receipts: Sequence[StateReceipt],
    scans: Sequence[ScanReceipt],
    files: ListFiles,
) -> None:
    for scan in scans:
        for name, stream in scan.streams.items():
            for file in stream.rejects:
                _append(lists, f"rejects:{name}", [file.as_entry(epoch)], files)
    for receipt in receipts:
        for operator, file in receipt.rejects.items():
            _append(lists, f"failures:{operator}", [file.as_entry(epoch)], files)


def _streams(
    before: Manifest,
    plan: EpochPlan,
    work: EpochWork,
    receipts: Mapping[str, StreamReceipt],
    progress: Mapping[str, StreamProgress],
    now: Instant,
) -> dict[str, CommittedStream]:
    streams = {}
    ends = union_replay.ends_after(plan.streams, work.taken, before.epoch + 1)
    for name, definition in plan.streams.items():
        receipt = receipts.get(name, StreamReceipt())
        committed = committed_progress(before.stream(name), progress[name], receipt.sources, now)
        committed = replace(
            committed,
            until=ends.get(name, committed.until),
            keep=plan.sample_rate_of(name),
            rows=committed.rows + receipt.rows,
            late=committed.late + receipt.late,
            rejected=committed.rejected + receipt.rejected,
            shed=committed.shed + receipt.shed,
            slack_needed=max(committed.slack_needed, receipt.slack_needed),
            repeated=committed.repeated + receipt.repeated,
        )
        if definition.deduplicate is not None and not work.is_replay:
            committed = replace(
                committed,
                keys=retained_files(definition, committed.keys, receipt.keys, committed.punctuation),
            )
        if name in work.taken:
            committed = replace(committed, next=max(work.taken[name]) + 1, arrived=now)
        streams[name] = committed
    return streams


def _operators(
    before: Manifest, work: EpochWork, plan: EpochPlan, streams: Mapping[str, StreamProgress]
) -> dict[str, OperatorProgress]:
    """Progress of operators: those that took part have emitted up to the new punctuation."""
    operators: dict[str, OperatorProgress] = {}
    taking_part, shared = frozenset(work.operators), dict[tuple[Any, ...], OperatorProgress]()
    ends = union_replay.ends_after(plan.streams, work.taken, before.epoch + 1)
    for name, operator in plan.operators.items():
        progress = before.operators[name]
        advance = (operator.stream, name in taking_part, work.punctuations.get(name), work.replayed.get(name))
        key = (
            progress.emitted_to,
            progress.replayed,
            progress.since,
            progress.complete_since,
            progress.backfilled_from,
            *advance,
        )
        if progress.group_punctuations or plan.streams[operator.stream].progress.groups:
            operators[name] = _after(progress, name, name in taking_part, work, plan, streams, ends)
        elif key in shared:  # thousands at one position share one object
            operators[name] = shared[key]
        else:
            operators[name] = shared[key] = _after(
                progress, name, name in taking_part, work, plan, streams, ends
            )
    return operators


def _after(
    progress: OperatorProgress,
    name: str,
    took_part: bool,
    work: EpochWork,
    plan: EpochPlan,
    streams: Mapping[str, StreamProgress],
    ends: Mapping[str, int],
) -> OperatorProgress:
    """Progress of one operator after an epoch; `ends` as in `union_replay.ends_after`."""
    operator = plan.operators[name]
    if took_part:
        punctuation = work.punctuations.get(name, streams[operator.stream].punctuation)
        live = ends.get(operator.stream, progress.replayed + (operator.stream in work.taken))
        replayed = work.replayed.get(name, live)
        emitted_to = max(progress.emitted_to, punctuation)
        is_fixed = work.is_replay or name in work.punctuations
        promised = {} if is_fixed else streams[operator.stream].groups
        rule = plan.streams[operator.stream].progress
        groups = groups_after(operator, rule, progress.group_punctuations, emitted_to, promised)
        complete_since = progress.complete_since
        if work.kind == "replay" and plan.streams[operator.stream].archive == "none":
            # Rows that arrived while it was paused are not stored.
            complete_since = beyond(streams[operator.stream])
        progress = replace(
            progress,
            emitted_to=emitted_to,
            replayed=replayed,
            group_punctuations=groups,
            complete_since=complete_since,
        )
    return progress


def _state(before: Manifest, receipts: Sequence[StateReceipt]) -> tuple[StateRun, ...]:
    replaced = {name for receipt in receipts for name in receipt.replaced}
    remaining = [run for run in before.state if run.name not in replaced]
    new = [
        StateRun(run.name, run.low, run.high, run.bytes, run.level, run.epoch)
        for receipt in receipts
        if (run := receipt.run) is not None
    ]
    return (*remaining, *new)


def _counted(
    facts: Mapping[str, Any], streams: Mapping[str, StreamReceipt], receipts: Sequence[StateReceipt]
) -> dict[str, Any]:
    counted = dict(facts)
    counted["rows"] = counted.get("rows", 0) + sum(stream.rows for stream in streams.values())
    rejected = dict(counted.get("rejected", {}))
    for receipt in receipts:
        for operator, file in receipt.rejects.items():
            rejected[operator] = rejected.get(operator, 0) + file.rows
    if rejected:
        counted["rejected"] = rejected
    return counted
