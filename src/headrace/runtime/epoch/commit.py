"""From an epoch's receipts to the next manifest: only what successful tasks named comes to count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from headrace.algebra.expressions.punctuation_patterns import rolled_up
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
from headrace.runtime.progress.group_progress import group_punctuation_columns
from headrace.runtime.progress.punctuation import after_scans, as_known, progress_of
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
    """The manifest after an epoch; `plan_files` as in `SavedPlan.files`. Writes list segments that became full; publishes nothing."""
    scans = scans_of(receipts)
    seen = {} if work.is_replay else stream_receipts(scans, plan)
    progress = before_epoch(before, plan, work)
    reached = after_scans(plan.streams, progress, seen)
    lists = dict(before.lists)
    if not work.is_replay:
        for name, entry in _archived(before.epoch + 1, work, seen, progress, reached, plan).items():
            _append(lists, f"archive:{name}", [entry.as_json()], files)
    operators = _operators(before, work, plan, reached)
    retained_since = _expire_archives(lists, plan, operators, reached, files)
    results = [file.as_entry(before.epoch + 1) for receipt in receipts for file in receipt.results]
    facts = _counted(before.facts, seen, receipts)
    counting = {name for scan in scans for name, each in scan.operators.items() if each.groups}
    measured = (
        [*(each.operators for each in scans), *(each.operators for each in receipts)] if counting else []
    )
    counted = [{name: each[name] for name in counting & each.keys()} for each in measured]
    facts = with_row_layout_states(facts, plan, added(counted))
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
        streams=_with_retained_since(_streams(before, plan, work, seen, reached, now), retained_since),
        operators=operators,
        state=_state(before, receipts),
        lists=lists,
        facts={**facts, PLAN_SEGMENTS: list(plan_files[1:])},
    )


def _expire_archives(
    lists: dict[str, RadixList],
    plan: EpochPlan,
    operators: Mapping[str, OperatorProgress],
    reached: Mapping[str, StreamProgress],
    files: ListFiles,
) -> dict[str, Instant]:
    """Shorten the archives by what is too old and was read by all; of each that was, from when on it has all rows."""
    retained_since = {}
    for name, stream in plan.streams.items():
        archive = lists.get(f"archive:{name}")
        if archive is None or (stream.retain is None and stream.archive != "none"):
            continue
        horizon = FOREVER if stream.archive == "none" else reached[name].punctuation - (stream.retain or 0)
        readers = [operators[each.id].replayed for each in plan.operators.values() if each.stream == name]
        meetings = {meeting for meeting, _, _ in union_streams.unions_with(plan.streams, name)}
        epochs = [operators[each.id].replayed for each in plan.operators.values() if each.stream in meetings]
        readers += [union_replay.first_from(archive, files.read, min(epochs))] if epochs else []
        lists[f"archive:{name}"] = kept = retained(archive, horizon, readers, files.read)
        if kept.start > archive.start:
            retained_since[name] = min(horizon, beyond(reached[name]))
    return retained_since


def _with_retained_since(
    streams: Mapping[str, CommittedStream], retained_since: Mapping[str, Instant]
) -> dict[str, CommittedStream]:
    return {
        name: replace(known, retained_since=max(retained_since.get(name, BEGINNING), known.retained_since))
        for name, known in streams.items()
    }


def without_dropped_streams(old: Manifest, plan: EpochPlan, home: Home) -> Manifest:
    """Progress, archive and rejects of streams that are no more go; one of the same name begins anew."""
    kept = {name for name, known in old.streams.items() if known.born == home.born(name)}
    kept &= set(plan.streams)
    gone = {f"{kind}:{name}" for name in set(old.streams) - kept for kind in ("archive", "rejects")}
    streams = {name: known for name, known in old.streams.items() if name in kept}
    for name in sorted(
        set(plan.streams) - kept, key=lambda name: plan.streams[name].using == union_streams.USING
    ):
        streams[name] = CommittedStream(born=home.born(name))
        if plan.streams[name].using == union_streams.USING:
            past = lambda each: old.lists.get(f"archive:{each}", RadixList())  # noqa: E731
            until = union_replay.length_of_new(plan.streams[name], past, home.store.read)
            streams[name] = replace(
                union_progress.known_so_far(plan.streams[name], streams[name], streams), until=until
            )
    return replace(
        old, streams=streams, lists={name: each for name, each in old.lists.items() if name not in gone}
    )


def files_named(receipts: Sequence[StateReceipt]) -> list[str]:
    """Every file that an epoch's tasks wrote and its manifest will name: to be made durable before it is published."""
    found = [run.name for receipt in receipts if (run := receipt.run) is not None]
    found += [file.name for receipt in receipts for file in receipt.results]
    found += [file.name for receipt in receipts for file in receipt.rejects.values()]
    for scan in scans_of(receipts):
        found += [name for stream in scan.streams.values() for name in stream.files]
    return found


def before_epoch(before: Manifest, plan: EpochPlan, work: EpochWork) -> dict[str, StreamProgress]:
    """Every stream's progress as the epoch's tasks were told it."""
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
    reached: Mapping[str, StreamProgress],
    plan: EpochPlan,
) -> dict[str, ArchiveEntry]:
    found = {}
    for name, ordinals in work.taken.items():
        seen = receipts.get(name, StreamReceipt())
        found[name] = ArchiveEntry(
            epoch,
            ordinals,
            seen.archived,
            tuple(file.name for file in seen.rejects),
            seen.rows,
            seen.late,
            progress[name].punctuation,
            reached[name].punctuation,
            seen.greatest,
            plan.relations,
            plan.sample_rate_of(name),
        )
    return found


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
    reached: Mapping[str, StreamProgress],
    now: Instant,
) -> dict[str, CommittedStream]:
    found = {}
    ends = union_replay.ends_after(plan.streams, work.taken, before.epoch + 1)
    for name, definition in plan.streams.items():
        seen = receipts.get(name, StreamReceipt())
        known = as_known(before.stream(name), reached[name], seen.sources, now)
        known = replace(
            known,
            until=ends.get(name, known.until),
            keep=plan.sample_rate_of(name),
            rows=known.rows + seen.rows,
            late=known.late + seen.late,
            rejected=known.rejected + seen.rejected,
            shed=known.shed + seen.shed,
            slack_needed=max(known.slack_needed, seen.slack_needed),
            repeated=known.repeated + seen.repeated,
        )
        if definition.deduplicate is not None and not work.is_replay:
            known = replace(known, keys=retained_files(definition, known.keys, seen.keys, known.punctuation))
        if name in work.taken:
            known = replace(known, next=max(work.taken[name]) + 1, arrived=now)
        found[name] = known
    return found


def _operators(
    before: Manifest, work: EpochWork, plan: EpochPlan, reached: Mapping[str, StreamProgress]
) -> dict[str, OperatorProgress]:
    """Progress of operators: those that took part have emitted up to the new punctuation."""
    found: dict[str, OperatorProgress] = {}
    part, alike = frozenset(work.operators), dict[tuple[Any, ...], OperatorProgress]()
    ends = union_replay.ends_after(plan.streams, work.taken, before.epoch + 1)
    for name, operator in plan.operators.items():
        known = before.operators[name]
        advance = (operator.stream, name in part, work.punctuations.get(name), work.replayed.get(name))
        place = (
            known.emitted_to,
            known.replayed,
            known.since,
            known.complete_since,
            known.backfilled_from,
            *advance,
        )
        if known.group_punctuations or plan.streams[operator.stream].progress.groups:
            found[name] = _after(known, name, name in part, work, plan, reached, ends)
        elif place in alike:  # thousands at one position share one record
            found[name] = alike[place]
        else:
            found[name] = alike[place] = _after(known, name, name in part, work, plan, reached, ends)
    return found


def _after(
    place: OperatorProgress,
    name: str,
    took_part: bool,
    work: EpochWork,
    plan: EpochPlan,
    reached: Mapping[str, StreamProgress],
    ends: Mapping[str, int],
) -> OperatorProgress:
    """Progress of one operator after an epoch; `ends` as in `shared_past.ends_after`."""
    operator = plan.operators[name]
    if took_part:
        now = work.punctuations.get(name, reached[operator.stream].punctuation)
        live = ends.get(operator.stream, place.replayed + (operator.stream in work.taken))
        seen = work.replayed.get(name, live)
        closed = max(place.emitted_to, now)
        ahead = dict(place.group_punctuations)
        rule = plan.streams[operator.stream].progress
        if not work.is_replay and name not in work.punctuations and group_punctuation_columns(operator, rule):
            ahead |= reached[operator.stream].groups
        ahead = {group: at for group, at in ahead.items() if at > closed}
        ahead = rolled_up(ahead) if rule.patterns else ahead
        complete = place.complete_since
        if work.kind == "replay" and plan.streams[operator.stream].archive == "none":
            complete = beyond(reached[operator.stream])  # what came while it was paused is nowhere
        place = replace(
            place, emitted_to=closed, replayed=seen, group_punctuations=ahead, complete_since=complete
        )
    return place


def _state(before: Manifest, receipts: Sequence[StateReceipt]) -> tuple[StateRun, ...]:
    replaced = {name for receipt in receipts for name in receipt.replaced}
    kept = [run for run in before.state if run.name not in replaced]
    new = [
        StateRun(run.name, run.low, run.high, run.bytes, run.level, run.epoch)
        for receipt in receipts
        if (run := receipt.run) is not None
    ]
    return (*kept, *new)


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
