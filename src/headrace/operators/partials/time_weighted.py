"""Partials that use rows' event times: exponentially fading means, and the first or last value.

Both use each row's own event time (and position), so that cells combine in any order to the same result, whatever order
rows were folded in.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints
from headrace.operators.partials.central_moments import accumulated, means
from headrace.operators.partials.partial import Argument, Cells, Column, sums
from headrace.time import Duration

NOWHERE: Final = -1
"""The dictionary index of an empty cell."""


@dataclass(frozen=True, slots=True)
class Fading:
    """A mean in which a row counts half as much as one that is `half_life` younger: (latest time, weight, mean).

    Weights are relative to the latest row of the cell, whose weight is 1: they never overflow, and rows of one time
    have equal weights. An argument's values are (rows, 2) integers: the bits of a double, and the time in microseconds.
    """

    half_life: Duration
    width: int = 3
    subtracts: bool = False

    def lift(self, argument: Argument, cells: Ints, count: int) -> Cells:
        """The rows of each cell, weighted about its latest."""
        values, chosen = argument.values, cells
        if argument.valid is not None:
            values, chosen = values[argument.valid], cells[argument.valid]
        numbers = np.ascontiguousarray(values[:, 0]).view(np.float64)
        finite = np.where(np.isfinite(numbers), numbers, np.nan)
        return self._weighted(chosen, values[:, 1], np.ones(len(chosen)), finite, count)

    def _weighted(self, codes: Ints, at: Ints, weight: Column, mean: Column, count: int) -> Cells:
        latest = np.full(count, np.iinfo(np.int64).min)
        np.maximum.at(latest, codes, at)
        with np.errstate(all="ignore"):
            faded = weight * self._faded(latest[codes] - at)
            total = sums(codes, faded, count)
            centre = means(codes, mean, faded, total)
        spoilt = np.zeros(count, bool)
        spoilt[codes[np.isnan(mean)]] = True  # also by a value that has faded to nothing
        return latest, total, np.where(spoilt, np.nan, centre)

    def _faded(self, age: Ints) -> Column:
        faded: Column = np.exp2(-(age / self.half_life))
        return faded

    def identity(self, shape: tuple[int, ...]) -> Cells:
        """No rows, before all time."""
        return np.full(shape, np.iinfo(np.int64).min), np.zeros(shape), np.zeros(shape)

    def combine(self, left: Cells, right: Cells) -> Cells:
        """Both sides about the latest row of either."""
        (at_a, weight_a, mean_a), (at_b, weight_b, mean_b) = left, right
        none_a, none_b = weight_a == 0, weight_b == 0
        latest = np.maximum(at_a, at_b)
        with np.errstate(all="ignore"):
            faded_a = weight_a * self._faded(np.where(none_a, 0, latest - at_a))
            faded_b = weight_b * self._faded(np.where(none_b, 0, latest - at_b))
            total = faded_a + faded_b
            share = np.divide(faded_b, total, out=np.zeros_like(total), where=total > 0)
            mean = mean_a + (mean_b - mean_a) * share
        return latest, total, np.where(none_a, mean_b, np.where(none_b, mean_a, mean))

    def reduce(self, cells: Cells, codes: Ints, count: int) -> Cells:
        """All cells of a code about the latest row of any."""
        held = cells[1] > 0
        at, weight, mean = (part[held] for part in cells)
        return self._weighted(codes[held], at, weight, mean, count)

    def accumulate(self, cells: Cells) -> Cells:
        """Row by row along axis 0."""
        return accumulated(self.combine, cells)


@dataclass(frozen=True, slots=True)
class Placed:
    """The first or last row by (time, position): (time, position, index of its value in a dictionary).

    An argument's values are (rows, 3) integers, the same three.
    """

    last: bool
    width: int = 3
    subtracts: bool = False

    def lift(self, argument: Argument, cells: Ints, count: int) -> Cells:
        """The first or last row of each cell."""
        values, chosen = argument.values, cells
        if argument.valid is not None:
            values, chosen = values[argument.valid], cells[argument.valid]
        return self.reduce((values[:, 0], values[:, 1], values[:, 2]), chosen, count)

    @property
    def never(self) -> int:
        """A time that loses against every other."""
        limits = np.iinfo(np.int64)
        return int(limits.min if self.last else limits.max)

    def identity(self, shape: tuple[int, ...]) -> Cells:
        """No row."""
        return (
            np.full(shape, self.never),
            np.zeros(shape, np.int64),
            np.full(shape, NOWHERE, np.int64),
        )

    def combine(self, left: Cells, right: Cells) -> Cells:
        """The first or last of the two rows."""
        (at_a, position_a, index_a), (at_b, position_b, index_b) = left, right
        if self.last:
            after = (at_b > at_a) | ((at_b == at_a) & (position_b > position_a))
        else:
            after = (at_b < at_a) | ((at_b == at_a) & (position_b < position_a))
        right_wins = (index_b != NOWHERE) & (after | (index_a == NOWHERE))
        return tuple(np.where(right_wins, b, a) for a, b in zip(left, right, strict=True))

    def reduce(self, cells: Cells, codes: Ints, count: int) -> Cells:
        """The first or last row of each code."""
        held = np.flatnonzero(cells[2] != NOWHERE)
        at, position, index = (part[held] for part in cells)
        codes = codes[held]
        order = np.lexsort((position, at, codes))
        ordered = codes[order]
        edge = (
            np.r_[ordered[1:] != ordered[:-1], True]
            if self.last
            else np.r_[True, ordered[1:] != ordered[:-1]]
        )
        best = order[edge[: len(order)]]
        out = self.identity((count,))
        for column, values in zip(out, (at, position, index), strict=True):
            column[codes[best]] = values[best]
        return out

    def accumulate(self, cells: Cells) -> Cells:
        """Row by row along axis 0."""
        return accumulated(self.combine, cells)
