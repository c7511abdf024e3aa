"""From an epoch's receipts to the next manifest: only what successful tasks named comes to count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from headrace.algebra.patterns import rolled_up
from headrace.catalog.definitions import StreamDefinition
from headrace.observation import EpochObservation, OperatorObservation, StreamObservation, WorkObservation
from headrace.runtime import several, shared_past
from headrace.runtime.adapting import with_adapting
from headrace.runtime.going_ahead import columns_ahead
from headrace.runtime.home import Home
from headrace.runtime.messages import EpochPlan, ScanReceipt, StateReceipt, StreamProgress
from headrace.runtime.progress import after_scans, as_known, merged, progress_of
from headrace.runtime.repeats import kept_files
from headrace.runtime.standing import ArchiveEntry, Standing, beyond, retained
from headrace.runtime.work import Work
from headrace.store.forgetting import with_classes
from headrace.store.manifest import Manifest, StateRun
from headrace.store.radix_list import ListFiles, RadixList
from headrace.time import BEGINNING, FOREVER, Instant

NEW_STREAM: Final[Mapping[str, int | float]] = {
    "next": 0,
    "rows": 0,
    "late": 0,
    "rejected": 0,
    "keep": 1.0,
    "shed": 0,
    "slack_needed": 0,
    "punctuation": BEGINNING,
    "greatest": BEGINNING,
}
"""What a manifest says of a stream of which nothing was read: the next ordinal, counts, and how far it has come."""
PLAN_SEGMENTS: Final = "plan segments"
"""In a manifest's facts: the files that the plan's own file needs."""


def next_manifest(
    before: Manifest,
    work: Work,
    receipts: Sequence[StateReceipt],
    plan: EpochPlan,
    plan_files: Sequence[str],
    position: int,
    now: Instant,
    files: ListFiles,
) -> Manifest:
    """The manifest after an epoch; `plan_files` as in `SavedPlan.files`. Writes list segments that became full; publishes nothing."""
    scans = scans_of(receipts)
    progress = before_epoch(before, plan, work)
    reached = after_scans(plan.streams, progress, () if work.is_replay else scans)
    lists = dict(before.lists)
    if not work.is_replay:
        for name, entry in _archived(before.epoch + 1, work, scans, progress, reached, plan).items():
            _append(lists, f"archive:{name}", [entry.as_json()], files)
    operators = _operators(before, work, plan, reached)
    kept_since = _forget(lists, plan, operators, reached, files)
    results = [file.as_entry(before.epoch + 1) for receipt in receipts for file in receipt.results]
    facts = _counted(before.facts, work, receipts, scans)
    counting = {name for scan in scans for name, seen in scan.operators.items() if seen.groups}
    measured = (
        [*(each.operators for each in scans), *(each.operators for each in receipts)] if counting else []
    )
    counted = [{name: each[name] for name in counting & each.keys()} for each in measured]
    facts = with_adapting(facts, plan, _added(counted))
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
        streams=_with_kept(_streams(before, plan, work, scans, reached, now), kept_since),
        operators=operators,
        state=_state(before, receipts),
        lists=lists,
        facts={**facts, PLAN_SEGMENTS: list(plan_files[1:])},
    )


def _forget(
    lists: dict[str, RadixList],
    plan: EpochPlan,
    operators: Mapping[str, Mapping[str, Any]],
    reached: Mapping[str, StreamProgress],
    files: ListFiles,
) -> dict[str, Instant]:
    """Shorten the archives by what is too old and was read by all; of each that was, from when on it has all rows."""
    kept_since = {}
    for name, stream in plan.streams.items():
        archive = lists.get(f"archive:{name}")
        if archive is None or (stream.retain is None and stream.archive != "none"):
            continue
        horizon = FOREVER if stream.archive == "none" else reached[name].punctuation - (stream.retain or 0)
        readers = [operators[each.id]["replayed"] for each in plan.operators.values() if each.stream == name]
        meetings = {meeting for meeting, _, _ in several.meetings_with(plan.streams, name)}
        epochs = [
            operators[each.id]["replayed"] for each in plan.operators.values() if each.stream in meetings
        ]
        readers += [shared_past.first_from(archive, files.read, min(epochs))] if epochs else []
        lists[f"archive:{name}"] = kept = retained(archive, horizon, readers, files.read)
        if kept.start > archive.start:
            kept_since[name] = min(horizon, beyond(reached[name]))
    return kept_since


def _with_kept(
    streams: Mapping[str, dict[str, Any]], kept_since: Mapping[str, Instant]
) -> dict[str, dict[str, Any]]:
    return {
        name: known | {"kept_since": max(kept_since[name], known.get("kept_since", BEGINNING))}
        if name in kept_since
        else known
        for name, known in streams.items()
    }


def without_dropped_streams(old: Manifest, plan: EpochPlan, home: Home) -> Manifest:
    """Progress, archive and rejects of streams that are no more go; one of the same name begins anew."""
    kept = {name for name, known in old.streams.items() if known.get("born", 0) == home.born(name)}
    kept &= set(plan.streams)
    gone = {f"{kind}:{name}" for name in set(old.streams) - kept for kind in ("archive", "rejects")}
    streams = {name: known for name, known in old.streams.items() if name in kept}
    for name in sorted(set(plan.streams) - kept, key=lambda name: plan.streams[name].using == several.USING):
        streams[name] = {**NEW_STREAM, "born": home.born(name)}
        if plan.streams[name].using == several.USING:
            past = lambda each: old.lists.get(f"archive:{each}", RadixList())  # noqa: E731
            until = shared_past.length_of_new(plan.streams[name], past, home.store.read)
            streams[name] |= several.known_so_far(plan.streams[name], streams) | {shared_past.UNTIL: until}
    return replace(
        old, streams=streams, lists={name: each for name, each in old.lists.items() if name not in gone}
    )


def files_named(receipts: Sequence[StateReceipt]) -> list[str]:
    """Every file that an epoch's tasks wrote and its manifest will name: to be made durable before it is published."""
    found = [run.name for receipt in receipts if (run := receipt.run) is not None]
    found += [file.name for receipt in receipts for file in receipt.results]
    found += [name for receipt in receipts for name in receipt.rejects.values()]
    for scan in scans_of(receipts):
        found += [file for files in scan.archived.values() for file in files]
        found += scan.rejects.values()
        found += [keys["name"] for keys in scan.remembered.values()]
    return found


def scans_of(receipts: Sequence[StateReceipt]) -> tuple[ScanReceipt, ...]:
    """The scan tasks' receipts, which the first state task forwards."""
    return next((receipt.scans for receipt in receipts if receipt.task == 0), ())


def before_epoch(before: Manifest, plan: EpochPlan, work: Work) -> dict[str, StreamProgress]:
    """Every stream's progress as the epoch's tasks were told it."""
    return {
        name: progress_of(before.streams.get(name), work.floors.get(name, BEGINNING)) for name in plan.streams
    }


def _append(
    lists: dict[str, RadixList], name: str, entries: Sequence[Mapping[str, Any]], files: ListFiles
) -> None:
    lists[name] = lists.get(name, RadixList()).append(entries, files.write)


def _archived(
    epoch: int,
    work: Work,
    scans: Sequence[ScanReceipt],
    progress: Mapping[str, StreamProgress],
    reached: Mapping[str, StreamProgress],
    plan: EpochPlan,
) -> dict[str, ArchiveEntry]:
    found = {}
    for name, ordinals in work.taken.items():
        files = tuple(file for scan in scans for file in scan.archived.get(name, ()))
        found[name] = ArchiveEntry(
            epoch,
            ordinals,
            files,
            tuple(scan.rejects[name] for scan in scans if name in scan.rejects),
            sum(scan.rows.get(name, 0) for scan in scans),
            sum(scan.late.get(name, 0) for scan in scans),
            progress[name].punctuation,
            reached[name].punctuation,
            merged(scans, name)[0],
            plan.relations,
            plan.keep_of(name),
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
        for stream, file in scan.rejects.items():
            _append(
                lists,
                f"rejects:{stream}",
                [{"epoch": epoch, "name": file, "rows": scan.rejected[stream]}],
                files,
            )
    for receipt in receipts:
        for operator, file in receipt.rejects.items():
            entry = {"epoch": epoch, "name": file, "rows": receipt.rejected[operator]}
            _append(lists, f"failures:{operator}", [entry], files)


def _streams(
    before: Manifest,
    plan: EpochPlan,
    work: Work,
    scans: Sequence[ScanReceipt],
    reached: Mapping[str, StreamProgress],
    now: Instant,
) -> dict[str, dict[str, Any]]:
    found = {}
    ends = shared_past.ends_after(plan.streams, work.taken, before.epoch + 1)
    for name in plan.streams:
        known = dict(before.streams.get(name, NEW_STREAM))
        sources = {source for scan in scans for source in scan.sources.get(name, {})}
        known = as_known(known, reached[name], sources, now)
        if name in ends:
            known[shared_past.UNTIL] = ends[name]
        known["keep"] = plan.keep_of(name)
        if name in work.taken:
            known["next"], known["arrived"] = max(work.taken[name]) + 1, now
        if not work.is_replay:
            for scan in scans:
                known["rows"] += scan.rows.get(name, 0)
                known["late"] += scan.late.get(name, 0)
                known["rejected"] += scan.rejected.get(name, 0)
                known["shed"] = known.get("shed", 0) + scan.shed.get(name, 0)
                known["slack_needed"] = max(known["slack_needed"], scan.latest_needed.get(name, 0))
            _repeats(known, plan.streams[name], [scan for scan in scans if name in scan.rows])
        found[name] = known
    return found


def _repeats(known: dict[str, Any], stream: StreamDefinition, scans: Sequence[ScanReceipt]) -> None:
    """How many rows repeated others, and the keys that are kept to tell."""
    if stream.deduplicate is not None:
        repeated = sum(scan.repeated.get(stream.name, 0) for scan in scans)
        known["repeated"] = known.get("repeated", 0) + repeated
        new = [scan.remembered[stream.name] for scan in scans if stream.name in scan.remembered]
        known["keys"] = kept_files(stream, known.get("keys", []), new, known["punctuation"])


def _operators(
    before: Manifest, work: Work, plan: EpochPlan, reached: Mapping[str, StreamProgress]
) -> dict[str, dict[str, Any]]:
    """Where operators stand: those that took part have answered up to the new punctuation."""
    found: dict[str, dict[str, Any]] = {}
    part, alike = frozenset(work.operators), dict[tuple[Any, ...], dict[str, Any]]()
    ends = shared_past.ends_after(plan.streams, work.taken, before.epoch + 1)
    for name, operator in plan.operators.items():
        known = before.operators[name]
        turn = (operator.stream, name in part, work.now.get(name), work.replayed.get(name))
        place = (*known.values(), *turn) if "ahead" not in known else ()
        if "ahead" in known or plan.streams[operator.stream].progress.groups:
            found[name] = _after(known, name, name in part, work, plan, reached, ends)
        elif place in alike:  # thousands that stand together go together
            found[name] = alike[place]
        else:
            found[name] = alike[place] = _after(known, name, name in part, work, plan, reached, ends)
    return found


def _after(
    known: Mapping[str, Any],
    name: str,
    took_part: bool,
    work: Work,
    plan: EpochPlan,
    reached: Mapping[str, StreamProgress],
    ends: Mapping[str, int],
) -> dict[str, Any]:
    """Where one operator stands after an epoch; `ends` as in `shared_past.ends_after`."""
    operator, place = plan.operators[name], Standing(**known)
    if took_part:
        now = work.now.get(name, reached[operator.stream].punctuation)
        live = ends.get(operator.stream, place.replayed + (operator.stream in work.taken))
        seen = work.replayed.get(name, live)
        closed = max(place.closed, now)
        ahead = dict(place.ahead)
        rule = plan.streams[operator.stream].progress
        if not work.is_replay and name not in work.now and columns_ahead(operator, rule):
            ahead |= reached[operator.stream].groups
        ahead = {group: at for group, at in ahead.items() if at > closed}
        ahead = rolled_up(ahead) if rule.patterns else ahead
        complete = place.complete_since
        if work.kind == "replay" and plan.streams[operator.stream].archive == "none":
            complete = beyond(reached[operator.stream])  # what came while it was paused is nowhere
        place = replace(place, closed=closed, replayed=seen, ahead=ahead, complete_since=complete)
    return place.as_json()


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
    facts: Mapping[str, Any], work: Work, receipts: Sequence[StateReceipt], scans: Sequence[ScanReceipt]
) -> dict[str, Any]:
    counted = dict(facts)
    if not work.is_replay:
        counted["rows"] = counted.get("rows", 0) + sum(sum(scan.rows.values()) for scan in scans)
    rejected = dict(counted.get("rejected", {}))
    for receipt in receipts:
        for operator, rows in receipt.rejected.items():
            rejected[operator] = rejected.get(operator, 0) + rows
    if rejected:
        counted["rejected"] = rejected
    return counted


def observe(
    after: Manifest, work: Work, receipts: Sequence[StateReceipt], seconds: Mapping[str, float], now: Instant
) -> EpochObservation:
    """What the epoch measured. Stage times are the longest task's."""
    scans = scans_of(receipts)
    stages = dict(seconds)
    for measured in [scan.seconds for scan in scans] + [receipt.seconds for receipt in receipts]:
        for stage, spent in measured.items():
            stages[stage] = max(stages.get(stage, 0.0), spent)
    return EpochObservation(
        epoch=after.epoch,
        kind=work.kind,
        rows=sum(sum(scan.rows.values()) for scan in scans),
        bytes=sum(sum(scan.bytes.values()) for scan in scans),
        seconds=stages,
        streams={name: _stream_seen(after, name, scans, now) for name in after.streams},
        operators=_added([*(scan.operators for scan in scans), *(receipt.operators for receipt in receipts)]),
        work=_added([*(scan.work for scan in scans), *(receipt.work for receipt in receipts)]),
        state_bytes=sum(run.bytes for run in after.state),
        state_runs=len(after.state),
    )


def _stream_seen(after: Manifest, name: str, scans: Sequence[ScanReceipt], now: Instant) -> StreamObservation:
    punctuation = after.streams[name]["punctuation"]
    known = BEGINNING < punctuation < now
    return StreamObservation(
        rows=sum(scan.rows.get(name, 0) for scan in scans),
        bytes=sum(scan.bytes.get(name, 0) for scan in scans),
        late=sum(scan.late.get(name, 0) for scan in scans),
        rejected=sum(scan.rejected.get(name, 0) for scan in scans),
        shed=sum(scan.shed.get(name, 0) for scan in scans),
        keep=after.streams[name].get("keep", 1.0),
        punctuation=punctuation,
        lag=now - punctuation if known else None,
    )


_Seen = TypeVar("_Seen", OperatorObservation, WorkObservation)


def _added(parts: Sequence[Mapping[str, _Seen]]) -> dict[str, _Seen]:
    """What all tasks have measured, by name."""
    found: dict[str, _Seen] = {}
    for part in parts:
        for name, seen in part.items():
            known = found.get(name)
            found[name] = seen if known is None else known.plus(seen)
    return found
