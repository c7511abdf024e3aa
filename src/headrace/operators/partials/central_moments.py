"""Partials for variance, skewness, kurtosis, covariance and regression: counts, means and sums of products of
deviations, never sums of squares.

Cells hold deviations about their own mean. To combine cells, all are moved to one common mean first: a cell of n values
whose mean is d away adds n·d² to its second moment, and so on (Chan, Golub, LeVeque 1979; Pébay 2008). Means are taken
as distances from one of the values, so that equal values deviate by exactly 0, however they were cut.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headrace.dataclass import dataclass
from headrace.operators.base.group_codes import Ints
from headrace.operators.partials.partial import Argument, Cells, Column, sums


def means(codes: Ints, values: Column, weights: Column | None, total: Column) -> Column:
    """The (weighted) mean of each code as a distance from one of its values; 0 where there is none."""
    count = len(total)
    pivot = np.zeros(count)
    counts = np.ones(len(codes), bool) if weights is None else weights > 0
    pivot[codes[counts]] = values[counts]
    away = values - pivot[codes]
    moved = away if weights is None else np.where(counts, away * weights, 0.0)
    share = np.divide(sums(codes, moved, count), total, out=np.zeros(count), where=total > 0)
    mean: Column = pivot + share
    return mean


class _Centred:
    """Common part of partials about their own mean: cells are moved to a common centre, then added.

    The first column counts, the second is the mean, then follow the sums of powers of deviations.
    """

    __slots__ = ()
    width: int

    def _moved(self, number: Column, away: Column, deviations: Cells) -> Cells:
        """Sums of powers about another centre, from which each cell's mean is `away`."""
        raise NotImplementedError

    def identity(self, shape: tuple[int, ...]) -> Cells:
        """No rows."""
        return tuple(np.zeros(shape) for _ in range(self.width))

    def combine(self, left: Cells, right: Cells) -> Cells:
        """An empty side leaves the other unchanged, also if that is NaN or infinite."""
        (n_a, mean_a, *deviations_a), (n_b, mean_b, *deviations_b) = left, right
        number = n_a + n_b
        with np.errstate(all="ignore"):
            share = np.divide(n_b, number, out=np.zeros_like(number), where=number > 0)
            centre = mean_a + (mean_b - mean_a) * share
            moved_a = self._moved(n_a, mean_a - centre, tuple(deviations_a))
            moved_b = self._moved(n_b, mean_b - centre, tuple(deviations_b))
        both = (centre, *(a + b for a, b in zip(moved_a, moved_b, strict=True)))
        none_a, none_b = n_a == 0, n_b == 0
        columns = (
            np.where(none_a, b, np.where(none_b, a, whole))
            for a, b, whole in zip(left[1:], right[1:], both, strict=True)
        )
        return number, *columns

    def reduce(self, cells: Cells, codes: Ints, count: int) -> Cells:
        """Means of means, then deviations about them."""
        number, mean, *deviations = cells
        with np.errstate(all="ignore"):
            total = sums(codes, number, count)
            centre = means(codes, mean, number, total)
            moved = self._moved(number, mean - centre[codes], tuple(deviations))
            return total, centre, *(sums(codes, np.where(number > 0, part, 0.0), count) for part in moved)

    def accumulate(self, cells: Cells) -> Cells:
        """Row by row along axis 0."""
        return accumulated(self.combine, cells)


def accumulated(combine: Callable[[Cells, Cells], Cells], cells: Cells) -> Cells:
    """Prefix combinations along axis 0; each step is one vectorised combination."""
    out = tuple(part.copy() for part in cells)
    for row in range(1, len(cells[0])):
        step = combine(tuple(part[row - 1] for part in out), tuple(part[row] for part in cells))
        for part, value in zip(out, step, strict=True):
            part[row] = value
    return out


def _rows(argument: Argument, cells: Ints) -> tuple[Column, Ints]:
    """The rows that count, and their cells."""
    if argument.valid is None:
        return argument.values, cells
    return argument.values[argument.valid], cells[argument.valid]


@dataclass(frozen=True, slots=True)
class Moments(_Centred):
    """Count, mean and sum of squared deviations."""

    width: int = 3
    subtracts: bool = False

    def lift(self, argument: Argument, cells: Ints, count: int) -> Cells:
        """Two passes over the rows of the batch."""
        values, chosen = _rows(argument, cells)
        number = np.bincount(chosen, minlength=count).astype(np.float64)
        with np.errstate(all="ignore"):
            mean = means(chosen, values, None, number)
            return number, mean, sums(chosen, (values - mean[chosen]) ** 2, count)

    def _moved(self, number: Column, away: Column, deviations: Cells) -> Cells:
        return (deviations[0] + number * away**2,)


@dataclass(frozen=True, slots=True)
class Shape(_Centred):
    """Count, mean, and the sums of second, third and fourth powers of deviations: for skewness and kurtosis."""

    width: int = 5
    subtracts: bool = False

    def lift(self, argument: Argument, cells: Ints, count: int) -> Cells:
        """Two passes over the rows of the batch."""
        values, chosen = _rows(argument, cells)
        number = np.bincount(chosen, minlength=count).astype(np.float64)
        with np.errstate(all="ignore"):
            mean = means(chosen, values, None, number)
            away = values - mean[chosen]
            return number, mean, *(sums(chosen, away**power, count) for power in (2, 3, 4))

    def _moved(self, number: Column, away: Column, deviations: Cells) -> Cells:
        second, third, fourth = deviations
        square = away * away
        return (
            second + number * square,
            third + 3 * away * second + number * away * square,
            fourth + 4 * away * third + 6 * square * second + number * square * square,
        )


@dataclass(frozen=True, slots=True)
class CoMoments:
    """Of pairs (y, x): count, both means, and the sums of products of deviations yy, xx and xy.

    Everything about a line through the pairs follows: covariance, correlation, slope, intercept. A mean is two columns, one
    of the values and the distance from it: the mean of seconds since 1970 alone would be rounded to a quarter of a
    microsecond, which the line through a few seconds would show.
    """

    width: int = 8
    subtracts: bool = False

    def lift(self, argument: Argument, cells: Ints, count: int) -> Cells:
        """Two passes over the rows of the batch; values are (rows, 2). A non-finite number makes its cell NaN."""
        values, chosen = _rows(argument, cells)
        finite = np.isfinite(values[:, 0]) & np.isfinite(values[:, 1])
        y, x = (np.where(finite, values[:, column], np.nan) for column in (0, 1))
        ones, zeros = np.ones(len(y)), np.zeros(len(y))
        return self.reduce((ones, y, zeros, x, zeros, zeros, zeros, zeros), chosen, count)

    def identity(self, shape: tuple[int, ...]) -> Cells:
        """No rows."""
        return tuple(np.zeros(shape) for _ in range(self.width))

    def combine(self, left: Cells, right: Cells) -> Cells:
        """About the left one's value; an empty side leaves the other unchanged."""
        n_a, n_b = left[0], right[0]
        number = n_a + n_b
        with np.errstate(all="ignore"):
            share = np.divide(n_b, number, out=np.zeros_like(number), where=number > 0)
            means: list[Column] = []
            shifts: list[tuple[Column, Column]] = []
            for column in (1, 3):
                between = (right[column] - left[column]) + (right[column + 1] - left[column + 1])
                means += [left[column], left[column + 1] + between * share]
                shifts.append((-between * share, between * (1 - share)))
            (y_a, y_b), (x_a, x_b) = shifts
            products = (
                a + b + n_a * shift_a + n_b * shift_b
                for a, b, shift_a, shift_b in zip(
                    left[5:],
                    right[5:],
                    (y_a * y_a, x_a * x_a, y_a * x_a),
                    (y_b * y_b, x_b * x_b, y_b * x_b),
                    strict=True,
                )
            )
            both = (*means, *products)
        none_a, none_b = n_a == 0, n_b == 0
        columns = (
            np.where(none_a, b, np.where(none_b, a, whole))
            for a, b, whole in zip(left[1:], right[1:], both, strict=True)
        )
        return number, *columns

    def reduce(self, cells: Cells, codes: Ints, count: int) -> Cells:
        """Means of means, each as one of the values and the distance from it; then products about them."""
        held = cells[0] > 0
        if not held.all():
            cells, codes = tuple(part[held] for part in cells), codes[held]
        number, yy, xx, xy = cells[0], *cells[5:]
        total = sums(codes, number, count)
        means: list[Column] = []
        away: list[Column] = []
        with np.errstate(all="ignore"):
            for column in (1, 3):
                pivot = np.zeros(count)
                pivot[codes] = cells[column]
                distance = (cells[column] - pivot[codes]) + cells[column + 1]
                moved = sums(codes, number * distance, count)
                rest = np.divide(moved, total, out=np.zeros(count), where=total > 0)
                means += [pivot, rest]
                away.append(distance - rest[codes])
            dy, dx = away
            products = (yy + number * dy * dy, xx + number * dx * dx, xy + number * dy * dx)
            return total, *means, *(sums(codes, part, count) for part in products)

    def accumulate(self, cells: Cells) -> Cells:
        """Row by row along axis 0."""
        return accumulated(self.combine, cells)
