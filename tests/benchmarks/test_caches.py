"""Generators of join traces, the estimates of A-Caching against forced use, and its choice when a stream bursts (bar B10)."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from benchmarks.cache_traces import CHAIN, CHAIN_ORDERS, OF_R, OF_T, SIZE, chain, costs_by_chunk
from benchmarks.caches_replay import CachesReplay
from benchmarks.join_traces import (
    POINTS,
    Plan,
    TreeCost,
    Update,
    counted,
    distributions,
    drawn,
    trees,
    updates,
)
from headrace.adaptive.caches.cost_model import CacheCosts, value_of
from headrace.adaptive.caches.estimates import PipelineProfile, load_of


@pytest.mark.parametrize("point", POINTS)
def test_the_selectivities_of_pairs_are_those_of_the_table_and_larger_combinations_exist(point: str) -> None:
    _, wanted = POINTS[point]
    found = distributions(wanted)
    assert (found >= 0).all()
    assert found.sum(axis=1) == pytest.approx(np.ones(4))
    common = found[:, :-1]
    pairs = [float(common[one] @ common[other]) for one, other in combinations(range(4), 2)]
    assert pairs == pytest.approx(wanted)
    for three in combinations(range(4), 3):
        assert (float(np.prod(common[list(three)], axis=0).sum()) > 0) == (point != "D7")


def test_rates_multiplicities_and_windows_are_as_set() -> None:
    trace = [update for update in chain(7000) if update[2]]
    arrived = [window for window, _, sign in trace if sign > 0]
    shares = np.bincount(arrived) / len(arrived)
    assert shares == pytest.approx(np.array([1, 1, 5]) / 7, rel=0.1)
    of_t = [dict(row)["B"] for window, row, sign in trace if window == 2 and sign > 0]
    assert all(len(set(of_t[place : place + 5])) == 1 for place in range(0, len(of_t) - 5, 5))
    came = [row for window, row, sign in trace if window == 2 and sign > 0]
    left = [row for window, row, sign in trace if window == 2 and sign < 0]
    assert left[SIZE:] == came[: len(left) - SIZE]


def test_private_values_join_nothing_and_trees_make_what_windows_hold() -> None:
    rng = np.random.default_rng(1)
    draws = [drawn(one, 10**6 * (number + 1), rng) for number, one in enumerate(distributions((0.0,) * 6))]
    trace = list(updates(draws, lambda _: (1.0,) * 4, (20,) * 4, 50, rng))
    equalities = [((one, "A"), (other, "A")) for one, other in combinations(range(4), 2)]
    orders = tuple(tuple(other for other in range(4) if other != one) for one in range(4))
    assert counted(trace, equalities, Plan(orders)).counts.made == 0
    assert len(list(trees(range(4)))) == 15
    same = [(window, (("A", 1),), 1) for window in (0, 1, 2)]
    assert TreeCost(((0, 1), 2)).run(same) == 1 + (1 + 2 + 1) + 1 + (
        1 + 2
    )  # of R ⋈ S a row is compared, made and stored


def profiled(replay: CachesReplay, trace: list[Update]) -> list[PipelineProfile]:
    """The profiles of all updates, with the windows as they are after the trace."""
    profiles = [PipelineProfile.of(2, len(trace)) for _ in range(3)]
    for window, row, sign in trace:
        if sign:
            seen = replay.join.profile(window, row)
            profiles[window].add([rows for rows, _ in seen], [cost for _, cost in seen[:-1]])
    return profiles


def test_the_cost_model_gives_what_forced_use_costs_and_estimates_of_misses_are_careful() -> None:
    trace = chain(4000)
    replay = CachesReplay(CHAIN, CHAIN_ORDERS, quota=0, chunk=len(trace))
    replay.run(trace)  # one chunk, in which nothing is used and all keys are watched
    arriving = [sum(window == one for window, _, sign in trace if sign) for one in range(3)]
    profiles = profiled(replay, trace)
    (estimated,) = replay.values(profiles, arriving).values()
    plain = counted(trace, CHAIN, Plan(CHAIN_ORDERS)).counts.cost
    forced = counted(trace, CHAIN, Plan(CHAIN_ORDERS, (OF_T,)))
    misses = 1 - forced.counts.hits / forced.counts.lookups
    exact = value_of(load_of(profiles, arriving), OF_T.segment, CacheCosts(1, 1, misses))
    assert exact.net == pytest.approx(plain - forced.counts.cost, rel=0.01)
    assert (
        0.6 * exact.net < estimated.net < exact.net
    )  # keys that come again after a block are taken for misses


def test_after_a_burst_begins_the_choice_is_soon_as_good_as_the_better_fixed_plan() -> None:
    """Before: T looks up R ⋈ S. Then R bursts, and looks up (S ⋈ T) ⋉ R. An interval is ten chunks."""
    rows, start = 8000, 4000
    trace = chain(rows, (start, rows))
    replay = CachesReplay(CHAIN, CHAIN_ORDERS, quota=6)
    replay.run(trace)
    begins = 2 * start // replay.chunk
    assert replay.plans[begins - 1] == {OF_T.segment}
    assert replay.plans[-1] == {OF_R.segment}
    settled = begins + 3 * 10
    fixed = {cache: costs_by_chunk(trace, cache, replay.chunk) for cache in (OF_T, OF_R)}
    best = min(sum(costs[settled:]) for costs in fixed.values())
    assert best >= 0.9 * sum(replay.costs[settled:])
    assert sum(replay.costs) < 0.9 * min(sum(costs) for costs in fixed.values())
    assert all(replay.costs)
