"""Estimates of COUNT, SUM and AVG over all rows, and their errors, from the prefixes of runs that were read.

The rows of a stratum (the runs of which the same share was read) are a simple random sample without replacement: n of its N rows,
which the footers of the runs count. A row that does not pass the conditions, or is not of the group, contributes 0. Over the
strata, with y the contribution of a row, s^2 the variance of y among the n rows, and f = n / N:

    COUNT, SUM   T = sum N mean(y)                     variance  sum N^2 (1 - f) s^2 / n
    AVG          R = T(x) / T(1), e = x - R per row    variance  (sum N^2 (1 - f) s^2(e) / n) / T(1)^2

The error is half the width of a 95 % interval, z times the root of the variance; it is 0 where all rows were read. T is
unbiased; R is so up to 1 / n. Source: Cochran, Sampling Techniques, 1977, sections 2.4 (T), 2.9 (R) and 5.3 (strata).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Doubles: TypeAlias = npt.NDArray[np.float64]

Z: Final = 1.959963984540054
"""Half the width of a 95 % interval of the normal distribution, in standard deviations."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over the rows read of each stratum and group, in arrays (strata, groups): how many values, their sum, and that of squares.

    `population` and `sample` are N and n of each stratum.
    """

    population: Doubles
    sample: Doubles
    count: Doubles
    total: Doubles
    squares: Doubles


@dataclass(frozen=True, slots=True)
class Estimates:
    """An estimate and its error for each group; NaN where no value was read."""

    value: Doubles
    error: Doubles


def counted(sums: Sums) -> Estimates:
    """The number of values."""
    variance = _variance(sums, sums.count, sums.count)
    return Estimates(_expanded(sums, sums.count), Z * np.sqrt(variance))


def summed(sums: Sums) -> Estimates:
    """The sum of the values."""
    error = Z * np.sqrt(_variance(sums, sums.total, sums.squares))
    return _known(sums, Estimates(_expanded(sums, sums.total), error))


def averaged(sums: Sums) -> Estimates:
    """The mean of the values."""
    rows = _expanded(sums, sums.count)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = _expanded(sums, sums.total) / rows
        residuals = sums.total - mean * sums.count
        squares = sums.squares - 2 * mean * sums.total + mean**2 * sums.count
        error = Z * np.sqrt(_variance(sums, residuals, np.maximum(squares, 0))) / rows
    return _known(sums, Estimates(mean, error))


def _expanded(sums: Sums, of_sample: Doubles) -> Doubles:
    """The sum over all rows, from that over the rows read."""
    scale = np.divide(sums.population, sums.sample, out=np.zeros_like(sums.sample), where=sums.sample > 0)
    expanded: Doubles = scale @ of_sample
    return expanded


def _variance(sums: Sums, total: Doubles, squares: Doubles) -> Doubles:
    """The variance of an expanded sum, from the sum and the sum of squares of the contributions in the sample."""
    n, size = sums.sample[:, None], sums.population[:, None]
    unread = np.maximum(size - n, 0)
    spread = np.maximum(squares - total**2 / np.maximum(n, 1), 0) / np.maximum(n - 1, 1)
    variance: Doubles = (size * unread * spread / np.maximum(n, 1)).sum(axis=0)
    return variance


def _known(sums: Sums, estimates: Estimates) -> Estimates:
    """NaN for groups without a value."""
    missing = sums.count.sum(axis=0) == 0
    return Estimates(np.where(missing, np.nan, estimates.value), np.where(missing, np.nan, estimates.error))
