"""Estimates of misses and loads, pages by priority, and the direct-mapped directory of keys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.adaptive.caches.estimates import MissEstimate, PipelineProfile, RecentMean, load_of
from headrace.adaptive.caches.key_directory import PAGE, KeyDirectory
from headrace.adaptive.caches.page_pool import PagePool, priority


def test_a_statistic_is_the_mean_of_its_most_recent_observations() -> None:
    mean = RecentMean(3)
    for value in (100, 1, 2, 3):
        assert not mean.is_full or value == 3
        mean.add(value)
    assert (mean.mean, mean.is_full) == (2, True)


def test_loads_are_of_profiled_rows_at_the_rate_of_new_ones() -> None:
    profile = PipelineProfile.of(2)
    profile.add((1, 4, 2), (10, 8))
    profile.add((1, 0, 0), (14, 0))
    load = load_of([profile], [100])
    assert load.rates == ((100, 200, 100),)
    assert load.costs == ((12, 2),)


@pytest.mark.parametrize("different", [1, 10, 100, 1000])
def test_the_bloom_filter_counts_the_different_keys_of_a_block(different: int) -> None:
    estimate = MissEstimate(1000, 16)
    rng = np.random.default_rng(different)
    assert estimate.probability == 1
    for _ in range(5):
        estimate.add(rng.permutation(np.arange(1000) % different))
    assert estimate.probability == pytest.approx(different / 1000, rel=0.07)


def test_blocks_go_on_over_any_portions_of_keys() -> None:
    keys = np.random.default_rng(1).integers(0, 300, 5000)
    whole, parts = MissEstimate(1000, 8), MissEstimate(1000, 8)
    whole.add(keys)
    for part in np.split(keys, [7, 900, 1000, 1001, 4321]):
        parts.add(part)
    assert parts.probability == whole.probability


# ------------------------------------------------------------------------------------------------------------ pages


def test_a_page_is_taken_from_the_cache_of_the_least_priority_if_that_is_below() -> None:
    pool: PagePool[str] = PagePool(3, {"a": 1.0, "b": 2.0, "c": 3.0})
    assert [pool.need_page(cache).given for cache in "aab"] == [True] * 3
    assert pool.need_page("a").given is False
    grant = pool.need_page("c")
    assert (grant.given, grant.victim) == (True, "a")
    assert pool.need_page("c").victim == "a"
    assert pool.need_page("c").victim == "b"
    assert pool.held == {"c": 3}
    assert priority(10, 5, 2) == 1


@given(data=st.data())
def test_no_more_pages_are_held_than_there_are_and_none_is_held_before_a_better_cache(
    data: st.DataObject,
) -> None:
    pool: PagePool[int] = PagePool(data.draw(st.integers(0, 6)))
    pool.prioritize({cache: float(data.draw(st.integers(0, 3))) for cache in range(4)})
    for _ in range(data.draw(st.integers(1, 30))):
        if data.draw(st.integers(0, 4)) == 0:
            before = dict(pool.held)
            victims = pool.resize(data.draw(st.integers(0, 6)))
            assert sum(pool.held.values()) == sum(before.values()) - len(victims) <= pool.pages
            continue
        cache = data.draw(st.integers(0, 3))
        refused = not pool.need_page(cache).given
        assert sum(pool.held.values()) <= pool.pages
        if refused:
            assert all(
                pool.priorities[other] >= pool.priorities[cache] for other in pool.held if other != cache
            )


@given(data=st.data())
def test_a_directory_holds_what_was_admitted_last_to_each_bucket(data: st.DataObject) -> None:
    directory, held, pages = KeyDirectory(8), dict[int, int](), data.draw(st.integers(0, 4))
    keys = st.lists(st.integers(-500, 500), unique=True, max_size=60)

    def need_page() -> bool:
        nonlocal pages
        pages -= 1
        return pages >= 0

    for _ in range(data.draw(st.integers(1, 5))):
        absent = np.array([key for key in data.draw(keys) if key not in held.values()], np.int64)
        admitted, evicted = directory.admit(absent, need_page)
        before = set(held.values())
        for key, bucket in zip(absent.tolist(), directory.buckets(absent).tolist(), strict=True):
            if directory.granted[bucket // PAGE]:
                held[bucket] = key
        assert set(absent[admitted].tolist()) == set(held.values()) - before
        assert set(evicted.tolist()) == before - set(held.values())
        assert directory.present(np.arange(-500, 501)).nonzero()[0].tolist() == sorted(
            key + 500 for key in held.values()
        )
    if directory.granted.any():
        lost = set(directory.give_back_page().tolist())
        assert lost <= set(held.values())
        assert not directory.present(np.array(sorted(lost), np.int64)).any()
