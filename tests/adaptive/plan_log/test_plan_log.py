"""Logs of plans over a trace that comes back to earlier conditions, and the plans that a log suggests."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.models.filters.logged_order import LoggedOrder
from benchmarks.models.filters.trace_replay import bernoulli, replayed
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
from headrace.adaptive.plan_log.plan_log import PlanLog
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


def test_best_order_is_the_best_single_order_of_one_sample() -> None:
    dropped = np.random.default_rng(5).random((200, 6)) < np.linspace(0.1, 0.8, 6)
    assert best_order(dropped, np.ones(6)) == best_single_order([Conditions.of(dropped, np.ones(6))])
