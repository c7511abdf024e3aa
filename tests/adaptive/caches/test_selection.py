"""The choice of caches: exact and greedy for known values (bar B11), and adaptive by states, with the gates of the thesis."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.cache_traces import cost, instances, plain_costs
from headrace.adaptive.caches.adaptive_selection import CacheSelection, State
from headrace.adaptive.caches.cost_model import CacheCosts, CacheValue, PipelineLoad, segment_cost, value_of
from headrace.adaptive.caches.offline_selection import (
    Chosen,
    by_dynamic_programming,
    exhaustively,
    greedily,
    select,
)
from headrace.adaptive.caches.segments import Orders, Segment, candidates


def test_without_shared_caches_dynamic_programming_finds_the_best_of_all_sets() -> None:
    for load, found in instances(300, shared=False):
        assert cost(load, found, by_dynamic_programming(found)) == pytest.approx(
            cost(load, found, exhaustively(found))
        )
        assert select(found, plain_costs(load)) == by_dynamic_programming(found)


def test_with_shared_caches_greedy_costs_at_most_half_more_than_the_best() -> None:
    ratios, missed = [], 0
    for load, found in instances(300, shared=True):
        best = exhaustively(found)
        assert cost(load, found, best) <= cost(load, found, by_dynamic_programming(found)) + 1e-9
        ratios.append(cost(load, found, greedily(found, plain_costs(load))) / cost(load, found, best))
        missed += best != by_dynamic_programming(found)
    assert missed  # sharing matters
    assert min(ratios) >= 1 - 1e-9
    assert max(ratios) <= 1.5
    assert np.mean(ratios) < 1.05


def test_chosen_caches_do_not_overlap() -> None:
    for load, found in instances(100, shared=True):
        for chosen in (exhaustively(found), greedily(found, plain_costs(load))):
            assert not any(one.overlaps(other) for one in chosen for other in chosen if one != other)


def test_the_value_of_a_cache_follows_the_equations() -> None:
    """Two places of costs 2 and 3 with 10 and 20 rows: 80 without; with a cache of which half the look-ups miss 10 + 0.5*(80 + 30*2)."""
    load = PipelineLoad(((10, 20, 30), (5, 7, 0), (4, 6, 0)), ((2, 3), (1, 1), (1, 1)))
    segment = Segment(0, 0, 1, (1, 2))
    assert segment_cost(load, segment) == 80
    value = value_of(load, segment, CacheCosts(1, 2, 0.5))
    assert value == CacheValue(benefit=80 - 80, proc=80, upkeep=2 * (7 + 6))
    assert value_of(load, segment, CacheCosts(1, 2, 0.0)).net == 80 - 10 - 26


# ------------------------------------------------------------------------------------------------- adaptive selection

ORDERS: Orders = ((1, 2, 3), (2, 0, 3), (1, 0, 3), (0, 1, 2))
"""Candidates: {1, 2} in the pipelines of 0 and 3, and {0, 1, 2} in that of 3."""
INNER, OF_THREE, WHOLE = Segment(0, 0, 1, (1, 2)), Segment(3, 1, 2, (1, 2)), Segment(3, 0, 2, (0, 1, 2))
GOOD, BAD = CacheValue(10, 1, 2), CacheValue(1, 1, 5)


def selection() -> CacheSelection:
    found = CacheSelection(ORDERS, interval=5, observations=2)
    assert set(candidates(ORDERS)) == {INNER, OF_THREE, WHOLE}
    return found


def settled(found: CacheSelection, values: dict[Segment, CacheValue]) -> Chosen:
    """The plan after as many observations as count."""
    while not found.record(values, {}):
        pass
    return found.reoptimize()


def test_all_candidates_are_profiled_until_each_has_its_observations() -> None:
    found = selection()
    assert found.of_state(State.PROFILED) == {INNER, OF_THREE, WHOLE}
    values = {INNER: GOOD, OF_THREE: BAD, WHOLE: BAD}
    assert not found.record(values, {})
    assert found.record(values, {})
    assert found.plan == frozenset()
    assert found.reoptimize() == {INNER}
    assert found.of_state(State.UNUSED) == {OF_THREE, WHOLE}


def test_a_cache_that_costs_more_than_it_gains_is_left_at_once_and_a_good_one_found_after_the_interval() -> (
    None
):
    found = selection()
    settled(found, {INNER: GOOD, OF_THREE: BAD, WHOLE: BAD})
    found.record({INNER: BAD}, {})
    assert found.plan == {INNER}  # the mean of both is good
    found.record({INNER: BAD}, {})
    assert found.plan == frozenset()
    assert found.state_of(INNER) is State.UNUSED
    assert not found.record({INNER: GOOD}, {})
    for _ in range(4):
        found.pass_time(1)
        assert found.state_of(INNER) is State.UNUSED
    found.pass_time(1)
    assert found.state_of(INNER) is State.PROFILED
    assert settled(found, {INNER: GOOD, OF_THREE: BAD, WHOLE: BAD}) == {INNER}


def test_a_used_cache_is_profiled_again_only_where_it_hides_one_within_it() -> None:
    found = selection()
    settled(found, {INNER: GOOD, OF_THREE: BAD, WHOLE: GOOD})
    assert found.plan == {INNER, WHOLE}
    found.pass_time(5)
    assert found.state_of(INNER) is State.USED
    assert found.of_state(State.PROFILED) == {OF_THREE, WHOLE}


def test_caches_are_chosen_again_only_when_a_value_has_moved_by_more_than_a_fifth() -> None:
    found = selection()
    values = {INNER: GOOD, OF_THREE: BAD, WHOLE: BAD}
    settled(found, values)
    found.pass_time(5)
    settled(found, {**values, WHOLE: CacheValue(1.15, 1, 5)})
    assert (found.selections, found.plan) == (1, {INNER})
    found.pass_time(5)
    settled(found, {**values, WHOLE: CacheValue(9, 1, 5)})
    assert (found.selections, found.plan) == (2, {INNER, WHOLE})


def test_a_changed_order_drops_what_is_no_longer_possible_in_any_pipeline() -> None:
    found = selection()
    settled(found, {INNER: GOOD, OF_THREE: GOOD, WHOLE: BAD})
    assert found.plan == {INNER, OF_THREE}
    dropped = found.reorder(((1, 2, 3), (0, 2, 3), (1, 0, 3), (0, 1, 2)))  # the row of 1 probes 0 first
    assert dropped == {INNER, OF_THREE}
    assert found.of_state(State.PROFILED) == set(candidates(found.orders)) - {WHOLE}
    again = selection()
    settled(again, {INNER: GOOD, OF_THREE: GOOD, WHOLE: BAD})
    assert again.reorder(((2, 1, 3), *ORDERS[1:])) == {INNER}  # its own pipeline
    assert again.plan == {OF_THREE}
