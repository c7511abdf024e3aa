"""Joins with caches against nested loops: caches of any sides are added, dropped and forgotten at any epoch, and never change an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from headrace.observation import CacheObservation
from headrace.operators.base.batch import Batch
from headrace.operators.joins.caches import caching
from headrace.operators.joins.caches.caching import Caching, JoinMemory
from headrace.operators.joins.window_join import Grid
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
    data=st.data(), sides=st.integers(3, 5), slide=st.sampled_from((None, None, 1, 3)), ordered=st.booleans()
)
def test_caches_that_come_and_go_at_any_epoch_never_change_an_answer(
    data: st.DataObject, sides: int, slide: int | None, ordered: bool
) -> None:
    range_ = st.sampled_from((0, 2, 5, None) if slide is None else (2, 5))
    grid = None if slide is None else Grid(slide, 1)
    operator = join(data.draw(st.tuples(*(range_,) * sides), "ranges"), grid, ordered=ordered)
    driven, bounds = Remembering(operator), [-50] * sides
    every: tuple[list[Row], ...] = tuple([] for _ in range(sides))
    chosen = data.draw(chosen_caches(sides), "chosen")
    for _ in range(data.draw(st.integers(1, 6), "epochs")):
        parts = []
        for side in range(sides):
            times = st.integers(max(bounds[side], -3), max(bounds[side], -3) + 8)
            keys = st.sampled_from((None, 0.0, -0.0, 1.5, NAN))
            rows = data.draw(st.lists(st.tuples(keys, st.integers(0, 9), times), max_size=4), f"rows {side}")
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
