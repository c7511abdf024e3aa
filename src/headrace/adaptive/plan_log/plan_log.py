"""A log of the plans that an optimizer chose, with the statistics it chose them for: plans for statistics that recur, the statistics
whose changes change plans, and the changes that were undone soon.

Source: Babu (2005), chapter 8 (plan logging, a proposal); the look-up by nearest entries, and the measures, are worked out here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import field
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from headrace.adaptive.filters.order_cost import Floats, Order
from headrace.dataclass import dataclass

Optimizer: TypeAlias = Callable[[Floats], Order]
"""From statistics to the plan that is best for them."""


@dataclass(frozen=True, slots=True)
class Choice:
    """At a time, the plan that was chosen for these statistics."""

    time: int
    statistics: Floats
    plan: Order


@dataclass(slots=True)
class PlanLog:
    """The newest `most` choices. Statistics are near each other where none differs by more than `radius`: give them one scale."""

    radius: float
    most: int = 1000
    choices: deque[Choice] = field(init=False)

    def __post_init__(self) -> None:
        self.choices = deque(maxlen=self.most)

    def add(self, time: int, statistics: Floats, plan: Order) -> None:
        """Append what an optimizer chose."""
        self.choices.append(Choice(time, statistics, plan))

    def nearest(self, statistics: Floats) -> Choice | None:
        """The choice for the statistics nearest to these, the newest of equal ones; None where none is near."""
        if not self.choices:
            return None
        held = np.stack([choice.statistics for choice in reversed(self.choices)])
        distances = np.abs(held - statistics).max(axis=1)
        index = int(np.argmin(distances))
        return self.choices[-1 - index] if distances[index] <= self.radius else None

    def forget(self, choice: Choice) -> None:
        """Leave a choice out that has proved bad."""
        self.choices = deque((other for other in self.choices if other is not choice), self.most)

    def importance(self, optimizer: Optimizer) -> Floats:
        """By statistic, the share of the changes of the plan that its change alone explains: with the other statistics as they were
        before, the optimizer leaves the plan. The sum may be over 1, or under it where only several together do.
        """
        changes = self._changes()
        explained = np.zeros(len(self.choices[0].statistics) if self.choices else 0)
        for before, after in changes:
            for index in range(len(explained)):
                varied = before.statistics.copy()
                varied[index] = after.statistics[index]
                explained[index] += optimizer(varied) != optimizer(before.statistics)
        return explained / max(1, len(changes))

    def undone(self, within: int) -> float:
        """The share of changes of the plan that were undone, to the plan before, within a time: they followed transients."""
        changes = self._changes()
        undone = sum(
            later.plan == before.plan and later.time - after.time <= within
            for (before, after), (_, later) in pairwise(changes)
        )
        return undone / max(1, len(changes))

    def _changes(self) -> list[tuple[Choice, Choice]]:
        """Successive choices of different plans."""
        held = list(self.choices)
        return [(before, after) for before, after in pairwise(held) if before.plan != after.plan]
