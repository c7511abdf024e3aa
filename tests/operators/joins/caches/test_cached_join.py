"""Joins with caches against nested loops: caches of any sides are added and dropped at any epoch, with what a process remembers, and never change an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.adaptive.caches.key_directory import PAGE
from headrace.adaptive.caches.page_pool import PagePool
from headrace.algebra.expressions.expression import Call, Column, Literal
from headrace.observation import CacheObservation
from headrace.operators.base.batch import Batch
from headrace.operators.joins.caches import cached_join, caching
from headrace.operators.joins.caches.caching import Caching, JoinMemory
from headrace.operators.joins.caches.subjoin_cache import Entries
from headrace.operators.joins.probing.stems import Stem
from headrace.operators.joins.window_join import Grid
from headrace.schema import BIGINT, BOOLEAN, DOUBLE
from headrace.time import BEGINNING
from tests.operators.joins.test_many_sides import NAN, Driven, Row, batch, join, loops

Chosen = Mapping[int, tuple[int, ...]]


@dataclass
class Remembering(Driven):
    """A join of one task whose process remembers it between epochs."""

    memories: dict[str, JoinMemory] = field(default_factory=dict)
    seen: dict[str, CacheObservation] = field(default_factory=dict)

    def with_caches(self, parts: Sequence[Batch], bounds: Sequence[int], chosen: Chosen) -> None:
        caches = Caching({self.operator.id: chosen}, self.memories, measures=True)
        with caching.caching(caches):
            self.epoch(parts, bounds)
        self.seen = caches.observed

    @property
    def memory(self) -> JoinMemory:
        return self.memories[self.operator.id]


def chosen_caches(sides: int) -> st.SearchStrategy[Chosen]:
    """For some sides a cache of two or more of the others."""
    of_side = {
        side: [
            found
            for count in range(2, sides)
            for found in combinations([other for other in range(sides) if other != side], count)
        ]
        for side in range(sides)
    }
    return st.fixed_dictionaries(
        {}, optional={side: st.sampled_from(found) for side, found in of_side.items()}
    )


@given(
    data=st.data(), sides=st.integers(3, 4), slide=st.sampled_from((None, None, 1, 3)), ordered=st.booleans()
)
def test_caches_that_are_added_and_dropped_at_any_epoch_never_change_an_answer(
    data: st.DataObject, sides: int, slide: int | None, ordered: bool
) -> None:
    range_ = st.sampled_from((0, 2, 5, None) if slide is None else (2, 5))
    grid = None if slide is None else Grid(slide, 1)
    operator = join(data.draw(st.tuples(*(range_,) * sides), "ranges"), grid, ordered=ordered)
    driven, bounds = Remembering(operator), [-50] * sides
    every: tuple[list[Row], ...] = tuple([] for _ in range(sides))
    chosen = data.draw(chosen_caches(sides), "chosen")
    for _ in range(data.draw(st.integers(1, 5), "epochs")):
        parts = []
        for side in range(sides):
            times = st.integers(max(bounds[side], -3), max(bounds[side], -3) + 8)
            keys = st.sampled_from((None, 0.0, -0.0, 1.5, NAN))
            rows = data.draw(st.lists(st.tuples(keys, st.integers(0, 9), times), max_size=3), f"rows {side}")
            every[side].extend(rows)
            parts += [batch(rows, side)] if rows else []
        bounds = [max(bound, data.draw(st.integers(-3, 15), "bound")) for bound in bounds]
        driven.with_caches(data.draw(st.permutations(parts), "arrival"), bounds, chosen)
        if data.draw(st.booleans(), "changes"):
            chosen = data.draw(chosen_caches(sides), "chosen")
        if data.draw(st.booleans(), "compact"):
            driven.compact(bounds)
        if data.draw(st.integers(0, 4), "another process") == 0:
            driven.memories.clear()
    assert driven.emitted == loops(every, operator, ordered=ordered)


# Three sides: of one key side 0 and 1 have some rows each, and only those with 0.v <= 1.v are together; side 2 looks up both.

ALL_TIME = (BEGINNING,) * 3


def rows(side: int, key: float, values: Sequence[int], at: int = 1) -> Batch:
    return batch([(key, value, at) for value in values], side)


def remembering(*, ordered: bool = True) -> Remembering:
    return Remembering(join((1000, 1000, 1000), ordered=ordered))


CACHE: Chosen = {2: (0, 1)}


def test_a_key_is_joined_once_for_all_rows_that_ask_for_it_and_in_later_epochs_not_at_all() -> None:
    driven = remembering()
    driven.with_caches([rows(0, 1.0, range(10)), rows(1, 1.0, range(10))], ALL_TIME, CACHE)
    driven.with_caches([rows(2, 1.0, [0] * 30)], ALL_TIME, CACHE)
    seen = driven.seen["q1.inner/2"]
    assert (seen.lookups, seen.hits) == (30, 29)
    assert seen.created == 55  # of 100 combinations those on which the condition is true
    assert seen.joined == 10 + 100
    driven.with_caches([rows(2, 1.0, [0] * 30)], ALL_TIME, CACHE)
    seen = driven.seen["q1.inner/2"]
    assert (seen.lookups, seen.hits, seen.joined, seen.matched) == (30, 30, 0, 30 * 55)
    assert driven.emitted.total() == 60 * 55


def test_the_entries_of_a_cache_are_the_subjoin_of_their_keys_after_every_epoch() -> None:
    driven = remembering()
    driven.with_caches([rows(0, key, range(3)) for key in (1.0, 2.0)], ALL_TIME, CACHE)
    driven.with_caches([rows(1, key, range(3)) for key in (1.0, 2.0)], ALL_TIME, CACHE)
    driven.with_caches([rows(2, 1.0, [0])], ALL_TIME, CACHE)
    assert entries(driven) == {(v, w): 1 for v in range(3) for w in range(v, 3)}
    driven.with_caches([rows(0, 1.0, [1]), rows(1, 1.0, [1]), rows(1, 2.0, [2])], ALL_TIME, CACHE)
    every = [*range(3), 1]
    expected = Counter((v, w) for v in every for w in every if v <= w)
    assert entries(driven) == expected
    driven.with_caches([rows(2, 1.0, [5])], ALL_TIME, CACHE)
    assert driven.seen["q1.inner/2"].hits == 1
    assert driven.emitted.total() == 2 * expected.total()  # for both rows of side 2
    assert entries(driven) == expected


def entries(driven: Remembering) -> Counter[tuple[int, int]]:
    """The values of the rows to which the cache of the sides 0 and 1 refers."""
    cache = driven.memory.caches[0, 1]
    whole = Entries.together(cache.pieces, cache.sides)
    whole = whole.take(cache.directory.present(whole.hash))
    stems = {side: Stem(driven.memory.rows[side], None) for side in cache.sides}
    values = [
        stems[side].columns([f"s{side}.v"], whole.found.rows[side])[f"s{side}.v"].to_pylist()
        for side in cache.sides
    ]
    return Counter(zip(*values, strict=True))


def test_rows_that_have_ended_leave_memory_with_their_combinations() -> None:
    driven = Remembering(join((5, 5, 5)))
    for epoch in range(40):
        at = 10 * epoch
        parts = [rows(side, 1.0, [epoch], at) for side in range(3)]
        driven.with_caches(parts, (at + 9,) * 3, CACHE)
    assert driven.seen["q1.inner/2"].hits == 1
    assert driven.emitted.total() == 40
    assert sum(piece.rows for piece in driven.memory.rows[0]) <= 4
    assert driven.memory.caches[0, 1].combinations <= 4


def test_the_number_of_pieces_in_memory_follows_the_logarithm_of_the_rows() -> None:
    driven = remembering()
    for epoch in range(64):
        driven.with_caches([rows(side, float(epoch), [1]) for side in range(3)], ALL_TIME, CACHE)
    assert all(len(pieces) <= 7 for pieces in driven.memory.rows.values())
    assert len(driven.memory.caches[0, 1].pieces) <= 7
    driven.with_caches([rows(2, float(key), [1]) for key in range(64)], ALL_TIME, CACHE)
    assert driven.seen["q1.inner/2"].hits >= 60  # but for keys with one bucket


def test_a_cache_that_is_dropped_begins_empty_when_it_is_used_again() -> None:
    driven = remembering()
    driven.with_caches([rows(0, 1.0, [1]), rows(1, 1.0, [1]), rows(2, 1.0, [1])], ALL_TIME, CACHE)
    driven.with_caches([rows(0, 1.0, [2])], ALL_TIME, {})
    assert not driven.memory.caches
    assert not driven.memory.rows
    driven.with_caches([rows(1, 1.0, [2]), rows(2, 1.0, [2])], ALL_TIME, CACHE)
    assert driven.seen["q1.inner/2"].hits == 0
    assert driven.emitted.total() == 1 + 0 + 2 * 3 - 1


def test_a_condition_that_may_fail_is_not_tested_in_a_cache() -> None:
    """10 / 0 is reported for each combination of all sides, as without a cache."""
    driven = remembering(ordered=False)
    quotient = Call("/", (Column("s0.v", BIGINT), Column("s1.v", BIGINT)), DOUBLE)
    condition = Call(">", (quotient, Literal(0.0, DOUBLE)), BOOLEAN)
    spec = replace(driven.operator.spec, condition=condition)
    driven.operator = replace(driven.operator, spec=spec)
    parts = [rows(0, 1.0, [10]), rows(1, 1.0, [0, 2]), rows(2, 1.0, [1, 1])]
    driven.with_caches(parts, ALL_TIME, CACHE)
    assert driven.seen["q1.inner/2"].created == 2
    assert driven.emitted.total() == 2


def test_a_key_with_too_many_combinations_is_searched_without_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cached_join, "_MOST_COMBINATIONS", 99)
    driven = remembering()
    driven.with_caches([rows(0, 1.0, range(10)), rows(1, 1.0, range(10))], ALL_TIME, CACHE)
    driven.with_caches([rows(2, 1.0, [1, 2])], ALL_TIME, CACHE)
    seen = driven.seen["q1.inner/2"]
    assert (seen.lookups, seen.measured) == (0, 2)
    assert driven.emitted.total() == 2 * 55


def test_rows_below_what_a_cache_was_made_for_make_it_begin_again() -> None:
    """At 100 it was made for rows from 100 on; then a row at 50, which streams without punctuation allow, joins one that ended at 60."""
    driven = Remembering(join((10, 1000, 1000)))
    driven.with_caches([rows(0, 1.0, [1], 50), rows(1, 1.0, [1], 50)], ALL_TIME, CACHE)
    driven.with_caches([rows(2, 1.0, [1], 100)], ALL_TIME, CACHE)
    assert driven.emitted.total() == 0
    driven.with_caches([rows(2, 1.0, [1], 50)], ALL_TIME, CACHE)
    assert driven.emitted.total() == 1


def test_entries_stay_within_their_pages() -> None:
    """Of 4000 keys those on the granted pages are held; answers have all."""
    driven = remembering()
    memory = driven.memories[driven.operator.id] = JoinMemory(pool=PagePool(3))
    keys = [float(key) for key in range(4000)]
    for side in range(3):
        part = batch([(key, 1, 1) for key in keys], side)
        driven.with_caches([part], ALL_TIME, CACHE)
    assert driven.memory is memory
    cache = memory.caches[0, 1]
    assert int(cache.directory.granted.sum()) == 3
    assert 0 < cache.directory.used.sum() <= 3 * PAGE
    before = driven.emitted.total()
    assert before == 4000
    driven.with_caches([batch([(key, 1, 1) for key in keys], 2)], ALL_TIME, CACHE)
    assert 0 < driven.seen["q1.inner/2"].hits <= 3 * PAGE
    assert driven.emitted.total() == 8000


def test_pages_go_to_the_cache_that_is_hit_more_often_for_its_bytes() -> None:
    """The cache of sides 0 and 1 takes all pages; from then on only that of 1 and 2 is asked for keys that come again."""
    driven = remembering()
    memory = driven.memories[driven.operator.id] = JoinMemory(pool=PagePool(2))
    first: Chosen = {2: (0, 1)}
    both: Chosen = {2: (0, 1), 0: (1, 2)}
    keys = [float(key) for key in range(2000)]
    for side in (0, 1, 2):
        driven.with_caches([batch([(key, 1, 1) for key in keys], side)], ALL_TIME, first)
    assert memory.pool.held == {(0, 1): 2}
    for _ in range(4):
        driven.with_caches([batch([(key, 1, 1) for key in keys], 0)], ALL_TIME, both)
    assert memory.pool.held == {(1, 2): 2}
    assert driven.seen["q1.inner/0"].hits > 0
    driven.with_caches([batch([(key, 1, 1) for key in keys], 2)], ALL_TIME, both)
    assert driven.emitted.total() == 2000 + 4 * 2000 + 5 * 2000


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("slide", [None, 7])
def test_a_long_run_with_few_buckets_answers_as_without_caches(
    seed: int, slide: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys replace each other and come again, rows end, pieces are merged, and caches are used in three epochs of four."""
    monkeypatch.setattr(cached_join, "_BITS", 6)
    rng = np.random.default_rng(seed)
    operator = join((40, 25, 12, 30), None if slide is None else Grid(slide, 1), ordered=True)
    cached, plain = Remembering(operator), Driven(operator)
    hits = 0
    for epoch in range(50):
        parts = []
        for side in range(4):
            count = int(rng.integers(0, 12))
            keys, times = rng.integers(0, 30, count) / 2, rng.integers(5 * epoch, 5 * epoch + 9, count)
            values = rng.integers(0, 9, count)
            found = list(zip(keys.tolist(), values.tolist(), times.tolist(), strict=True))
            parts += [batch(found, side)] if count else []
        chosen = {} if rng.random() < 0.1 else {3: (0, 1, 2), 2: (0, 1), 0: (1, 3)}
        bounds = [5 * epoch + 5] * 4
        cached.with_caches(parts, bounds, chosen)
        plain.epoch(parts, bounds)
        hits += sum(seen.hits for seen in cached.seen.values())
    assert cached.emitted == plain.emitted
    assert cached.emitted.total() > 100
    assert hits > 50
