"""Orders of filters of which few rows were sampled: good wherever the drop rates may be, by themselves and as they are chosen after epochs."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.few_rows import draws, lost, sampled
from headrace.adaptive.settling import robust_order as choosing
from headrace.adaptive.settling.robust_order import (
    DropInterval,
    cost_of_a_row,
    greatest_regret,
    intervals_of,
    order_of_few,
    point_order,
    robust_order,
)
from headrace.adaptive.settling.settled_order import SettledOrder


def test_intervals_hold_the_truth_nineteen_times_of_twenty() -> None:
    rng = np.random.default_rng(3)
    for share, rows in ((0.02, 50), (0.3, 20), (0.9, 100)):
        intervals = [DropInterval.of(int(dropped), rows) for dropped in rng.binomial(rows, share, 4000)]
        held = sum(interval.low <= share <= interval.high for interval in intervals) / 4000
        assert 0.92 <= held <= 0.99
    assert DropInterval.of(0, 0) == DropInterval(0.0, 0.5, 1.0)


intervals_of_filters = st.lists(
    st.tuples(st.floats(0.01, 0.99), st.floats(0.01, 0.99), st.sampled_from([1.0, 3.0, 20.0])),
    min_size=2,
    max_size=4,
)


@given(intervals_of_filters, st.integers(0, 2**32))
def test_no_truth_in_the_intervals_costs_more_than_the_regret(filters, seed: int) -> None:
    """Of drop rates drawn anywhere in the box, the cost is within the greatest regret at its corners."""
    intervals = [DropInterval(min(a, b), (a + b) / 2, max(a, b)) for a, b, _ in filters]
    costs = np.asarray([cost for *_, cost in filters])
    corners = np.asarray(np.meshgrid(*[(one.low, one.high) for one in intervals])).reshape(len(filters), -1).T
    orders = list(permutations(range(len(filters))))

    def regrets(rates: np.ndarray) -> np.ndarray:
        by_order = cost_of_a_row(orders, rates, costs)
        return by_order - by_order.min(axis=0)

    chosen = orders.index(robust_order(intervals, costs).order)
    drawn = np.random.default_rng(seed).uniform(
        [one.low for one in intervals], [one.high for one in intervals], (50, len(filters))
    )
    greatest = regrets(corners).max(axis=1)
    assert regrets(drawn)[chosen].max() <= greatest[chosen] + 1e-9
    assert greatest[chosen] <= greatest.min() + 1e-9


def test_expected_cost_of_independent_filters() -> None:
    (cost,) = cost_of_a_row([(1, 0)], np.asarray([[0.5, 0.9]]), np.asarray([10.0, 2.0]))
    assert cost.tolist() == pytest.approx([2.0 + 0.1 * 10.0])


def test_a_robust_choice_after_few_rows_loses_less_than_a_point_choice() -> None:
    """Ten sampled rows of four filters, two of them costly: over a thousand draws the costliest mistakes are smaller."""
    rng = np.random.default_rng(4)
    costs = np.asarray([1.0, 1.0, 30.0, 30.0])
    lost: dict[str, list[float]] = {"point": [], "robust": []}
    for _ in range(1000):
        truth = rng.uniform(0.05, 0.95, 4)
        intervals = [DropInterval.of(int(rng.binomial(10, share)), 10) for share in truth]
        best = cost_of_a_row(list(permutations(range(4))), truth[None, :], costs).min()
        for way, order in (
            ("point", point_order(intervals, costs)),
            ("robust", robust_order(intervals, costs).order),
        ):
            lost[way].append(float(cost_of_a_row([order], truth[None, :], costs)[0, 0]) / best - 1)
    worst = {way: float(np.quantile(losses, 0.99)) for way, losses in lost.items()}
    assert worst["robust"] <= 0.9 * worst["point"], worst
    assert np.mean(lost["robust"]) <= 1.1 * np.mean(lost["point"])


def test_certain_statistics_give_the_best_order() -> None:
    rates, costs = (0.2, 0.9, 0.5), np.asarray([1.0, 1.0, 4.0])
    certain = robust_order([DropInterval(share, share, share) for share in rates], costs)
    assert certain.order == point_order([DropInterval(share, share, share) for share in rates], costs)
    assert certain.is_robust
    assert not robust_order([DropInterval(0.0, 0.5, 1.0)] * 3, costs).is_robust


def test_too_many_filters_for_all_orders_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 7 filters"):
        robust_order([DropInterval(0.0, 0.5, 1.0)] * 8, np.ones(8))


# ------------------------------------------------------------------------------------------------ as epochs choose them


@pytest.mark.parametrize("rows", [3, 10, 40])
def test_after_few_rows_the_order_in_force_loses_less_than_the_greedy_order_of_the_sample(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Four hundred draws, correlated ones among them: the mean and the costliest mistakes."""
    losses: list[list[float]] = []
    for few in (0, choosing.FEW):
        monkeypatch.setattr(choosing, "FEW", few)
        losses.append([lost(dropped, rows) for dropped in draws(400)])
    greedy, robust = losses
    assert np.mean(robust) <= 0.3 * np.mean(greedy), (np.mean(robust), np.mean(greedy))
    assert np.quantile(robust, 0.99) <= 0.5 * np.quantile(greedy, 0.99)


def test_a_dear_filter_is_not_moved_before_a_cheap_one_by_six_rows() -> None:
    """It drops all six, and the cheap one none: that may be chance. After sixty rows it is none."""
    costs, rows = np.asarray([1.0, 20.0]), np.tile([[False, True]], (6, 1))
    order = SettledOrder.of((1, 0))
    assert order.take(sampled(rows, (1, 0), costs)).order == (0, 1)
    assert SettledOrder.of((0, 1)).take(sampled(np.tile(rows, (10, 1)), (0, 1), costs)).order == (1, 0)
    for _ in range(9):
        chosen = order.take(sampled(rows, (0, 1), costs))
    assert chosen.order == (1, 0), "samples of several epochs are added"


def test_after_conditions_have_changed_few_rows_are_few_again() -> None:
    """Four hundred rows were sampled, of which the cheap filter drops all; then the dear one drops nearly all rows, and six of six sampled ones."""
    costs = np.asarray([1.0, 20.0])
    order = SettledOrder.of((0, 1))
    before = sampled(np.tile([[True, False]], (400, 1)), (0, 1), costs)
    assert order.take(replace(before, rows=10_000, dropped=(9_000, 0))).order == (0, 1)
    after = sampled(np.tile([[False, True]], (6, 1)), (0, 1), costs)
    assert order.take(replace(after, rows=10_000, dropped=(0, 9_000))).order == (0, 1)


def test_an_order_of_few_rows_is_judged_by_the_same_window() -> None:
    """The greedy invariant is tested against the rows that were sampled before it was followed."""
    order = SettledOrder.of((3, 2, 1, 0))
    for dropped in np.array_split(draws(1)[0][:200], 40):
        order.take(sampled(dropped, order.ordering.plan))
    assert order.ordering.view.violation(order.ordering.costs, order.ordering.slack) is None
    assert order.ordering.view.order == order.ordering.plan


def test_filters_that_were_tried_on_few_of_the_sampled_rows_have_wide_intervals() -> None:
    shares = np.asarray([0.5, 0.5])
    cheap, dear = intervals_of((20, 4), shares)
    assert dear.high - dear.low > 1.5 * (cheap.high - cheap.low)
    tried = (4, 4)
    assert order_of_few(tried, np.asarray([0.25, 0.75]), np.asarray([1.0, 4.0])) == (0, 1)


def test_large_samples_many_filters_and_unknown_costs_leave_the_choice_to_the_sample() -> None:
    shares, costs = np.full(2, 0.5), np.ones(2)
    assert order_of_few((choosing.FEW,) * 2, shares, costs) is not None
    assert order_of_few((choosing.FEW, choosing.FEW + 1), shares, costs) is None
    assert order_of_few((5, 5), shares, np.asarray([1.0, np.inf])) is None
    assert order_of_few((5,) * 6, np.full(6, 0.5), np.ones(6)) is None


@given(intervals_of_filters, st.integers(0, 2**32))
def test_no_order_takes_more_than_its_greatest_regret_anywhere_in_the_intervals(filters, seed: int) -> None:
    intervals = [DropInterval(min(a, b), (a + b) / 2, max(a, b)) for a, b, _ in filters]
    costs = np.asarray([cost for *_, cost in filters])
    rng, orders = np.random.default_rng(seed), list(permutations(range(len(filters))))
    order = orders[rng.integers(len(orders))]
    drawn = rng.uniform([one.low for one in intervals], [one.high for one in intervals], (50, len(filters)))
    by_order = cost_of_a_row(orders, drawn, costs)
    ratio = by_order[orders.index(order)] / by_order.min(axis=0)
    assert ratio.max() <= 1 + greatest_regret(order, intervals, costs) + 1e-9
    assert greatest_regret(
        point_order([DropInterval(0.3, 0.3, 0.3)] * 2, costs[:2]),
        [DropInterval(0.3, 0.3, 0.3)] * 2,
        costs[:2],
    ) == pytest.approx(0)
