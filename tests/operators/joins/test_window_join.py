"""The join of two windows against nested loops: any order of arrival, cut, tasks and compaction; and its stored rows.

Bounds of the streams are drawn independently, so one may be well beyond the other (Li 2008, chapter 7).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.expression import Call, Column
from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import AT, Advance, Sections
from headrace.operators.base.union_positions import placed
from headrace.operators.joins.join_side import JoinSpec, Side
from headrace.operators.joins.window_join import UNTIL, Grid, WindowJoin
from headrace.schema import BIGINT, BOOLEAN, STRING, Field, Schema
from headrace.time import BEGINNING
from tests.operators.local_driver import _of, _owners

X, Y = (Schema((Field(f"{side}.k", STRING), Field(f"{side}.v", BIGINT))) for side in "xy")
SAME = Call("=", (Column("x.k", STRING), Column("y.k", STRING)), BOOLEAN)
SHOWN = Schema((Field("x.v", BIGINT), Field("y.v", BIGINT), Field(UNTIL, BIGINT)))


def join(left: int | None, right: int | None, grid: Grid | None = None) -> WindowJoin:
    sides = (
        Side((0,), X, (), (Column("x.k", STRING),), left, None, left),
        Side((1,), Y, (), (Column("y.k", STRING),), right, None, right),
    )
    return WindowJoin(JoinSpec("q1.inner", "q", "@met", sides, SAME, SHOWN, 3), grid)


def batch(rows: list[tuple[Any, int, int]], member: int) -> Batch:
    """Rows are (key, value, time)."""
    name = "xy"[member]
    columns = {
        f"{name}.k": pa.array([row[0] for row in rows], pa.string()),
        f"{name}.v": pa.array([row[1] for row in rows], pa.int64()),
    }
    return Batch(columns, np.array([row[2] for row in rows], np.int64), placed(np.arange(len(rows)), member))


class Driven:
    """An operator with its runs."""

    def __init__(self, operator: WindowJoin) -> None:
        self.operator = operator
        self.runs: list[Sections] = []
        self.pairs: list[tuple[int, int, int, int]] = []

    def epoch(self, parts: list[Batch], bounds: tuple[int, int], tasks: int) -> list[Sections]:
        """Take in batches; (what is added to the state by each task)."""
        deltas = []
        for part in parts:
            scanner = self.operator.scanner({})
            scanner.add(part)
            deltas.append(scanner.finish().deltas)
        made, advance = [], Advance(BEGINNING, min(bounds), max(bounds), input_punctuations=bounds)
        for owned in _owners(tasks):
            step = self.operator.advance(_of(self.runs, owned), _of(deltas, owned), advance)
            if step.results is not None:
                columns = (step.results.column(name).to_pylist() for name in ("x.v", "y.v", AT, UNTIL))
                self.pairs += zip(*columns, strict=True)
            made += [step.state] if step.state else []
        self.runs += made
        return made

    def compact(self, bounds: tuple[int, int]) -> None:
        advance = Advance(min(bounds), min(bounds), max(bounds), input_punctuations=bounds)
        names = sorted({name for run in self.runs for name in run})
        merged = {
            name: self.operator.compact(name, [run[name] for run in self.runs if name in run], advance)
            for name in names
        }
        self.runs = [merged] if merged else []

    def kept(self) -> dict[str, list[int]]:
        """The times of the rows of each side that are kept."""
        found: dict[str, list[int]] = {"left": [], "right": []}
        for run in self.runs:
            for name, table in run.items():
                found[name] += table.column("__time").to_pylist()
        return found


REACHES = st.sampled_from((0, 2, 5, None))


@given(data=st.data(), reaches=st.tuples(REACHES, REACHES), slide=st.sampled_from((None, 1, 3)))
def test_pairs_are_those_of_nested_loops_whichever_side_comes_first(
    data: st.DataObject, reaches: tuple[int | None, int | None], slide: int | None
) -> None:
    if slide is not None:
        reaches = (reaches[0] or 2, reaches[1] or 5)
    grid = None if slide is None else Grid(slide, 1)
    driven, bounds = Driven(join(*reaches, grid)), [-50, -50]
    every: tuple[list[tuple[Any, int, int]], list[tuple[Any, int, int]]] = ([], [])
    for _ in range(data.draw(st.integers(1, 5), "epochs")):
        parts = []
        for member in (0, 1):
            times = st.integers(max(bounds[member], -3), max(bounds[member], -3) + 12)
            keys = st.sampled_from((None, "a", "b", ""))
            rows = data.draw(
                st.lists(st.tuples(keys, st.integers(0, 99), times), max_size=8), f"rows {member}"
            )
            every[member].extend(rows)
            cut = data.draw(st.integers(0, len(rows)), "cut")
            parts += [batch(part, member) for part in (rows[:cut], rows[cut:]) if part]
        bounds = [max(bounds[member], data.draw(st.integers(-3, 20), f"bound {member}")) for member in (0, 1)]
        driven.epoch(
            data.draw(st.permutations(parts), "order"), (bounds[0], bounds[1]), data.draw(st.integers(1, 3))
        )
        if data.draw(st.booleans(), "compact"):
            driven.compact((bounds[0], bounds[1]))
            check_kept(driven, bounds)
    assert Counter(driven.pairs) == Counter(loops(every, reaches, grid))


def loops(
    every: tuple[list[tuple[Any, int, int]], ...], reaches: tuple[int | None, int | None], grid: Grid | None
) -> list[tuple[int, int, int, int]]:
    found = []
    ends = [2**63 - 1 if reach is None else reach for reach in reaches]
    for k, v, t in every[0]:
        for other, w, u in every[1]:
            at, until = (
                max(t, u),
                min(
                    t + ends[0] if reaches[0] is not None else ends[0],
                    u + ends[1] if reaches[1] is not None else ends[1],
                ),
            )
            there = (
                at <= until
                if grid is None
                else any(at < grid.anchor + n * grid.slide <= until for n in range(-60, 60))
            )
            if k is not None and k == other and there:
                found.append((v, w, at, until))
    return found


def check_kept(driven: Driven, bounds: list[int]) -> None:
    """`M_i` holds only rows that the other stream may still bring one to meet."""
    kept, operator = driven.kept(), driven.operator
    for place, name in enumerate(("left", "right")):
        reach, other = operator.spec.sides[place].lookback, bounds[1 - place]
        if reach is not None:
            assert all(at + reach >= other for at in kept[name])


def test_a_row_that_the_other_stream_has_passed_is_joined_and_never_stored() -> None:
    driven = Driven(join(5, 5))
    driven.epoch([batch([("a", 1, 10)], 1)], (BEGINNING, 40), 1)
    driven.epoch([batch([("a", 2, 12), ("a", 3, 50)], 0)], (BEGINNING, 40), 1)
    assert [pair[:2] for pair in driven.pairs] == [(2, 1)]
    assert driven.kept() == {"left": [50], "right": [10]}, (
        "the left stream may still bring what meets the row at 10"
    )


def test_the_slow_side_is_purged_by_the_fast_one_and_not_by_the_least_of_both() -> None:
    """One global minimum would keep the slow side's rows too (the probe of the guide keeps 1000 where 500 are needed)."""
    driven = Driven(join(2, 2))
    slow = [("a", n, n) for n in range(4)]
    fast = [("a", n, 2400 + n) for n in range(4)]
    driven.epoch([batch(slow, 0), batch(fast, 1)], (4, 2404), 1)
    assert driven.kept() == {"left": [], "right": [2400, 2401, 2402, 2403]}


@pytest.mark.parametrize("state", [100, 10_000])
def test_an_epoch_adds_to_the_state_what_came_and_nothing_of_what_was_there(state: int) -> None:
    driven = Driven(join(10**9, 10**9))
    driven.epoch([batch([(f"k{n}", n, n) for n in range(state)], 1)], (BEGINNING, BEGINNING), 1)
    made = driven.epoch([batch([("k7", 1, 3)], 0), batch([("k8", 1, 4)], 1)], (BEGINNING, BEGINNING), 1)
    assert {name: table.num_rows for run in made for name, table in run.items()} == {"left": 1, "right": 1}
    assert [pair[:2] for pair in driven.pairs] == [(1, 7)]


@pytest.mark.parametrize("merged", [False, True])
def test_a_row_is_kept_for_what_comes_at_the_very_instant_of_its_end(merged: bool) -> None:
    """It holds until 10 + 5, and the other stream has promised no row below 15: one at 15 may still come, one at 14 not."""
    driven = Driven(join(5, 5))
    driven.epoch([batch([("a", 1, 10), ("a", 2, 9)], 0)], (BEGINNING, 15 if not merged else 14), 1)
    if merged:
        assert driven.kept()["left"] == [9, 10]
        driven.compact((BEGINNING, 15))
    assert driven.kept()["left"] == [10]
    driven.epoch([batch([("a", 7, 15)], 1)], (BEGINNING, 16), 1)
    assert driven.pairs == [(1, 7, 15, 15)]
    driven.compact((BEGINNING, 16))
    assert driven.kept()["left"] == []


@pytest.mark.parametrize(("left", "right", "slide"), [(10, 10, 10), (20, 10, 10), (7, 4, 5)])
def test_under_sliding_windows_only_rows_of_a_common_window_are_compared(
    left: int, right: int, slide: int
) -> None:
    """Without the windows' ends, every row within the range before and after would be: twice the pairs of tumbling windows."""
    driven = Driven(join(left, right, Grid(slide, 0)))
    scanned = []
    for member in (0, 1):
        scanner = driven.operator.scanner({})
        scanner.add(batch([("a", n, n) for n in range(100)], member))
        scanned.append(scanner.finish().deltas)
    step = driven.operator.advance([], scanned, Advance(BEGINNING, 0, 100, input_punctuations=(0, 0)))
    assert step.results is not None
    assert step.results.num_rows == step.probe_counts.candidates
