"""The orders of conjunctions in force in a task, the clock that times their terms, and what was observed of each: for the pipelines
that are made in a block of code.

Outside such a block (INVOKE, tests) terms are evaluated in the guessed order, and nothing is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from headrace.adaptive.filters.order_cost import Order
from headrace.observation import FilterObservation


@dataclass(frozen=True, slots=True)
class FilterProfiles:
    """Orders by the name of the conjunction, and the sums of what the task has observed. Without a `clock` (nanoseconds) nothing is."""

    orders: Mapping[str, Order] = field(default_factory=dict)
    clock: Callable[[], int] | None = None
    observed: dict[str, FilterObservation] = field(default_factory=dict)

    def add(self, name: str, seen: FilterObservation) -> None:
        """Add what was observed on a batch."""
        before = self.observed.get(name)
        self.observed[name] = seen if before is None else before.plus(seen)


_IN_FORCE: ContextVar[FilterProfiles] = ContextVar("filter_profiles", default=FilterProfiles())  # noqa: B039 - never changed without a clock


@contextmanager
def profiling(orders: Mapping[str, Order], clock: Callable[[], int]) -> Iterator[FilterProfiles]:
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
