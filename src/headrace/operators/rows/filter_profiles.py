"""The orders of conjunctions in force in a task, the clock that times their terms, and what was observed of each: for the pipelines
that are made in a block of code.

Outside such a block (INVOKE, tests) terms are evaluated in the guessed order, and nothing is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import numpy as np

from headrace.adaptive.filters.order_cost import Bools, Order
from headrace.adaptive.filters.ordering import OrderInForce
from headrace.observation import FilterObservation


@dataclass(slots=True)
class Tally:
    """Counts of one conjunction in a task, with those of a `FilterObservation`; by term: [evaluated, dropped, nanoseconds]."""

    order: Order
    terms: list[list[int]]
    rows: int = 0
    sampled: int = 0
    spent_on_sample: list[int] = field(default_factory=list)
    patterns: dict[int, int] = field(default_factory=dict)

    def add(self, term: int, evaluated: int, dropped: int, nanoseconds: int) -> None:
        """Add what a term did on a batch."""
        counts = self.terms[term]
        counts[0] += evaluated
        counts[1] += dropped
        counts[2] += nanoseconds

    def add_sample(self, dropped: Bools, nanoseconds: list[int]) -> None:
        """Add sampled rows: which terms drop each, and what each term took for all of them."""
        self.sampled += len(dropped)
        before = self.spent_on_sample or [0] * len(nanoseconds)
        self.spent_on_sample = [one + other for one, other in zip(before, nanoseconds, strict=True)]
        bits = dropped @ (1 << np.arange(dropped.shape[1]))
        sets, counts = np.unique(bits[bits > 0], return_counts=True)
        for code, rows in zip(sets.tolist(), counts.tolist(), strict=True):
            self.patterns[code] = self.patterns.get(code, 0) + rows

    def observation(self) -> FilterObservation:
        """The counts, as they travel in a receipt."""
        evaluated, dropped, nanoseconds = zip(*self.terms, strict=True)
        spent = tuple(self.spent_on_sample)
        return FilterObservation(
            self.order, self.rows, evaluated, dropped, nanoseconds, self.sampled, spent, self.patterns
        )


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
