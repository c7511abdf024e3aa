"""How much of what it should have seen has a query seen: is it live, and from when on do its answers have every row?

The one place that answers this, from a manifest alone, so that every process says the same. Whatever makes an operator
begin with part of the past (FROM NOW, an archive that has forgotten, a window resized at run time) says so once, in its
`OperatorProgress.complete_since`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from typing import Literal as Choice

from headrace.catalog.catalog import CatalogQuery
from headrace.runtime.backfill.union_replay import length
from headrace.runtime.home.home import Home
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.plan import derived_streams
from headrace.runtime.plan.plan_files import load_plan
from headrace.runtime.plan.union_streams import inputs_of
from headrace.runtime.progress.emission_backlog import emission_backlog
from headrace.store.logs.committed import OperatorProgress
from headrace.store.logs.manifest import Manifest
from headrace.time import BEGINNING, Instant

State = Choice["registered", "backfilling", "telling", "live", "paused", "failed"]


@dataclass(frozen=True, slots=True)
class Completeness:
    """`state`: "registered" (in force from the next epoch), "backfilling" (the past is being read), "telling" (it
    has more windows to tell than one epoch holds, and is at it), "live", "paused" or "failed" (suspended after it failed).

    `percent` of the past that has been read, rounded down. `complete_since`: answers that reach no further back than this
    instant have every row; `BEGINNING`: all answers have.
    """

    state: State
    percent: int = 100
    complete_since: Instant = BEGINNING

    def __str__(self) -> str:
        """`live`, `backfilling 40 %`, …"""
        return f"backfilling {self.percent} %" if self.state == "backfilling" else self.state


_REGISTERED: Final = Completeness("registered", 0)


def plan_in_force(home: Home, manifest: Manifest) -> EpochPlan:
    """The plan of the newest epoch: no query has to be bound to know what runs."""
    return load_plan(home.store, manifest.plan) if manifest.plan else EpochPlan()


def completeness(plan: EpochPlan, manifest: Manifest, query: CatalogQuery) -> Completeness:
    """Where a query stands in a manifest whose plan is `plan`."""
    if query.operator_id not in plan.operators:
        return Completeness(_at_rest(query), 0) if query.definition.paused else _REGISTERED
    chain = list(_chain(plan, manifest.operators, query.operator_id))
    since = max(place.complete_since for _, place in chain)
    own = [each for each in chain if derived_streams.owner_of(each[0]) == query.operator_id]
    percent = min(_percent(plan, manifest, operator, place) for operator, place in own)
    if query.definition.paused:
        return Completeness(_at_rest(query), percent, since)
    if percent < 100:
        return Completeness("backfilling", percent, since)
    late = emission_backlog((operator for operator, _ in chain), plan, manifest)
    return Completeness("telling" if late else "live", percent, since)


def _at_rest(query: CatalogQuery) -> State:
    return "paused" if query.definition.failure is None else "failed"


def _chain(
    plan: EpochPlan, places: Mapping[str, OperatorProgress], operator: str
) -> Iterator[tuple[str, OperatorProgress]]:
    """An operator and those whose results it reads, however far down, with where they stand."""
    yield operator, places[operator]
    for member in inputs_of(plan.streams[plan.operators[operator].stream]):
        stream = plan.streams[member.stream]
        if stream.using == derived_streams.USING and derived_streams.operator_of(stream) in plan.operators:
            yield from _chain(plan, places, derived_streams.operator_of(stream))


def _percent(plan: EpochPlan, manifest: Manifest, operator: str, place: OperatorProgress) -> int:
    whole = length(plan.streams[plan.operators[operator].stream], manifest)
    if place.replayed >= whole:
        return 100
    return min(99, 100 * (place.replayed - place.since) // (whole - place.since))
