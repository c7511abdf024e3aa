"""Joins of three and four streams with keys whose rows are divided between tasks, against nested loops: layouts that change at any epoch, any order of
arrival, cut, order of probes, tasks and compaction; what is stored of rows sent to former layouts, and when it no longer counts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.expression import Column
from headrace.operators.base.group_codes import SLOTS, Ints, ints, numbers_of_hashes
from headrace.operators.joins.caches.caching import Caching, caching
from headrace.operators.joins.hot_keys.key_layouts import KeyLayout, divided, undivided
from headrace.operators.joins.hot_keys.key_work import KeyWork
from headrace.operators.joins.hot_keys.routing import LAYOUT, probes_of
from headrace.operators.joins.join_side import JoinSpec, Side
from headrace.operators.joins.probing.probe_profiles import ProbeProfiles, probing
from headrace.operators.joins.window_join import UNTIL, Grid, WindowJoin
from headrace.operators.rows.sorted_rows import HASH
from headrace.schema import BIGINT, Field, Schema
from tests.operators.joins.test_split_keys import NAME, Driven, hash_of, loops

NAMES = "xyzu"
Rows = list[tuple[Any, int, int]]


def join(reaches: tuple[int, ...], grid: Grid | None = None) -> WindowJoin:
    """By an integer, so that no condition compares the keys."""
    sides = tuple(
        Side(
            (number,),
            Schema((Field(f"{name}.v", BIGINT),)),
            (),
            (Column(f"{name}.k", BIGINT),),
            reach,
            None,
            reach,
        )
        for number, (name, reach) in enumerate(zip(NAMES, reaches, strict=False))
    )
    shown = [Field(f"{name}.v", BIGINT) for name in NAMES[: len(sides)]]
    spec = JoinSpec(NAME, "q", "@met", sides, None, Schema((*shown, Field(UNTIL, BIGINT))), 3)
    return WindowJoin(spec, grid)


def together(key: int, epoch: int) -> KeyLayout:
    """All rows of a key in one place again."""
    return undivided(hash_of(key), hash_of(key) % SLOTS, epoch)


def changed(driven: Driven, key: int, layout: KeyLayout) -> bool:
    """As a hub does it: in one place again only once the rows of before it was divided have ended."""
    known = driven.keys.get(hash_of(key))
    if known is not None and known.has_former(layout):
        return False
    driven.change(key, layout)
    return True


def check(data: st.DataObject, reaches: tuple[int, ...], grid: Grid | None, counts: Counter[str]) -> None:
    """One history with layouts that change at any epoch."""
    sides = range(len(reaches))
    driven, bounds, every = Driven(join(reaches, grid)), [-50] * len(reaches), [Rows() for _ in sides]
    for epoch in range(data.draw(st.integers(2, 9), "epochs")):
        for key in data.draw(st.sets(st.sampled_from((1, 2))), "changed"):
            parts, spread = data.draw(st.integers(1, 3), "parts"), data.draw(st.sampled_from(sides), "spread")
            taken = frozenset[int]().union(*(each.hashes for each in driven.keys.values()))
            layout = divided(hash_of(key), spread, parts, epoch, taken)
            counts["changed"] += changed(driven, key, together(key, epoch) if parts == 1 else layout)
        counts["two former"] += any(len(key.former) > 1 for key in driven.keys.values())
        batches = []
        for side in sides:
            times = st.integers(max(bounds[side], -3), max(bounds[side], -3) + 4)
            keys = st.sampled_from((None, 1, 1, 1, 2, 3))
            size = 5 if len(reaches) == 3 else 3
            rows = data.draw(
                st.lists(st.tuples(keys, st.integers(0, 99), times), max_size=size), f"rows {side}"
            )
            every[side].extend(rows)
            cut = data.draw(st.integers(0, len(rows)), "cut")
            batches += [driven.batch(part, side) for part in (rows[:cut], rows[cut:]) if part]
        passed = [max(driven.greatest, -3) + data.draw(st.integers(-4, 4), f"bound {side}") for side in sides]
        bounds = [max(bounds[side], passed[side]) for side in sides]
        orders = ()
        if data.draw(st.booleans(), "orders"):
            orders = tuple(
                data.draw(st.permutations([other for other in sides if other != side])) for side in sides
            )
        driven.operator = replace(driven.operator, orders=tuple(map(tuple, orders)))
        driven.epoch(
            data.draw(st.permutations(batches), "order"), tuple(bounds), data.draw(st.integers(1, 4), "tasks")
        )
        counts["stored"] += any(name.endswith("probes") for run in driven.runs for name in run)
        if data.draw(st.booleans(), "compact"):
            driven.compact()
    counts["ended"] += driven.ended
    assert Counter(driven.pairs) == Counter(loops(every, reaches, grid))


@pytest.mark.parametrize("reaches", [(2, 5, 3), (4, 4, 4), (2, 3, 1, 4)])
@pytest.mark.parametrize("slide", [None, 2])
def test_combinations_are_those_of_nested_loops_whatever_layouts_change_at_any_epoch(
    reaches: tuple[int, ...], slide: int | None
) -> None:
    counts = Counter[str]()

    @given(data=st.data())
    def law(data: st.DataObject) -> None:
        check(data, reaches, None if slide is None else Grid(slide, 1), counts)

    law()
    assert min(counts[name] for name in ("changed", "two former", "stored", "ended")) > 0


def test_rows_of_three_epochs_with_a_layout_each_are_joined_once() -> None:
    """The row of one place has both others as probes; the two later ones alone are joined in the second layout."""
    driven = Driven(join((9, 9, 9)))
    every = [[(1, 0, 0)], [(1, 1, 1), (1, 3, 1)], [(1, 2, 2)]]
    driven.epoch([driven.batch(every[0], 0)], (0, 0, 0), 2)
    changed(driven, 1, divided(hash_of(1), 1, 2, 1))
    driven.epoch([driven.batch(every[1], 1)], (0, 0, 0), 2)
    assert not changed(driven, 1, together(1, 2))
    changed(driven, 1, divided(hash_of(1), 2, 3, 2, driven.keys[hash_of(1)].hashes))
    every[0].append((1, 4, 2))
    driven.epoch([driven.batch([(1, 4, 2)], 0), driven.batch(every[2], 2)], (0, 0, 0), 2)
    assert Counter(driven.pairs) == Counter(loops(every, (9, 9, 9), None))
    assert len(driven.pairs) == 4


def test_probes_are_stored_with_the_layout_that_they_are_sent_to() -> None:
    driven, probes = Driven(join((5, 5, 5))), probes_of("left")
    driven.epoch([driven.batch([(1, 0, 0)], 1)], (0, 0, 0), 2)
    driven.change(1, divided(hash_of(1), 0, 2, 1))
    driven.epoch([driven.batch([(1, 5, 1), (2, 6, 1)], 0)], (0, 0, 0), 2)
    stored = [run[probes] for run in driven.runs if probes in run]
    assert [ints(table, name).tolist() for table in stored for name in (HASH, LAYOUT)] == [[hash_of(1)], [0]]
    driven.compact()
    assert ints(driven.runs[0][probes], LAYOUT).tolist() == [0]
    driven.epoch([], (7, 7, 7), 2)
    driven.compact()
    assert all(probes not in run or not run[probes].num_rows for run in driven.runs)


def test_probes_of_a_place_that_has_ended_are_no_rows_of_it_when_it_is_in_force_again() -> None:
    """The row of side x is stored in the layout of two parts, and as a probe in the one place before, which ends. Then rows are in one place again."""
    driven, every = Driven(join((9, 9, 9))), [Rows(), Rows(), Rows()]

    def take(side: int, at: int, bound: int) -> None:
        every[side].append((1, 10 * at + side, at))
        driven.epoch([driven.batch(every[side][-1:], side)], (bound,) * 3, 1)

    take(1, 0, 0)
    assert changed(driven, 1, divided(hash_of(1), 0, 2, 1))
    take(0, 9, 10)
    assert changed(driven, 1, together(1, 2))
    take(1, 11, 10)
    assert changed(driven, 1, divided(hash_of(1), 1, 2, 3, driven.keys[hash_of(1)].hashes))
    take(2, 12, 10)
    assert Counter(driven.pairs) == Counter(loops(every, (9, 9, 9), None))
    assert len(driven.pairs) == 1


def test_a_key_with_the_hash_of_a_part_is_not_its_partner() -> None:
    driven, hot, reaches = Driven(join((5, 5, 5))), 1, (5, 5, 5)
    layout = divided(hash_of(hot), 0, 3, 1)
    namesakes = numbers_of_hashes(np.array(layout.hashes)).tolist()
    every: list[Rows] = [[], [], []]
    for at in range(4):
        rows = [(key, number + 10 * at, at) for number, key in enumerate((hot, *namesakes))]
        for side in range(3):
            every[side].extend(rows)
        if at == 1:
            driven.change(hot, layout)
        if at == 2:
            driven.change(hot, divided(hash_of(hot), 1, 2, 2, layout.hashes))
        driven.epoch([driven.batch(rows, side) for side in range(3)], (0, 0, 0), 1)
    assert Counter(driven.pairs) == Counter(loops(every, reaches, None))


def test_the_largest_task_does_little_more_than_the_mean_once_a_hot_key_is_divided() -> None:
    """A seventh of the rows have one key: counted in rows and comparisons, of four tasks."""
    rng, ratios = np.random.default_rng(5), []
    for parts in (1, 4):
        driven = Driven(join((1_000, 1_000, 1_000)))
        if parts > 1:
            driven.change(0, divided(hash_of(0), 0, parts, 0))
        for epoch in range(4):
            batches = []
            for side in range(3):
                keys = np.where(rng.random(300) < 0.15, 0, rng.integers(1, 500, 300)).tolist()
                times = (epoch * 1_000 + rng.integers(0, 1_000, 300)).tolist()
                batches.append(driven.batch(list(zip(keys, range(300), times, strict=True)), side))
            driven.epoch(batches, (epoch * 1_000,) * 3, 4)
        loads = np.sum(driven.loads, axis=0)
        ratios.append(float(loads.max() / loads.mean()))
    assert ratios[0] > 3
    assert ratios[1] < 1.5  # of few rows, which are spread by chance


@pytest.mark.parametrize("cached", [False, True])
def test_the_work_of_a_key_has_all_combinations_that_were_compared(
    cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of rows that look up a cache of both other sides, whose combinations they are compared with."""
    seen: dict[int, int] = {}

    def see(_: KeyWork, side: int, hashes: Ints, compared: Ints) -> None:
        seen[side] = int(compared[hashes == hash_of(1)].sum())

    monkeypatch.setattr(KeyWork, "see", see)
    rows: Rows = [(1, number, 0) for number in range(3)]
    driven = Driven(join((5, 5, 5)))
    caches = Caching({NAME: {2: (0, 1)}} if cached else {}, {})
    with probing(ProbeProfiles(measures=True)), caching(caches):
        driven.epoch([driven.batch([*rows, (2, 9, 0)], side) for side in range(3)], (0, 0, 0), 1)
    assert seen == {2: 3 * 9 if cached else 3 * (3 + 9)}
    assert driven.loads == [[4 + 3 * 9 + 1 if cached else 2 * 4 + 3 * (3 + 9) + 1 + 1]]
