"""The choice of the orders in which a join's sides probe each other: from sums over tasks, by drops for the steps of a search."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.adaptive.filters.ordering import UNSETTLED_SHARE
from headrace.observation import ProbeObservation
from headrace.operators.joins.probing.probe_profiles import name_of_side
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.task_messages import StateReceipt
from headrace.runtime.plan.adaptive import recorded_orders
from headrace.runtime.plan.adaptive.join_orders import (
    JoinOrders,
    join_orders,
    observed_probes,
    probe_profiles,
)
from headrace.store.logs.manifest import Manifest

SIDE = name_of_side("q.inner", 0)


class Plan:
    """A plan of which only the names of its operators matter."""

    def __init__(self, *operators: str) -> None:
        self.operators = dict.fromkeys(operators)


def seen(
    order: tuple[int, int], drops: tuple[float, float], steps: tuple[int, int] = (10, 10), sampled: int = 1000
) -> ProbeObservation:
    """Ten thousand new rows that probe two sides, each of which has no partner for its share of them."""
    rows, (first, then) = 10_000, order
    left = round(rows * (1 - drops[first]))
    probed, dropped = [0, 0], [0, 0]
    probed[first], probed[then] = rows, left
    dropped[first], dropped[then] = rows - left, round(left * drops[then])
    both = drops[0] * drops[1]
    patterns = {1: drops[0] - both, 2: drops[1] - both, 3: both}
    return ProbeObservation(
        order,
        rows,
        tuple(probed),
        tuple(dropped),
        (rows * steps[0], rows * steps[1]),
        compared=70,
        made=60,
        sampled=sampled,
        profiled=sampled // 2,
        patterns={bits: round(share * sampled) for bits, share in patterns.items()},
    )


def decided(orders: JoinOrders, manifest: Manifest, one: ProbeObservation, plan: Any = None) -> Manifest:
    return orders.decided(manifest, {SIDE: one}, plan or Plan("q.inner"))


@pytest.mark.parametrize(
    ("drops", "steps", "order"),
    [
        ((0.5, 0.5), (10, 10), (0, 1)),
        ((0.1, 0.9), (10, 10), (1, 0)),
        ((0.4, 0.6), (10, 10), (1, 0)),
        ((0.4, 0.6), (10, 30), (0, 1)),
        ((0.5, 0.52), (10, 10), (0, 1)),
    ],
)
def test_the_order_is_that_of_the_drops_for_the_steps_of_a_search(
    drops: tuple[float, float], steps: tuple[int, int], order: tuple[int, int]
) -> None:
    after = decided(JoinOrders(), Manifest(0, 1), seen((0, 1), drops, steps))
    assert join_orders(after)[SIDE].order == order


def test_data_that_change_are_noticed_in_the_next_epoch() -> None:
    """Before the change only few rows are sampled; after it the window begins again, and many are."""
    orders, manifest = JoinOrders(), Manifest(0, 1)
    for _ in range(20):
        manifest = decided(orders, manifest, seen((0, 1), (0.6, 0.2), sampled=400))
    settled = join_orders(manifest)[SIDE]
    assert settled.order == (0, 1)
    assert settled.share == pytest.approx(0.005 * (10 + 0.4 * 10) / 20)
    manifest = decided(orders, manifest, seen((0, 1), (0.02, 0.9), sampled=20))
    changed = join_orders(manifest)[SIDE]
    assert (changed.order, changed.share) == ((1, 0), UNSETTLED_SHARE)


def test_an_order_that_was_settled_when_few_rows_were_dropped_is_sampled_again_when_many_are() -> None:
    orders, manifest = JoinOrders(), Manifest(0, 1)
    for _ in range(3):
        manifest = decided(orders, manifest, seen((0, 1), (0.01, 0.02)))
    assert join_orders(manifest)[SIDE].share < UNSETTLED_SHARE
    assert join_orders(manifest)[SIDE].believed == ()
    manifest = decided(orders, manifest, seen((0, 1), (0.01, 0.03), sampled=0))
    assert join_orders(manifest)[SIDE].share < UNSETTLED_SHARE
    manifest = decided(orders, manifest, seen((0, 1), (0.01, 0.9), sampled=0))
    assert join_orders(manifest)[SIDE].share == UNSETTLED_SHARE


def test_tasks_are_added() -> None:
    one = seen((0, 1), (0.2, 0.5))
    total = observed_probes([StateReceipt(0, joins={SIDE: one}), StateReceipt(1, joins={SIDE: one})])[SIDE]
    assert (total.rows, total.probed, total.dropped) == (20_000, (20_000, 16_000), (4_000, 8_000))
    assert (total.steps, total.compared, total.made) == ((200_000, 200_000), 140, 120)
    assert (total.sampled, total.profiled, total.patterns[3]) == (2000, 1000, 2 * one.patterns[3])
    assert (total.costs, total.spent) == ((10, 10), 360_000)


def test_orders_stay_while_the_plan_has_the_join_and_are_json() -> None:
    orders = JoinOrders()
    before = decided(orders, Manifest(0, 1), seen((0, 1), (0.1, 0.9)))
    other = {name_of_side("other.inner", 1): seen((0, 1), (0.5, 0.1))}
    both = orders.decided(before, other, Plan("q.inner", "other.inner"))  # type: ignore[arg-type]
    assert list(join_orders(both)) == [SIDE, *other]
    alone = orders.decided(both, other, Plan("other.inner"))  # type: ignore[arg-type]
    assert list(join_orders(alone)) == list(other)
    assert json.loads(json.dumps(both.facts)) == both.facts


def test_what_was_not_observed_changes_nothing() -> None:
    manifest = Manifest(0, 1)
    assert JoinOrders().decided(manifest, {}, EpochPlan()) is manifest


def test_sides_are_sampled_where_there_is_room_for_their_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    assert probe_profiles({}, epoch=1).share_without == UNSETTLED_SHARE
    manifest = decided(JoinOrders(), Manifest(0, 1), seen((0, 1), (0.1, 0.9)))
    monkeypatch.setattr("headrace.runtime.plan.adaptive.join_orders.MOST", 1)
    assert probe_profiles(join_orders(manifest), epoch=1).share_without == 0
    monkeypatch.setattr(recorded_orders, "MOST", 1)
    more = JoinOrders().decided(
        manifest,
        {name_of_side("q.inner", 2): seen((0, 1), (0.5, 0.1))},
        Plan("q.inner"),  # type: ignore[arg-type]
    )
    assert list(join_orders(more)) == [name_of_side("q.inner", 2)]


def test_an_observation_is_the_same_after_the_log() -> None:
    one = seen((1, 0), (0.5, 0.5))
    assert ProbeObservation.of(json.loads(json.dumps(one.as_dict()))) == one


def test_delays_and_keys_are_measured_in_some_epochs() -> None:
    profiles = [probe_profiles({}, epoch) for epoch in range(16)]
    assert [epoch for epoch, one in enumerate(profiles) if one.sees_delays] == [0, 4, 8, 12]
    assert [epoch for epoch, one in enumerate(profiles) if one.sees_keys] == [0, 8]
    seen = [one.monitor("join", 2, every=every) for every in (False, True) for one in profiles[1:2]]
    assert [monitor.sees_delays for monitor in seen if monitor is not None] == [False, False], (
        "one monitor a join"
    )
    finds = probe_profiles({}, 1).monitor("join", 2, every=True)
    assert finds is not None
    assert finds.sees_delays
    assert finds.sees_keys
