"""The choice of the caches of a join after an epoch: from counts of its state tasks, by what they save."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import ClassVar, cast

import pytest

from headrace.observation import CacheObservation
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.task_messages import StateReceipt
from headrace.runtime.plan.adaptive.join_caches import (
    INTERVAL,
    JOIN_CACHES,
    JoinCaches,
    join_caches,
    observed_caches,
)
from headrace.store.logs.manifest import Manifest

ROWS = 10_000
CHEAP = CacheObservation(rows=ROWS, measured=ROWS, compared=2 * ROWS, made=ROWS, passing=ROWS, missing=ROWS)
"""Each row has a partner in both other sides, and no key comes again."""
COSTLY = replace(CHEAP, compared=110 * ROWS, made=100 * ROWS, passing=ROWS, missing=ROWS // 20)
"""A hundred combinations of a row, of which one passes; a key comes twenty times."""
USED = CacheObservation(rows=ROWS, lookups=ROWS, hits=ROWS, matched=ROWS)
FEW = replace(CHEAP, rows=100, measured=100, compared=200, made=100, passing=100, missing=100)


def test_the_side_whose_rows_make_many_combinations_in_vain_gets_a_cache_after_two_epochs() -> None:
    caches = JoinCaches()
    assert caches.chosen("j", 3, {0: FEW, 1: FEW, 2: COSTLY}) == {}
    assert caches.chosen("j", 3, {0: FEW, 1: FEW, 2: COSTLY}) == {2: (0, 1)}
    assert caches.chosen("j", 3, {2: USED}) == {2: (0, 1)}


@pytest.mark.parametrize(
    "seen",
    [
        {0: FEW, 1: FEW, 2: CHEAP},
        {0: FEW, 1: FEW, 2: replace(COSTLY, missing=ROWS)},
        {2: replace(COSTLY, rows=10, measured=10, compared=1100, made=1000, passing=10, missing=1)},
    ],
    ids=["no combination in vain", "no key comes again", "few rows"],
)
def test_where_there_is_nothing_to_gain_no_cache_is_used(seen: dict[int, CacheObservation]) -> None:
    caches = JoinCaches()
    assert [caches.chosen("j", 3, seen) for _ in range(2 * INTERVAL)] == [{}] * 2 * INTERVAL


def test_a_cache_that_misses_is_left_at_once_and_judged_again_after_the_interval() -> None:
    caches = JoinCaches()
    for _ in range(2):
        chosen = caches.chosen("j", 3, {2: COSTLY})
    assert chosen == {2: (0, 1)}
    missing = replace(USED, hits=0, measured=256, compared=256 * 110, made=256 * 100)
    assert [caches.chosen("j", 3, {2: missing}) for _ in range(2)][-1] == {}
    after = [caches.chosen("j", 3, {2: COSTLY}) for _ in range(INTERVAL + 2)]
    assert after[0] == {}
    assert after[-1] == {2: (0, 1)}


def test_changes_that_cost_more_than_look_ups_save_are_counted() -> None:
    caches, many = JoinCaches(), replace(CHEAP, rows=100 * ROWS, measured=100 * ROWS, compared=200 * ROWS)
    for _ in range(4):
        chosen = caches.chosen(
            "j", 3, {0: many, 1: many, 2: replace(COSTLY, made=20 * ROWS, compared=25 * ROWS)}
        )
    assert 2 not in chosen


def test_the_choice_is_a_fact_of_the_manifest_as_long_as_the_plan_has_the_join() -> None:
    class Join:
        joined_sides = ("a", "b", "c")

    class Plan:
        operators: ClassVar = {"j": Join()}

    class Without:
        operators: ClassVar[dict[str, Join]] = {}

    plan, without = cast("EpochPlan", Plan()), cast("EpochPlan", Without())
    caches, manifest = JoinCaches(), Manifest(1, 1)
    for _ in range(2):
        manifest = caches.decided(manifest, {"j/2": COSTLY}, plan)
    assert join_caches(manifest) == {"j": {2: (0, 1)}}
    assert json.loads(json.dumps(manifest.facts))[JOIN_CACHES] == [["j", [[2, [0, 1], [110.0, 100.0, 1.0]]]]]
    assert caches.decided(manifest, {}, plan) is manifest
    assert join_caches(caches.decided(manifest, {"k/0": CHEAP}, without)) == {}


def test_another_driver_goes_on_with_what_the_manifest_has() -> None:
    again = JoinCaches()
    assert again.chosen("j", 3, {2: USED}, {2: (110.0, 100.0, 1.0)}) == {2: (0, 1)}
    assert [again.chosen("j", 3, {2: replace(USED, hits=0)}) for _ in range(2)][-1] == {}


def test_counts_of_tasks_are_added_by_side() -> None:
    receipts = [StateReceipt(task, caches={"j/0": CHEAP, f"j/{task + 1}": FEW}) for task in range(2)]
    seen = observed_caches(receipts)
    assert seen["j/0"] == CHEAP.plus(CHEAP)
    assert seen["j/0"].compared == 4 * ROWS
    assert seen.keys() == {"j/0", "j/1", "j/2"}
