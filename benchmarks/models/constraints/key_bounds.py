"""The values of a join attribute that k-constraints finish, from arrivals alone; and the distances from
which k follows. One object a constraint: clustered arrival (CA) and ordered arrival (OA).

Distances and k count arrivals on the stream. Source: Babu (2005), sections 6.7 and 6.8.
"""

from __future__ import annotations

from dataclasses import field
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from benchmarks.models.constraints.k_estimate import KEstimate
from headrace.dataclass import dataclass

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]


class KeyConstraint(Protocol):
    """A constraint on an attribute of a stream."""

    estimate: KEstimate

    def arrive(self, values: Ints) -> None:
        """Take in the values of a batch of arrivals, in order."""
        ...

    def finished(self, values: Ints) -> Bools:
        """Whether no later arrival has each of these values, if k holds."""
        ...

    def drop_but(self, held: Ints) -> None:
        """Values that are finished and not held are not asked for again."""
        ...

    @property
    def entries(self) -> int:
        """What it stores, in values."""
        ...


@dataclass(slots=True)
class Clustered:
    """CA(k): a value is finished once more than k arrivals with other values have come since its first one."""

    estimate: KEstimate
    arrived: int = 0
    _known: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    _count: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """By known value C_v: the arrivals of the stream when it first came, and one for each further arrival of its own."""

    def arrive(self, values: Ints) -> None:
        """Count the arrivals of each value; the distance of each is that from the first one."""
        if not len(values):
            return
        order = np.argsort(values, kind="stable")
        begins = np.ones(len(values), bool)
        begins[1:] = values[order[1:]] != values[order[:-1]]
        starts = np.flatnonzero(begins)
        group = np.cumsum(begins) - 1
        distinct, first = values[order[starts]], order[starts]
        rank = np.arange(len(values)) - starts[group]
        index = self._places(distinct)
        is_known = index >= 0
        before = np.where(
            is_known, self._count[index] + 1 if len(self._count) else 0, self.arrived + first + 1
        )
        distance = np.empty(len(values), np.int64)
        distance[order] = self.arrived + order + 1 - before[group] - rank
        after = before + np.diff(np.append(starts, len(values))) - 1
        self._count[index[is_known]] = after[is_known]
        self._known = np.concatenate([self._known, distinct[~is_known]])
        self._count = np.concatenate([self._count, after[~is_known]])
        sort = np.argsort(self._known, kind="stable")
        self._known, self._count = self._known[sort], self._count[sort]
        self.arrived += len(values)
        self.estimate.observe(distance)

    def finished(self, values: Ints) -> Bools:
        """The known values of which too many others came since."""
        index = self._places(values)
        if not len(self._known):
            return np.zeros(len(values), bool)
        return (index >= 0) & (self._count[index] < self.arrived - self.estimate.k)

    def drop_but(self, held: Ints) -> None:
        """Keep the values that are held, and those that may be needed to see how far k rises."""
        old = self._count < self.arrived - self.estimate.seen_to
        keep = ~old | np.isin(self._known, held)
        self._known, self._count = self._known[keep], self._count[keep]

    def _places(self, values: Ints) -> Ints:
        if not len(self._known):
            return np.full(len(values), -1)
        index = np.minimum(np.searchsorted(self._known, values), len(self._known) - 1)
        return np.where(self._known[index] == values, index, -1)

    @property
    def entries(self) -> int:
        """Two numbers a value."""
        return 2 * len(self._known)


@dataclass(slots=True)
class Ordered:
    """OA(k): a value is finished once it is below the maximum of all arrivals but the newest k."""

    estimate: KEstimate
    most: int = 100_000
    """No more maxima are stored, while k is not used."""
    _maxima: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """The running maximum after each of the newest arrivals, the newest last."""

    def arrive(self, values: Ints) -> None:
        """Extend the running maxima; the distance of each arrival is that from the first larger value before it."""
        if not len(values):
            return
        held = len(self._maxima)
        whole = np.maximum.accumulate(np.concatenate([self._maxima, values]))
        first = np.searchsorted(whole, values, side="right")
        self.estimate.observe(np.maximum(np.arange(held, held + len(values)) - first, 0))
        retained = int(min(self.estimate.seen_to, self.most)) + 1
        self._maxima = whole[-retained:]

    def finished(self, values: Ints) -> Bools:
        """The values below the bound."""
        back = self.estimate.k + 1
        if back > len(self._maxima):
            return np.zeros(len(values), bool)
        bound: int = self._maxima[-int(back)]
        return values < bound

    def drop_but(self, held: Ints) -> None:
        """Nothing is stored of single values."""

    @property
    def entries(self) -> int:
        """A number an arrival."""
        return len(self._maxima)
