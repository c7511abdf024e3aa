"""Logs of plans over a trace that comes back to earlier conditions, and the plans that a log and intervals of statistics suggest."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.adaptive.filters.a_greedy import AGreedy
from headrace.adaptive.filters.matrix_view import recounted
from headrace.adaptive.filters.order_cost import (
    Conditions,
    Order,
    best_order,
    best_single_order,
    expected_cost,
)
from headrace.adaptive.filters.profile_window import DropProfile
from headrace.adaptive.filters.trace_replay import bernoulli, replayed
from headrace.adaptive.plan_log.logged_order import LoggedOrder
from headrace.adaptive.plan_log.plan_log import PlanLog
from headrace.adaptive.plan_log.robust_order import (
    DropInterval,
    cost_of_a_row,
    point_order,
    robust_order,
)
from headrace.adaptive.plan_log.saved_by_adapting import LoggedPeriod, saved_by_adapting

PERIOD, PERIODS, FILTERS = 40_000, 24, 8
COSTS = np.asarray([1.0, 10.0] * 4)


def periodic_trace() -> np.ndarray:
    """Three conditions that take turns: each drops much by other filters."""
    rng = np.random.default_rng(1)
    rates = np.linspace(0.05, 0.75, FILTERS)
    conditions = [rng.permutation(rates) for _ in range(3)]
    return np.concatenate([rng.random((PERIOD, FILTERS)) < conditions[i % 3] for i in range(PERIODS)])


def test_recurring_conditions_are_looked_up() -> None:
    """After the first periods the log replaces most optimizations, and the costs stay those of A-Greedy (the guide's bar: 95 %)."""
    trace, start = periodic_trace(), tuple(range(FILTERS))
    plain = replayed(trace, COSTS, AGreedy(start, COSTS, 500), bernoulli(0.1, 2))
    logged = LoggedOrder(AGreedy(start, COSTS, 500), PlanLog(radius=0.06), verified=5)
    run = replayed(trace, COSTS, logged, bernoulli(0.1, 2))
    assert run.total == pytest.approx(plain.total, rel=0.03)
    assert logged.optimizations <= 0.5 * plain.reoptimizations
    assert logged.checked >= 5
    assert logged.agreed >= 0.95 * logged.checked


def test_a_choice_that_has_become_bad_is_left_out() -> None:
    """The log has an order for these statistics from other times, the costliest one; it is followed until it is compared."""
    costs, dropped = np.ones(3), np.tile([[True, False, False], [True, True, False]], (100, 1))
    logged = LoggedOrder(AGreedy((2, 1, 0), costs, 200), PlanLog(radius=0.05), verified=2)
    logged.record(DropProfile.whole(dropped, costs))
    logged.log.add(0, logged.statistics(), (2, 1, 0))
    assert [logged.reoptimize(), logged.reoptimize()] == [(2, 1, 0), (0, 2, 1)]
    assert (logged.reused, logged.checked, logged.agreed, logged.optimizations) == (2, 1, 0, 1)
    assert [choice.plan for choice in logged.log.choices] == [(0, 2, 1)]


def test_an_order_of_the_log_is_judged_by_the_same_window() -> None:
    costs, dropped = np.ones(3), np.random.default_rng(6).random((300, 3)) < (0.2, 0.5, 0.7)
    logged = LoggedOrder(AGreedy((0, 1, 2), costs, 200), PlanLog(radius=0.05))
    logged.record(DropProfile.whole(dropped, costs))
    logged.log.add(0, logged.statistics(), (2, 1, 0))
    logged.reoptimize()
    view, window = logged.ordering.view, logged.ordering.window.held.dropped
    assert np.array_equal(view.counts, recounted(window, (2, 1, 0)))


def test_a_log_is_asked_near_its_entries() -> None:
    log = PlanLog(radius=0.1)
    assert log.nearest(np.asarray([0.5, 0.5])) is None
    log.add(1, np.asarray([0.5, 0.5]), (0, 1))
    log.add(2, np.asarray([0.6, 0.5]), (1, 0))
    near, other = log.nearest(np.asarray([0.54, 0.45])), log.nearest(np.asarray([0.56, 0.45]))
    assert near is not None
    assert other is not None
    assert (near.plan, other.plan) == ((0, 1), (1, 0))
    assert log.nearest(np.asarray([0.55, 0.39])) is None


def test_a_log_forgets_its_oldest_entries() -> None:
    log = PlanLog(radius=0.1, most=2)
    for time, statistic in enumerate((0.1, 0.5, 0.9)):
        log.add(time, np.asarray([statistic]), (0,))
    assert log.nearest(np.asarray([0.1])) is None
    assert log.nearest(np.asarray([0.9])) is not None


def by_size(statistics: np.ndarray) -> Order:
    return tuple(np.argsort(-statistics, kind="stable").tolist())


def test_importance_is_of_the_statistics_that_change_plans() -> None:
    """The second goes from least to greatest and back; the third moves without an effect."""
    log = PlanLog(radius=0.1)
    for time, second in enumerate((0.1, 0.9, 0.1, 0.9)):
        statistics = np.asarray([0.5, second, 0.2 + 0.01 * time])
        log.add(time, statistics, by_size(statistics))
    assert log.importance(by_size).tolist() == [0.0, 1.0, 0.0]


def test_changes_that_are_undone_soon_are_transients() -> None:
    log = PlanLog(radius=0.1)
    for time, plan in ((0, (0, 1)), (10, (1, 0)), (12, (0, 1)), (50, (1, 0)), (90, (0, 1))):
        log.add(time, np.asarray([0.5]), plan)
    assert log.undone(within=3) == 0.25
    assert log.undone(within=40) == 0.75
    log.add(91, np.asarray([0.5]), (1, 0))
    assert log.undone(within=3) == 0.4
    third = PlanLog(radius=0.1)
    for time, plan in ((0, (0, 1, 2)), (1, (1, 0, 2)), (2, (2, 0, 1))):
        third.add(time, np.asarray([0.5]), plan)
    assert third.undone(within=3) == PlanLog(radius=0.1).undone(within=3) == 0.0


@given(
    st.lists(
        st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=8),
        min_size=1,
        max_size=3,
    )
)
def test_the_best_single_order_is_the_best_of_all(periods: list[list[list[bool]]]) -> None:
    """Of several periods with their own costs, by trying each order."""
    parts = [np.asarray(rows, bool) for rows in periods]
    costs = [np.asarray([1.0, 2.0, 5.0]) * (index + 1) for index in range(len(parts))]
    conditions = [Conditions.of(part, cost) for part, cost in zip(parts, costs, strict=True)]

    def total(order: Order) -> float:
        return sum(
            expected_cost(part, order, cost) * len(part) for part, cost in zip(parts, costs, strict=True)
        )

    chosen = best_single_order(conditions)
    assert total(chosen) == pytest.approx(min(map(total, permutations(range(3)))))
    assert sum(one.cost_of(chosen) for one in conditions) == pytest.approx(total(chosen))


def test_what_adapting_saved() -> None:
    """Two conditions, each of which one filter drops all rows of; a single order evaluates both filters in one of them."""
    first = Conditions(np.asarray([0.0, 100.0, 0.0, 0.0]), np.asarray([1.0, 1.0]))
    second = Conditions(np.asarray([0.0, 0.0, 100.0, 0.0]), np.asarray([1.0, 1.0]))
    saved = saved_by_adapting([LoggedPeriod((0, 1), first, 5.0), LoggedPeriod((1, 0), second, 5.0)])
    assert (saved.followed, saved.single, saved.profiling) == (200.0, 300.0, 10.0)
    assert saved.ratio == pytest.approx(300 / 210)


# ------------------------------------------------------------------------------------------- intervals of statistics


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


def test_best_order_is_the_best_single_order_of_one_sample() -> None:
    dropped = np.random.default_rng(5).random((200, 6)) < np.linspace(0.1, 0.8, 6)
    assert best_order(dropped, np.ones(6)) == best_single_order([Conditions.of(dropped, np.ones(6))])
