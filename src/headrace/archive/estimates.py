"""Estimates of totals over all rows of an archive from a part of them, with their covariances; of quantiles; and the errors of
what is computed from totals.

A *term* is what a row contributes to a total: 1, or a value; 0 where a condition does not hold. Two designs are known.

Rows. The rows of a stratum (the runs of which the same share was read) are a simple random sample without replacement: n of its N
rows, which the footers of the runs count. With y the contribution of a row and s(y, z) the sample covariance over the n rows:

    T = sum N mean(y)         Cov(T_y, T_z) = sum N^2 (1 - n / N) s(y, z) / n

Keys. Each key is in the sample with probability f, with all of its rows and independently of others. With y the sum over a key's rows:

    T = sum y / f             Cov(T_y, T_z) = sum y z (1 - f) / f^2           (Horvitz and Thompson 1952)

T is unbiased in both. The error is half the width of a 95 % interval, z times the root of the variance; it is 0 where
everything was read. Of a smooth g(T) the variance is grad' Cov grad (a ratio of totals is biased by about 1 / n). The interval of a
quantile is where that of the share of rows below it meets p (Woodruff 1952). Source: Cochran, Sampling Techniques, 1977, 2.4
to 2.9 and 5.3 (rows), 9A.7 (unequal groups); Särndal, Swensson and Wretman 1992, 5.5 and 5.11.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Doubles: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

Z: Final = 1.959963984540054
"""Half the width of a 95 % interval of the normal distribution, in standard deviations."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The estimated totals of each group, (groups, terms), and their covariances, (groups, terms, terms).

    `unseen` is where no row contributes of those that represent others: then the covariance shows nothing.
    """

    value: Doubles
    covariance: Doubles
    unseen: npt.NDArray[np.bool_]

    def error(self, gradient: Doubles) -> Doubles:
        """The error of a function of the totals with this gradient, (groups, terms); infinite where values are not finite."""
        used = gradient != 0  # else a total that is NaN would make all errors infinite
        covariance = np.where(used[:, :, None] & used[:, None, :], self.covariance, 0.0)
        with np.errstate(invalid="ignore"):
            variance = np.einsum("gi,gij,gj->g", gradient, covariance, gradient)
        error: Doubles = Z * np.sqrt(np.where(np.isnan(variance), np.inf, np.maximum(variance, 0)))
        return error


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over the rows read of each stratum: contributions, (strata, groups, terms), and products of two of them.

    `population` and `sample` are N and n of each stratum. Rows that contribute nothing are in n alone.
    """

    population: Doubles
    sample: Doubles
    total: Doubles
    products: Doubles


@dataclass(frozen=True, slots=True)
class Estimates:
    """An estimate and its error for each group; NaN where no value was read."""

    value: Doubles
    error: Doubles


def of_rows(sums: Sums) -> Totals:
    """The totals from a sample of rows."""
    n, size = sums.sample, sums.population
    scale = np.divide(size, n, out=np.zeros_like(n), where=n > 0)
    value = np.einsum("s,sgt->gt", scale, sums.total)
    weight = scale * np.maximum(size - n, 0) / np.maximum(n - 1, 1)
    mean = sums.total / np.maximum(n, 1)[:, None, None]
    spread = sums.products - mean[:, :, :, None] * sums.total[:, :, None, :]
    is_part = n < size
    covariance = np.einsum("s,sgij->gij", weight[is_part], spread[is_part])
    seen = np.einsum("s,sgtt->gt", is_part.astype(np.float64), sums.products) > 0
    return Totals(value, covariance, ~seen & is_part.any())


def of_keys(share: float, group: Ints, contributions: Doubles, groups: int) -> Totals:
    """The totals from a sample of keys, of which each has a row of contributions in each of its groups."""
    terms = contributions.shape[1]
    value = np.zeros((groups, terms))
    np.add.at(value, group, contributions)
    products = np.zeros((groups, terms, terms))
    for one in range(terms):
        for other in range(one, terms):
            product = contributions[:, one] * contributions[:, other]
            products[:, one, other] = products[:, other, one] = np.bincount(group, product, groups)
    unseen = (np.einsum("gtt->gt", products) == 0) & (share < 1)
    return Totals(value / share, products * ((1 - share) / share**2), unseen)


def most_missed(share: float) -> float:
    """How many of the units that are drawn with a probability are missed, at most, where none is in the sample: with 95 %."""
    return 0.0 if share >= 1 else float(np.floor(np.log(0.05) / np.log1p(-share)))


@dataclass(frozen=True, slots=True)
class Weighted:
    """The values read of one group: each represents `weight` rows of its stratum, of which n of N rows were read."""

    value: Doubles
    weight: Doubles
    stratum: Ints
    population: Doubles
    sample: Doubles


def quantile(of: Weighted, share: float) -> tuple[float, float]:
    """The value below which a share of the values is, and its error; between two values in proportion. NaN without values.

    The error is the greater distance to the ends of the interval, so that it holds for values with gaps too; it is infinite where
    the interval ends beyond the rows that were read.
    """
    is_part = bool((of.sample < of.population).any())
    if not len(of.value):
        return float("nan"), float("inf") if is_part else float("nan")
    order = np.argsort(of.value, kind="stable")
    value, weight, stratum = of.value[order], of.weight[order], of.stratum[order]
    rank = np.cumsum(weight) - (weight + 1) / 2
    rows = float(weight.sum())

    def at(part: float) -> float:
        target = part * (rows - 1)
        upper = min(int(np.searchsorted(rank, target)), len(rank) - 1)
        lower = max(upper - 1, 0)
        if rank[upper] <= target or value[lower] == value[upper] or upper == lower:
            return float(value[upper])
        between = max(target - rank[lower], 0.0) / (rank[upper] - rank[lower])
        return float(value[lower] + between * (value[upper] - value[lower]))

    middle = at(share)
    below = (value <= middle) - share
    n, size = of.sample, of.population
    total = np.bincount(stratum, below, len(n))
    squares = np.bincount(stratum, below**2, len(n))
    spread = np.maximum(squares - total**2 / np.maximum(n, 1), 0) / np.maximum(n - 1, 1)
    scale = size * np.maximum(size - n, 0) / np.maximum(n, 1) / rows**2
    reach = Z * float(scale @ spread) ** 0.5
    if (
        abs(float(weight @ below)) / rows > reach
    ):  # many rows have the value itself, or it is the last one read
        held = np.bincount(stratum, minlength=len(n)) / np.maximum(n, 1)
        reach = Z * float(scale @ (held * share * (1 - share))) ** 0.5
    if reach == 0:
        return middle, float("inf") if is_part else 0.0
    if share - reach <= 0 or share + reach >= 1:  # the interval ends in rows that were not read
        return middle, float("inf")
    return middle, max(at(share + reach) - middle, middle - at(share - reach))
