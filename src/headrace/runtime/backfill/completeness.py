"""Completeness of a query: its state (live, backfilling, paused, …), how much of the archive it has read, and since when
its answers have every row.

It is computed from a manifest alone, so that every process gets the same. An operator that begins with a part of the
archive (FROM NOW, expired entries, a window resized at run time) has that in its `OperatorProgress.complete_since`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headrace.catalog.catalog import Catalog, CatalogQuery
from headrace.catalog.definitions import QueryPhase
from headrace.dataclass import dataclass
from headrace.runtime.home.home import Home
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.plan import derived_streams
from headrace.runtime.plan.epoch_planner import make_plan
from headrace.runtime.plan.plan_files import load_plan
from headrace.runtime.plan.union_streams import inputs_of
from headrace.runtime.progress.emission_backlog import emission_backlog
from headrace.store.logs.committed import OperatorProgress
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, Instant


@dataclass(frozen=True, slots=True)
class Completeness:
    """The state of a query: `registered` (from the next epoch on), `backfilling`, `emitting` (it emits a backlog of
    windows over several epochs), `live`, `paused` or `failed` (suspended after it failed).

    `percent` of the archive that was read, rounded down. `complete_since`: answers over rows since this instant have every row;
    `BEGINNING`: all answers.
    """

    state: QueryPhase
    percent: int = 100
    complete_since: Instant = BEGINNING

    def __str__(self) -> str:
        """`live`, `backfilling 40 %`, …"""
        return f"backfilling {self.percent} %" if self.state == "backfilling" else self.state


_REGISTERED: Final = Completeness("registered", 0)


def plan_in_force(home: Home, manifest: Manifest) -> EpochPlan:
    """The plan of the newest epoch; no query is bound."""
    return load_plan(home.store, manifest.plan) if manifest.plan else EpochPlan()


def newest_plan(home: Home, catalog: Catalog) -> EpochPlan:
    """The plan of all that is registered in a catalog of the home; no query has to be bound where the newest epoch had it."""
    manifest = home.latest()
    if manifest.plan and manifest.querylog == catalog.position:
        return plan_in_force(home, manifest)
    return make_plan(catalog)


def completeness(plan: EpochPlan, manifest: Manifest, query: CatalogQuery) -> Completeness:
    """The completeness of a query in a manifest whose plan is `plan`."""
    if query.operator_id not in plan.operators:
        return Completeness(query.definition.state, 0) if query.definition.paused else _REGISTERED
    chain = list(_chain(plan, manifest, query.operator_id))
    since = max(progress.complete_since for _, progress in chain)
    percent = min(
        _percent(plan, manifest, operator, progress)
        for operator, progress in chain
        if derived_streams.owner_of(operator) == query.operator_id
    )
    if query.definition.paused:
        return Completeness(query.definition.state, percent, since)
    if percent < 100:
        return Completeness("backfilling", percent, since)
    backlog = emission_backlog((operator for operator, _ in chain), plan, manifest)
    return Completeness("emitting" if backlog else "live", percent, since)


def _chain(plan: EpochPlan, manifest: Manifest, operator: str) -> Iterator[tuple[str, OperatorProgress]]:
    """An operator and all those whose results it reads, with their progress."""
    yield operator, manifest.operator(operator)
    for union_input in inputs_of(plan.streams[plan.operators[operator].stream]):
        stream = plan.streams[union_input.stream]
        if stream.using == derived_streams.USING and derived_streams.operator_of(stream) in plan.operators:
            yield from _chain(plan, manifest, derived_streams.operator_of(stream))


def _percent(plan: EpochPlan, manifest: Manifest, operator: str, progress: OperatorProgress) -> int:
    end = manifest.length_of(plan.operators[operator].stream)
    if progress.replayed >= end:
        return 100
    return min(99, 100 * (progress.replayed - progress.since) // (end - progress.since))
