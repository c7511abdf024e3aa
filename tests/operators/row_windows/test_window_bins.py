"""Windows that end at rows against figure 6-7 of the thesis: as repaired the same answers, as printed other ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.query import Aggregate, Query, StreamScan, Windowed
from headrace.algebra.windows.window import TupleSlide
from headrace.operators.aggregates.group_by import Grouped, fold
from headrace.operators.base.batch import Batch
from headrace.operators.base.operator import AT
from headrace.operators.partials.encoding import rows_partial
from headrace.operators.row_windows.window_bins import Ends, bins_of, cells_of
from headrace.planner.lowering.lower import lower
from headrace.reference.history import record
from headrace.schema import BIGINT, TIMESTAMP, Field, Schema
from tests.operators.local_driver import drive
from tests.reference.building import select

TABLE = Schema((Field("at", TIMESTAMP),))


@dataclass
class Figure:
    """Figure 6-7, counting; with `strict` a new bin starts below its id (R10), with `clears` none is kept (R11)."""

    length: int
    strict: bool = False
    clears: bool = False
    bins: dict[float, tuple[int, bool]] = field(default_factory=lambda: {-np.inf: (0, False)})

    def floor(self, at: float) -> int:
        below = [one for one in self.bins if (one < at if self.strict else one <= at)]
        return self.bins[max(below)][0] if below else 0

    def add(self, at: int) -> None:
        start, end = self.floor(at), self.floor(at + self.length)
        value, is_start = self.bins.get(at, (start, False))
        self.bins[at] = (
            start if self.strict and not is_start else value,
            True,
        )  # start bins are a set of their own
        self.bins.setdefault(at + self.length, (end, False))
        for one, (count, is_start) in self.bins.items():
            if at <= one < at + self.length:
                self.bins[one] = (count + 1, is_start)

    def punctuate(self, bound: int) -> dict[int, int]:
        emitted = {
            int(one): count for one, (count, is_start) in self.bins.items() if is_start and one < bound
        }
        below = sorted(one for one in self.bins if one < bound)
        for one in below if self.clears else below[:-1]:
            del self.bins[one]
        if below and not self.clears:
            self.bins[below[-1]] = (self.bins[below[-1]][0], False)
        return emitted


def figure(
    epochs: Sequence[Sequence[int]], bounds: Sequence[int], length: int, **printed: bool
) -> dict[int, int]:
    """The answers of the figure, epoch by epoch and at the end."""
    state = Figure(length, **printed)
    emitted: dict[int, int] = {}
    for epoch, bound in zip([*epochs, []], [*bounds, 10**9], strict=True):
        for at in epoch:
            state.add(at)
        emitted |= state.punctuate(bound)
    return emitted


def engine(
    epochs: Sequence[Sequence[int]], bounds: Sequence[int], length: int, *, final: bool = True
) -> dict[int, int]:
    """The answers of the operator for the same epochs."""
    scan = StreamScan("s", "s", TABLE, "at")
    counted = (NamedAggregate("n", AggregateCall("count", None, BIGINT)),)
    node = Aggregate(Windowed(scan, "s", TupleSlide(length, 1)), (), counted)
    operator = lower("q", Query(select(node, "n"), "windows"), "q")
    batches, place = [], 0
    for epoch in epochs:
        at = np.array(epoch, np.int64)
        batches.append([Batch({}, at, np.arange(place, place + len(at)))])
        place += len(at)
    results = drive(operator, batches, list(bounds), final=final, compact_after=range(1)).results
    if results is None:
        return {}
    return dict(zip(results.column(AT).to_pylist(), results.column("n").to_pylist(), strict=True))


GOLDEN = ([0, 3, 5, 12, 1],)


def test_golden_5_the_bins_of_figure_6_5() -> None:
    state = Figure(10)
    for at in GOLDEN[0][:4]:
        state.add(at)
    assert state.bins[10] == (2, False)
    assert state.bins[12] == (3, True)
    before = {one: state.bins[one][0] for one in (3, 5, 10)}
    state.add(1)
    assert state.bins[1] == (2, True)
    assert {one: state.bins[one][0] for one in (3, 5, 10)} == {one: n + 1 for one, n in before.items()}
    assert state.punctuate(4) == {0: 1, 1: 2, 3: 3}


def test_golden_5_punctuation_4_emits_three_windows() -> None:
    assert engine(GOLDEN, [4], 10, final=False) == {0: 1, 1: 2, 3: 3}
    assert engine(GOLDEN, [4], 10) == {0: 1, 1: 2, 3: 3, 5: 4, 12: 3}


def test_repair_10_a_row_exactly_a_range_older_is_not_in_the_window() -> None:
    rows = ([0, 10],)
    assert engine(rows, [0], 10) == figure(rows, [0], 10) == {0: 1, 10: 1}
    assert figure(rows, [0], 10, strict=True) == {0: 1, 10: 2}, "as printed it is counted"


def test_repair_11_the_last_bin_below_punctuation_says_what_new_windows_begin_with() -> None:
    rows, bounds = ([0, 1], [5]), [2, 6]
    assert engine(rows, bounds, 10) == figure(rows, bounds, 10) == {0: 1, 1: 2, 5: 3}
    assert figure(rows, bounds, 10, clears=True) == {0: 1, 1: 2, 5: 1}, "as printed the past is forgotten"


def test_repair_1_a_row_at_the_punctuation_may_still_come() -> None:
    rows, bounds = ([0, 4], [4, 9]), [4, 9]
    assert engine(rows, bounds, 10) == {0: 1, 4: 3, 9: 4}
    inclusive = engine(rows[:1], [bounds[0] + 1], 10, final=False)
    assert inclusive == {0: 1, 4: 2}, "read as 'no greater than', it would close the window of 4 too early"


@st.composite
def cuts(draw: st.DrawFn) -> tuple[list[list[int]], list[int]]:
    """Epochs of distinct and equal times, never below the punctuation before them."""
    times = draw(st.lists(st.integers(0, 40), max_size=30))
    at = sorted(draw(st.lists(st.integers(0, len(times)), max_size=4)))
    cut = [times[low:high] for low, high in zip([0, *at], [*at, len(times)], strict=True)]
    stream = record([[{"at": one} for one in epoch] for epoch in cut], "at", draw(st.integers(0, 30)))
    kept: list[list[int]] = [[] for _ in cut]
    for row in stream.rows:
        if row.fate == "accepted":
            kept[row.epoch - 1].append(row.at)
    return kept, list(stream.punctuations)


@given(cuts(), st.sampled_from((1, 3, 10, 25)))
def test_every_cut_and_disorder_gives_what_the_repaired_figure_gives(
    cut: tuple[list[list[int]], list[int]], length: int
) -> None:
    epochs, bounds = cut
    answered = engine(epochs, bounds, length)
    assert answered == figure(epochs, bounds, length)
    every = [at for epoch in epochs for at in epoch]
    assert answered == {end: sum(end - length < at <= end for at in every) for end in every}


@pytest.mark.parametrize("printed", ["strict", "clears"])
def test_the_printed_figure_is_wrong_on_most_streams(printed: str) -> None:
    rng = np.random.default_rng(7)
    wrong = 0
    for _ in range(50):
        epochs = [sorted(rng.integers(low, low + 20, 12).tolist()) for low in (0, 20, 40)]
        right = engine(epochs, [20, 40, 60], 10)
        wrong += figure(epochs, [20, 40, 60], 10, **{printed: True}) != right
    assert wrong > 25


def test_a_row_costs_at_most_two_bins() -> None:
    rng = np.random.default_rng(3)
    at = np.sort(rng.integers(0, 500, 300))
    grouped = Grouped((), (NamedAggregate("n", AggregateCall("count", None, BIGINT)),))
    (table,) = fold(grouped, at, [], 0)
    ends = Ends(np.arange(0, 600, dtype=np.int64), np.zeros(600, np.int64), ())
    (layout,) = grouped.layouts
    bins = bins_of(layout, [table], ends, lambda _: 40, 0)
    assert len(bins.low) <= 2 * len(np.unique(at))
    windows = cells_of(bins)
    counts = windows.answer.cells[rows_partial()][0]
    expected = [(end, n) for end in range(600) if (n := int(((at > end - 40) & (at <= end)).sum()))]
    assert sorted(zip(windows.windows.tolist(), counts.tolist(), strict=True)) == expected
    assert isinstance(table, pa.Table)
