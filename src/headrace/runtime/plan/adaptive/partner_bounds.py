"""Bounds of joins that find constraints, on delays between rows of two sides and on the order of one side's keys: what state tasks observed,
added by join, and the choice after every epoch of the bounds by which rows are dropped.

The bounds are facts of the manifest: an epoch that is run again drops the same rows. What they were found by is in memory only: another
driver continues with the bounds, and lowers them once it has measured for as long itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from itertools import permutations
from typing import Any, Final

from headrace.adaptive.constraints.partner_delays import DelayEstimate, Delays, PartnerBound, wait_briefly
from headrace.dataclass import dataclass
from headrace.observation import NO_DELAY, DelayObservation
from headrace.operators.joins.probing import key_monitor
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.task_messages import StateReceipt
from headrace.runtime.plan import derived_streams
from headrace.store.logs.manifest import Manifest
from headrace.time import Duration

PARTNER_BOUNDS: Final = "partner bounds"
"""In a manifest's facts: of joins that find constraints, the name, the fields of each bound, how many combinations beyond one were
noticed, and how many there were, as estimated.
"""


@dataclass(frozen=True, slots=True)
class JoinBounds:
    """The bounds of a join that were ever in force, and combinations that were left out: those that were noticed, and an estimate of all."""

    bounds: tuple[PartnerBound, ...] = ()
    noticed: int = 0
    estimated: int = 0

    @staticmethod
    def of(fields: Iterable[Any]) -> JoinBounds:
        """From a manifest's fact."""
        bounds, noticed, estimated = fields
        return JoinBounds(
            tuple(
                PartnerBound(parent, child, within, k, tuple((at, former) for at, former in before), *kind)
                for parent, child, within, k, before, *kind in bounds
            ),
            noticed,
            estimated,
        )

    @property
    def fields(self) -> list[Any]:
        """The inverse."""
        bounds = [
            [
                bound.parent,
                bound.child,
                bound.within,
                bound.k,
                [list(entry) for entry in bound.former],
                bound.kind,
            ]
            for bound in self.bounds
        ]
        return [bounds, self.noticed, self.estimated]

    def then(self, bounds: Iterable[PartnerBound], seen: DelayObservation) -> JoinBounds:
        """After an epoch. Of sampled keys all combinations beyond a bound are noticed, of others some."""
        known = tuple(bound for bound in bounds if bound.within is not None or bound.former)
        estimated = max(seen.left_out, round(seen.left_out_sampled / key_monitor.SHADOWS))
        return JoinBounds(known, self.noticed + seen.left_out, self.estimated + estimated)


def join_bounds(manifest: Manifest) -> dict[str, JoinBounds]:
    """By join, its bounds and what was left out, as decided after the last epoch."""
    return {name: JoinBounds.of(fields) for name, fields in manifest.facts.get(PARTNER_BOUNDS, {}).items()}


def partner_bounds(manifest: Manifest) -> dict[str, tuple[PartnerBound, ...]]:
    """By join, the bounds by which it drops rows in the next epoch."""
    return {name: known.bounds for name, known in join_bounds(manifest).items() if known.bounds}


def bounds_by_query(manifest: Manifest) -> dict[str, list[tuple[str, JoinBounds]]]:
    """The same by the operator of the query whose joins they are."""
    by_query: dict[str, list[tuple[str, JoinBounds]]] = {}
    for name, known in join_bounds(manifest).items():
        by_query.setdefault(derived_streams.owner_of(name), []).append((name, known))
    return by_query


def observed_delays(receipts: Iterable[StateReceipt]) -> dict[str, DelayObservation]:
    """By join, the sums over state tasks."""
    sums: dict[str, DelayObservation] = {}
    for receipt in receipts:
        for name, seen in receipt.delays.items():
            sums[name] = sums[name].plus(seen) if name in sums else seen
    return sums


@dataclass(slots=True)
class JoinEstimates:
    """The estimates of one join, by the bound to find: of each ordered pair of sides, and two of each side."""

    _known: dict[PartnerBound, DelayEstimate] = field(default_factory=dict)

    def take(self, seen: DelayObservation, longest: Duration | None) -> tuple[PartnerBound, ...]:
        """The bounds after an epoch. Those of the keys of sides that others wait for briefly are left, as they would save next to nothing."""
        for unknown, delays in _delays(seen):
            self._known.setdefault(unknown, DelayEstimate(unknown)).observe(delays, longest)
        bounds = [estimate.bound for estimate in self._known.values()]
        sides = range(len(seen.punctuations))
        brief = {side for side in sides if wait_briefly(bounds, side, len(sides), longest)}
        passed_over = {side for side in sides if seen.rows[side] and not _are_compared(seen, side)}
        left = [
            unknown
            for unknown, estimate in self._known.items()
            if unknown.kind != "partner"
            and (unknown.parent in brief or (unknown.parent in passed_over and estimate.bound.within is None))
        ]
        for unknown in left:  # measured from the start, if its keys are compared again
            del self._known[unknown]
        return tuple(estimate.bound for estimate in self._known.values()) if left else tuple(bounds)

    def begin_with(self, bounds: Iterable[PartnerBound]) -> JoinEstimates:
        """Estimates with these bounds in force."""
        for bound in bounds:
            unknown = PartnerBound(bound.parent, bound.child, kind=bound.kind)
            self._known[unknown] = DelayEstimate(bound)
        return self


def _are_compared(seen: DelayObservation, side: int) -> bool:
    """Whether new rows of a side were compared by their keys; joins pass over those that would finish few rows."""
    return bool(seen.keys) and seen.keys[side].latest != NO_DELAY


def _delays(seen: DelayObservation) -> Iterator[tuple[PartnerBound, Delays]]:
    """The bounds of which an epoch shows something, not found yet, and what it shows."""
    least, sides = min(seen.punctuations), range(len(seen.punctuations))
    for parent, child in permutations(sides, 2):
        largest = seen.delays[parent * len(sides) + child]
        if largest != NO_DELAY:
            delays = Delays(seen.pairs, largest, seen.latest, seen.punctuations[child], least)
            yield PartnerBound(parent, child), delays
    for side, times in enumerate(seen.keys):
        until = seen.punctuations[side]
        if times.rows:
            repeated = Delays(times.rows, times.repeated, times.latest, until, least)
            yield PartnerBound(side, side, kind="clustered"), repeated
        if times.in_order:
            inverted = Delays(times.in_order, times.inverted, times.latest, until, least)
            yield PartnerBound(side, side, kind="ordered"), inverted


@dataclass(slots=True)
class PartnerBounds:
    """The estimates of joins that find constraints, in the driver."""

    _joins: dict[str, JoinEstimates] = field(default_factory=dict)

    def decided(
        self, manifest: Manifest, observed: Mapping[str, DelayObservation], plan: EpochPlan
    ) -> Manifest:
        """The manifest with the bounds for the next epoch; joins that were not observed keep theirs, while the plan has them."""
        if not any(seen.uses for seen in observed.values()) and PARTNER_BOUNDS not in manifest.facts:
            return manifest
        joins = {name: known for name, known in join_bounds(manifest).items() if name in plan.operators}
        for name, seen in observed.items():
            if seen.uses and name in plan.operators:
                before = joins.get(name, JoinBounds())
                if name not in self._joins:
                    self._joins[name] = JoinEstimates().begin_with(before.bounds)
                bounds = self._joins[name].take(seen, plan.operators[name].longest_stored)
                joins[name] = before.then(bounds, seen)
        self._joins = {name: known for name, known in self._joins.items() if name in plan.operators}
        facts = {name: value for name, value in manifest.facts.items() if name != PARTNER_BOUNDS}
        fields = {name: known.fields for name, known in joins.items() if known != JoinBounds()}
        return replace(manifest, facts={**facts, PARTNER_BOUNDS: fields} if fields else facts)
