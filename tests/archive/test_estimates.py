"""Estimates from samples of rows and of keys: right on average, with intervals that hold the truth as often as promised; exact when all is read."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import inf, sqrt

import numpy as np
import pytest

from headrace.archive.blocks import hashes_of
from headrace.archive.estimates import (
    Sums,
    Totals,
    Weighted,
    Z,
    most_missed,
    of_keys,
    of_rows,
    quantile,
    reach,
    student,
)

DRAWS = 1000
SIZES = (1500, 900, 600)
"""Rows of three strata, whose values differ."""
SHARES = (0.1, 0.25, 1.0)
"""What is read of each: of the last one everything."""
OF_KEYS = 0.2
Values = np.ndarray


@cache
def contributions() -> list[Values]:
    """Of each stratum the terms of its rows: whether it passes, its value and another one if it does."""
    rng = np.random.default_rng(3)
    found = []
    for number, size in enumerate(SIZES):
        passes = rng.random(size) < 0.4 + 0.2 * number
        value = rng.gamma(2.0, 20.0 + 10 * number, size)
        other = value * rng.uniform(0.5, 1.5, size) + 5
        found.append(np.stack([passes, passes * value, passes * other], axis=1).astype(float))
    return found


@cache
def keys() -> Values:
    """Of 1500 keys the terms of all their rows together, of which there are few or many; the last term is 1 where one passes."""
    rng = np.random.default_rng(4)
    rows = rng.geometric(0.2, 1500)
    passing = rng.binomial(rows, 0.5)
    value = passing * rng.gamma(4.0, 5.0, 1500)
    return np.stack([passing, value, value * rng.uniform(0.5, 1.5, 1500), passing > 0], axis=1).astype(float)


def rows_read(seed: int, number: int) -> Values:
    """Which rows of a stratum are read."""
    position = np.arange(SIZES[number]) + (number << 32)
    return (hashes_of(position, seed) >> np.uint64(32)) < SHARES[number] * 2**32


@cache
def drawn(design: str) -> list[Totals]:
    """The totals from a thousand seeds."""
    found = []
    for seed in range(DRAWS):
        if design == "keys":
            read = hashes_of(np.arange(1500), seed) >> np.uint64(32) < OF_KEYS * 2**32
            kept = keys()[read]
            found.append(of_keys(OF_KEYS, np.zeros(len(kept), np.int64), kept, 1))
            continue
        parts = [each[rows_read(seed, number)] for number, each in enumerate(contributions())]
        total = np.stack([part.sum(axis=0)[None] for part in parts])
        products = np.stack([(part.T @ part)[None] for part in parts])
        sample = np.array([float(len(part)) for part in parts])
        found.append(of_rows(Sums(np.array(SIZES, float), sample, total, products)))
    return found


def count(total: Values) -> tuple[float, list[float]]:
    return total[0], [1, 0, 0]


def summed(total: Values) -> tuple[float, list[float]]:
    return total[1], [0, 1, 0]


def averaged(total: Values) -> tuple[float, list[float]]:
    return total[1] / total[0], [-total[1] / total[0] ** 2, 1 / total[0], 0]


def ratio(total: Values) -> tuple[float, list[float]]:
    return total[1] / total[2], [0, 1 / total[2], -total[1] / total[2] ** 2]


def difference(total: Values) -> tuple[float, list[float]]:
    return total[1] - 2 * total[2], [0, 1, -2]


def distinct(total: Values) -> tuple[float, list[float]]:
    return total[3], [0, 0, 0, 1]


CASES = [
    *[("rows", of) for of in (count, summed, averaged, ratio, difference)],
    *[("keys", of) for of in (count, summed, averaged, ratio, difference, distinct)],
]


@pytest.mark.parametrize(("design", "of"), CASES)
def test_a_thousand_estimates_are_right_on_average_and_their_intervals_as_often_as_said(
    design: str, of: Callable[[Values], tuple[float, list[float]]]
) -> None:
    whole = keys().sum(axis=0) if design == "keys" else sum(each.sum(axis=0) for each in contributions())
    truth = of(whole)[0]
    values, errors = [], []
    for totals in drawn(design):
        value, slopes = of(totals.value[0])
        gradient = np.zeros(totals.value.shape)
        gradient[0, : len(slopes)] = slopes
        values.append(value)
        errors.append(Z * totals.deviation(gradient)[0])
    off = np.mean(values) - truth
    assert abs(off) < 3 * np.std(values, ddof=1) / sqrt(DRAWS)
    assert 0.93 <= (np.abs(np.array(values) - truth) <= np.array(errors)).mean() <= 0.97


def weighted(seed: int) -> Weighted:
    """The values that were read."""
    value, weight, stratum, sample = [], [], [], []
    for number, each in enumerate(contributions()):
        read = rows_read(seed, number)
        passing = each[read & (each[:, 0] > 0), 1]
        value.append(passing)
        sample.append(float(read.sum()))
        weight.append(np.full(len(passing), SIZES[number] / sample[-1]))
        stratum.append(np.full(len(passing), number))
    joined = (np.concatenate(each) for each in (value, weight, stratum))
    return Weighted(*joined, np.array(SIZES, float), np.array(sample))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_intervals_of_a_quantile_hold_it_as_often_as_said(share: float) -> None:
    whole = np.concatenate([each[each[:, 0] > 0, 1] for each in contributions()])
    truth = np.quantile(whole, share)
    found = np.array([quantile(weighted(seed), share) for seed in range(DRAWS)])
    assert abs(found[:, 0].mean() - truth) < 0.15 * found[:, 0].std()
    assert 0.93 <= (np.abs(found[:, 0] - truth) <= found[:, 1]).mean() <= 0.97


def test_a_quantile_of_all_rows_is_that_of_the_values() -> None:
    value = np.array([5.0, 1.0, 1.0, 9.0, 4.0])
    for share in (0.01, 0.3, 0.5, 0.99):
        of = Weighted(value, np.ones(5), np.zeros(5, np.int64), np.array([7.0]), np.array([7.0]))
        assert quantile(of, share) == (pytest.approx(np.quantile(value, share)), 0.0)


def test_a_quantile_near_the_end_of_what_was_read_has_no_known_error() -> None:
    of = Weighted(
        np.arange(10.0), np.full(10, 10.0), np.zeros(10, np.int64), np.array([100.0]), np.array([10.0])
    )
    assert quantile(of, 0.97)[1] == inf
    assert quantile(of, 0.02)[1] == inf
    assert quantile(of, 0.5)[1] < inf


def test_values_that_repeat_have_an_interval_that_reaches_the_next_one() -> None:
    """Of a hundred rows half are 1 and half are 2: the median may be either."""
    value = np.repeat([1.0, 2.0], [26, 24])
    of = Weighted(value, np.full(50, 2.0), np.zeros(50, np.int64), np.array([100.0]), np.array([50.0]))
    assert quantile(of, 0.5) == (1.0, 1.0)


def test_the_equations_by_hand() -> None:
    """Of 10 rows 4 were read: 2, 4, and two that do not pass."""
    sums = Sums(
        np.array([10.0]), np.array([4.0]), np.array([[[2.0, 6.0]]]), np.array([[[[2.0, 6.0], [6.0, 20.0]]]])
    )
    totals = of_rows(sums)
    assert totals.value.tolist() == [[5.0, 15.0]]
    assert totals.covariance[0, 0, 0] == pytest.approx(100 * 0.6 * (1 / 3) / 4)  # s^2 of 1, 1, 0, 0
    assert totals.covariance[0, 1, 1] == pytest.approx(100 * 0.6 * (11 / 3) / 4)  # s^2 of 2, 4, 0, 0
    assert totals.covariance[0, 0, 1] == pytest.approx(100 * 0.6 * (6 - 3) / 3 / 4)
    of_two = of_keys(0.25, np.array([0, 1, 1]), np.array([[3.0], [1.0], [2.0]]), 2)
    assert of_two.value.tolist() == [[12.0], [12.0]]
    assert of_two.covariance[:, 0, 0].tolist() == [9 * 0.75 * 16, 5 * 0.75 * 16]


def test_what_was_read_whole_is_exact() -> None:
    x = np.array([[1.0, 1.0], [1.0, 5.0], [1.0, 2.5]])
    sums = Sums(np.array([7.0]), np.array([7.0]), x.sum(axis=0)[None, None], (x.T @ x)[None, None])
    for totals in (of_rows(sums), of_keys(1.0, np.zeros(3, np.int64), x, 1)):
        assert totals.value.tolist() == [[3.0, 8.5]]
        assert not totals.covariance.any()


def test_units_are_those_that_contribute_and_represent_others() -> None:
    """Two strata: a whole one with one row that passes, and a part without any; a third term is in both."""
    one, none = np.diag([1.0, 0.0, 1.0]), np.diag([0.0, 0.0, 1.0])
    total = np.array([[[1.0, 0.0, 1.0]], [[0.0, 0.0, 1.0]]])
    sums = Sums(np.array([9.0, 10.0]), np.array([9.0, 4.0]), total, np.stack([one[None], none[None]]))
    assert of_rows(sums).units_of([0]) == of_rows(sums).units_of([1, 2]) == [0]
    assert of_rows(sums).units_of([2]) == [1]
    whole = Sums(np.array([9.0, 4.0]), np.array([9.0, 4.0]), total, np.stack([one[None], none[None]]))
    assert of_rows(whole).units_of([0]) == [inf]
    keys = np.array([[1.0, 0.0], [2.0, 0.0]])
    assert of_keys(0.5, np.array([0, 0]), keys, 2).units.tolist() == [[2, 0], [0, 0]]
    assert of_keys(1.0, np.array([0, 0]), keys, 2).units is None


def test_one_row_of_a_stratum_varies_as_all_rows_do() -> None:
    """By hand: 3 read of 30 rows; and of a stratum with 10 rows the one with the value 4."""
    values = [np.array([1.0, 2.0, 3.0]), np.array([4.0])]
    total = np.array([[[each.sum()]] for each in values])
    products = np.array([[[[(each**2).sum()]]] for each in values])
    totals = of_rows(Sums(np.array([30.0, 10.0]), np.array([3.0, 1.0]), total, products))
    assert totals.value.tolist() == [[60.0 + 40.0]]
    of_pooled = np.var([1.0, 2.0, 3.0, 4.0], ddof=1)
    assert totals.covariance[0, 0, 0] == pytest.approx(30 * 27 * 1.0 / 3 + 10 * 9 * of_pooled)


GROUPS = 40
ROWS = 3000


def in_groups(share: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of a few large groups and many small ones the truth of AVG and SUM, and both intervals, of the groups that a sample has."""
    rng = np.random.default_rng(7)
    group = np.minimum(rng.zipf(1.3, ROWS) - 1, GROUPS - 1)
    value = rng.normal(50.0, 12.0, ROWS) + group
    read = (hashes_of(np.arange(ROWS), seed) >> np.uint64(32)) < share * 2**32
    terms = np.stack([value, np.ones(ROWS)], axis=1)
    total, products = np.zeros((GROUPS, 2)), np.zeros((GROUPS, 2, 2))
    np.add.at(total, group[read], terms[read])
    np.add.at(products, group[read], terms[read][:, :, None] * terms[read][:, None, :])
    totals = of_rows(
        Sums(np.array([float(ROWS)]), np.array([float(read.sum())]), total[None], products[None])
    )
    units, counts = totals.units_of([1]), np.bincount(group, minlength=GROUPS)
    sums = np.bincount(group, value, GROUPS)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = totals.value[:, 0] / totals.value[:, 1]
        gradient = np.stack([1 / totals.value[:, 1], -mean / totals.value[:, 1]], axis=1)
        gradient[units == 0] = 0
        error = np.where(units < 2, np.inf, reach(units) * totals.deviation(gradient))
        holds = np.abs(mean - sums / counts) <= error
    return units, holds, error


def test_a_thousand_intervals_of_skewed_groups_hold_the_truth_however_few_rows_a_group_has() -> None:
    """With the normal quantile those of two rows hold it in 60 of 100 samples, and those of one row never."""
    held: dict[int, list[bool]] = {}
    for seed in range(DRAWS):
        units, holds, error = in_groups(0.02, seed)
        assert (error[units == 1] == inf).all()
        for count, one in zip(units, holds, strict=True):
            held.setdefault(int(count), []).append(bool(one))
    for count in range(2, 7):
        assert len(held[count]) >= 300
        assert np.mean(held[count]) >= 0.93, (count, np.mean(held[count]))
    every = [one for count, found in held.items() if count >= 2 for one in found]
    assert 0.93 <= np.mean(every) <= 0.975, np.mean(every)


def test_student_s_quantiles_are_the_printed_ones() -> None:
    """Abramowitz and Stegun, table 26.10, by degrees of freedom."""
    printed = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 7: 2.365, 10: 2.228, 30: 2.042, 120: 1.980}
    found = student(np.array([1.0 + free for free in printed]))
    assert found.tolist() == pytest.approx(list(printed.values()), abs=1e-3)
    assert student(np.array([0.0, 1.0, inf])).tolist() == [inf, inf, pytest.approx(Z)]


def test_most_that_is_missed_is_so_with_five_percent() -> None:
    assert [most_missed(share) for share in (0.5, 0.1, 1 / 1024, 1.0)] == [4, 28, 3066, 0]
    assert (1 - 0.1) ** 29 < 0.05 < (1 - 0.1) ** 28


def test_values_that_are_no_numbers_leave_the_errors_of_other_totals_alone() -> None:
    nan = float("nan")
    total, products = np.array([[[2.0, nan]]]), np.array([[[[2.0, nan], [nan, nan]]]])
    whole = of_rows(Sums(np.array([4.0]), np.array([4.0]), total, products))
    part = of_rows(Sums(np.array([8.0]), np.array([4.0]), total, products))
    count = np.array([[1.0, 0.0]])
    assert whole.deviation(count) == [0]
    assert 0 < part.deviation(count)[0] < np.inf
    assert part.deviation(np.array([[0.0, 1.0]])) == [np.inf]
