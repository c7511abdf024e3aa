"""Which keys of a join are divided between tasks, and when they are no longer: from the work of each task, by hand."""

from __future__ import annotations

import pytest

from headrace.adaptive.joins.hot_keys import MOST_KEYS, UNDIVIDED, Division, HotKeys
from headrace.observation import HeavyKey

HOT = HeavyKey(7, (300, 100), 600)
"""A thousand of the work."""


def after(epochs: int, loads: list[int], *seen: HeavyKey) -> HotKeys:
    known = HotKeys()
    for _ in range(epochs):
        known.take(loads, seen)
    return known


def test_a_hot_key_is_divided_by_its_larger_side_after_two_epochs() -> None:
    assert after(1, [1500, 500], HOT).wanted({}) == {}
    assert after(2, [1500, 500], HOT).wanted({}) == {7: Division(0, 2)}
    assert after(2, [1500, 500, 500, 500], HeavyKey(7, (100, 300), 600)).wanted({}) == {7: Division(1, 4)}


@pytest.mark.parametrize(
    ("loads", "seen"),
    [
        ([1200, 1000], HOT),  # tasks are even
        ([1500, 500], HeavyKey(7, (100, 100), 200)),  # the task has many keys, none of them hot
        (
            [1500, 500],
            HeavyKey(7, (500, 500), 100),
        ),  # nothing to gain: what is copied is as much as what is divided
        ([2000], HOT),  # one task
    ],
)
def test_no_key_is_divided_where_nothing_is_gained(loads: list[int], seen: HeavyKey) -> None:
    assert after(3, loads, seen).wanted({}) == {}


def test_a_key_of_three_sides_is_divided_by_the_largest_if_that_is_twice_the_others_together() -> None:
    assert after(2, [1500, 500, 500, 500], HeavyKey(7, (300, 1200, 300), 0)).wanted({}) == {7: Division(1, 4)}
    assert after(2, [1500, 500, 500, 500], HeavyKey(7, (301, 1200, 300), 0)).wanted({}) == {}
    assert after(2, [1500, 500, 500, 500], HeavyKey(7, (301, 1200, 300), 4)).wanted({}) == {7: Division(1, 4)}


def test_one_burst_divides_no_key() -> None:
    known = after(8, [1000, 1000])
    known.take([2000, 1000], [HeavyKey(7, (600, 200), 1000)])
    assert known.wanted({}) == {}
    known.take([2000, 1000], [HeavyKey(7, (600, 200), 1000)])
    assert known.wanted({}) == {7: Division(0, 2)}


def test_a_divided_key_is_in_one_place_again_once_it_is_an_eighth_of_a_share() -> None:
    division = {7: Division(0, 2)}
    known = after(4, [1000, 1000], HOT)
    assert known.wanted(division) == {}
    while not known.wanted(division):
        known.take([1000, 1000], [])
    assert known.wanted(division) == {7: UNDIVIDED}
    assert known.wanted(division, waiting={7}) == {}
    cooler = after(4, [1000, 1000], HeavyKey(7, (60, 60), 60))  # more than an eighth, less than a half
    assert cooler.wanted(division) == {}


def test_the_other_side_is_divided_once_it_has_twice_the_rows() -> None:
    division = {7: Division(0, 2)}
    assert after(3, [1000, 1000], HeavyKey(7, (100, 190), 600)).wanted(division) == {}
    assert after(3, [1000, 1000], HeavyKey(7, (100, 210), 600)).wanted(division) == {7: Division(1, 2)}


def test_a_key_that_is_hot_for_more_tasks_is_divided_between_them() -> None:
    assert after(3, [1000] * 4, HeavyKey(7, (900, 100), 1000)).wanted({7: Division(0, 2)}) == {
        7: Division(0, 4)
    }
    assert after(3, [1000] * 4, HeavyKey(7, (500, 100), 200)).wanted({7: Division(0, 2)}) == {}


def test_another_number_of_tasks_is_measured_afresh() -> None:
    known = after(5, [1500, 500], HOT)
    known.take([1500, 500, 500], [HOT])
    assert known.wanted({}) == {}


def test_at_most_sixteen_keys_are_divided_the_hottest_first() -> None:
    keys = [HeavyKey(key, (900 + key, 10), 0) for key in range(20)]
    known = after(2, [40_000, *[0] * 39], *keys)
    wanted = known.wanted({})
    assert sorted(wanted) == list(range(20 - MOST_KEYS, 20))
    few = known.wanted({key: Division(0, 40) for key in range(6, 20)})
    assert sorted(few) == [4, 5]


def test_keys_that_changed_lately_are_not_changed() -> None:
    assert after(2, [1500, 500], HOT).wanted({}, waiting={7}) == {}
