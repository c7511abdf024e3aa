"""The pool of values in memory: within its bounds, the least recent first where all have one priority, and better than that where not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.overload.priority_pool import MOST_USES, PriorityPool
from headrace.runtime.home.lru_cache import Recent
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.invoke.questions import run_sums

Pool = PriorityPool[str, int, np.ndarray]
Steps = list[tuple[str, str, int, int]]
STEPS = st.lists(
    st.tuples(st.sampled_from(["get", "put", "ask"]), st.sampled_from("ab"), st.integers(0, 5), st.integers(0, 60)),
    max_size=60,
)  # fmt: skip


def value(size: int) -> np.ndarray:
    return np.zeros(size, np.int8)


@given(STEPS, st.integers(0, 100), st.lists(st.integers(0, 9), min_size=6, max_size=6))
def test_a_group_takes_no_more_than_allowed_and_gives_what_was_stored(
    steps: Steps, most: int, saves: list[int]
) -> None:
    pool, sizes = Pool(3), dict[tuple[str, int], int]()
    kinds = {of: (pool.ask(of, "even"), pool.ask(of, "odd")) for of in "ab"}
    for step, of, key, size in steps:
        if step == "ask":
            assert pool.ask(of, ("even", "odd")[key % 2]) == kinds[of][key % 2]
        elif step == "put":
            pool.put(of, kinds[of][key % 2], key, value(size), saves[key], most)
            sizes[of, key] = size
        found = {key: pool.get(of, kinds[of][key % 2], key) for key in range(6)}
        held = {key: one for key, one in found.items() if one is not None}
        assert len(held) <= 3
        assert all(len(one) == sizes[of, key] for key, one in held.items())
        assert pool.shrink(of, most) == sum(map(len, held.values())) <= most
    pool.clear()
    assert pool.shrink("a", 0) == 0


@given(STEPS, st.integers(0, 100))
def test_of_values_with_one_priority_those_used_last_stay(steps: Steps, most: int) -> None:
    pool, expected = Pool(3), dict[str, list[tuple[int, int]]](a=[], b=[])
    for step, of, key, size in steps:
        of_key = [one for one in expected[of] if one[0] == key]
        if step == "put":
            of_key = [(key, size + 1)]
            pool.put(of, 1, key, value(size + 1), size + 1, most)
        elif step == "get":
            assert (pool.get(of, 1, key) is not None) == bool(of_key)
        else:
            continue
        held = [one for one in expected[of] if one[0] != key] + of_key
        while len(held) > 3 or sum(one[1] for one in held) > most:
            held.pop(0)
        expected[of] = held
    for of, held in expected.items():
        assert [key for key in range(6) if pool.get(of, 1, key) is not None] == sorted(key for key, _ in held)


def test_what_saves_more_for_its_bytes_stays() -> None:
    pool = Pool(100)
    pool.put("h", 1, 1, value(10), 1_000)
    for key in range(2, 12):
        pool.put("h", 1, key, value(10), 10, 40)
    pool.put("h", 1, 12, value(30), 1_000, 40)
    assert [key for key in range(1, 13) if pool.get("h", 1, key) is not None] == [1, 12]


DASHBOARDS, RUNS, ONCE, LIMIT = 3, 20, 4, 100


def skewed(rounds: int) -> Iterator[tuple[str, int]]:
    """Three dashboards that read twenty runs each round, and four questions between that are asked once, of fifty runs each."""
    for number in range(rounds):
        yield from ((f"dashboard {one}", run) for one in range(DASHBOARDS) for run in range(RUNS))
        yield from ((f"once {number} {one}", run) for one in range(ONCE) for run in range(50))


def uniform(rounds: int) -> Iterator[tuple[str, int]]:
    """Any of ten questions, about any of twenty runs."""
    random = np.random.default_rng(5)
    yield from ((f"q{random.integers(10)}", int(random.integers(RUNS))) for _ in range(400 * rounds))


def hits_of_pool(trace: Iterator[tuple[str, int]], pool: Pool) -> int:
    hits, before, number = 0, "", 0
    for kind, run in trace:
        if kind != before:
            before, number = kind, pool.ask("h", kind)
        if pool.get("h", number, run) is not None:
            hits += 1
        else:
            pool.put("h", number, run, value(1))
    return hits


def hits_of_lru(trace: Iterator[tuple[str, int]]) -> int:
    cache, hits = Recent[tuple[str, int], bool](LIMIT), 0
    for key in trace:
        hits += cache.get(key) is not None
        cache.put(key, True)
    return hits


def test_values_that_are_asked_for_often_are_hit_where_the_least_recent_first_hits_none() -> None:
    most = 29 * DASHBOARDS * RUNS
    assert hits_of_lru(skewed(30)) == 0
    assert hits_of_pool(skewed(30), Pool(LIMIT)) > 0.85 * most


def test_where_nothing_is_asked_for_more_often_there_are_as_many_hits() -> None:
    assert hits_of_pool(uniform(20), Pool(LIMIT)) > 0.95 * hits_of_lru(uniform(20))


def test_values_that_are_not_asked_for_any_more_are_evicted_after_as_many_replacements_as_they_had_uses() -> (
    None
):
    pool = Pool(LIMIT)
    hits_of_pool(skewed(30), pool)
    kind = pool._groups["h"].kinds["dashboard 0"]
    old = lambda: sum((kind, run) in pool._groups["h"].held for run in range(RUNS))  # noqa: E731
    assert old() == RUNS
    others = ((f"later {number}", number) for number in range(MOST_USES * LIMIT))
    hits_of_pool(others, pool)
    assert old() == 0


def test_what_is_read_over_and_over_takes_no_more_memory() -> None:
    pool = Pool(LIMIT)
    for key in range(3):
        pool.put("h", 1, key, value(1))
    for number in range(10_000):
        pool.get("h", 1, number % 3)
        pool.ask("h", f"kind {number}")
    group = pool._groups["h"]
    assert len(group.order) < 100
    assert len(group.uses) == len(group.kinds) <= 1024


@pytest.mark.parametrize("repeated", [1, 3])
def test_questions_that_are_asked_once_do_not_evict_the_sums_of_one_that_is_repeated(
    tmp_path: Path, repeated: int
) -> None:
    run_sums.cached.clear()
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute("CREATE STREAM s (k BIGINT, v BIGINT) USING push")
        for number in range(4):
            hub.push("s", [{"k": row % 5, "v": number} for row in range(200)])
            hub.catch_up()
        repeats = "SELECT k, SUM(v) AS n FROM s GROUP BY k WITHIN 0 PERCENT"
        for _ in range(repeated):
            read = message(hub, repeats)
        assert ("read 0 of" in read) == (repeated > 1)
        root = str(hub.home.store.root)
        of_two = 2 * run_sums.cached.shrink(root, 1 << 60)
        for number in range(2):
            message(hub, repeats.replace("GROUP", f"WHERE v > {number - 10} GROUP"))
            run_sums.cached.shrink(root, of_two)
        assert ("read 0 of 800" in message(hub, repeats)) == (repeated > 1)


def message(hub: Hub, text: str) -> str:
    (outcome,) = hub.execute(text)
    assert outcome.table is not None
    assert outcome.table.num_rows == 5
    return outcome.message
