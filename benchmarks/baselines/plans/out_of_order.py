"""Operators that rows pass in any order: punctuation alone decides what is complete.

`Input`, `Select`, `Apply`, `DuplicateElimination`, `Meld` and `WindowCount`, each with its rule for punctuation. `held` is the number of
rows or partials that an operator holds. Source: Li 2008, section 8.2 and Figure 8-2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from benchmarks.baselines.plans.flows import NEVER, Flow, Rows
from benchmarks.baselines.windows import Sliding


class Operator(Protocol):
    """A node of a plan: takes one step of all its inputs."""

    @property
    def held(self) -> int:
        """Rows or partials that it holds between steps."""
        ...

    def take(self, *inputs: Flow) -> Flow:
        """One step of each input to one of the output."""
        ...


@dataclass(slots=True)
class Input:
    """Blocks rows that break a punctuation of the source, and counts them; and punctuation that does not advance."""

    bound: int = NEVER
    blocked: int = 0
    held: int = 0

    def take(self, *inputs: Flow) -> Flow:
        (flow,) = inputs
        allowed = flow.rows.at >= self.bound
        self.blocked += int((~allowed).sum())
        advanced = flow.bound is not None and flow.bound > self.bound
        if flow.bound is not None and advanced:
            self.bound = flow.bound
        return Flow(flow.rows.where(allowed), flow.bound if advanced else None)


@dataclass(slots=True)
class Select:
    """Keeps the rows of which the predicate holds; punctuation passes unchanged."""

    predicate: Callable[[Rows], np.ndarray]
    held: int = 0

    def take(self, *inputs: Flow) -> Flow:
        (flow,) = inputs
        return Flow(flow.rows.where(self.predicate(flow.rows)), flow.bound)


@dataclass(slots=True)
class Apply:
    """Computes keys and values, as a projection does; the event time stays, or punctuation would mean nothing above."""

    function: Callable[[Rows], Rows]
    held: int = 0

    def take(self, *inputs: Flow) -> Flow:
        (flow,) = inputs
        computed = self.function(flow.rows)
        if not np.array_equal(computed.at, flow.rows.at):
            raise ValueError(
                "Expected the event times of the rows, found others: punctuation would not hold of them."
            )
        return Flow(computed, flow.bound)


@dataclass(slots=True)
class DuplicateElimination:
    """Emits the first row of each event time and key; drops what is below the punctuation."""

    seen: set[tuple[int, int]] = field(default_factory=set)

    @property
    def held(self) -> int:
        return len(self.seen)

    def take(self, *inputs: Flow) -> Flow:
        (flow,) = inputs
        first = np.zeros(len(flow.rows), bool)
        pairs = zip(flow.rows.at.tolist(), flow.rows.key.tolist(), strict=True)
        for position, pair in enumerate(pairs):
            first[position] = pair not in self.seen
            self.seen.add(pair)
        if flow.bound is not None:
            self.seen = {pair for pair in self.seen if pair[0] >= flow.bound}
        return Flow(flow.rows.where(first), flow.bound)


@dataclass(slots=True)
class Meld:
    """A union that holds no row: a bound for each input, and the least of them that was emitted."""

    bounds: list[int]
    emitted: int = NEVER
    held: int = 0

    @classmethod
    def of(cls, inputs: int) -> Meld:
        return cls([NEVER] * inputs)

    def take(self, *inputs: Flow) -> Flow:
        for number, flow in enumerate(inputs):
            if flow.bound is not None:
                self.bounds[number] = max(self.bounds[number], flow.bound)
        least = min(self.bounds)
        advanced = least > self.emitted
        self.emitted = max(least, self.emitted)
        return Flow(Rows.of([flow.rows for flow in inputs]), least if advanced else None)


@dataclass(slots=True)
class WindowCount:
    """Counts by window and key, one partial each; punctuation emits the windows that it passes, as rows at their ends."""

    windows: Sliding
    partials: dict[tuple[int, int], int] = field(default_factory=dict)
    emitted: int = NEVER

    @property
    def held(self) -> int:
        return len(self.partials)

    def take(self, *inputs: Flow) -> Flow:
        (flow,) = inputs
        self._add(flow.rows)
        if flow.bound is None:
            return Flow()
        complete = {pair: n for pair, n in self.partials.items() if self._end(pair[0]) <= flow.bound}
        self.partials = {pair: n for pair, n in self.partials.items() if pair not in complete}
        ordered = sorted(complete)
        emitted = Rows(
            np.array([self._end(window) for window, _ in ordered], np.int64),
            np.array([key for _, key in ordered], np.int64),
            np.array([complete[pair] for pair in ordered], np.int64),
        )
        bound = self._end(flow.bound // self.windows.slide)
        advanced = bound > self.emitted
        self.emitted = max(bound, self.emitted)
        return Flow(emitted, bound if advanced else None)

    def _end(self, window: int) -> int:
        return (window + 1) * self.windows.slide

    def _add(self, rows: Rows) -> None:
        low, high = self.windows.first_of(rows.at), self.windows.archive_list_of(rows.at)
        row = np.repeat(np.arange(len(rows)), high - low)
        offset = np.arange(len(row)) - np.repeat(np.cumsum(high - low) - (high - low), high - low)
        pairs, counts = np.unique(np.stack([low[row] + offset, rows.key[row]]), axis=1, return_counts=True)
        for window, key, n in zip(*pairs.tolist(), counts.tolist(), strict=True):
            self.partials[window, key] = self.partials.get((window, key), 0) + n
