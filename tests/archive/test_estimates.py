"""Estimates from prefixes of runs: unbiased, with intervals that hold the truth as often as promised; exact when all is read."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import sqrt

import numpy as np
import pytest

from headrace.archive.blocks import hashes_of
from headrace.archive.estimates import Estimates, Sums, averaged, counted, summed

DRAWS = 1000
SIZES = (1500, 900, 600)
"""Rows of three strata, whose values differ."""
SHARES = (0.1, 0.25, 1.0)
"""What is read of each: of the last one everything."""


@cache
def population() -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The values of each stratum, and which rows pass the conditions."""
    rng = np.random.default_rng(3)
    values = [rng.gamma(2.0, 20.0 + 10 * number, size) for number, size in enumerate(SIZES)]
    return values, [rng.random(size) < 0.4 + 0.2 * number for number, size in enumerate(SIZES)]


@cache
def drawn() -> Sums:
    """Of a thousand seeds, each a group: the sums over the rows with small hashes."""
    values, passing = population()
    sums = np.zeros((len(SIZES) * DRAWS, DRAWS, 3))
    population_, sample = np.zeros(len(SIZES) * DRAWS), np.zeros(len(SIZES) * DRAWS)
    for number, (of_stratum, passes, share) in enumerate(zip(values, passing, SHARES, strict=True)):
        position = np.arange(len(of_stratum)) + (number << 32)
        for seed in range(DRAWS):
            read = hashes_of(position, seed) >> np.uint64(32) < share * 2**32
            kept = of_stratum[read & passes]
            # a seed is a group in strata of its own: the estimates of others do not see it
            stratum = number * DRAWS + seed
            sums[stratum, seed] = len(kept), kept.sum(), (kept**2).sum()
            population_[stratum], sample[stratum] = len(of_stratum), read.sum()
    return Sums(population_, sample, *(sums[:, :, part] for part in range(3)))


def truth(of: Callable[[Sums], Estimates]) -> float:
    """What is estimated."""
    values, passing = population()
    passed = np.concatenate([each[passes] for each, passes in zip(values, passing, strict=True)])
    return {counted: float(len(passed)), summed: float(passed.sum()), averaged: float(passed.mean())}[of]


@pytest.mark.parametrize("of", [counted, summed, averaged])
def test_a_thousand_estimates_are_right_on_average_and_their_intervals_as_often_as_said(
    of: Callable[[Sums], Estimates],
) -> None:
    found = of(drawn())
    off = found.value.mean() - truth(of)
    assert abs(off) < 3 * found.value.std(ddof=1) / sqrt(DRAWS)
    assert 0.93 <= (np.abs(found.value - truth(of)) <= found.error).mean() <= 0.97


@pytest.mark.parametrize("of", [counted, summed, averaged])
def test_what_was_read_whole_is_exact(of: Callable[[Sums], Estimates]) -> None:
    x = np.array([1.0, 5.0, 2.5])
    sums = Sums(
        np.array([7.0]), np.array([7.0]), *(np.array([[part]]) for part in (3.0, x.sum(), (x**2).sum()))
    )
    found = of(sums)
    assert found.value.tolist() == [{counted: 3.0, summed: 8.5, averaged: 8.5 / 3}[of]]
    assert found.error.tolist() == [0.0]


def test_the_equations_by_hand() -> None:
    """Of 10 rows 4 were read: 2, 4, and two that do not pass."""
    sums = Sums(*map(np.array, ([10.0], [4.0], [[2.0]], [[6.0]], [[20.0]])))
    z2 = 1.959963984540054**2
    assert counted(sums).value[0] == 5.0
    assert counted(sums).error[0] ** 2 / z2 == pytest.approx(100 * 0.6 * (1 / 3) / 4)  # s^2 of 1, 1, 0, 0
    assert summed(sums).value[0] == 15.0
    assert summed(sums).error[0] ** 2 / z2 == pytest.approx(100 * 0.6 * (11 / 3) / 4)  # s^2 of 2, 4, 0, 0
    assert averaged(sums).value[0] == 3.0
    assert averaged(sums).error[0] ** 2 / z2 == pytest.approx(100 * 0.6 * (2 / 3) / 4 / 25)  # of -1, 1, 0, 0


def test_a_group_without_values_has_a_count_only() -> None:
    sums = Sums(*map(np.array, ([10.0], [4.0], [[0.0]], [[0.0]], [[0.0]])))
    assert (counted(sums).value[0], counted(sums).error[0]) == (0.0, 0.0)
    assert np.isnan(summed(sums).value[0])
    assert np.isnan(averaged(sums).error[0])
