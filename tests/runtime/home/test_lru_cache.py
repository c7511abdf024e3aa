"""A cache has values up to its limit, by number or by size, and evicts the one that was not read for the longest time."""

from __future__ import annotations

from headrace.runtime.home.lru_cache import Recent


def test_the_one_that_was_not_read_for_the_longest_time_is_evicted() -> None:
    cache = Recent[str, int](2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)


def test_sizes_count_where_they_are_given_whatever_is_replaced_or_removed() -> None:
    cache = Recent[str, str](10, len)
    cache.put("a", "xxxx")
    cache.put("b", "xxxx")
    cache.put("a", "xx")  # it was 4
    cache.put("c", "xxxx")
    assert cache.present() == ["b", "a", "c"]
    cache.put("d", "x")
    assert cache.present() == ["a", "c", "d"]
    cache.drop(["c", "no such"])
    cache.put("e", "xxxxxxx")
    assert cache.present() == ["a", "d", "e"]
    cache.put("larger than all", "x" * 11)
    assert cache.present() == []
    cache.put("f", "x" * 10)
    cache.clear()
    cache.put("g", "x" * 10)
    assert cache.present() == ["g"]
