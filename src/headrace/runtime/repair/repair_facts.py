"""The ledgers of repair as a fact of the manifest: read from it, the damage that tasks are given for an epoch, and the fact after the epoch.

All of it is a function of the manifest before the epoch and of its work, so an epoch that runs again has the same damage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Any, Final

from headrace.operators.panes.damage import Damage
from headrace.runtime.backfill.archive_entries import ArchiveEntry
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.epoch_work import EpochWork
from headrace.runtime.messages.repair_ledger import REPAIRS, RepairLedger, ledgers
from headrace.runtime.plan.adaptive.overload_control import chosen_shares
from headrace.runtime.progress.committed_progress import progress_of
from headrace.runtime.progress.emission_backlog import held_back
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import RadixList, Read
from headrace.time import BEGINNING, FOREVER, Instant

_NOTHING: Final = RepairLedger()


def is_calm(manifest: Manifest, plan: EpochPlan, operator: str) -> bool:
    """Whether an operator sees all rows of the next epoch."""
    rate = plan.sample_rate_of(plan.operators[operator].stream)
    return min(rate, *chosen_shares(manifest).get(operator, (1.0,))) >= 1


def answered_to(manifest: Manifest, plan: EpochPlan, operator: str) -> Instant:
    """The instant up to which an operator has answered; of landmark windows, of which there is always a next one, the end of the last."""
    known, planned = manifest.find_operator(operator), plan.operators[operator]
    if known is None:
        return BEGINNING
    windows = planned.emission_windows
    if known.emitted_to != FOREVER or windows is None or windows.back is not None:
        return known.emitted_to
    return windows.end_of(windows.first_window(windows.of_instant(_latest(manifest, planned.stream))))


def _latest(manifest: Manifest, stream: str) -> Instant:
    return progress_of(manifest.stream(stream)).max_event_time


def damages(manifest: Manifest, plan: EpochPlan, work: EpochWork) -> dict[str, Damage]:
    """The damage of each operator around a round of an epoch after a manifest; of those with none, nothing."""
    if not plan.repairing:
        return {}
    known, shedding = ledgers(manifest), set(_shedding(manifest, plan, work))
    around = {}
    for operator in plan.repairing:
        ledger = known.get(operator, _NOTHING)
        damage = ledger.damage
        if operator in work.repaired and operator in work.operators:
            damage = replace(damage, since=work.repaired[operator].since, is_repair=True)
            damage = replace(damage, lost_to=work.repaired[operator].lost_to)
        elif operator in shedding:
            began = manifest.stream(plan.operators[operator].stream).punctuation
            shed = ledger.shedding(began).damaged(0, began, FOREVER)
            damage = replace(shed.damage, before=ledger.since)
        if not damage.is_none:
            around[operator] = damage
    return around


def held(manifest: Manifest, plan: EpochPlan, work: EpochWork) -> EpochWork:
    """The work, in which operators that settle do not emit beyond the instant up to which all of their rows are there."""
    if not plan.settling or work.is_replay or work.final:
        return work
    until = held_back(plan, manifest)
    for operator in _shedding(manifest, plan, work):
        if operator in plan.settling:
            until.setdefault(operator, manifest.stream(plan.operators[operator].stream).punctuation)
    stops = {}
    for operator, at in until.items():
        if operator in work.operators and (known := manifest.find_operator(operator)) is not None:
            stops[operator] = max(known.emitted_to, min(work.punctuations.get(operator, FOREVER), at))
    return replace(work, punctuations={**work.punctuations, **stops}) if stops else work


def _shedding(manifest: Manifest, plan: EpochPlan, work: EpochWork) -> Iterator[str]:
    """The operators that see a part of an epoch's new rows, and repair that later."""
    if not work.is_replay:
        for operator in plan.repairing:
            is_read = plan.operators[operator].stream in work.taken and operator in work.operators
            if is_read and not is_calm(manifest, plan, operator):
                yield operator


def with_repairs(
    before: Manifest,
    after: Manifest,
    plan: EpochPlan,
    work: EpochWork,
    entries: Mapping[str, ArchiveEntry],
    least: Mapping[str, Instant],
    read: Read,
) -> Manifest:
    """The manifest after a round with its ledgers; `entries` are those that the round has added to archives, by stream, and `least` the
    least event times of their rows.
    """
    known = ledgers(before)
    if not (known or plan.repairing):
        return after
    kept = {operator: ledger for operator, ledger in known.items() if operator in plan.repairing}
    kept |= {operator: ledger for operator, ledger in work.repaired.items() if operator in work.operators}
    for operator in _shedding(before, plan, work):
        stream = plan.operators[operator].stream
        number, entry = after.lists[f"archive:{stream}"].length - 1, entries[stream]
        ledger = kept.get(operator, _NOTHING).shedding(entry.before)
        low = max(entry.before, least.get(stream, FOREVER))
        kept[operator] = ledger.damaged(number, low, entry.greatest)
    for operator, ledger in kept.items():
        kept[operator] = without_expired(ledger, after, plan.operators[operator].stream, before, read)
    if kept == known:
        return after
    facts: dict[str, Any] = {name: fact for name, fact in after.facts.items() if name != REPAIRS}
    if kept:
        facts[REPAIRS] = {operator: ledger.as_json() for operator, ledger in kept.items()}
    return replace(after, facts=facts)


def without_expired(
    ledger: RepairLedger, manifest: Manifest, stream: str, before: Manifest, read: Read
) -> RepairLedger:
    """The ledger without entries that the archive of a manifest has no more: rows up to the greatest of theirs stay estimates.

    They are read in the manifest before. What that lacks too is before the instant since which the archive is retained.
    """
    archive = manifest.lists.get(f"archive:{stream}", RadixList())
    if not ledger.ranges or archive.start <= ledger.ranges[0][0]:
        return ledger
    first, former = ledger.ranges[0][0], before.lists.get(f"archive:{stream}", RadixList())
    lost_to = manifest.stream(stream).retained_since - 1
    if former.start <= first and archive.start <= former.length:
        dropped = takewhile(lambda item: item[0] < archive.start, former.iterate(read, first))
        lost_to = max(entry["greatest"] for _, entry in dropped)
    return replace(ledger.from_entry(archive.start), lost_to=max(ledger.lost_to, lost_to))
