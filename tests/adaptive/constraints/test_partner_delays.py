"""Bounds on delays between joined rows, on hand-written traces of epochs: when one is trusted, raised, lowered and given up, and which rows
a former one still concerns.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.adaptive.constraints.partner_delays import (
    UNBOUNDED,
    DelayEstimate,
    Delays,
    PartnerBound,
    bound_after,
    wait_briefly,
)

LONGEST = 1000


def estimate(**settings: float) -> DelayEstimate:
    return DelayEstimate(PartnerBound(0, 1), **{"window": 10, "reach": 1.0, "epochs": 2, **settings})


def epoch(
    monitor: DelayEstimate, largest: int, at: int, pairs: int = 5, least: int | None = None
) -> int | None:
    """An epoch of so many pairs, the latest at an instant that both sides have reached; the bound after it."""
    monitor.observe(Delays(pairs, largest, at, at, at if least is None else least), LONGEST)
    return monitor.bound.within


def test_a_bound_is_found_after_so_many_pairs_epochs_and_twice_its_time() -> None:
    monitor = estimate()
    assert [epoch(monitor, 7, at) for at in (0, 5)] == [None, None], "10 pairs, but only 5 of time"
    assert [epoch(monitor, delay, at) for delay, at in ((6, 13), (7, 14))] == [None, 7]
    assert epoch(estimate(), 0, 0, pairs=100) is None, "one epoch may be one burst"


def test_a_bound_is_not_found_where_it_would_save_little() -> None:
    monitor = estimate()
    assert [epoch(monitor, 751, at) for at in (0, 9000, 9001)] == [None] * 3
    assert [epoch(monitor, 750, at) for at in (9002, 9003, 9004)][-1] == 750
    endless = estimate()
    for at in (0, 9000, 9001):
        endless.observe(Delays(5, 751, at, at, at), None)
    assert endless.bound.within == 760


def test_delays_within_the_reach_raise_k_and_lose_nothing() -> None:
    monitor = estimate(reach=1.5)
    for at in (0, 50, 100):
        epoch(monitor, 10, at)
    assert (monitor.bound.k, monitor.bound.within) == (10, 15)
    assert epoch(monitor, 14, 110) == 21
    assert monitor.bound.former == ((95, 15),), "rows before 95 may be gone"


def test_a_bound_falls_once_newer_delays_are_clearly_smaller() -> None:
    monitor = estimate()
    for at in (0, 50, 100):
        epoch(monitor, 20, at)
    assert [epoch(monitor, 17, at) for at in (110, 120, 130)] == [20] * 3, "not by a little"
    assert [epoch(monitor, 16, at) for at in (140, 150)] == [20, 16]
    assert monitor.bound.former == (), "a smaller bound concerns the same rows"


def test_a_bound_is_given_up_at_once_and_found_again_after_a_window() -> None:
    monitor = estimate()
    for at in (0, 50, 100):
        epoch(monitor, 10, at)
    assert epoch(monitor, 11, 200) is None
    assert monitor.bound == PartnerBound(0, 1, None, None, ((190, 10),))
    assert [epoch(monitor, 5, at) for at in (209, 219)] == [None, 5], (
        "ten newer pairs, after twice their time"
    )


def test_former_bounds_concern_rows_until_these_are_in_no_window() -> None:
    monitor = estimate()
    for at in (0, 50, 100):
        epoch(monitor, 10, at)
    epoch(monitor, 11, 200)
    epoch(monitor, 3, 1190, least=1190)
    assert monitor.bound.former == ((190, 10),)
    epoch(monitor, 3, 1300, least=1190)
    assert monitor.bound.former == ((190, 10),), "another side has not come so far"
    epoch(monitor, 3, 1301, least=1191)
    assert monitor.bound.former == ()


def test_nothing_has_been_dropped_before_the_first_punctuation() -> None:
    monitor = DelayEstimate(PartnerBound(0, 1, 10, 10))
    monitor.observe(Delays(5, 11, 40, -(2**63), -(2**63)), LONGEST)
    assert monitor.bound == PartnerBound(0, 1)


def test_a_row_that_always_comes_before_is_not_waited_for() -> None:
    monitor = estimate()
    assert [epoch(monitor, -5, at) for at in (0, 1)] == [None, 0]
    assert epoch(monitor, 1, 2) is None


def test_many_former_bounds_become_the_shorter_ones() -> None:
    monitor = DelayEstimate(PartnerBound(0, 1, 10, 10), reach=1.0)
    for number in range(12):
        monitor.observe(Delays(1, 11 + number, 100 + number, 100 + number, 0), LONGEST)
        monitor.bound = PartnerBound(0, 1, 11 + number, 11 + number, monitor.bound.former)
    assert len(monitor.bound.former) == 8
    assert monitor.bound.former[0] == (100 + 4 - 14, 10)


def test_limits_are_the_least_that_concern_a_row() -> None:
    bound = PartnerBound(0, 1, 9, 9, ((10, 5), (20, 3)))
    assert bound.limits(np.array([9, 10, 19, 20])).tolist() == [3, 3, 3, 9]
    assert PartnerBound(0, 1).limits(np.array([1])).tolist() == [UNBOUNDED]


@pytest.mark.parametrize("reach", [1.0, 1.2, 3.0])
@given(k=st.integers(0, 1 << 50))
def test_a_bound_is_k_with_room_and_at_most_a_tenth_more(reach: float, k: int) -> None:
    assert k * reach <= bound_after(k, reach) <= 1.1 * k * reach + 1


@pytest.mark.parametrize(
    ("bounds", "longest", "expected"),
    [
        ((PartnerBound(0, 1, 12), PartnerBound(2, 1, 12)), 96, True),
        ((PartnerBound(0, 1, 12), PartnerBound(2, 1, 13)), 96, False),
        ((PartnerBound(0, 1, 12), PartnerBound(2, 1, None)), 96, False),
        ((PartnerBound(0, 1, 12),), 96, False),
        ((PartnerBound(1, 0, 12), PartnerBound(1, 2, 12)), 96, False),
        ((PartnerBound(0, 1, 12), PartnerBound(2, 1, 12)), None, False),
        ((PartnerBound(0, 1, 12), PartnerBound(1, 1, 0, kind="ordered")), 96, False),
    ],
)
def test_rows_wait_briefly_for_a_side_if_those_of_all_others_do(
    bounds: tuple[PartnerBound, ...], longest: int | None, expected: bool
) -> None:
    assert wait_briefly(bounds, 1, 3, longest) == expected
