"""Operators that need their rows in order, and emit them in order: what a plan has to hold where one stream is behind another.

`Sort` and `Merge` hold rows; `WindowCount` of the plan in order infers from a row that all before its time have come. Source: Li 2008,
section 8.2 and Figure 8-3.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from benchmarks.baselines.plans import out_of_order
from benchmarks.baselines.plans.flows import NEVER, Flow, Rows
from benchmarks.baselines.windows import Sliding


@dataclass(slots=True)
class Sort:
    """Holds rows until the punctuation has passed them, and emits them by event time."""

    waiting: Rows = field(default_factory=Rows)

    @property
    def held(self) -> int:
        return len(self.waiting)

    def take(self, *inputs: Flow) -> Flow:
        (flow,) = inputs
        self.waiting = Rows.of([self.waiting, flow.rows])
        if flow.bound is None:
            return Flow()
        ready = self.waiting.at < flow.bound
        emitted, self.waiting = self.waiting.where(ready).sorted(), self.waiting.where(~ready)
        return Flow(emitted, flow.bound)


@dataclass(slots=True)
class Merge:
    """An ordered union of ordered inputs: holds the rows of an input that is ahead until the others have reached them."""

    queues: list[Rows]
    reached: list[int]
    """Of each input: rows before this event time have all come."""
    emitted: int = NEVER

    @classmethod
    def of(cls, inputs: int) -> Merge:
        return cls([Rows()] * inputs, [NEVER] * inputs)

    @property
    def held(self) -> int:
        return sum(map(len, self.queues))

    def take(self, *inputs: Flow) -> Flow:
        for number, flow in enumerate(inputs):
            self.queues[number] = Rows.of([self.queues[number], flow.rows])
            latest = int(flow.rows.at[-1]) if len(flow.rows) else NEVER
            self.reached[number] = max(
                self.reached[number], latest, flow.bound if flow.bound is not None else NEVER
            )
        least = min(self.reached)
        ready = Rows.of([queue.where(queue.at < least) for queue in self.queues]).sorted()
        self.queues = [queue.where(queue.at >= least) for queue in self.queues]
        advanced = least > self.emitted
        self.emitted = max(least, self.emitted)
        return Flow(ready, least if advanced else None)


@dataclass(slots=True)
class WindowCount:
    """Counts by window and key of rows in order: a row completes the windows that end at its event time or before."""

    windows: Sliding
    open: out_of_order.WindowCount = field(init=False)
    reached: int = NEVER

    def __post_init__(self) -> None:
        self.open = out_of_order.WindowCount(self.windows)

    @property
    def held(self) -> int:
        return self.open.held

    def take(self, *inputs: Flow) -> Flow:
        (flow,) = inputs
        if (np.diff(flow.rows.at) < 0).any() or (len(flow.rows) and flow.rows.at[0] < self.reached):
            raise ValueError("Expected rows in order, found one before a row that came earlier.")
        latest = int(flow.rows.at[-1]) if len(flow.rows) else NEVER
        self.reached = max(self.reached, latest, flow.bound if flow.bound is not None else NEVER)
        return self.open.take(Flow(flow.rows, self.reached))
