"""Profiles of dropped rows, and the sliding window of the newest of them: which filters drop each row, which of that is known,
and what each filter's evaluation cost.

Only rows that some filter drops are profiled: a row that passes adds nothing to any count, and the entries that are compared
have one denominator.
Source: Babu (2005), section 4.2.1.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final

import numpy as np

from headrace.adaptive.filters.order_cost import Bools, Floats
from headrace.dataclass import dataclass

LEAST_COST: Final = 1e-9


@dataclass(frozen=True, slots=True)
class DropProfile:
    """Profiled rows: `dropped[r, f]` is whether filter f drops row r, where `known[r, f]`; `costs[r, f]` is what that
    evaluation cost, NaN where it was not measured.
    """

    dropped: Bools
    known: Bools
    costs: Floats

    @staticmethod
    def whole(dropped: Bools, costs: Floats) -> DropProfile:
        """The profile of rows of which all filters were evaluated; rows that pass are left out. `costs` is per filter."""
        chosen = dropped[dropped.any(axis=1)]
        return DropProfile(chosen, np.ones_like(chosen), np.broadcast_to(costs, chosen.shape))

    @property
    def rows(self) -> int:
        """Number of profiled rows."""
        return len(self.dropped)

    def part(self, rows: slice) -> DropProfile:
        """Some of the rows."""
        return DropProfile(self.dropped[rows], self.known[rows], self.costs[rows])

    def then(self, later: DropProfile) -> DropProfile:
        """These rows, and later ones."""
        return DropProfile(
            np.concatenate([self.dropped, later.dropped]),
            np.concatenate([self.known, later.known]),
            np.concatenate([self.costs, later.costs]),
        )


def nothing(filters: int) -> DropProfile:
    """A profile without rows."""
    return DropProfile(np.zeros((0, filters), bool), np.zeros((0, filters), bool), np.zeros((0, filters)))


@dataclass(slots=True)
class ProfileWindow:
    """The newest profiled rows, at most `size` of them, oldest first."""

    filters: int
    size: int
    held: DropProfile = field(init=False)

    def __post_init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Drop all rows."""
        self.held = nothing(self.filters)

    def add(self, profile: DropProfile) -> tuple[Bools, Bools]:
        """Add rows; returns what the rows that have entered drop, and those that have expired."""
        entered = profile.part(slice(max(0, profile.rows - self.size), None))
        joined = self.held.then(entered)
        cut = max(0, joined.rows - self.size)
        self.held = joined.part(slice(cut, None))
        return entered.dropped, joined.dropped[:cut]

    def costs(self, otherwise: Floats) -> Floats:
        """The mean cost of each filter in the window; `otherwise` where it was not measured."""
        is_measured = ~np.isnan(self.held.costs)
        count = np.count_nonzero(is_measured, axis=0)
        total = np.where(is_measured, self.held.costs, 0.0).sum(axis=0)
        mean = np.where(count > 0, total / np.maximum(count, 1), otherwise)
        return np.maximum(mean, LEAST_COST)
