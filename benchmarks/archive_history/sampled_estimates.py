"""A thousand samples of the same rows: how far estimates are from the truth on average, and how often their intervals hold it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.archive.blocks import hashes_of
from headrace.archive.estimates import Sums, Totals, Weighted, Z, of_keys, of_rows, quantile, reach

SIZES: Final = (3000, 1800, 1200)
"""Rows of three strata, whose values differ."""
SHARES: Final = (0.1, 0.25, 1.0)
"""What is read of each: of the last one everything."""
KEYS, SHARE_OF_KEYS = 1500, 0.2
Doubles: TypeAlias = npt.NDArray[np.float64]
FUNCTIONS: Final[Mapping[str, tuple[Doubles, Doubles | None]]] = {
    "COUNT": (np.array([1.0, 0, 0, 0]), None),
    "SUM": (np.array([0, 1.0, 0, 0]), None),
    "AVG": (np.array([0, 1.0, 0, 0]), np.array([1.0, 0, 0, 0])),
    "ratio of sums": (np.array([0, 1.0, 0, 0]), np.array([0, 0, 1.0, 0])),
    "difference of sums": (np.array([0, 1.0, -2.0, 0]), None),
    "COUNT DISTINCT": (np.array([0, 0, 0, 1.0]), None),
}
"""Of the totals of a count, a value, another one and the number of keys: a weighted sum, or a ratio of two."""


@dataclass(frozen=True, slots=True)
class Estimated:
    """An estimator over all seeds: the mean error in standard errors of that mean, and in standard deviations of an estimate; the part of the intervals
    that held the truth. What is `linear` in totals is unbiased; a ratio, or a quantile, has a bias of about a deviation by the root of the number of rows.
    """

    name: str
    is_linear: bool
    bias: float
    off: float
    coverage: float


def estimated(seeds: int) -> list[Estimated]:
    """Every estimator from samples of rows, and from samples of keys."""
    rows, keys = _rows(), _keys()
    found = []
    for design, whole, names in (
        ("rows", sum(each.sum(axis=0) for each in rows), list(FUNCTIONS)[:-1]),
        ("keys", keys.sum(axis=0), list(FUNCTIONS)),
    ):
        drawn = [_of_rows(rows, seed) if design == "rows" else _of_keys(keys, seed) for seed in range(seeds)]
        for name in names:
            pairs = np.array([_value(name, totals) for totals in drawn])
            truth = _of(name, np.asarray(whole))[0]
            found.append(_estimated(f"{name}, {design}", pairs, truth, is_linear=FUNCTIONS[name][1] is None))
    return [*found, *_quantiles(rows, seeds)]


def _estimated(name: str, pairs: Doubles, truth: float, *, is_linear: bool = False) -> Estimated:
    errors = pairs[:, 0] - truth
    off = float(errors.mean() / errors.std(ddof=1))
    held = float((np.abs(errors) <= pairs[:, 1]).mean())
    return Estimated(name, is_linear, off * len(errors) ** 0.5, off, held)


def _quantiles(rows: list[Doubles], seeds: int) -> Iterator[Estimated]:
    whole = np.concatenate([each[each[:, 0] > 0, 1] for each in rows])
    for share in (0.5, 0.9):
        pairs = np.array([quantile(_weighted(rows, seed), share) for seed in range(seeds)])
        yield _estimated(f"PERCENTILE {share:g}, rows", pairs, float(np.quantile(whole, share)))


def _of(name: str, total: Doubles) -> tuple[float, Doubles]:
    """The function of totals, and its gradient."""
    above, below = FUNCTIONS[name]
    if below is None:
        return float(above @ total), above
    value = float(above @ total) / float(below @ total)
    return value, (above - value * below) / float(below @ total)


def _value(name: str, totals: Totals) -> tuple[float, float]:
    """The estimate and its error: a count has the normal quantile, what is computed from values Student's."""
    value, gradient = _of(name, totals.value[0])
    terms = [number for number in (1, 2) if gradient[number]]
    width = reach(totals.units_of(terms))[0] if terms else Z
    return value, float(width * totals.deviation(gradient[None])[0])


def _rows() -> list[Doubles]:
    """Of each stratum the terms of its rows: whether it passes, its value and another one if it does, and a term that is not used."""
    rng, found = np.random.default_rng(3), []
    for number, size in enumerate(SIZES):
        passes = (rng.random(size) < 0.4 + 0.2 * number).astype(float)
        value = rng.gamma(2.0, 20.0 + 10 * number, size)
        found.append(
            np.stack(
                [passes, passes * value, passes * (value * rng.uniform(0.5, 1.5, size) + 5), 0 * passes],
                axis=1,
            )
        )
    return found


def _keys() -> Doubles:
    """Of each key the terms of all its rows together; the last one is 1 where one passes."""
    rng = np.random.default_rng(4)
    rows = rng.geometric(0.2, KEYS)
    passing = rng.binomial(rows, 0.5)
    value = passing * rng.gamma(4.0, 5.0, KEYS)
    return np.stack([passing, value, value * rng.uniform(0.5, 1.5, KEYS), passing > 0], axis=1).astype(float)


def _read(seed: int, number: int) -> npt.NDArray[np.bool_]:
    """Which rows of a stratum are read."""
    position = np.arange(SIZES[number]) + (number << 32)
    below: npt.NDArray[np.bool_] = (hashes_of(position, seed) >> np.uint64(32)) < SHARES[number] * 2**32
    return below


def _of_rows(rows: list[Doubles], seed: int) -> Totals:
    parts = [each[_read(seed, number)] for number, each in enumerate(rows)]
    total = np.stack([part.sum(axis=0)[None] for part in parts])
    products = np.stack([(part.T @ part)[None] for part in parts])
    sample = np.array([float(len(part)) for part in parts])
    return of_rows(Sums(np.array(SIZES, float), sample, total, products))


def _of_keys(keys: Doubles, seed: int) -> Totals:
    kept = keys[hashes_of(np.arange(KEYS), seed) >> np.uint64(32) < SHARE_OF_KEYS * 2**32]
    return of_keys(SHARE_OF_KEYS, np.zeros(len(kept), np.int64), kept, 1)


def _weighted(rows: list[Doubles], seed: int) -> Weighted:
    """The values that were read, with their weights."""
    value, weight, stratum, sample = [], [], [], []
    for number, each in enumerate(rows):
        read = _read(seed, number)
        passing = each[read & (each[:, 0] > 0), 1]
        sample.append(float(read.sum()))
        value.append(passing)
        weight.append(np.full(len(passing), SIZES[number] / sample[-1]))
        stratum.append(np.full(len(passing), number))
    joined = (np.concatenate(each) for each in (value, weight, stratum))
    return Weighted(*joined, np.array(SIZES, float), np.array(sample))
