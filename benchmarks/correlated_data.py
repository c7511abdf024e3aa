"""Values for correlated aggregates: substitutes, made from seeds, for the data sets of Gehrke, Korn, Srivastava (2001).

USAGE: what customers use, lognormal(3, 2). ZIPF: ranks 1 to 100,000 with exponent 0.7 (the text prints 7, which would make nearly
all values equal). MULTIFRAC: binomial multifractal, 17 levels, 80-20. MGCTY: places around 40 towns on a map. All come in random order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
Generator = Callable[[int, np.random.Generator], Doubles]


def usage(rows: int, random: np.random.Generator) -> Doubles:
    return random.lognormal(3.0, 2.0, rows)


def zipf(rows: int, random: np.random.Generator, exponent: float = 0.7, ranks: int = 100_000) -> Doubles:
    shares = np.cumsum(np.arange(1, ranks + 1) ** -exponent)
    return 1.0 + np.searchsorted(shares / shares[-1], random.random(rows))


def multifrac(rows: int, random: np.random.Generator, levels: int = 17, bias: float = 0.8) -> Doubles:
    bits = random.random((rows, levels)) > bias
    return 1.0 + bits @ 2.0 ** np.arange(levels)[::-1]


def mgcty(rows: int, random: np.random.Generator, towns: int = 40) -> Doubles:
    centres = random.uniform(100, 1000, towns)
    return np.abs(random.choice(centres, rows) + random.normal(0, 15, rows)) + 1.0


GENERATORS: Mapping[str, Generator] = {"USAGE": usage, "ZIPF": zipf, "MULTIFRAC": multifrac, "MGCTY": mgcty}
FACTORS: Mapping[str, float] = {"USAGE": 100.0, "ZIPF": 1001.0, "MULTIFRAC": 100.0, "MGCTY": 2.0}
"""1 + eps of the queries about the minimum."""


def reversed_order(values: Doubles) -> Doubles:
    """The greatest first, so that the minimum and the mean fall all the time."""
    return np.sort(values)[::-1].copy()


def sudden_drop(values: Doubles) -> Doubles:
    """The first three fifths ten thousand times as great: late, the minimum falls at once, below all that its region held."""
    early = np.arange(len(values)) < len(values) * 3 // 5
    return np.where(early, 1e4 * values, values)


def great_first(values: Doubles) -> Doubles:
    """The greater three fifths first, then the others, both in their order."""
    great = values >= np.quantile(values, 0.4)
    return np.r_[values[great], values[~great]]
