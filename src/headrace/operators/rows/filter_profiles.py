"""The orders of conjunctions in force in a task, the clock that times their terms, and what was observed of each: for the pipelines
that are made in a block of code.

Outside such a block (INVOKE, tests) terms are evaluated in the guessed order, and nothing is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field

import numpy as np

from headrace.adaptive.filters.order_cost import Bools, Ints, Order
from headrace.adaptive.filters.ordering import OrderInForce
from headrace.dataclass import dataclass
from headrace.observation import FilterObservation


@dataclass(slots=True)
class Tally:
    """Counts of one conjunction in a task, with those of a `FilterObservation`; by term: [evaluated, dropped, nanoseconds]."""

    order: Order
    terms: list[list[int]]
    rows: int = 0
    sampled: int = 0
    spent_on_sample: list[int] = field(default_factory=list)
    evaluated_in_sample: list[int] = field(default_factory=list)
    patterns: dict[int, int] = field(default_factory=dict)

    def add(self, term: int, evaluated: int, dropped: int, nanoseconds: int) -> None:
        """Add what a term did on a batch."""
        counts = self.terms[term]
        counts[0] += evaluated
        counts[1] += dropped
        counts[2] += nanoseconds

    def add_sample(self, dropped: Bools, nanoseconds: list[int], weights: Ints, evaluated: list[int]) -> None:
        """Add sampled rows: which terms drop each, and how many rows it counts for; and of each term on how many it was evaluated, and
        how long that took.
        """
        self.sampled += int(weights.sum())
        nothing = [0] * len(nanoseconds)
        self.spent_on_sample = _added(self.spent_on_sample or nothing, nanoseconds)
        self.evaluated_in_sample = _added(self.evaluated_in_sample or nothing, evaluated)
        bits = dropped @ (1 << np.arange(dropped.shape[1]))
        counts = np.bincount(bits, weights)
        for code in np.flatnonzero(counts[1:]).tolist():
            self.patterns[code + 1] = self.patterns.get(code + 1, 0) + int(counts[code + 1])

    def observation(self) -> FilterObservation:
        """The counts, as they travel in a receipt."""
        evaluated, dropped, nanoseconds = zip(*self.terms, strict=True)
        spent, in_sample = tuple(self.spent_on_sample), tuple(self.evaluated_in_sample)
        return FilterObservation(
            self.order,
            self.rows,
            evaluated,
            dropped,
            nanoseconds,
            self.sampled,
            spent,
            self.patterns,
            in_sample,
        )


def _added(one: list[int], other: list[int]) -> list[int]:
    return [sum(both) for both in zip(one, other, strict=True)]


@dataclass(frozen=True, slots=True)
class FilterProfiles:
    """Orders by the name of the conjunction, and a tally of each that was evaluated. Without a `clock` (nanoseconds) there is none."""

    orders: Mapping[str, OrderInForce] = field(default_factory=dict)
    clock: Callable[[], int] | None = None
    tallies: dict[str, Tally] = field(default_factory=dict)

    def tally(self, name: str, order: Order) -> Tally:
        """The tally of a conjunction, which pipelines with the same one share."""
        return self.tallies.setdefault(name, Tally(order, [[0, 0, 0] for _ in order]))

    def observed(self) -> dict[str, FilterObservation]:
        """The counts of the conjunctions that got rows."""
        return {name: tally.observation() for name, tally in self.tallies.items() if tally.rows}


_IN_FORCE: ContextVar[FilterProfiles] = ContextVar("filter_profiles", default=FilterProfiles())  # noqa: B039 - never changed without a clock


@contextmanager
def profiling(orders: Mapping[str, OrderInForce], clock: Callable[[], int]) -> Iterator[FilterProfiles]:
    """Orders and a clock for all pipelines that are made inside the block; yields what is observed."""
    profiles = FilterProfiles(orders, clock)
    token = _IN_FORCE.set(profiles)
    try:
        yield profiles
    finally:
        _IN_FORCE.reset(token)


def in_force() -> FilterProfiles:
    """Those of the innermost `profiling` block."""
    return _IN_FORCE.get()
