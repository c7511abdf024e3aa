"""The join of two to five windows against nested loops, with SteMs probed in any order, which may change at any epoch.

Keys have ties, NULL and NaN; bounds of the streams are drawn independently; runs are merged at any time, by any number of tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.expression import Call, Column
from headrace.observation import ProbeCounts
from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import AT, Advance, Sections
from headrace.operators.base.union_positions import placed
from headrace.operators.joins.join_side import JoinSpec, Side
from headrace.operators.joins.probing import stems
from headrace.operators.joins.window_join import UNTIL, Grid, WindowJoin
from headrace.operators.rows.sorted_rows import Sorted
from headrace.schema import BIGINT, BOOLEAN, DOUBLE, Field, Schema
from headrace.time import BEGINNING, FOREVER
from tests.operators.local_driver import _of, _owners


@pytest.fixture(scope="module", autouse=True)
def _few_rows_are_left_out_too() -> Iterator[None]:
    """Pieces of other times, as large ones are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stems, "_FEW", 0)
        yield


NAN = float("nan")
Row = tuple[float | None, int, int]
"""(key, value, time)."""


def join(ranges: Sequence[int | None], grid: Grid | None = None, *, ordered: bool = False) -> WindowJoin:
    """Sides s0, s1, ... with columns k and v; `ordered`: only where s0.v <= s1.v."""
    sides = []
    for number, range_ in enumerate(ranges):
        stored = Schema((Field(f"s{number}.k", DOUBLE), Field(f"s{number}.v", BIGINT)))
        key = (Column(f"s{number}.k", DOUBLE),)
        sides.append(Side((number,), stored, (), key, range_, None, range_, name=f"s{number}"))
    values = [Field(f"s{number}.v", BIGINT) for number in range(len(ranges))]
    condition = Call("<=", (Column("s0.v", BIGINT), Column("s1.v", BIGINT)), BOOLEAN) if ordered else None
    shown = Schema((*values, Field(UNTIL, BIGINT)))
    return WindowJoin(JoinSpec("q1.inner", "q", "@met", tuple(sides), condition, shown, 3), grid)


def batch(rows: Sequence[Row], side: int) -> Batch:
    columns = {
        f"s{side}.k": pa.array([row[0] for row in rows], pa.float64()),
        f"s{side}.v": pa.array([row[1] for row in rows], pa.int64()),
    }
    return Batch(columns, np.array([row[2] for row in rows], np.int64), placed(np.arange(len(rows)), side))


@dataclass
class Driven:
    """A join with its runs, and what it has emitted and counted."""

    operator: WindowJoin
    runs: list[Sections] = field(default_factory=list)
    emitted: Counter[tuple[int, ...]] = field(default_factory=Counter)
    counts: ProbeCounts = field(default_factory=ProbeCounts)

    def epoch(self, parts: Sequence[Batch], bounds: Sequence[int], tasks: int = 1) -> None:
        deltas = []
        for part in parts:
            scanner = self.operator.scanner({})
            scanner.add(part)
            deltas.append(scanner.finish().deltas)
        advance, made = _advance(bounds), list[Sections]()
        for owned in _owners(tasks):
            step = self.operator.advance(_of(self.runs, owned), _of(deltas, owned), advance)
            self.counts = self.counts.plus(step.probe_counts.probes, step.probe_counts.candidates)
            if step.results is not None:
                names = [*self.operator.spec.shown.names[:-1], AT, UNTIL]
                self.emitted.update(
                    zip(*(step.results.column(name).to_pylist() for name in names), strict=True)
                )
            made += [step.state] if step.state else []
        self.runs += made

    def compact(self, bounds: Sequence[int]) -> None:
        names = sorted({name for run in self.runs for name in run})
        merged = {
            name: self.operator.compact(
                name, [run[name] for run in self.runs if name in run], _advance(bounds)
            )
            for name in names
        }
        self.runs = [merged] if merged else []

    def times(self, side: int) -> list[int]:
        """The times of the stored rows of a side."""
        name = self.operator.sections[side]
        return sorted(at for run in self.runs if name in run for at in run[name].column("__time").to_pylist())


def _advance(bounds: Sequence[int]) -> Advance:
    return Advance(BEGINNING, min(bounds), max(bounds), input_punctuations=tuple(bounds))


def loops(every: Sequence[Sequence[Row]], operator: WindowJoin, *, ordered: bool) -> Counter[tuple[int, ...]]:
    """Nested loops."""
    found: Counter[tuple[int, ...]] = Counter()
    ranges, grid = [side.lookback for side in operator.spec.sides], operator.grid
    for rows in product(*every):
        keys = {"nan" if k is not None and np.isnan(k) else k for k, _, _ in rows}
        at = max(t for _, _, t in rows)
        ends = [FOREVER if r is None else t + r for (_, _, t), r in zip(rows, ranges, strict=True)]
        until = min(ends)
        together = (
            at <= until
            if grid is None
            else any(at < grid.anchor + n * grid.slide <= until for n in range(-60, 60))
        )
        if len(keys) == 1 and None not in keys and together and not (ordered and rows[0][1] > rows[1][1]):
            found[(*(v for _, v, _ in rows), at, until)] += 1
    return found


def orders(sides: int) -> st.SearchStrategy[tuple[tuple[int, ...], ...]]:
    """For each side an order of the others."""
    others = [[other for other in range(sides) if other != side] for side in range(sides)]
    return st.tuples(*(st.permutations(other).map(tuple) for other in others))


@given(
    data=st.data(), sides=st.integers(2, 5), slide=st.sampled_from((None, None, 1, 3)), ordered=st.booleans()
)
def test_combinations_are_those_of_nested_loops_in_any_order_of_arrival_and_of_probes(
    data: st.DataObject, sides: int, slide: int | None, ordered: bool
) -> None:
    range_ = st.sampled_from((0, 2, 5, None) if slide is None else (2, 5))
    grid = None if slide is None else Grid(slide, 1)
    operator = join(data.draw(st.tuples(*(range_,) * sides), "ranges"), grid, ordered=ordered)
    driven, bounds = Driven(operator), [-50] * sides
    every: tuple[list[Row], ...] = tuple([] for _ in range(sides))
    for _ in range(data.draw(st.integers(1, 4), "epochs")):
        parts = []
        for side in range(sides):
            times = st.integers(max(bounds[side], -3), max(bounds[side], -3) + 8)
            keys = st.sampled_from((None, 0.0, -0.0, 1.5, NAN))
            rows = data.draw(st.lists(st.tuples(keys, st.integers(0, 9), times), max_size=4), f"rows {side}")
            every[side].extend(rows)
            cut = data.draw(st.integers(0, len(rows)), "cut")
            parts += [batch(part, side) for part in (rows[:cut], rows[cut:]) if part]
        bounds = [max(bound, data.draw(st.integers(-3, 15), "bound")) for bound in bounds]
        driven.operator = replace(operator, orders=data.draw(st.just(()) | orders(sides), "orders"))
        driven.epoch(
            data.draw(st.permutations(parts), "arrival"), bounds, data.draw(st.integers(1, 3), "tasks")
        )
        if data.draw(st.booleans(), "compact"):
            driven.compact(bounds)
            if grid is None:
                for side, reach in enumerate(each.lookback for each in operator.spec.sides):
                    least = min(bounds[:side] + bounds[side + 1 :])
                    assert reach is None or all(at + reach >= least for at in driven.times(side))
    assert driven.emitted == loops(every, operator, ordered=ordered)


def test_a_row_is_stored_until_the_slowest_of_the_others_has_passed_it() -> None:
    """Of three streams: a row at 10 that holds until 15 waits for a row of the second, though the third is at 99."""
    driven = Driven(join((5, 5, 5)))
    driven.epoch([batch([(1.0, 1, 10)], 0)], (10, 15, 99))
    assert driven.times(0) == [10]
    driven.epoch([], (10, 16, 99))
    driven.compact((10, 16, 99))
    assert driven.times(0) == []


def test_no_combination_of_some_sides_is_stored() -> None:
    driven = Driven(join((9, 9, 9)))
    driven.epoch([batch([(1.0, v, 1) for v in range(9)], side) for side in (0, 1)], (BEGINNING,) * 3)
    assert sum(table.num_rows for run in driven.runs for table in run.values()) == 18
    driven.epoch([batch([(1.0, 7, 2)], 2)], (BEGINNING,) * 3)
    assert driven.emitted.total() == 81


@pytest.mark.parametrize("runs", [1, 7])
def test_the_rows_that_a_delta_is_compared_with_do_not_depend_on_the_size_of_the_state(runs: int) -> None:
    counts = []
    for size in (1_000, 100_000):
        driven = Driven(join((10**9,) * 3))
        for part in range(runs):
            rows = [(float(n), n, n) for n in range(size * part // runs, size * (part + 1) // runs)]
            driven.epoch([batch(rows, side) for side in (1, 2)], (BEGINNING,) * 3)
        before = driven.counts
        driven.epoch([batch([(float(n), n, n) for n in range(10)], 0)], (BEGINNING,) * 3)
        counts.append((driven.counts.probes - before.probes, driven.counts.candidates - before.candidates))
    assert counts == [(20, 20), (20, 20)]


def test_the_smallest_side_is_probed_first() -> None:
    """A thousand rows of side 1 have the key, none of side 2: probing 2 first compares none."""
    driven = Driven(join((10**9,) * 3))
    driven.epoch([batch([(1.0, n, n) for n in range(1000)], 1), batch([(2.0, 0, 0)], 2)], (BEGINNING,) * 3)
    before = driven.counts
    driven.epoch([batch([(1.0, 5, 5)], 0)], (BEGINNING,) * 3)
    assert driven.counts == before.plus(1, 0)
    driven.operator = replace(driven.operator, orders=((1, 2), (0, 2), (0, 1)))
    driven.epoch([batch([(1.0, 5, 5)], 0)], (BEGINNING,) * 3)
    assert driven.counts == before.plus(1 + 1 + 1, 0)  # no combination of two is made
    assert not driven.emitted


@pytest.mark.parametrize(("held", "latest", "matches"), [(15, 20, 1), (16, 20, 0), (0, 10, 1), (0, 9, 0)])
def test_rows_at_the_ends_of_a_range_are_found(held: int, latest: int, matches: int) -> None:
    """A row of instant 10 that holds for 5."""
    at = np.array([10])
    stem = stems.Stem((Sorted(pa.table({"n": at}), np.array([7]), at, 5, None),), 5)
    bounds = np.array([held]), np.array([latest])
    assert stem.search(bounds, np.array([7])).counts.tolist() == [matches]
