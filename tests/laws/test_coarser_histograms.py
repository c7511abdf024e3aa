"""Histograms of counts and sums whose error is doubled and halved from epoch to epoch: every answer is within the bound that it states, and that
within the largest error, for any cut, tasks and compaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.expressions.expression import Column, Named
from headrace.algebra.quality_of_service import QualityOfService, UtilityGraph
from headrace.algebra.query import Aggregate, Project, Query, Windowed
from headrace.algebra.windows.window import TimeSlide
from headrace.operators.approximate import histogram_store
from headrace.operators.approximate.approximate_windows import HISTOGRAMS, ApproximateWindows
from headrace.operators.approximate.histogram_store import GroupHistograms
from headrace.planner.lowering.lower import lower
from headrace.reference.evaluate import windows_answer
from headrace.reference.history import History, record
from headrace.schema import BIGINT, STRING
from tests.laws import strategies as some
from tests.laws import streams
from tests.laws.driving import batch, coarsened, described, epochs, plain
from tests.laws.test_approximate import bound_of, queries, windows, within_bounds
from tests.laws.test_coarser_sketches import with_larger_errors
from tests.operators.local_driver import DrivenState

MOST = 2
GRAPH = QualityOfService(error=UtilityGraph(((1.0, 1.0), (4.0, 0.5))))


@pytest.fixture(autouse=True)
def _thin_at_once() -> Iterator[None]:
    """Generated histories are short: a histogram is made from the first cells on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(histogram_store, "_LEAST_CELLS", 0)
        yield


def operator_of(query: Query) -> ApproximateWindows:
    operator = lower("q", replace(query, quality=GRAPH), "q")
    assert isinstance(operator, ApproximateWindows)
    return operator


@given(data=st.data())
def test_answers_are_within_the_bounds_that_they_state(data: st.DataObject) -> None:
    query, history = data.draw(queries(windows()), "query"), data.draw(streams.histories(), "history")
    note(described(query))
    assume(isinstance(lower("q", query, "q"), ApproximateWindows))  # of fewer panes it counts exactly
    cut = [
        data.draw(streams.splits(data.draw(st.permutations(rows), "order")), "splits")
        for rows in epochs(history.streams["s"])
    ]
    of_epochs = {"min_size": len(cut), "max_size": len(cut)}
    levels = data.draw(st.lists(st.integers(0, MOST), **of_epochs), "doubled")
    tasks = data.draw(st.lists(st.integers(1, 4), **of_epochs), "tasks")
    merges = st.dictionaries(st.integers(0, max(len(cut) - 1, 0)), st.integers(1, 4), max_size=3)
    compactions = data.draw(merges, "compactions")
    results, _ = coarsened(operator_of(query), history, cut, levels, tasks, compactions)
    expected = windows_answer(query, history, history.punctuation(query), final=True)
    within_bounds(with_larger_errors(query, MOST), plain(results, query), expected)


def counting(window: TimeSlide) -> Query:
    calls = [
        AggregateCall("approx_count", None, BIGINT, within=Fraction(1, 100)),
        AggregateCall("approx_sum", some.column("x"), BIGINT, within=Fraction(1, 100)),
    ]
    named = tuple(
        NamedAggregate(f"a{number}", part)
        for number, part in enumerate(part for call in calls for part in (call, bound_of(call)))
    )
    shown = [Column("keyk", STRING), *(Column(item.name, BIGINT) for item in named)]
    root = Aggregate(Windowed(some.SCAN, "s", window), (Named("keyk", some.column("k")),), named)
    return Query(Project(root, tuple(Named(column.name, column) for column in shown)), "windows")


def many_rows(count: int) -> list[dict[str, Any]]:
    drawn = np.random.default_rng(3)
    return [
        {
            "k": "ab"[number % 2],
            "g": 0,
            "x": int(drawn.integers(0, 50)),
            "y": 0.0,
            "at": number * some.TICK // 5,
        }
        for number in range(count)
    ]


def test_coarse_ones_are_smaller_and_windows_are_fine_again_once_they_have_left_them() -> None:
    """Forty epochs of sixty rows, those from the tenth to the twentieth with four times the error; windows of ten epochs."""
    window = TimeSlide(120 * some.TICK, some.TICK, 0)
    query, rows = counting(window), many_rows(2400)
    history = History(
        {"s": record([rows[low : low + 60] for low in range(0, 2400, 60)], "at", 0)}, {"names": ()}
    )
    cut, merged = [[part] for part in epochs(history.streams["s"])], dict.fromkeys(range(40), 99)

    expected = windows_answer(query, history, history.punctuation(query), final=True)

    def answered(levels: list[int]) -> tuple[list[Any], list[int]]:
        results, sizes = coarsened(operator_of(query), history, cut, levels, [1] * 40, merged)
        found = plain(results, query)
        within_bounds(with_larger_errors(query, 2), found, expected)
        return found, sizes

    fine, fine_sizes = answered([0] * 40)
    mixed, sizes = answered([0] * 10 + [2] * 10 + [0] * 20)
    assert sizes[:10] == fine_sizes[:10]
    assert sum(sizes[12:20]) < 0.85 * sum(fine_sizes[12:20])
    assert sum(sizes[35:]) < 1.2 * sum(fine_sizes[35:])
    answered([0] * 10 + [2] * 3 + [1] * 3 + [0] * 24)  # windows that hold buckets of several errors
    for bound in ("a1", "a3"):
        of_epochs = [
            [
                sum(row[bound] for at, row in found if low <= at // (12 * some.TICK) < high)
                for found in (fine, mixed)
            ]
            for low, high in ((0, 9), (12, 20), (32, 40))
        ]
        (before, same), (small, large), (after, again) = of_epochs
        assert before == same
        assert large > 2 * small
        assert again < 1.3 * after


def test_a_merge_makes_stored_histograms_coarser_and_loses_no_row() -> None:
    query, rows = counting(TimeSlide(400 * some.TICK, some.TICK, 0)), many_rows(1500)
    history = History(
        {"s": record([rows[low : low + 60] for low in range(0, 1500, 60)], "at", 0)}, {"names": ()}
    )
    fine, stream = operator_of(query), history.streams["s"]
    state = DrivenState(fine, {}, {}, False)
    for number, (part, punctuation) in enumerate(zip(epochs(stream), stream.punctuations, strict=True)):
        state.epoch(number, [batch(part, some.SCHEMA).only(fine.columns)], punctuation, 1)

    def coded(doubled: int) -> int:
        """Bytes of buckets after a merge with so many doublings."""
        state.operator = fine.coarser(doubled)
        state.compact(len(state.runs))
        tables = [run[HISTOGRAMS] for run in state.runs]
        held = [GroupHistograms.of(state.operator.histogram_layout, [table], None) for table in tables]
        pairs = zip(held[0].histograms, held[0].older, strict=True)
        ones = [int(newer.totals.sum() + older.totals().sum()) for newer, older in pairs]
        assert ones == wanted or not wanted
        wanted[:] = ones
        names = [name for name in tables[0].column_names if name.startswith(("b", "older"))]
        return sum(len(blob or b"") for name in names for blob in tables[0].column(name).to_pylist())

    wanted: list[int] = []
    sizes = [coded(doubled) for doubled in (0, 1, 2, 0)]
    assert sizes[0] > 0.9 * sizes[1] > 1.4 * sizes[2], (
        "half of the buckets, each with its size, and a quarter"
    )
    assert sizes[3] == sizes[2], "what was lost does not come back"
