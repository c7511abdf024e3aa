"""Joins of two streams with keys whose rows are divided between tasks, against nested loops: layouts that change at any epoch, any order of
arrival, cut, tasks and compaction; keys that share a hash with a part; and which keys are found to have much of the work.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.expression import Column
from headrace.operators.base.batch import Batch
from headrace.operators.base.group_codes import SLOTS, hashes, ints, numbers_of_hashes
from headrace.operators.base.operator import AT, SLOT, Advance, Sections
from headrace.operators.base.union_positions import placed
from headrace.operators.joins.hot_keys import key_work
from headrace.operators.joins.hot_keys.key_layouts import KeyLayout, SplitKey, divided, undivided
from headrace.operators.joins.hot_keys.key_work import KeyWork
from headrace.operators.joins.hot_keys.routing import LAYOUT, dividing, probes_of, routed
from headrace.operators.joins.join_side import JoinSpec, Side
from headrace.operators.joins.window_join import UNTIL, Grid, WindowJoin
from headrace.operators.rows.sorted_rows import HASH
from headrace.runtime.home.slots import bounds_of_slots
from headrace.schema import BIGINT, Field, Schema
from headrace.time import BEGINNING
from tests.operators.local_driver import _of, _owners

X, Y = (Schema((Field(f"{side}.v", BIGINT),)) for side in "xy")
SHOWN = Schema((Field("x.v", BIGINT), Field("y.v", BIGINT), Field(UNTIL, BIGINT)))
NAME = "q1.inner"


def join(left: int, right: int, grid: Grid | None = None) -> WindowJoin:
    """By an integer, so that no condition compares the keys."""
    sides = (
        Side((0,), X, (), (Column("x.k", BIGINT),), left, None, left),
        Side((1,), Y, (), (Column("y.k", BIGINT),), right, None, right),
    )
    return WindowJoin(JoinSpec(NAME, "q", "@met", sides, None, SHOWN, 3), grid)


def hash_of(key: int) -> int:
    return int(hashes(pa.array([key], pa.int64()))[0])


class Driven:
    """An operator with its runs, and the layouts of its keys."""

    def __init__(self, operator: WindowJoin) -> None:
        self.operator = operator
        self.runs: list[Sections] = []
        self.pairs: list[tuple[int, ...]] = []
        self.keys: dict[int, SplitKey] = {}
        self.rows = 0
        self.greatest = BEGINNING
        self.bounds = (BEGINNING,) * len(operator.spec.sides)
        self.loads: list[list[int]] = []
        self.ended = 0
        """How many former layouts have ended."""

    def batch(self, rows: list[tuple[int | None, int, int]], side: int) -> Batch:
        """Rows are (key, value, time)."""
        name, keys, values = "xyzu"[side], [row[0] for row in rows], [row[1] for row in rows]
        columns = {f"{name}.k": pa.array(keys, pa.int64()), f"{name}.v": pa.array(values, pa.int64())}
        at = np.array([row[2] for row in rows], np.int64)
        self.greatest = max([self.greatest, *at.tolist()])
        first, self.rows = self.rows, self.rows + len(rows)
        return Batch(columns, at, placed(np.arange(first, first + len(rows)), side))

    def epoch(self, parts: list[Batch], bounds: tuple[int, ...], tasks: int) -> None:
        keys, deltas = tuple(self.keys.values()), []
        for part in parts:
            with dividing({NAME: keys}):
                scanner = self.operator.scanner({})
            scanner.add(part)
            deltas.append(scanner.finish().deltas)
        advance = Advance(BEGINNING, min(bounds), max(bounds), input_punctuations=bounds, split_keys=keys)
        made, loads = [], []
        for owned in _owners(tasks):
            step = self.operator.advance(_of(self.runs, owned), _of(deltas, owned), advance)
            loads.append(step.probe_counts.probes + step.probe_counts.candidates)
            if step.results is not None:
                names = (*self.operator.spec.shown.names[:-1], AT, UNTIL)
                columns = (step.results.column(name).to_pylist() for name in names)
                self.pairs += zip(*columns, strict=True)
            made += [step.state] if step.state else []
        self.runs += made
        self.loads.append(loads)
        self.bounds = bounds
        before = sum(len(key.former) for key in self.keys.values())
        longest = self.operator.longest_stored
        assert longest is not None
        self.keys = {hash_: key.without_ended(min(bounds), longest) for hash_, key in self.keys.items()}
        self.ended += before - sum(len(key.former) for key in self.keys.values())

    def change(self, key: int, layout: KeyLayout) -> None:
        hash_ = hash_of(key)
        before = self.keys.get(hash_, SplitKey.whole(hash_, hash_ % SLOTS))
        self.keys[hash_] = SplitKey.of(before.changed_to(layout, self.greatest).fields)

    def compact(self) -> None:
        advance = Advance(
            min(self.bounds), min(self.bounds), max(self.bounds), input_punctuations=self.bounds
        )
        names = sorted({name for run in self.runs for name in run})
        merged = {
            name: self.operator.compact(name, [run[name] for run in self.runs if name in run], advance)
            for name in names
        }
        self.runs = [merged] if merged else []


def loops(
    every: Sequence[list[tuple[Any, int, int]]], reaches: Sequence[int], grid: Grid | None
) -> list[tuple[int, ...]]:
    found = []
    for rows in itertools.product(*every):
        keys, values, times = zip(*rows, strict=True)
        ends = (time + reach for time, reach in zip(times, reaches, strict=True))
        at, until = max(times), min(ends)
        holds = at <= until
        if grid is not None:
            holds = until - (until - grid.anchor) % grid.slide > at
        if None not in keys and len(set(keys)) == 1 and holds:
            found.append((*values, at, until))
    return found


def check(data: st.DataObject, reaches: tuple[int, int], grid: Grid | None) -> int:
    """One history with layouts that change at any epoch; returns how many former ones have ended."""
    driven, bounds = Driven(join(*reaches, grid)), [-50, -50]
    every: tuple[list[tuple[Any, int, int]], list[tuple[Any, int, int]]] = ([], [])
    for epoch in range(data.draw(st.integers(2, 7), "epochs")):
        for key in data.draw(st.sets(st.sampled_from((1, 2))), "changed"):
            parts = data.draw(st.integers(1, 4), "parts")
            taken = frozenset[int]().union(*(each.hashes for each in driven.keys.values()))
            layout = divided(hash_of(key), data.draw(st.integers(0, 1)), parts, epoch, taken)
            driven.change(key, undivided(hash_of(key), hash_of(key) % SLOTS, epoch) if parts == 1 else layout)
        batches = []
        for side in (0, 1):
            times = st.integers(max(bounds[side], -3), max(bounds[side], -3) + 5)
            keys = st.sampled_from((None, 1, 1, 1, 2, 3))
            rows = data.draw(st.lists(st.tuples(keys, st.integers(0, 99), times), max_size=7), f"rows {side}")
            every[side].extend(rows)
            cut = data.draw(st.integers(0, len(rows)), "cut")
            batches += [driven.batch(part, side) for part in (rows[:cut], rows[cut:]) if part]
        passed = [
            max(driven.greatest, -3) + data.draw(st.integers(-5, 6), f"bound {side}") for side in (0, 1)
        ]
        bounds = [max(bounds[side], passed[side]) for side in (0, 1)]
        tasks = data.draw(st.integers(1, 4), "tasks")
        driven.epoch(data.draw(st.permutations(batches), "order"), (bounds[0], bounds[1]), tasks)
        if data.draw(st.booleans(), "compact"):
            driven.compact()
    assert Counter(driven.pairs) == Counter(loops(every, reaches, grid))
    return driven.ended


def test_pairs_are_those_of_nested_loops_whatever_layouts_change_at_any_epoch() -> None:
    ended = 0

    @given(
        data=st.data(),
        reaches=st.tuples(st.sampled_from((0, 2, 5)), st.sampled_from((1, 4))),
        slide=st.sampled_from((None, None, 2)),
    )
    def law(data: st.DataObject, reaches: tuple[int, int], slide: int | None) -> None:
        nonlocal ended
        ended += check(data, reaches, None if slide is None else Grid(slide, 1))

    law()
    assert ended > 0


def test_a_key_with_the_hash_of_a_part_is_not_its_partner() -> None:
    """The key is stored before the other is divided, and comes again after it, and when that is in one place again; in one task all slots are
    searched together.
    """
    driven, hot = Driven(join(5, 5)), 1
    layout = divided(hash_of(hot), 0, 3, 1)
    namesakes = numbers_of_hashes(np.array(layout.hashes)).tolist()
    rows = [(hot, 0, 0), *((key, number + 1, 0) for number, key in enumerate(namesakes))]
    every = (list(rows), list(rows))
    driven.epoch([driven.batch(rows, side) for side in (0, 1)], (0, 0), 1)
    driven.change(hot, layout)
    for at in (1, 2, 3):
        if at == 3:
            driven.change(hot, undivided(hash_of(hot), hash_of(hot) % SLOTS, 3))
        later = [(key, value + 10 * at, at) for key, value, _ in rows]
        for side in (0, 1):
            every[side].extend(later)
        driven.epoch([driven.batch(later, side) for side in (0, 1)], (0, 0), 1)
    assert Counter(driven.pairs) == Counter(loops(every, (5, 5), None))


@pytest.mark.parametrize("tasks", [2, 3, 7, 16])
def test_a_divided_key_has_one_part_in_each_task(tasks: int) -> None:
    layout = divided(hash_of(7), 1, tasks, 4)
    owners = [low for low, _ in bounds_of_slots(tasks, SLOTS)]
    assert (np.searchsorted(owners, layout.slots, side="right") - 1).tolist() == list(range(tasks))
    assert len({*layout.hashes, hash_of(7)}) == tasks + 1
    assert not {*layout.hashes} & {*divided(hash_of(7), 1, tasks, 5).hashes}
    assert not {*layout.hashes} & {*divided(hash_of(7), 1, tasks, 4, layout.hashes).hashes}


def test_no_part_has_the_slot_of_a_key_with_its_hash() -> None:
    for key in range(100):
        layout = divided(hash_of(key), 0, 16, 1)
        assert all(part % SLOTS != slot for part, slot in zip(layout.hashes, layout.slots, strict=True))


def test_a_former_layout_ends_after_the_last_instant_at_which_its_rows_can_be_joined() -> None:
    """A row holds for five units, both ends included."""
    driven = Driven(join(5, 5))
    driven.epoch([driven.batch([(1, 0, 0)], 0)], (0, 0), 2)
    driven.change(1, divided(hash_of(1), 1, 2, 1))
    driven.epoch([], (5, 5), 2)
    assert [len(key.former) for key in driven.keys.values()] == [1]
    driven.epoch([driven.batch([(1, 7, 5)], 1)], (6, 6), 2)
    assert driven.pairs == [(0, 7, 5, 5)]
    assert [len(key.former) for key in driven.keys.values()] == [0]


def test_rows_of_the_spread_side_are_in_one_part_and_those_of_the_other_in_all() -> None:
    operator, layout = join(5, 5), divided(hash_of(1), 0, 4, 2)
    key = SplitKey.whole(hash_of(1), hash_of(1) % SLOTS).changed_to(layout, 9)
    rows, positions = 4000, np.arange(0, 8000, 2)  # every second position: it is hashed
    table = pa.table({SLOT: pa.array([hash_of(1) % SLOTS] * rows, pa.int16()), HASH: [hash_of(1)] * rows})
    table = table.append_column("v", pa.array(range(rows)))
    spread, other = (routed(table, side, positions, [key]) for side in (0, 1))
    (stored,) = spread.stored
    assert stored.column("v").to_pylist() == list(range(rows))
    counts = np.unique(ints(stored, SLOT), return_counts=True)[1]
    assert len(counts) == 4
    assert counts.min() > 0.9 * rows / 4
    (copied,) = other.stored
    assert copied.num_rows == 4 * rows
    assert {*ints(copied, HASH).tolist()} == {*layout.hashes}
    for found in (spread, other):
        (probes,) = found.probes
        assert ints(probes, LAYOUT).tolist() == [0] * rows
        assert probes.drop_columns([LAYOUT]).equals(table)
    assert operator.divides_keys


def test_probes_of_two_sides_are_not_stored() -> None:
    driven = Driven(join(5, 5))
    driven.epoch([driven.batch([(1, 0, 0)], 0)], (0, 0), 2)
    driven.change(1, divided(hash_of(1), 1, 2, 1))
    stored = len(driven.runs)
    driven.epoch([driven.batch([(1, 5, 1)], 1)], (0, 0), 2)
    assert driven.pairs == [(0, 5, 1, 5)]
    assert sum(table.num_rows for run in driven.runs[stored:] for table in run.values()) == 1
    assert {name for run in driven.runs for name in run} == {"left", "right"}
    assert probes_of("left") not in driven.operator.sections


def test_the_largest_task_does_little_more_than_the_mean_once_a_hot_key_is_divided() -> None:
    """Half of the rows have one key: counted in rows and comparisons, of four tasks."""
    rng, ratios = np.random.default_rng(5), []
    for parts in (1, 4):
        driven = Driven(join(1_000, 1_000))
        if parts > 1:
            driven.change(0, divided(hash_of(0), 0, parts, 0))
        for epoch in range(4):
            batches = []
            for side in (0, 1):
                keys = np.where(rng.random(600) < 0.5, 0, rng.integers(1, 500, 600)).tolist()
                times = (epoch * 1_000 + rng.integers(0, 1_000, 600)).tolist()
                rows = list(zip(keys, range(600), times, strict=True))
                batches.append(driven.batch(rows, side))
            driven.epoch(batches, (epoch * 1_000, epoch * 1_000), 4)
        loads = np.sum(driven.loads, axis=0)
        ratios.append(float(loads.max() / loads.mean()))
    assert ratios[0] > 3
    assert ratios[1] < 1.2


@given(data=st.data())
def test_keys_with_a_thirty_second_of_the_work_are_found_with_their_rows_and_comparisons(
    data: st.DataObject,
) -> None:
    rows: Counter[tuple[int, int]] = Counter()
    work: Counter[int] = Counter()
    seen = KeyWork(2, 1)
    for _ in range(data.draw(st.integers(1, 4), "parts")):
        side = data.draw(st.integers(0, 1), "side")
        drawn = data.draw(st.dictionaries(st.integers(-9, 9), st.integers(1, 300), min_size=1), "keys")
        keys = np.repeat(sorted(drawn), [drawn[key] for key in sorted(drawn)])
        compared = np.array(data.draw(st.randoms(use_true_random=False)).choices(range(5), k=len(keys)))
        seen.see(side, keys, compared)
        for key, count in drawn.items():
            rows[key, side] += count
            work[key] += int(compared[keys == key].sum()) + count
    heavy = seen.heavy()
    for key in heavy:
        assert key.rows == (rows[key.key, 0], rows[key.key, 1])
        assert key.compared == work[key.key] - sum(key.rows)
    if len(seen._parts) == 1:
        step = -(-sum(work.values()) // key_work.STEPS)
        assert {key for key, done in work.items() if done >= 2 * step} <= {key.key for key in heavy}


def test_few_rows_are_not_counted_by_key() -> None:
    seen = KeyWork(2)
    seen.see(0, np.zeros(100, np.int64), np.full(100, 30))
    assert seen.heavy() == ()
    seen.see(1, np.zeros(100, np.int64), np.full(100, 30))
    assert [key.rows for key in seen.heavy()] == [(100, 100)]


def test_joins_that_drop_rows_by_other_rows_of_their_key_do_not_divide_it() -> None:
    plain = join(5, 5)
    assert plain.divides_keys
    assert not plain.with_most_rows(100).divides_keys
    assert not plain.heeding_key_promises().divides_keys
    assert not replace(plain, spec=replace(plain.spec, grows=True)).divides_keys
    endless = replace(plain.spec.sides[0], lookback=None, longest=None)
    assert not replace(plain, spec=replace(plain.spec, sides=(endless, plain.spec.sides[1]))).divides_keys
    three = replace(plain.spec, sides=(*plain.spec.sides, plain.spec.sides[0]))
    assert replace(plain, spec=three).divides_keys
