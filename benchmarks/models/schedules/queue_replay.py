"""Replay of batches that queue before the operators of a path: how many elements are queued over time under FIFO, Greedy and Chain,
and the least that any strategy could queue.

Batches of one element arrive at given times. One operator at a time takes a whole batch from its queue and, after its time,
puts what is left into the next queue. Elements are counted at the arrivals, after the new batch has come.
Source: Babu (2005), section 4.3: the strategies and the table of queue sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cache
from typing import TypeAlias

from benchmarks.models.schedules.chains import Chain, PathOperator, chains, sizes_of
from headrace.dataclass import dataclass


@dataclass(slots=True)
class Queues:
    """Before each operator the arrival numbers of the batches that wait there, oldest first."""

    path: Sequence[PathOperator]
    waiting: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.waiting = [[] for _ in self.path]

    @property
    def ready(self) -> list[int]:
        """The operators that have a batch."""
        return [operator for operator, batches in enumerate(self.waiting) if batches]

    def queued(self) -> float:
        """Elements in all queues."""
        sizes = sizes_of(self.path)
        return sum(size * len(batches) for size, batches in zip(sizes, self.waiting, strict=False))

    def pass_on(self, operator: int) -> None:
        """Move an operator's oldest batch into the next queue, or out of the path."""
        batch = self.waiting[operator].pop(0)
        if operator + 1 < len(self.path):
            self.waiting[operator + 1].append(batch)


Strategy: TypeAlias = Callable[[Queues], int]
"""From the queues, at least one of which has a batch, to the operator that runs next."""


def fifo(queues: Queues) -> int:
    """The operator of the batch that arrived first: a batch goes through all operators before the next one begins."""
    return min(queues.ready, key=lambda operator: queues.waiting[operator][0])


def greedy(queues: Queues) -> int:
    """The operator that takes most elements out of memory per unit of time; the earliest batch's of equal ones."""
    sizes = sizes_of(queues.path)

    def rank(operator: int) -> tuple[float, int]:
        fall = (sizes[operator] - sizes[operator + 1]) / queues.path[operator].time
        return -fall, queues.waiting[operator][0]

    return min(queues.ready, key=rank)


def chain_strategy(path: Sequence[PathOperator]) -> Strategy:
    """Chain: the operator of the chain with the steepest slope; within chains of one slope, of the batch that arrived first."""
    chain_of: list[Chain] = [chain for chain in chains(path) for _ in range(chain.first, chain.end)]

    def chosen(queues: Queues) -> int:
        return min(
            queues.ready,
            key=lambda operator: (-chain_of[operator].slope, queues.waiting[operator][0]),
        )

    return chosen


def replayed(path: Sequence[PathOperator], arrivals: Sequence[float], strategy: Strategy) -> list[float]:
    """The elements that are queued just after each arrival; an operator that runs counts as having its whole batch until it ends."""
    processor, sizes = _Processor(Queues(path), strategy), list[float]()
    for number, arrival in enumerate(arrivals):
        processor.run_until(arrival)
        processor.queues.waiting[0].append(number)
        sizes.append(processor.queues.queued())
    return sizes


@dataclass(slots=True)
class _Processor:
    """Runs one operator at a time; one that has started is not interrupted."""

    queues: Queues
    strategy: Strategy
    running: int | None = None
    ends: float = 0.0
    """When the operator that runs ends, or the last one ended."""

    def run_until(self, time: float) -> None:
        """End and begin operators up to a time; one that would begin just then is chosen after the arrival."""
        while True:
            if self.running is not None:
                if self.ends > time:
                    return
                self.queues.pass_on(self.running)
                self.running = None
            if not self.queues.ready or self.ends >= time:
                self.ends = max(self.ends, time)
                return
            self.running = self.strategy(self.queues)
            self.ends += self.queues.path[self.running].time


def least_queued(path: Sequence[PathOperator], batches: int) -> float:
    """The least mean of elements queued at the arrivals of `batches` batches, one a unit of time, over all ways to run operators that
    take a unit of time each: by search of all states, for a few batches and operators.
    """
    sizes = sizes_of(path)

    @cache
    def least(time: int, waiting: tuple[int, ...]) -> float:
        arrived = (waiting[0] + 1, *waiting[1:])
        queued = sum(size * count for size, count in zip(sizes, arrived, strict=False))
        if time == batches - 1:
            return queued
        return queued + min(least(time + 1, after) for after in _after(arrived))

    return least(0, (0,) * len(path)) / batches


def _after(waiting: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The states after one operator has run; an idle unit is never better."""
    states = []
    for operator, count in enumerate(waiting):
        if count:
            after = list(waiting)
            after[operator] -= 1
            if operator + 1 < len(after):
                after[operator + 1] += 1
            states.append(tuple(after))
    return states


def pulled_peak(path: Sequence[PathOperator]) -> float:
    """The most elements queued where the next batch is read only once all queues are empty, as tasks read theirs."""
    return max(sizes_of(path))


def least_peak(path: Sequence[PathOperator], batches: int) -> float:
    """The least that can be queued at most, over all ways to take `batches` batches through a path that may also be read before the queues
    are empty: by search of all states, for a few batches and operators.
    """
    sizes = sizes_of(path)

    @cache
    def least(left: int, waiting: tuple[int, ...]) -> float:
        queued = sum(size * count for size, count in zip(sizes, waiting, strict=False))
        states = [(left, after) for after in _after(waiting)]
        states += [(left - 1, (waiting[0] + 1, *waiting[1:]))] if left else []
        return max(queued, min((least(*state) for state in states), default=0.0))

    return least(batches, (0,) * len(path))
