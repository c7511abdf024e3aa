"""The choice of orders of conjunctions after an epoch: from sums over tasks, with as much profiling as it takes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from headrace.adaptive.filters.ordering import UNSETTLED_SHARE, OrderInForce
from headrace.observation import FilterObservation
from headrace.runtime.messages.task_messages import ScanReceipt
from headrace.runtime.plan.adaptive.filter_orders import FilterOrders, filter_orders, observed_filters
from headrace.store.logs.manifest import Manifest


def seen(order: tuple[int, ...], drops: tuple[float, float], sampled: int = 1000) -> FilterObservation:
    """Ten thousand rows of two independent terms that cost 10 and 40 ns, each dropping its share."""
    rows, (first, then) = 10_000, order
    left = round(rows * (1 - drops[first]))
    evaluated, dropped = [0, 0], [0, 0]
    evaluated[first], evaluated[then] = rows, left
    dropped[first], dropped[then] = rows - left, round(left * drops[then])
    both = drops[0] * drops[1]
    patterns = {1: drops[0] - both, 2: drops[1] - both, 3: both}
    return FilterObservation(
        order,
        rows,
        tuple(evaluated),
        tuple(dropped),
        (evaluated[0] * 10, evaluated[1] * 40),
        sampled,
        (sampled * 12, sampled * 50),
        {bits: round(share * sampled) for bits, share in patterns.items()},
    )


def test_the_order_is_that_of_the_drops_per_cost() -> None:
    orders = FilterOrders()
    assert orders.chosen("c", seen((0, 1), (0.5, 0.5))).order == (0, 1)
    assert FilterOrders().chosen("c", seen((0, 1), (0.1, 0.9))).order == (1, 0)


def test_conditions_that_change_are_noticed_in_the_next_epoch() -> None:
    """Before the change only few rows are profiled; after it the window begins again, and many are."""
    orders = FilterOrders()
    for _ in range(20):
        chosen = orders.chosen("c", seen((0, 1), (0.6, 0.2), sampled=400))
    assert chosen.order == (0, 1)
    assert chosen.share < UNSETTLED_SHARE / 10
    chosen = orders.chosen("c", seen((0, 1), (0.02, 0.9), sampled=20))
    assert chosen == OrderInForce((1, 0), UNSETTLED_SHARE)
    assert orders.chosen("c", seen((1, 0), (0.02, 0.9), sampled=800)).share < UNSETTLED_SHARE / 10


def test_profiling_takes_a_small_part_of_the_time() -> None:
    share = FilterOrders().chosen("c", seen((0, 1), (0.5, 0.5), sampled=2000)).share
    assert share * 50 == pytest.approx(0.005 * (10 + 40 * 0.5), rel=0.01)
    passing = FilterOrders().chosen("c", seen((0, 1), (0.0, 0.0), sampled=2000))
    assert passing.share == pytest.approx(0.005)


def test_an_order_is_settled_though_few_rows_are_dropped() -> None:
    orders = FilterOrders()
    assert orders.chosen("c", seen((0, 1), (0.01, 0.01), sampled=800)).share == UNSETTLED_SHARE
    assert orders.chosen("c", seen((0, 1), (0.01, 0.01), sampled=800)).share < UNSETTLED_SHARE


def test_of_a_term_that_was_hardly_run_the_cost_is_that_of_the_sample_less_its_calls() -> None:
    one = seen((0, 1), (0.999, 0.5))
    assert one.evaluated[1] < 256
    assert one.costs(256) == (10.0, 50.0 - (12 - 10))
    assert replace(one, sampled=0, sample_nanoseconds=(), patterns={}).costs(256) == (10.0, float("inf"))


def test_the_cost_of_a_term_is_that_of_the_rows_of_the_sample_on_which_it_was_evaluated() -> None:
    one = replace(seen((0, 1), (0.999, 0.5)), in_sample=(1000, 200))
    assert one.costs(256)[1] == 50_000 / 200 - (12 - 10)
    assert one.plus(one).in_sample == (2000, 400)
    unsampled = replace(one, sampled=0, sample_nanoseconds=(0, 0), in_sample=(0, 0), patterns={})
    assert unsampled.costs(256) == (10.0, float("inf"))


def test_a_change_among_the_last_terms_is_noticed_though_they_drop_few_rows() -> None:
    """Three terms: the first drops nineteen rows of twenty; what the others drop of the rest turns around."""

    def of(second: float, third: float, sampled: int) -> FilterObservation:
        left = round(500 * (1 - second))
        return FilterObservation(
            (0, 1, 2),
            10_000,
            (10_000, 500, left),
            (9_500, 500 - left, round(left * third)),
            (100_000, 500_000, left * 1000),
            sampled,
            (sampled * 10, sampled * 1000, sampled * 1000),
            {1: round(sampled * 0.95), 2: round(sampled * 0.05 * second)},
        )

    orders = FilterOrders()
    for _ in range(8):
        chosen = orders.chosen("c", of(0.9, 0.9, 1000))
    assert chosen.share < UNSETTLED_SHARE
    assert orders.chosen("c", of(0.2, 0.9, 0)).share == UNSETTLED_SHARE


def test_tasks_are_added_and_a_manifest_keeps_the_last_orders() -> None:
    one = seen((0, 1), (0.1, 0.9))
    total = observed_filters([ScanReceipt(0, filters={"c": one}), ScanReceipt(1, filters={"c": one})])["c"]
    assert (total.rows, total.sampled, total.patterns[3]) == (20_000, 2000, 2 * one.patterns[3])
    before = FilterOrders().decided(Manifest(0, 1), {"other": seen((0, 1), (0.5, 0.1))})
    after = FilterOrders().decided(before, {"c": one})
    assert {name: chosen.order for name, chosen in filter_orders(after).items()} == {
        "other": (0, 1),
        "c": (1, 0),
    }
    assert json.loads(json.dumps(after.facts)) == after.facts


def test_an_observation_is_the_same_after_the_log() -> None:
    one = seen((1, 0), (0.5, 0.5))
    assert FilterObservation.of(json.loads(json.dumps(one.as_dict()))) == one
