"""Estimates of totals over all rows of an archive from a part of them, with their covariances; of quantiles; and the errors of
what is computed from totals.

A *term* is what a row contributes to a total: 1, or a value; 0 where a condition does not hold. Two designs are known.

Rows. The rows of a stratum (the runs of which the same share was read) are a simple random sample without replacement: n of its N
rows, which the footers of the runs count. With y the contribution of a row and s(y, z) the sample covariance over the n rows:

    T = sum N mean(y)         Cov(T_y, T_z) = sum N^2 (1 - n / N) s(y, z) / n

Keys. Each key is in the sample with probability f, with all of its rows and independently of others. With y the sum over a key's rows:

    T = sum y / f             Cov(T_y, T_z) = sum y z (1 - f) / f^2           (Horvitz and Thompson 1952)

T is unbiased in both. One row shows no variance, so a stratum of which only one was read has the covariance of all rows that were read (collapsed
strata). The error is half the width of a 95 % interval, the root of the variance times the quantile of the normal distribution for a count, and of
Student's distribution for what is computed from values: with one degree of freedom less than there are units with a value, and for as many
deviations from a mean, so that one unit alone has an infinite error. It is 0 where everything was read. Of a smooth g(T) the variance is grad' Cov grad (a ratio of totals is biased by
about 1 / n). The interval of a quantile is where that of the share of rows below it meets p (Woodruff 1952). Source: Cochran, Sampling
Techniques, 1977, 2.4 to 2.9, 5.3 and 5A.12 (rows), 9A.7 (unequal groups); Särndal, Swensson and Wretman 1992, 5.5 and 5.11; Abramowitz and Stegun 26.7.5.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.dataclass import dataclass

Doubles: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

Z: Final = 1.959963984540054
"""Half the width of a 95 % interval of the normal distribution, in standard deviations."""
_FEW: Final = (
    *(np.inf, np.inf, 12.70620474, 4.30265273, 3.18244631, 2.77644511, 2.57058184),
    *(2.44691185, 2.36462425, 2.30600414, 2.26215716, 2.22813885),
)
"""That of Student's distribution, of so many units: one degree of freedom less."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The estimated totals of each group, (groups, terms), and their covariances, (groups, terms, terms).

    `units`, (groups, terms), is how many contribute of those that represent others; None where all represent themselves alone.
    """

    value: Doubles
    covariance: Doubles
    units: Doubles | None

    def deviation(self, gradient: Doubles) -> Doubles:
        """The standard deviation of a function of the totals with this gradient, (groups, terms); infinite where values are not finite."""
        used = gradient != 0  # else a total that is NaN would make all errors infinite
        covariance = np.where(used[:, :, None] & used[:, None, :], self.covariance, 0.0)
        with np.errstate(invalid="ignore"):
            variance = np.einsum("gi,gij,gj->g", gradient, covariance, gradient)
        variance = np.where(np.isnan(variance), np.inf, np.maximum(variance, 0))
        deviation: Doubles = np.sqrt(np.where(covariance.any(axis=(1, 2)), variance, 0.0))
        return deviation

    def units_of(self, terms: list[int]) -> Doubles:
        """In each group, the least number of units that contribute to one of some terms; infinite where none represents others."""
        if self.units is None:
            return np.full(len(self.value), np.inf)
        least: Doubles = self.units[:, terms].min(axis=1)
        return least


def reach(units: Doubles) -> Doubles:
    """Half the width of a 95 % interval, in standard deviations that were estimated from so many units; infinite below two.

    That is Student's quantile, times the root of n / (n - 1): deviations from a mean of n values are too small by that.

    >>> reach(np.array([1.0, 2.0, 11.0, np.inf])).round(3).tolist()
    [inf, 17.969, 2.337, 1.96]
    """
    less = 1 - 1 / np.maximum(units, 2)
    half: Doubles = student(units) / np.sqrt(less)
    return half


def student(units: Doubles) -> Doubles:
    """The quantile of Student's distribution, with a degree of freedom less than there are units."""
    free = np.maximum(units - 1, len(_FEW) - 1)
    wide = Z + (Z**3 + Z) / (4 * free) + (5 * Z**5 + 16 * Z**3 + 3 * Z) / (96 * free**2)
    wide += (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / (384 * free**3)
    wide += (79 * Z**9 + 776 * Z**7 + 1482 * Z**5 - 1920 * Z**3 - 945 * Z) / (92160 * free**4)
    few = np.array(_FEW)[np.minimum(units, len(_FEW) - 1).astype(np.int64)]
    quantiles: Doubles = np.where(units < len(_FEW), few, wide)
    return quantiles


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
    """An estimate and its error for each group. Where the estimate is NULL, as without any value, `known` is false."""

    value: Doubles
    error: Doubles
    known: npt.NDArray[np.bool_]


def of_rows(sums: Sums) -> Totals:
    """The totals from a sample of rows."""
    n, size = sums.sample, sums.population
    scale = np.divide(size, n, out=np.zeros_like(n), where=n > 0)
    value = np.einsum("s,sgt->gt", scale, sums.total)
    weight = scale * np.maximum(size - n, 0) / np.maximum(n - 1, 1)
    mean = sums.total / np.maximum(n, 1)[:, None, None]
    is_part = n < size
    alone = is_part & (n == 1)
    with np.errstate(invalid="ignore"):  # infinite values
        spread = sums.products - mean[:, :, :, None] * sums.total[:, :, None, :]
        covariance = np.einsum("s,sgij->gij", weight[is_part], spread[is_part])
        if alone.any():
            covariance += float((size[alone] * (size[alone] - 1)).sum()) * _pooled(sums)
    units = np.einsum("s,sgtt->gt", is_part.astype(np.float64), sums.products)
    return Totals(value, covariance, units if is_part.any() else None)


def _pooled(sums: Sums) -> Doubles:
    """The sample covariances of all rows that were read, of whatever stratum."""
    n, total = float(sums.sample.sum()), sums.total.sum(axis=0)
    spread = sums.products.sum(axis=0) - total[:, :, None] * total[:, None, :] / n
    pooled: Doubles = spread / max(n - 1, 1)
    return pooled


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
    units = np.zeros((groups, terms))
    np.add.at(units, group, contributions != 0)
    weight = (1 - share) / share**2
    covariance = products * weight if weight else np.zeros_like(products)
    return Totals(value / share, covariance, units if weight else None)


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
    """The value below which a share of the values is, and its error; between two values in proportion. There is at least one value.

    The error is the greater distance to the ends of the interval, so that it holds for values with gaps too; it is infinite where
    the interval ends beyond the rows that were read.
    """
    is_part = bool((of.sample < of.population).any())
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
    if not np.isfinite(middle):
        return middle, float("inf") if is_part else 0.0
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
