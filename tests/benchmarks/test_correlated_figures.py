"""Figures of correlated aggregates: errors by position, and data that are what they are called."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.correlated_data import GENERATORS, great_first, mgcty, reversed_order, sudden_drop
from benchmarks.correlated_data import zipf as zipf_of
from benchmarks.rmse import so_far
from benchmarks.suite.correlated import (
    OURS,
    SETTINGS,
    Setting,
    _above_mean,
    _errors_of,
    _near_minimum,
    by_all,
)


def test_errors_so_far_are_those_of_all_positions_up_to_each() -> None:
    errors = np.array([3.0, -4.0, 0.0, 5.0])
    expected = [np.sqrt(np.mean(errors[: n + 1] ** 2)) for n in range(4)]
    assert np.allclose(so_far(errors), expected)


def test_orders_of_the_data_are_what_they_say() -> None:
    x = GENERATORS["USAGE"](500, np.random.default_rng(1))
    assert (np.diff(reversed_order(x)) <= 0).all()
    assert sorted(reversed_order(x)) == sorted(x)
    first = great_first(x)
    assert sorted(first) == sorted(x)
    assert first[:300].min() >= first[300:].max()
    dropped = sudden_drop(x)
    assert np.minimum.accumulate(dropped)[299] > 100 * dropped[300:].min()


def test_every_figure_of_the_text_has_a_setting_and_one_runs() -> None:
    assert {setting.figure for setting in SETTINGS} >= {"4", "5", "6", "7", "8", "9", "10"}
    errors = _errors_of(Setting("4", "MIN", "MULTIFRAC"), 600)
    assert all(len(errors.errors[name]) == len(errors.places) == 6 for name in OURS)
    assert errors.ours[0] <= errors.ours[1] < errors.last("equi-width")


def test_few_rows_show_what_sums_a_drop_five_buckets_and_reversed_order_do_to_the_errors() -> None:
    """At a tenth of the figures' rows; errors are the same on every machine."""
    sums = _errors_of(Setting("5", "MIN", "USAGE", sums=True), 2000)
    assert sums.ours[1] < sums.last("equi-depth") < min(sums.last("heuristic"), sums.last("equi-width"))
    few = _errors_of(Setting("7", "MIN", "USAGE", buckets=5), 2000)
    assert few.ours[1] < few.last("equi-depth") / 2
    drop = _errors_of(Setting("6", "MIN", "USAGE", order="drop"), 2000)
    before = len(drop.places) * 3 // 5 - 1
    assert drop.last("equi-depth") > 4 * drop.errors["equi-depth"][before], "after the drop, by position"
    assert all(drop.last(name) < 1.25 * drop.errors[name][before] for name in OURS)
    turned = _errors_of(Setting("10", "AVG", "USAGE", order="reversed"), 2000)
    assert turned.last("equi-depth") < turned.ours[0] <= turned.ours[1] < turned.last("equi-width")


def test_the_heuristics_restart_at_a_new_minimum_and_count_by_the_mean_of_the_moment() -> None:
    ones, places = np.ones(4), np.arange(4)
    exact, answers = _near_minimum(np.array([3.0, 2.0, 5.0, 3.5]), ones, places, factor=2.0, buckets=3)
    assert exact.tolist() == [1, 2, 2, 3]
    assert answers["heuristic"].tolist() == [1, 1, 1, 2]
    exact, answers = _above_mean(np.array([1.0, 3.0, 2.0, 10.0]), ones, places, factor=2.0, buckets=3)
    assert exact.tolist() == [0, 1, 1, 1]
    assert answers["heuristic"].tolist() == [0, 1, 1, 2]


@pytest.mark.parametrize(
    ("kind", "limit", "below"),
    [("equi-width", 5.0, 3), ("equi-width", 2.5, 1.5), ("equi-depth", 1.5, 2), ("equi-depth", 5.75, 3)],
)
def test_histograms_of_all_rows_so_far_interpolate_within_a_bucket(
    kind: str, limit: float, below: float
) -> None:
    """Two buckets: of equal width with bounds 0, 5, 10, of equal depth with bounds 0, 1.5, 10."""
    x = np.array([0.0, 1.0, 2.0, 10.0])
    assert by_all(kind, x, np.ones(4), limit, buckets=2) == below
    assert by_all(kind, x, np.full(4, 3.0), limit, buckets=2) == 3 * below


def test_each_data_set_has_the_distribution_of_its_name() -> None:
    usage, zipf, fractal, _ = (
        GENERATORS[name](40_000, np.random.default_rng(2)) for name in ("USAGE", "ZIPF", "MULTIFRAC", "MGCTY")
    )
    assert (np.log(usage).mean(), np.log(usage).std()) == pytest.approx((3, 2), abs=0.05)
    shares = np.arange(1, 100_001) ** -0.7
    assert zipf.min() >= 1
    assert zipf.max() <= 100_000
    assert (zipf <= 1000).mean() == pytest.approx(shares[:1000].sum() / shares.sum(), abs=0.01)
    assert (zipf == 1).mean() == pytest.approx(shares[0] / shares.sum(), abs=0.003)
    few = zipf_of(40_000, np.random.default_rng(2), ranks=3)
    assert np.bincount(few.astype(int)) / len(few) == pytest.approx(
        [0, *shares[:3] / shares[:3].sum()], abs=0.01
    )
    for level in (16, 15, 14):  # of each half, four fifths are in its lower half
        assert (fractal[fractal <= 2 ** (level + 1)] <= 2**level).mean() == pytest.approx(0.8, abs=0.01)
    assert (fractal.min(), fractal.max() <= 2**17, (fractal % 1).any()) == (1, True, False)
    town = mgcty(40_000, np.random.default_rng(2), towns=1)
    assert town.std() == pytest.approx(15, abs=0.5)
    assert mgcty(40_000, np.random.default_rng(2), towns=40).std() > 100
