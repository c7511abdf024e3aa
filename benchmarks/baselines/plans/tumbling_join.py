"""A tumbling equi-join of two edges, as both plans have it: out of order it takes punctuation for progress; behind ordered unions it gets
the same from their order. Its results are by the event time of the first input.

Source: Li 2008, Figure 7-2 as repaired: a row is stored while the other input may bring one of its window.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from benchmarks.baselines.plans.flows import NEVER, Flow, Rows


@dataclass(slots=True)
class TumblingJoin:
    """Pairs of rows of one window and key; the value of a pair is the event time of its second row."""

    window: int
    stored: list[Rows] = field(default_factory=lambda: [Rows(), Rows()])
    bounds: list[int] = field(default_factory=lambda: [NEVER, NEVER])
    emitted: int = NEVER

    @property
    def held(self) -> int:
        return len(self.stored[0]) + len(self.stored[1])

    def take(self, *inputs: Flow) -> Flow:
        first, second = (flow.rows for flow in inputs)
        pairs = [_pairs(first, self.stored[1], self.window)]
        pairs.append(_pairs(Rows.of([self.stored[0], first]), second, self.window))
        self.stored = [Rows.of([stored, flow.rows]) for stored, flow in zip(self.stored, inputs, strict=True)]
        self.bounds = [
            bound if flow.bound is None else max(bound, flow.bound)
            for bound, flow in zip(self.bounds, inputs, strict=True)
        ]
        for side in (0, 1):
            open_from = self._floor(self.bounds[1 - side])
            self.stored[side] = self.stored[side].where(self.stored[side].at >= open_from)
        complete = min(self._floor(self.bounds[1]), self.bounds[0])
        advanced = complete > self.emitted
        self.emitted = max(complete, self.emitted)
        return Flow(Rows.of(pairs), complete if advanced else None)

    def _floor(self, bound: int) -> int:
        return bound // self.window * self.window


def _pairs(left: Rows, right: Rows, window: int) -> Rows:
    """All pairs of one window and key."""
    if not len(left) or not len(right):
        return Rows()
    ours, theirs = _codes(left, right, window)
    order = np.argsort(theirs, kind="stable")
    low, high = (np.searchsorted(theirs[order], ours, side) for side in ("left", "right"))
    count = high - low
    one = np.repeat(np.arange(len(left)), count)
    other = order[np.arange(len(one)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(low, count)]
    return Rows(left.at[one], left.key[one], right.at[other])


def _codes(left: Rows, right: Rows, window: int) -> tuple[np.ndarray, np.ndarray]:
    """A number for each (window, key)."""
    keys = int(max(left.key.max(), right.key.max())) + 1
    return left.at // window * keys + left.key, right.at // window * keys + right.key
