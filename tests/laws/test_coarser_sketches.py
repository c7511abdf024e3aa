"""Sketches that get coarser and finer from epoch to epoch: every answer is within the bound that it states, for any cut, tasks, order and compaction,
and windows whose rows all came with the small error have the bound of a query that never changed.
"""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.expressions.expression import Cast, Column, Named
from headrace.algebra.query import Aggregate, Filter, Node, Project, Query, Windowed
from headrace.algebra.windows.window import TimeSlide
from headrace.operators.base.operator import Advance
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.planner.lowering.lower import lower
from headrace.reference.evaluate import windows_answer
from headrace.reference.history import History, record
from headrace.schema import BIGINT, DOUBLE, STRING
from headrace.time import FOREVER
from tests.laws import strategies as some
from tests.laws import streams
from tests.laws.driving import batch, coarsened, described, epochs, plain
from tests.laws.test_laws import landmarks
from tests.laws.test_sketches import bound_of, sketched, within_bounds
from tests.operators.local_driver import DrivenState

MOST = 3


@st.composite
def queries(draw: st.DrawFn) -> Query:
    """Sketches with their bounds, and an exact aggregate, by no, one or two keys."""
    node: Node = Windowed(some.SCAN, "s", draw(st.one_of(some.time_slides(), landmarks())))
    if draw(st.booleans()):
        node = Filter(node, some.call(">", some.column("x"), some.literal(-5, BIGINT)))
    calls = draw(st.lists(sketched(), min_size=1, max_size=3))
    keys = draw(st.sampled_from(((), ("k",), ("k", "g"))))
    return query_of(node, calls, keys)


def query_of(node: Node, calls: list[AggregateCall], by: tuple[str, ...]) -> Query:
    named = [NamedAggregate("rows", AggregateCall("count", None, BIGINT))]
    for index, call in enumerate(calls):
        named += [NamedAggregate(f"a{index}", call), NamedAggregate(f"a{index}_bound", bound_of(call))]
    keys = tuple(Named(f"key{name}", some.column(name)) for name in by)
    shown = [Column(key.name, key.expression.type) for key in keys]
    shown += [Column(item.name, item.call.type) for item in named]
    return Query(
        Project(Aggregate(node, keys, tuple(named)), tuple(Named(c.name, c) for c in shown)), "windows"
    )


def with_larger_errors(query: Query, doubled: int) -> Query:
    """The query with what the errors may be at most."""
    assert isinstance(query.root, Project)
    assert isinstance(query.root.source, Aggregate)
    named = tuple(
        item
        if item.call.within is None
        else replace(item, call=replace(item.call, within=item.call.within * 2**doubled))
        for item in query.root.source.aggregates
    )
    return replace(query, root=replace(query.root, source=replace(query.root.source, aggregates=named)))


def operator_of(query: Query) -> PaneAggregate:
    operator = lower("q", query, "q")
    assert isinstance(operator, PaneAggregate)
    return operator


@given(data=st.data())
def test_answers_are_within_the_bounds_that_they_state(data: st.DataObject) -> None:
    query, history = data.draw(queries(), "query"), data.draw(streams.histories(), "history")
    note(described(query))
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


def many_rows(seed: int, count: int) -> list[dict[str, Any]]:
    drawn = random.Random(seed)
    return [
        {
            "k": drawn.choice("ab"),
            "g": 0,
            "x": int(drawn.expovariate(0.003)),
            "y": drawn.random(),
            "at": index * some.TICK // 100,
        }
        for index in range(count)
    ]


@pytest.mark.parametrize("seed", range(3))
def test_coarser_ones_are_smaller_at_the_next_merge_and_later_windows_are_fine_again(seed: int) -> None:
    """Ten epochs of four hundred rows, the middle ones coarse: smaller runs, larger bounds, then those of a query that never changed."""
    x, within = some.column("x"), Fraction(1, 20)
    calls = [
        AggregateCall("approx_distinct", x, BIGINT, within=within),
        AggregateCall("approx_percentile", some.column("y"), DOUBLE, within=within, share=0.5),
        AggregateCall("approx_top_k", Cast(x, STRING), STRING, within=within, most=3),
        AggregateCall("l2_norm", x, DOUBLE, within=Fraction(1, 5)),
    ]
    query = query_of(Windowed(some.SCAN, "s", TimeSlide(8 * some.TICK, 4 * some.TICK, 0)), calls, ("k",))
    rows = many_rows(seed, 4000)
    history = History(
        {"s": record([rows[low : low + 400] for low in range(0, 4000, 400)], "at", 0)}, {"names": ()}
    )
    cut = [[part] for part in epochs(history.streams["s"])]

    def answered(levels: list[int]) -> list[Any]:
        merged = dict.fromkeys(range(10), 9)
        results, _ = coarsened(operator_of(query), history, cut, levels, [1] * 10, merged)
        found = plain(results, query)
        expected = windows_answer(query, history, history.punctuation(query), final=True)
        within_bounds(with_larger_errors(query, 2), found, expected)
        return found

    fine, mixed = answered([0] * 10), answered([0, 0, 0, 2, 2, 2, 0, 0, 0, 0])
    bounds = [f"a{index}_bound" for index in range(4)]
    for name in bounds:
        before, during, after = (
            [(a[1][name], b[1][name]) for a, b in zip(fine, mixed, strict=True) if low <= b[0] < high]
            for low, high in (
                (0, 12 * some.TICK),
                (16 * some.TICK, 25 * some.TICK),
                (32 * some.TICK, FOREVER),
            )
        )
        assert before
        assert after
        assert all(one == other for one, other in (*before, *after)), name
        assert sum(other for _, other in during) > 1.5 * sum(one for one, _ in during), name


def test_a_merge_makes_stored_panes_coarser() -> None:
    """So what it keeps does not show in the rows that have not expired."""
    x = some.column("x")
    call = AggregateCall("approx_distinct", x, BIGINT, within=Fraction(1, 20))
    query = query_of(Windowed(some.SCAN, "s", TimeSlide(80 * some.TICK, 4 * some.TICK, 0)), [call], ("k",))
    rows = many_rows(1, 4000)
    history = History({"s": record([rows[:2000], rows[2000:]], "at", 0)}, {"names": ()})
    fine = lower("q", query, "q")
    sizes = []
    for doubled in (0, 1, 2):
        state = DrivenState(fine, {}, {}, False)
        for number, (part, end) in enumerate(
            zip(epochs(history.streams["s"]), history.streams["s"].punctuations, strict=True)
        ):
            state.epoch(number, [batch(part, some.SCHEMA).only(fine.columns)], end, 1)
        state.operator = fine.coarser(doubled)
        state.compact(len(state.runs))
        sizes.append(sum(table.nbytes for run in state.runs for table in run.values()))
        stored, end = [run["sealed0"] for run in state.runs if "sealed0" in run], Advance(0, 0, 0)
        assert (state.operator.unexpired_rows("sealed0", stored, end) is None) == (doubled > 0)
    assert sizes[0] > 1.5 * sizes[1] > 1.5 * sizes[2]


def test_sketches_that_would_become_one_stay_different() -> None:
    """Columns of state are known by their number."""
    x = some.column("x")
    calls = [
        AggregateCall("approx_distinct", x, BIGINT, within=Fraction(1, 4)),
        AggregateCall("approx_distinct", x, BIGINT, within=Fraction(1, 2)),
    ]
    query = query_of(Windowed(some.SCAN, "s", TimeSlide(8 * some.TICK, 4 * some.TICK, 0)), calls, ())
    operator = operator_of(query)
    counts = [len(operator.coarser(doubled).layouts[0].partial_columns) for doubled in range(6)]
    assert counts == [3] * 6
    assert operator.coarser(1) != operator
