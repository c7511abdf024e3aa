"""Statistics of a series, exact in fractions and rounded once at the end: covariances and regressions, skewness and
kurtosis, exponentially weighted means; and the first or last value, or that of the row in which another is greatest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from headrace.reference.values import sort_key, unsigned
from headrace.time import Duration, Instant


def nearest(exact: Fraction) -> float:
    """The nearest double; infinite beyond the greatest."""
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def of_pairs(function: str, pairs: Sequence[tuple[float, float]]) -> float | None:
    """Statistics of pairs (y, x); NaN if a number is not finite, NULL for too few pairs."""
    n = len(pairs)
    if n < (1 if function in ("covar_pop", "regr_sxx", "regr_syy", "regr_sxy") else 2):
        return None
    if not all(math.isfinite(number) for pair in pairs for number in pair):
        return math.nan
    y, x = ([Fraction(pair[index]) for pair in pairs] for index in (0, 1))
    mean_y, mean_x = sum(y, Fraction(0)) / n, sum(x, Fraction(0)) / n
    yy = sum(((one - mean_y) ** 2 for one in y), Fraction(0))
    xx = sum(((one - mean_x) ** 2 for one in x), Fraction(0))
    xy = sum(((a - mean_y) * (b - mean_x) for a, b in zip(y, x, strict=True)), Fraction(0))
    plain = {
        "covar_pop": xy / n,
        "covar_samp": xy / max(1, n - 1),
        "regr_sxx": xx,
        "regr_syy": yy,
        "regr_sxy": xy,
    }
    if function in plain:
        return nearest(plain[function])
    return _of_line(function, mean_y, mean_x, yy, xx, xy)


def _of_line(
    function: str, mean_y: Fraction, mean_x: Fraction, yy: Fraction, xx: Fraction, xy: Fraction
) -> float | None:
    """The line y = intercept + slope·x of least squares, and its fit; none for a constant x."""
    if xx == 0 or (function == "corr" and yy == 0):
        return None
    match function:
        case "regr_slope":
            return nearest(xy / xx)
        case "regr_intercept":
            return nearest(mean_y - xy / xx * mean_x)
        case "regr_r2":
            return 1.0 if yy == 0 else nearest(xy * xy / (xx * yy))
        case _:
            return math.sqrt(nearest(xy * xy / (xx * yy))) * (-1 if xy < 0 else 1)


def of_shape(function: str, values: Sequence[Any]) -> float | None:
    """Skewness √n·Σd³/(Σd²)^1.5 or kurtosis n·Σd⁴/(Σd²)² - 3 of deviations d from the mean; NULL where all are equal."""
    if not values:
        return None
    if any(isinstance(value, float) and not math.isfinite(value) for value in values):
        return math.nan
    exact = [Fraction(value) for value in values]
    mean = sum(exact, Fraction(0)) / len(exact)
    second, third, fourth = (
        sum(((one - mean) ** power for one in exact), Fraction(0)) for power in (2, 3, 4)
    )
    if second == 0:
        return None
    if function == "kurtosis":
        return nearest(len(exact) * fourth / second**2 - 3)
    return math.sqrt(nearest(len(exact) * third**2 / second**3)) * (-1 if third < 0 else 1)


def faded_mean(values: Sequence[tuple[float, Instant]], half_life: Duration) -> float:
    """The mean of (number, time) pairs with the weights 2^-((latest - time) / half-life); NaN if a number is not finite."""
    if not all(math.isfinite(number) for number, _ in values):
        return math.nan
    latest = max(at for _, at in values)
    weights = [Fraction(2.0 ** -((latest - at) / half_life)) for _, at in values]
    total = sum(weights, Fraction(0))
    return nearest(
        sum((w * Fraction(v) for w, (v, _) in zip(weights, values, strict=True)), Fraction(0)) / total
    )


def of_order(function: str, placed: Sequence[tuple[Any, Instant, int]]) -> Any:
    """The value of the first or last by (time, position)."""
    best = min if function == "first" else max
    return best(placed, key=lambda row: row[1:])[0]


def of_another(function: str, chosen: Sequence[tuple[Any, Any]]) -> Any:
    """The second of the greatest or least (first, second), where NULLs come first; 0.0 for -0.0."""
    best = max if function == "max_by" else min
    return unsigned(best(chosen, key=sort_key)[1])
