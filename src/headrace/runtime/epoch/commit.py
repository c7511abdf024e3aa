"""The next manifest, from the work and the receipts of a round of an epoch: only files that successful tasks have named
count. Also a manifest without dropped streams, and the files to make durable before it is published.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, Final

from headrace.catalog.definitions import StreamDefinition
from headrace.dataclass import dataclass
from headrace.observation import OperatorObservation
from headrace.runtime.backfill import union_replay
from headrace.runtime.backfill.archive_entries import ArchiveEntry, retained
from headrace.runtime.backfill.initial_progress import beyond
from headrace.runtime.epoch.observe import operators_by_task, scans_of
from headrace.runtime.epoch.task_orders import progress_before
from headrace.runtime.home.home import Home
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.epoch_work import EpochWork
from headrace.runtime.messages.operator_observations import OperatorObservations, added
from headrace.runtime.messages.result_entry import answered_by, with_file
from headrace.runtime.messages.stream_progress import StreamProgress
from headrace.runtime.messages.task_messages import (
    ResultsFile,
    ScanReceipt,
    StateMessage,
    StateReceipt,
    StreamReceipt,
    stream_receipts,
)
from headrace.runtime.plan import derived_streams, union_streams
from headrace.runtime.plan.adaptive.join_trees import readers_moved
from headrace.runtime.plan.adaptive.key_samples import KEY_SAMPLES, with_key_samples
from headrace.runtime.plan.adaptive.overload_control import chosen_shares
from headrace.runtime.progress.committed_progress import committed_progress, progress_of
from headrace.runtime.progress.failing_queries import FAILED_ROWS
from headrace.runtime.progress.frontier import Frontier
from headrace.runtime.progress.group_progress import group_punctuation_columns, groups_after, promised_for
from headrace.runtime.progress.pane_layout import with_row_layout_states
from headrace.runtime.progress.plan_index import index_of
from headrace.runtime.progress.punctuation import after_scans
from headrace.runtime.reduction.segments import Readers, waiting_for, without_dropped
from headrace.runtime.repair.repair_facts import with_repairs
from headrace.runtime.tasks.scan.deduplicate import retained_files
from headrace.store.logs.committed import CommittedStream, OperatorProgress
from headrace.store.logs.manifest import Manifest, StateRun
from headrace.store.logs.radix_list import ListFiles, RadixList, Read
from headrace.store.maintenance.retention_classes import with_classes
from headrace.time import BEGINNING, FOREVER, Instant

PLAN_SEGMENTS: Final = "plan segments"
"""In a manifest's facts: the files that the plan's own file needs."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one round of an epoch has done, after the manifest `before`; `began` is that of the epoch before."""

    began: Manifest
    before: Manifest
    work: EpochWork
    receipts: Sequence[StateReceipt]

    @property
    def epoch(self) -> int:
        """The epoch's number."""
        return self.began.epoch + 1


def next_manifest(
    done: Round, plan: EpochPlan, plan_files: Sequence[str], position: int, now: Instant, files: ListFiles
) -> Manifest:
    """The manifest after a round; `plan_files` as in `SavedPlan.files`. Writes full list segments; publishes nothing.

    Its size and its cost follow what the round has read and changed: streams and operators that follow others stay as they are.
    """
    before, work, receipts = done.before, done.work, done.receipts
    scans = scans_of(receipts)
    seen = {} if work.is_replay else stream_receipts(scans, plan)
    progress = progress_before(done.began, before, plan, work)
    progress_after = after_scans(plan.streams, progress, seen)
    lists: dict[str, RadixList] = {}
    entries = {} if work.is_replay else _archived(done, seen, progress, progress_after, plan)
    for name, entry in entries.items():
        _append(lists, before, f"archive:{name}", [entry.as_json()], files)
    results = [with_file(file.as_entry(done.epoch), files.write) for file in result_files(receipts)]
    facts = _counted(before.facts, seen, receipts)
    facts = with_row_layout_states(facts, plan, _with_groups(scans, receipts))
    if results:
        facts = with_classes(facts, "results", before.lists.get("results", RadixList()), results)
        _append(lists, before, "results", results, files)
    _append_rejects(lists, before, done.epoch, receipts, scans, files)
    after = replace(
        before,
        epoch=done.epoch,
        kind=before.kind if work.level else work.kind,
        plan=plan_files[0],
        querylog=position,
        streams=before.streams.changed(_streams(done, plan, seen, progress_after, now)),
        state=_state(before, receipts),
        lists=before.lists.changed(lists),
        facts={**facts, PLAN_SEGMENTS: list(plan_files[1:])},
    )
    after = replace(after, operators=before.operators.changed(_operators(done, after, plan)))
    after = with_key_samples(after, plan, _limited_joins(before, receipts))
    after = _without_expired(after, plan, {*work.taken, *work.min_punctuations}, files)
    least = {name: receipt.least for name, receipt in seen.items()}
    return with_repairs(before, after, plan, work, entries, least, files.read)


def _with_groups(
    scans: Sequence[ScanReceipt], receipts: Sequence[StateReceipt]
) -> Mapping[str, OperatorObservation]:
    """What was measured of operators of which scan tasks counted groups."""
    names = {name for observed in operators_by_task(scans, ()) for name in observed.having("groups")}
    return _added(names, operators_by_task(scans, receipts))


def _limited_joins(before: Manifest, receipts: Sequence[StateReceipt]) -> Mapping[str, OperatorObservation]:
    """What state tasks measured of joins with a limit of rows, or that have left keys out."""
    by_task = operators_by_task((), receipts)
    names = {name for observed in by_task for name in observed.having("joinable")}
    return _added(names | before.facts.get(KEY_SAMPLES, {}).keys(), by_task)


def _added(
    names: AbstractSet[str], by_task: Sequence[OperatorObservations]
) -> Mapping[str, OperatorObservation]:
    """The measurements of some operators."""
    if not names:
        return {}
    return added([{name: observed[name] for name in names & observed.keys()} for observed in by_task])


def result_files(receipts: Sequence[StateReceipt]) -> list[ResultsFile]:
    """The runs of results that an execution wrote, in the order of the list of results."""
    return sorted((file for receipt in receipts for file in receipt.results), key=lambda file: file.number)


def with_upper_levels(done: Round, plan: EpochPlan, message: StateMessage) -> EpochWork:
    """The work of a round whose tasks ran all levels: with the streams of results that they have read."""
    work, index = done.work, index_of(plan)
    ordinals: dict[str, tuple[int, ...]] = {}
    for ordinal, file in enumerate(
        result_files(done.receipts), message.upper.results if message.upper else 0
    ):
        for operator in answered_by(file.facts):
            stream = index.results_of.get(operator)
            if stream is not None:
                ordinals[stream.name] = (*ordinals.get(stream.name, ()), ordinal)
    seen = stream_receipts(scans_of(done.receipts), plan)
    progress = after_scans(plan.streams, message.streams, seen)
    frontier = Frontier(index, progress, {**message.resting, **message.emitted_to})
    punctuations = {name: frontier.punctuation(name) for name in ordinals}
    return replace(
        work,
        taken={**work.taken, **ordinals},
        min_punctuations={**work.min_punctuations, **punctuations},
    )


def _without_expired(
    after: Manifest, plan: EpochPlan, touched: Collection[str], files: ListFiles
) -> Manifest:
    """The manifest without archive entries that have expired and were read by all: of sources, and of streams with new rows."""
    lists, streams = {}, {}
    index = index_of(plan)
    names = {stream.name for stream in index.sources} | {name for name in touched if name in plan.streams}
    readers = archive_readers(after, plan, files.read)
    for name in sorted(names):
        stream, archive = plan.streams[name], after.lists.get(f"archive:{name}")
        if (
            archive is None
            or (stream.retain is None and stream.archive != "none")
            or _is_reduced_by_age(stream)
        ):
            continue
        horizon = FOREVER if stream.archive == "none" else after.punctuation(name) - (stream.retain or 0)
        shortened = retained(archive, horizon, readers(name, archive), files.read)
        if shortened.start > archive.start:
            lists[f"archive:{name}"] = shortened
            committed = after.stream(name)
            since = max(min(horizon, beyond(progress_of(committed))), committed.retained_since)
            streams[name] = replace(after.streams[name], retained_since=since)
    if not lists:
        return after
    return replace(after, lists=after.lists.changed(lists), streams=after.streams.changed(streams))


def _is_reduced_by_age(stream: StreamDefinition) -> bool:
    """Whether the vacuum takes all old entries of the archive, so that it drops those that have expired too."""
    return stream.reduce is not None and stream.reduce.first_age is not None


def archive_readers(manifest: Manifest, plan: EpochPlan, read: Read) -> Readers:
    """The positions of the operators that read a stream's archive list, but of those that follow the stream; and of its copies."""
    index = index_of(plan)
    behind: dict[str, list[int]] = {}
    for id_, progress in manifest.operators.moving.items():
        if id_ in plan.operators:
            behind.setdefault(plan.operators[id_].stream, []).append(progress.replayed)

    def positions(stream: str, archive: RadixList) -> list[int]:
        unions = {union for union, _, _ in index.unions_with.get(stream, ())}
        epochs = [replayed for union in unions for replayed in behind.get(union, ())]
        first = [union_replay.first_from(archive, read, min(epochs))] if epochs else []
        source = plan.streams.get(stream)
        copied = [] if source is None else list(waiting_for(manifest, source))
        return behind.get(stream, []) + first + copied

    return positions


def without_dropped_streams(old: Manifest, plan: EpochPlan, home: Home) -> Manifest:
    """The manifest without the progress, archive and rejects of dropped streams.

    A stream of the same name starts from scratch.
    """
    index = index_of(plan)
    remaining = {
        name
        for name, committed in old.streams.items()
        if committed.born == home.born(name) and committed.created in (0, home.created(name))
    }
    remaining &= set(plan.streams)
    dropped = set(old.streams) - remaining
    streams = old.streams.changed({}, dropped)
    kinds = ("archive", "rejects", "samples")
    lists = old.lists.changed({}, [f"{kind}:{name}" for name in dropped for kind in kinds])
    new = [stream for name, stream in plan.streams.items() if name not in remaining]
    added = {
        stream.name: CommittedStream(born=home.born(stream.name), created=home.created(stream.name))
        for stream in new
    }
    for stream in plan.streams.values():
        if stream.using == union_streams.USING:
            committed = added.get(stream.name) or streams[stream.name]
            if not committed.follows:
                archive_of = lambda name: lists.get(f"archive:{name}", RadixList())  # noqa: E731
                until = union_replay.length_of_new(stream, archive_of, home.store.read)
                record = replace(committed, until=max(committed.until, until))
                added[stream.name] = index.following(record, stream)
    facts = without_dropped(old.facts, remaining)
    moved = old.operators.changed(readers_moved(old, new))
    return replace(old, streams=streams.changed(added), lists=lists, facts=facts, operators=moved)


def each_by_itself(manifest: Manifest) -> Manifest:
    """The manifest with the progress of every operator and of all results by themselves, as when streams end one by one."""
    operators = {
        name: manifest.find_operator(name) for name, record in manifest.operators.items() if record.follows
    }
    streams = {
        name: replace(manifest.stream(name), producer="")
        for name, record in manifest.streams.items()
        if record.producer
    }
    independent = {
        name: replace(progress, follows="") for name, progress in operators.items() if progress is not None
    }
    return replace(
        manifest, streams=manifest.streams.changed(streams), operators=manifest.operators.changed(independent)
    )


def superseded(receipts: Sequence[StateReceipt]) -> set[str]:
    """State runs that a round of an epoch wrote and a later round replaced: its manifest does not name them."""
    written = {run.name for receipt in receipts for run in receipt.runs}
    return written & {name for receipt in receipts for name in receipt.replaced}


def files_named(receipts: Sequence[StateReceipt]) -> list[str]:
    """Every file that an epoch's tasks wrote and its manifest will name: made durable before it is published."""
    replaced = superseded(receipts)
    names = [run.name for receipt in receipts for run in receipt.runs if run.name not in replaced]
    names += [file.name for receipt in receipts for file in receipt.results]
    names += [file.name for receipt in receipts for file in receipt.rejects.values()]
    for scan in scans_of(receipts):
        names += [file for stream in scan.streams.values() for file in stream.files]
    return names


def _append(
    lists: dict[str, RadixList],
    before: Manifest,
    name: str,
    entries: Sequence[Mapping[str, Any]],
    files: ListFiles,
) -> None:
    listed = lists[name] if name in lists else before.lists.get(name, RadixList())
    lists[name] = listed.append(entries, files.write)


def _archived(
    done: Round,
    receipts: Mapping[str, StreamReceipt],
    progress: Mapping[str, StreamProgress],
    progress_after: Mapping[str, StreamProgress],
    plan: EpochPlan,
) -> dict[str, ArchiveEntry]:
    entries, chosen = {}, chosen_shares(done.began)
    shares = {
        id_: seen for id_, seen in chosen.items() if id_ in plan.operators and id_ in done.work.operators
    }
    for name, ordinals in done.work.taken.items():
        receipt = receipts.get(name, StreamReceipt())
        entries[name] = ArchiveEntry(
            done.epoch,
            ordinals,
            receipt.archived,
            (),
            receipt.rows,
            receipt.late,
            progress[name].punctuation,
            progress_after[name].punctuation,
            receipt.greatest,
            plan.relations,
            plan.sample_rate_of(name),
            {id_: seen for id_, seen in shares.items() if plan.operators[id_].stream == name},
            progress_after[name].max_event_time,
            rejected=_next_numbers(done.before, f"rejects:{name}", len(receipt.rejects)),
        )
    return entries


def _next_numbers(before: Manifest, name: str, count: int) -> tuple[int, ...]:
    """The indexes that so many entries get that are appended to a list."""
    length = before.lists.get(name, RadixList()).length
    return tuple(range(length, length + count))


def _append_rejects(
    lists: dict[str, RadixList],
    before: Manifest,
    epoch: int,
    receipts: Sequence[StateReceipt],
    scans: Sequence[ScanReceipt],
    files: ListFiles,
) -> None:
    for scan in scans:
        for name, stream in scan.streams.items():
            for file in stream.rejects:
                _append(lists, before, f"rejects:{name}", [file.as_entry(epoch)], files)
    for receipt in receipts:
        for operator, file in receipt.rejects.items():
            _append(lists, before, f"failures:{operator}", [file.as_entry(epoch)], files)


def _streams(
    done: Round,
    plan: EpochPlan,
    receipts: Mapping[str, StreamReceipt],
    progress: Mapping[str, StreamProgress],
    now: Instant,
) -> dict[str, CommittedStream]:
    """The new records of the streams that the round has advanced."""
    streams, work, index = {}, done.work, index_of(plan)
    for name, reached in progress.items():
        if work.level and name not in work.min_punctuations and name not in receipts:
            continue
        definition, receipt = plan.streams[name], receipts.get(name, StreamReceipt())
        before = done.before.stream(name)
        facts = committed_progress(before, reached, receipt.sources, now) | {
            "keep": plan.sample_rate_of(name),
            "rows": before.rows + receipt.rows,
            "late": before.late + receipt.late,
            "rejected": before.rejected + receipt.rejected,
            "shed": before.shed + receipt.shed,
            "slack_needed": max(before.slack_needed, receipt.slack_needed),
            "repeated": before.repeated + receipt.repeated,
        }
        if definition.deduplicate is not None and not work.is_replay:
            punctuation = facts["punctuation"]
            facts["keys"] = retained_files(definition, before.keys, receipt.keys, punctuation)
        if name in work.taken:
            facts |= {"next": max(work.taken[name]) + 1, "arrived": now, "taken": done.epoch}
        committed = replace(before, **facts)
        is_read = work.operators.followers and name in work.min_punctuations
        if definition.using == derived_streams.USING and is_read:
            if committed.punctuation == FOREVER:
                # Tasks need its NOW, and messages name no stream that follows.
                committed = replace(committed, producer="")
            elif not committed.follows:
                committed = index.following(committed, definition)
        streams[name] = committed
    return streams


def _operators(done: Round, after: Manifest, plan: EpochPlan) -> dict[str, OperatorProgress]:
    """The new progress of operators that do not follow their stream, before the round or after it; `after` lacks it yet."""
    work, operators = done.work, {}
    for name in work.operators.absent:  # as when the epoch began, since it is left out of all of it
        progress = done.before.operators.get(name)
        if progress is not None and progress.follows and name in plan.operators:
            was = done.began.find_operator(name)
            assert was is not None
            operators[name] = replace(was, follows="")
    for name in {*done.before.operators.moving, *work.operators.named, *work.punctuations}:
        progress = done.before.operators.get(name)
        if progress is not None and name in plan.operators and name in work.operators:
            operators[name] = _after(done, after, plan, name, progress)
    return operators


def _after(
    done: Round, after: Manifest, plan: EpochPlan, name: str, progress: OperatorProgress
) -> OperatorProgress:
    """The progress of an operator that took part, and has its own progress or was to stop at some instant."""
    work, operator, index = done.work, plan.operators[name], index_of(plan)
    if progress.follows:
        was = done.began.find_operator(name)
        assert was is not None
        progress = replace(was, follows="")
    advances = index.clock_of(operator.stream).level <= work.level or not work.operators.followers
    reached = after if advances else done.began
    stream, definition = reached.stream(operator.stream), plan.streams[operator.stream]
    promised = {} if work.is_replay or name in work.punctuations else promised_for(definition, reached)
    emitted_to = max(progress.emitted_to, work.punctuations.get(name, stream.punctuation))
    rule = derived_streams.promising(definition)
    complete_since = progress.complete_since
    if work.kind == "replay" and plan.streams[operator.stream].archive == "none":
        # Rows that arrived while it was paused are not stored.
        complete_since = beyond(progress_of(stream))
    was_read = not after.streams[operator.stream].inputs and operator.stream in work.taken
    read = progress.replayed + was_read
    if (
        any(part.stream in work.taken for part in union_streams.inputs_of(plan.streams[operator.stream]))
        and not was_read
    ):
        read = max(read, done.epoch + 1)
    progress = replace(
        progress,
        emitted_to=emitted_to,
        replayed=work.replayed.get(name, read),
        slices=work.slices.get(name, 0),
        group_punctuations=groups_after(operator, rule, progress.group_punctuations, emitted_to, promised),
        complete_since=complete_since,
    )
    is_live = progress.replayed == after.length_of(operator.stream) and emitted_to == stream.punctuation
    heeds = bool(definition.progress.groups or progress.group_punctuations)
    heeds |= bool(group_punctuation_columns(operator, rule)) or union_streams.bound_of(definition).of_sources
    if is_live and advances and work.operators.followers and not heeds:
        return replace(progress, emitted_to=BEGINNING, replayed=0, follows=operator.stream)
    return progress


def _state(before: Manifest, receipts: Sequence[StateReceipt]) -> tuple[StateRun, ...]:
    replaced = {name for receipt in receipts for name in receipt.replaced}
    remaining = [run for run in before.state if run.name not in replaced]
    new = [
        StateRun(run.name, run.low, run.high, run.bytes, run.level, run.epoch)
        for receipt in receipts
        for run in receipt.runs
    ]
    return (*remaining, *new)


def _counted(
    facts: Mapping[str, Any], streams: Mapping[str, StreamReceipt], receipts: Sequence[StateReceipt]
) -> dict[str, Any]:
    counted = dict(facts)
    counted["rows"] = counted.get("rows", 0) + sum(stream.rows for stream in streams.values())
    rejected = dict(counted.get(FAILED_ROWS, {}))
    for receipt in receipts:
        for operator, file in receipt.rejects.items():
            rejected[operator] = rejected.get(operator, 0) + file.rows
    if rejected:
        counted[FAILED_ROWS] = rejected
    return counted
