"""Replay of a recorded trace of drops: the executor of filters without data, and the costs of running an algorithm on it.

A trace has for each row which filters drop it. Costs are counted in evaluations, weighted by each filter's cost: those of the
plan, and those that only profiling asked for. The series by chunk shows convergence and the speed of adaptation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TypeAlias

import numpy as np

from benchmarks.models.roles import Adaptation
from headrace.adaptive.filters.order_cost import Bools, Floats, Ints, Order, best_order, expected_cost
from headrace.adaptive.filters.ordering import FilterOrdering
from headrace.adaptive.filters.profile_window import DropProfile
from headrace.dataclass import dataclass

Sampler: TypeAlias = Callable[[int], Bools]
"""From a number of dropped rows to which of them are profiled."""


def bernoulli(share: float, seed: int) -> Sampler:
    """Each dropped row is profiled with this probability."""
    draws = np.random.default_rng(seed)
    return lambda rows: draws.random(rows) < share


@dataclass(slots=True)
class TraceExecutor:
    """Runs chunks of a trace: `dropped[r, f]`, with the cost of one evaluation of each filter."""

    dropped: Bools
    costs: Floats
    sampler: Sampler
    ordering: FilterOrdering
    chunk: int = 2000
    start: int = 0
    spent: list[float] = field(default_factory=list)
    """The cost of evaluation of each chunk."""
    profiling: list[float] = field(default_factory=list)
    """The cost of the evaluations that profiling adds, of each chunk."""

    def run(self, plan: Order) -> DropProfile:
        """Evaluate the next chunk in this order."""
        dropped = self.dropped[self.start : self.start + self.chunk]
        self.start += len(dropped)
        self.spent.append(expected_cost(dropped, plan, self.costs) * len(dropped))
        lost = dropped[dropped.any(axis=1)]
        sampled = lost[self.sampler(len(lost))]
        first = sampled[:, plan].argmax(axis=1)
        profile, extra = profiled(sampled, plan, first, self.ordering.wanted(first), self.costs)
        self.profiling.append(extra)
        return profile


def profiled(
    dropped: Bools, plan: Order, first: Ints, wanted: Bools, costs: Floats
) -> tuple[DropProfile, float]:
    """The profile of dropped rows with what is known of them, and the cost of the evaluations that it took besides."""
    known = wanted.copy()
    for position, one in enumerate(plan):
        known[:, one] |= first >= position
    profile = DropProfile(dropped & known, known, np.where(known, costs, np.nan))
    return profile, float(np.count_nonzero(wanted, axis=0) @ costs)


@dataclass(frozen=True, slots=True)
class Replayed:
    """An algorithm's run over a trace: costs by chunk, and the numbers of re-optimizations and of changed orders."""

    spent: Floats
    profiling: Floats
    reoptimizations: int
    order: Order

    @property
    def total(self) -> float:
        """All evaluations."""
        return float(self.spent.sum() + self.profiling.sum())


def replayed(
    dropped: Bools, costs: Floats, ordering: FilterOrdering, sampler: Sampler, chunk: int = 2000
) -> Replayed:
    """Run an algorithm over a whole trace."""
    executor = TraceExecutor(dropped, costs, sampler, ordering, chunk)
    adaptation = Adaptation[Order, DropProfile](executor, ordering, ordering)
    while executor.start < len(dropped):
        adaptation.step()
    return Replayed(
        np.asarray(executor.spent),
        np.asarray(executor.profiling),
        adaptation.reoptimizations,
        ordering.plan,
    )


def hindsight(dropped: Bools, costs: Floats, phases: list[slice]) -> float:
    """The cost of the best order of each phase of a trace."""
    parts = [dropped[phase] for phase in phases]
    return sum(expected_cost(part, best_order(part, costs), costs) * len(part) for part in parts)
