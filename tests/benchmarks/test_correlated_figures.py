"""Figures of correlated aggregates: errors by position, and data that are what they are called."""

from __future__ import annotations

import numpy as np

from benchmarks.correlated_data import GENERATORS, great_first, reversed_order, sudden_drop
from benchmarks.rmse import so_far
from benchmarks.suite.correlated import OURS, SETTINGS, Setting, _found


def test_errors_so_far_are_those_of_all_positions_up_to_each() -> None:
    errors = np.array([3.0, -4.0, 0.0, 5.0])
    expected = [np.sqrt(np.mean(errors[: n + 1] ** 2)) for n in range(4)]
    assert np.allclose(so_far(errors), expected)


def test_orders_of_the_data_are_what_they_say() -> None:
    x = GENERATORS["USAGE"](500, np.random.default_rng(1))
    assert (np.diff(reversed_order(x)) <= 0).all()
    first = great_first(x)
    assert sorted(first) == sorted(x)
    assert first[:300].min() >= first[300:].max()
    dropped = sudden_drop(x)
    assert np.minimum.accumulate(dropped)[299] > 100 * dropped[300:].min()


def test_every_figure_of_the_text_has_a_setting_and_one_runs() -> None:
    assert {each.figure for each in SETTINGS} >= {"4", "5", "6", "7", "8", "9", "10"}
    found = _found(Setting("4", "MIN", "MULTIFRAC"), 600)
    assert all(len(found.errors[name]) == len(found.places) == 6 for name in OURS)
    assert found.ours[0] <= found.ours[1] < found.last("equi-width")
