"""The join of windows where its inputs promise for single keys: the same pairs as nested loops find, and no row is stored that
promises of all other sides have passed.

Each input promises by itself: that of one side for a key removes rows of the others, never its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.expression import Column
from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import Advance, Sections
from headrace.operators.base.union_positions import placed
from headrace.operators.joins.join_side import JoinSpec, Side
from headrace.operators.joins.key_promises import KeyPromises
from headrace.operators.joins.window_join import UNTIL, Grid, WindowJoin
from headrace.schema import BIGINT, DOUBLE, STRING, Field, Schema, Type
from headrace.time import BEGINNING, FOREVER
from tests.operators.local_driver import _of, _owners

Row = tuple[int, int, int]
"""(key, value, time)."""
Promised = dict[int, int]
"""Key → the instant below which no row of it follows."""


def join(ranges: Sequence[int | None], grid: Grid | None = None, kind: Type = BIGINT) -> WindowJoin:
    sides = [
        Side(
            (number,),
            Schema((Field(f"s{number}.v", BIGINT),)),
            (),
            (Column(f"s{number}.k", kind),),
            range_,
            None,
            range_,
        )
        for number, range_ in enumerate(ranges)
    ]
    shown = Schema((*(Field(f"s{number}.v", BIGINT) for number in range(len(ranges))), Field(UNTIL, BIGINT)))
    return WindowJoin(
        JoinSpec("q1.inner", "q", "@met", tuple(sides), None, shown, 3), grid
    ).heeding_key_promises()


def batch(rows: Sequence[Row], side: int, kind: pa.DataType) -> Batch:
    keys, values, times = (list(column) for column in zip(*rows, strict=True))
    columns = {
        f"s{side}.k": pa.array(keys, pa.int64()).cast(kind),
        f"s{side}.v": pa.array(values, pa.int64()),
    }
    return Batch(columns, np.array(times, np.int64), placed(np.arange(len(rows)), side))


def bounds_of(columns: Mapping[str, pa.Array], rows: int, promises: Mapping[str, int]) -> np.ndarray:
    keys = columns["k"].cast(pa.int64()).to_pylist()
    assert len(keys) == rows
    return np.array([promises.get(str(key), BEGINNING) for key in keys], np.int64)


@dataclass
class Driven:
    operator: WindowJoin
    kind: pa.DataType = field(default_factory=pa.int64)
    runs: list[Sections] = field(default_factory=list)
    emitted: Counter[tuple[int, ...]] = field(default_factory=Counter)

    def advance(self, bounds: Sequence[int], promised: Sequence[Promised]) -> Advance:
        promises = {
            number: KeyPromises(
                {"k": f"s{number}.k"}, {str(k): at for k, at in each.items()}, bounds_of, ("k",)
            )
            for number, each in enumerate(promised)
            if each
        }
        return Advance(
            BEGINNING, min(bounds), max(bounds), input_punctuations=tuple(bounds), key_promises=promises
        )

    def epoch(
        self,
        rows: Sequence[Sequence[Row]],
        bounds: Sequence[int],
        promised: Sequence[Promised],
        tasks: int = 1,
    ) -> None:
        deltas = []
        for side, part in enumerate(rows):
            if part:
                scanner = self.operator.scanner({})
                scanner.add(batch(part, side, self.kind))
                deltas.append(scanner.finish().deltas)
        advance, made = self.advance(bounds, promised), list[Sections]()
        for owned in _owners(tasks):
            step = self.operator.advance(_of(self.runs, owned), _of(deltas, owned), advance)
            if step.results is not None:
                names = self.operator.spec.shown.names[:-1]
                self.emitted.update(
                    zip(*(step.results.column(name).to_pylist() for name in names), strict=True)
                )
            made += [step.state] if step.state else []
        self.runs += made

    def compact(self, bounds: Sequence[int], promised: Sequence[Promised]) -> None:
        advance = self.advance(bounds, promised)
        names = sorted({name for run in self.runs for name in run})
        merged = {
            name: self.operator.compact(name, [run[name] for run in self.runs if name in run], advance)
            for name in names
        }
        self.runs = [merged] if merged else []

    def stored(self, side: int) -> list[tuple[int, int]]:
        """(key, time) of the stored rows of a side."""
        name = self.operator.sections[side]
        tables = [run[name] for run in self.runs if name in run]
        return sorted(
            (key, at)
            for table in tables
            for key, at in zip(
                table.column(f"s{side}.k").cast(pa.int64()).to_pylist(),
                table.column("__time").to_pylist(),
                strict=True,
            )
        )


def loops(every: Sequence[Sequence[Row]], operator: WindowJoin) -> Counter[tuple[int, ...]]:
    ranges, grid = [side.lookback for side in operator.spec.sides], operator.grid
    found: Counter[tuple[int, ...]] = Counter()
    for rows in product(*every):
        at = max(t for _, _, t in rows)
        until = min(FOREVER if r is None else t + r for (_, _, t), r in zip(rows, ranges, strict=True))
        meets = (
            at <= until
            if grid is None
            else any(at < grid.anchor + n * grid.slide <= until for n in range(-60, 60))
        )
        if len({k for k, _, _ in rows}) == 1 and meets:
            found[tuple(v for _, v, _ in rows)] += 1
    return found


@given(data=st.data(), many=st.integers(2, 3), kind=st.sampled_from(("int64", "int32", "string")))
def test_pairs_are_those_of_nested_loops_and_no_row_is_stored_that_promises_have_passed(
    data: st.DataObject, many: int, kind: str
) -> None:
    grid = data.draw(st.sampled_from((None, Grid(3, 1))), "grid")
    ranges = [data.draw(st.sampled_from((2, 5) if grid else (0, 2, 5, None))) for _ in range(many)]
    arrow = {"int64": pa.int64(), "int32": pa.int32(), "string": pa.string()}[kind]
    driven = Driven(join(ranges, grid, STRING if kind == "string" else BIGINT), arrow)
    bounds, promised = [-50] * many, [Promised() for _ in range(many)]
    every: list[list[Row]] = [[] for _ in range(many)]
    for _ in range(data.draw(st.integers(1, 4), "epochs")):
        parts = []
        for side in range(many):
            rows = []
            for _ in range(data.draw(st.integers(0, 5))):
                key = data.draw(st.integers(0, 3))
                least = max(bounds[side], promised[side].get(key, -50), -3)
                if least < 40:
                    rows.append((key, len(every[side]) + len(rows), least + data.draw(st.integers(0, 8))))
            parts.append(rows)
            every[side] += rows
        for side in range(many):
            bounds[side] = max(bounds[side], data.draw(st.integers(-3, 12), "bound"))
            for key in data.draw(st.sets(st.integers(0, 3)), "promised"):
                at = data.draw(st.sampled_from((4, 9, 15, FOREVER)))
                promised[side][key] = max(at, promised[side].get(key, -50))
        driven.epoch(parts, bounds, promised, data.draw(st.integers(1, 3), "tasks"))
        if data.draw(st.booleans(), "compact"):
            driven.compact(bounds, promised)
            for side in range(many):
                for key, at in driven.stored(side):
                    others = [
                        max(bounds[other], promised[other].get(key, -50))
                        for other in range(many)
                        if other != side
                    ]
                    reach = ranges[side]
                    assert reach is None or at + reach >= min(others), "no other side may bring a row for it"
                    assert min(others) < FOREVER
    assert driven.emitted == loops(every, driven.operator)


def test_a_promise_for_a_key_ends_the_other_side_s_rows_of_an_endless_window() -> None:
    """The auction is closed: of its bids none follows, so the row of the auction is not needed, nor stored if it comes later."""
    driven = Driven(join((None, None)))
    driven.epoch([[(7, 1, 0), (8, 2, 0)], [(7, 5, 3)]], (0, 0), ({}, {7: FOREVER}))
    assert driven.stored(0) == [(8, 0)], "of 7 no row is stored: the bids that were there are joined"
    assert driven.stored(1) == [(7, 3)], "another row of auction 7 may still come"
    driven.epoch([[(7, 3, 9)], []], (0, 0), ({7: FOREVER}, {7: FOREVER}))
    assert driven.stored(0) == [(8, 0)]
    assert driven.emitted == Counter({(1, 5): 1, (3, 5): 1})
    driven.compact((0, 0), ({7: FOREVER}, {7: FOREVER}))
    assert driven.stored(1) == []


@pytest.mark.parametrize("until", [14, 15, 16])
def test_a_promise_up_to_an_instant_keeps_a_row_that_may_meet_one_at_that_instant(until: int) -> None:
    driven = Driven(join((5, 5)))
    driven.epoch([[(7, 1, 10)], []], (0, 0), ({}, {7: until}))
    assert driven.stored(0) == ([(7, 10)] if until <= 15 else [])


def test_of_three_sides_one_that_may_bring_a_row_keeps_it() -> None:
    driven = Driven(join((None, None, None)))
    driven.epoch([[(7, 1, 0)], [(7, 2, 0)], []], (0, 0, 0), ({}, {7: FOREVER}, {}))
    assert driven.stored(0) == [(7, 0)]
    driven.epoch([[], [], [(7, 3, 1)]], (0, 0, 0), ({}, {7: FOREVER}, {}))
    assert driven.emitted == Counter({(1, 2, 3): 1})
    driven.compact((0, 0, 0), ({}, {7: FOREVER}, {7: FOREVER}))
    assert (driven.stored(0), driven.stored(1)) == ([], [(7, 0)])


def test_a_promise_about_a_fraction_is_not_used() -> None:
    """0.0 and -0.0 are equal keys with two names: a promise for one is none for the other."""
    driven = Driven(join((None, None), kind=DOUBLE), pa.float64())
    driven.epoch([[(7, 1, 0)], []], (0, 0), ({}, {7: FOREVER}))
    assert driven.stored(0) == [(7, 0)]


def test_a_promise_for_values_of_columns_that_are_no_keys_bounds_nothing() -> None:
    names = {"k": "s1.k", "shop": "s1.shop"}
    both = KeyPromises(names, {"7": FOREVER}, bounds_of, ("k", "shop"))
    keys = {"s1.k": pa.array([7, 8])}
    assert both.bounds(keys, 2) is None
    known = KeyPromises(names, {"7": FOREVER}, bounds_of, ("k",)).bounds(keys, 2)
    assert known is not None
    assert known.tolist() == [FOREVER, BEGINNING]
    assert KeyPromises({"shop": "s1.shop"}, {"7": FOREVER}, bounds_of).bounds(keys, 2) is None
