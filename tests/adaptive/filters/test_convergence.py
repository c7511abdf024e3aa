"""Convergence, overhead and speed of the algorithms that order filters, counted in evaluations on generated traces (bars B2 to B6)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from benchmarks.filter_traces import correlated, permuted
from benchmarks.models.filters.independent import Independent
from benchmarks.models.filters.local_swaps import LocalSwaps
from benchmarks.models.filters.sweep import Sweep
from benchmarks.models.filters.trace_replay import Replayed, bernoulli, profiled, replayed
from benchmarks.overhead_breakdown import PARTS, breakdown
from headrace.adaptive.filters.a_greedy import AGreedy
from headrace.adaptive.filters.order_cost import (
    best_order,
    evaluations,
    expected_cost,
    static_greedy,
    violation,
)
from headrace.adaptive.filters.ordering import FilterOrdering, drops_elsewhere
from headrace.adaptive.filters.profile_window import DropProfile

ROWS, CHUNK = 200_000, 2000


@cache
def trace(rates: tuple[float, ...], factor: int = 2, seed: int = 1) -> np.ndarray:
    return correlated(ROWS, rates, factor, np.random.default_rng(seed))


def run(
    algorithm: Callable[..., FilterOrdering], dropped: np.ndarray, costs: np.ndarray, share: float
) -> Replayed:
    return replayed(
        dropped, costs, algorithm(tuple(range(dropped.shape[1])), costs), bernoulli(share, 2), CHUNK
    )


def late(found: Replayed) -> float:
    """The cost of a row in the last half, without profiling."""
    half = len(found.spent) // 2
    return float(found.spent[half:].sum()) / (CHUNK * (len(found.spent) - half))


PAIRS = (0.4, 0.4, 0.45, 0.45, 0.5, 0.5, 0.55, 0.55)


@pytest.mark.parametrize(
    ("rates", "factor", "greedy", "independent"),
    [
        (PAIRS, 2, 1.805, 2.059),
        ((0.45,) * 4 + (0.5,) * 4, 4, 2.305, 2.695),
        ((0.3, 0.3, 0.4, 0.4, 0.5, 0.5, 0.6, 0.6), 2, 1.570, 1.707),
        ((0.4, 0.4, 0.5, 0.5, 0.6, 0.6), 2, 1.885, 2.045),
    ],
)
def test_stable_conditions(rates, factor, greedy, independent) -> None:
    """A-Greedy comes to the cost of Static Greedy, which is the best order's; Independent does not see the correlation."""
    dropped, costs = trace(rates, factor), np.ones(len(rates))
    assert expected_cost(dropped, static_greedy(dropped, costs), costs) == pytest.approx(greedy, rel=0.01)
    assert expected_cost(dropped, best_order(dropped, costs), costs) == pytest.approx(greedy, rel=0.01)
    by_greedy, by_itself = run(AGreedy, dropped, costs, 0.05), run(Independent, dropped, costs, 0.05)
    assert late(by_greedy) == pytest.approx(greedy, rel=0.03)
    assert late(by_itself) > 1.07 * late(by_greedy)
    assert by_itself.order != by_greedy.order
    assert late(by_itself) <= 1.05 * independent


def test_sweep_comes_to_an_order_with_the_greedy_invariant() -> None:
    """With a trace long enough for some stages of each position."""
    costs = np.asarray([1.0, 10.0] * 4)
    found = run(Sweep, trace(PAIRS), costs, 0.2)
    greedy = static_greedy(trace(PAIRS), costs)
    assert late(found) == pytest.approx(expected_cost(trace(PAIRS), greedy, costs), rel=0.03)
    first = violation(trace(PAIRS)[:20_000], found.order, costs, slack=0.7)
    assert first is None or first >= 4, "few rows come so far, and a stage sees few of them"


def test_a_moved_filter_is_placed_where_it_first_drops_more() -> None:
    """By hand: filter 2 drops what neither of the others does, and twice as many rows as filter 1."""
    rows = np.repeat(np.eye(3, dtype=bool), (40, 10, 20), axis=0)
    sweep = Sweep((0, 1, 2), np.ones(3), size=70, position=2)
    profile, _ = profiled(rows, (0, 1, 2), rows.argmax(axis=1), sweep.wanted(rows.argmax(axis=1)), np.ones(3))
    assert sweep.record(profile)
    assert sweep.reoptimize() == (0, 2, 1)
    assert (sweep.position, sweep.window.held.rows) == (1, 0)


def test_only_the_permitted_filters_are_evaluated_on_a_profiled_row() -> None:
    """Of a row dropped at the second of five positions: all three later ones, the profiled one, or the next."""
    first, order, ones = np.asarray([1]), (4, 2, 0, 1, 3), np.ones(5)
    wanted = {
        kind: np.flatnonzero(kind(order, ones).wanted(first)[0]).tolist()
        for kind in (AGreedy, Independent, LocalSwaps)
    }
    assert wanted == {AGreedy: [0, 1, 3], Independent: [0, 1, 3], LocalSwaps: [0]}
    assert [np.flatnonzero(Sweep(order, ones, position=at).wanted(first)[0]).tolist() for at in (1, 3)] == [
        [],
        [1],
    ]


def test_sweep_and_local_swaps_profile_cheaply_and_the_difference_grows_with_the_filters() -> None:
    ratios = []
    for filters in (4, 8):
        dropped, costs = trace(PAIRS)[:, -filters:], np.ones(filters)
        extra = {
            kind: run(kind, dropped, costs, 0.05).profiling.sum() for kind in (AGreedy, Sweep, LocalSwaps)
        }
        assert max(extra[Sweep], extra[LocalSwaps]) < extra[AGreedy]
        ratios.append(extra[AGreedy] - max(extra[Sweep], extra[LocalSwaps]))
    assert ratios[1] > 2 * ratios[0]


def test_profiling_costly_filters_is_a_quarter_of_the_cost() -> None:
    costs = np.asarray([1.0, 100.0] * 4)
    found = {kind: run(kind, trace(PAIRS), costs, 0.01) for kind in (AGreedy, Sweep)}
    share = {kind: each.profiling.sum() / each.total for kind, each in found.items()}
    assert share[AGreedy] > 0.15
    assert share[Sweep] < 0.05


def settled(found: Replayed, least: float) -> int:
    """Chunks after the middle until the cost of a row, a mean over five chunks, is near the least for good."""
    costs = np.convolve(found.spent[len(found.spent) // 2 :] / CHUNK, np.full(5, 0.2), "valid")
    far = np.flatnonzero(costs > 1.07 * least)
    return int(far[-1]) + 1 if len(far) else 0


def test_a_greedy_and_independent_settle_within_two_windows_and_the_others_take_longer() -> None:
    """The filters change places in the middle, in three ways."""
    rates = (0.2, 0.2, 0.4, 0.4, 0.6, 0.6, 0.8, 0.8)
    chunks: dict[Callable[..., FilterOrdering], list[int]] = {}
    for seed in (0, 4, 5):
        after = trace(rates)[:, np.random.default_rng(seed).permutation(8)]
        dropped, costs = np.concatenate([trace(rates), after]), np.ones(8)
        least = expected_cost(after, best_order(after, costs), costs)
        for kind in (AGreedy, Independent, Sweep, LocalSwaps):
            chunks.setdefault(kind, []).append(settled(run(kind, dropped, costs, 0.05), least))
    two_windows = 2 * 1000 / 0.05 / CHUNK
    assert max(*chunks[AGreedy], *chunks[Independent]) <= two_windows
    assert min(sum(chunks[Sweep]), sum(chunks[LocalSwaps])) > sum(chunks[AGreedy])


def test_a_greedy_is_better_while_conditions_change_often_and_sweep_while_they_change_seldom() -> None:
    """With permutations after each 100,000 and 1,000,000 rows, and the shares of profiled rows that the thesis has."""
    rates, costs = (0.2, 0.2, 0.4, 0.4, 0.6, 0.6, 0.8, 0.8), np.asarray([1.0, 10.0] * 4)
    long = correlated(2_000_000, rates, 2, np.random.default_rng(1))
    total = {}
    for period in (100_000, 1_000_000):
        dropped, _ = permuted(long, period, np.random.default_rng(2))
        total[period] = {kind: run(kind, dropped, costs, 0.01).total for kind in (AGreedy, Sweep)}
    assert total[100_000][AGreedy] < total[100_000][Sweep]
    assert total[1_000_000][Sweep] < total[1_000_000][AGreedy]


def test_a_permutation_of_all_filters_after_each_period() -> None:
    dropped, phases = permuted(trace(PAIRS), 50_000, np.random.default_rng(4))
    assert [phase.stop - phase.start for phase in phases] == [50_000] * 4
    rates = [np.sort((~dropped[phase]).mean(axis=0)) for phase in phases]
    assert np.allclose(rates, np.sort(PAIRS), atol=0.02)
    assert len({tuple((~dropped[phase]).mean(axis=0).round(1)) for phase in phases}) > 1


def test_costs_are_the_mean_of_what_was_measured_in_the_window() -> None:
    ordering = AGreedy((0, 1), np.asarray([5.0, 7.0]), size=3)
    rows = np.ones((2, 2), bool)
    ordering.record(DropProfile(rows, rows, np.asarray([[1.0, np.nan], [3.0, np.nan]])))
    assert ordering.costs.tolist() == [2.0, 7.0]
    ordering.record(DropProfile(rows, rows, np.asarray([[8.0, 4.0], [4.0, 2.0]])))
    assert ordering.costs.tolist() == [5.0, 3.0]


def test_a_guard_against_thrashing() -> None:
    """A filter that drops little more than the first stays behind it; without the guard it moves."""
    rows = np.repeat(np.eye(2, dtype=bool), (19, 20), axis=0)
    for slack, moves in ((0.9, False), (1.0, True)):
        ordering = AGreedy((0, 1), np.ones(2), slack=slack)
        assert ordering.record(DropProfile.whole(rows, np.ones(2))) == moves


def test_a_window_is_stale_when_rows_are_dropped_elsewhere() -> None:
    rows = np.repeat(np.eye(3, dtype=bool), (600, 300, 100), axis=0)
    ordering = AGreedy((2, 0, 1), np.ones(3), slack=0.0)
    assert not drops_elsewhere(ordering.believed(), (0, 0, 10_000))
    ordering.record(DropProfile.whole(rows, np.ones(3)))
    assert ordering.believed() == (0.6, 0.3, 0.1)
    assert not drops_elsewhere(ordering.believed(), (4200, 2100, 700))
    assert not drops_elsewhere(ordering.believed(), (0, 0, 10))
    assert drops_elsewhere(ordering.believed(), (300, 300, 400))
    ordering.forget()
    assert ordering.believed() == ()
    assert (ordering.window.held.rows, ordering.view.counts.sum()) == (0, 0)


def test_evaluations_are_counted_by_position() -> None:
    rows = np.asarray([[1, 0], [0, 1], [0, 0], [1, 1]], bool)
    assert evaluations(rows, (0, 1)).tolist() == [4, 2]
    assert expected_cost(rows, (1, 0), np.asarray([3.0, 5.0])) == (4 * 5 + 2 * 3) / 4


@pytest.mark.parametrize(
    ("filters", "share", "most"), [(3, 0.01, 0.02), (8, 0.01, 0.05), (8, 0.05, 0.20), (3, 0.05, 0.05)]
)
def test_profiling_is_a_small_part_of_the_evaluations(filters: int, share: float, most: float) -> None:
    """B3, counted: it grows with the number of filters and with the share of rows that is profiled."""
    dropped = trace((0.5,) * 8)[:, :filters]
    found = run(AGreedy, dropped, np.ones(filters), share)
    part = float(found.profiling.sum()) / found.total
    assert most / 4 < part <= most


def test_the_time_of_a_greedy_is_divided_among_its_parts() -> None:
    shares = breakdown(3, 0.05)
    assert tuple(shares) == PARTS
    assert sum(shares.values()) == pytest.approx(1)
    assert min(shares.values()) > 0
    assert max(shares, key=lambda part: shares[part]) == "rows"
