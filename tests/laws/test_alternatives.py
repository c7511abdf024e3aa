"""Alternatives: whatever epochs are sketched, a window without a sketched row is exact, with bounds of 0, and every other one within its
bounds; for any cut, tasks, order and compaction, and in whatever epochs an operator that is not due is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.expressions.expression import Column, Named
from headrace.algebra.quality_of_service import QualityOfService
from headrace.algebra.query import Aggregate, Filter, Node, Project, Query, Windowed
from headrace.algebra.windows.window import TimeSlide
from headrace.operators.base.batch import Batch
from headrace.operators.time_windows.alternatives import IS_SKETCHED, Alternatives
from headrace.planner.lowering.lower import lower
from headrace.reference.evaluate import windows_answer
from headrace.reference.history import History, StreamRow, record
from headrace.schema import BIGINT, DOUBLE
from tests.laws import strategies as some
from tests.laws import streams
from tests.laws.driving import batch, described, epochs, plain
from tests.laws.test_sketches import bound_of, near, sketched
from tests.operators.local_driver import DriveResult, drive


def overlapping() -> st.SearchStrategy[TimeSlide]:
    """Windows of many panes, which close over several epochs."""
    return st.builds(
        TimeSlide,
        st.sampled_from((5, 9, 9, 10)).map(lambda n: n * some.TICK),
        st.sampled_from((1, 1, 1, 3)).map(lambda n: n * some.TICK),
        st.sampled_from((0, 0, some.TICK)),
    )


@st.composite
def moving(draw: st.DrawFn) -> History:
    """Epochs that advance punctuation by about a window's slide each; the rows of some are all far ahead of it, and others come before them."""
    step, ahead = draw(st.integers(1, 2)), draw(st.integers(2, 6))
    cut = []
    for number in range(draw(st.integers(4, 7))):
        offsets = st.integers(draw(st.sampled_from((0, 0, ahead))), ahead)
        rows = draw(st.lists(st.tuples(offsets, streams.values()), min_size=1, max_size=3))
        cut.append(
            [
                {name: columns.get(name, (number * step + offset) * some.TICK) for name in some.SCHEMA.names}
                for offset, columns in rows
            ]
        )
    slack = draw(st.sampled_from((ahead, ahead, ahead, 1)))
    return History({"s": record(cut, "at", slack * some.TICK)}, {"names": ()})


@st.composite
def queries(draw: st.DrawFn, windows: st.SearchStrategy[TimeSlide]) -> Query:
    """Approximate aggregates with their bounds, and exact ones, by no, one or two keys."""
    window = draw(windows)
    node: Node = Windowed(some.SCAN, "s", window)
    if draw(st.booleans()):
        node = Filter(node, some.call(">", some.column("x"), some.literal(-5, BIGINT)))
    named = [NamedAggregate("rows", AggregateCall("count", None, BIGINT))]
    if draw(st.booleans()):
        named.append(NamedAggregate("low", AggregateCall("min", some.column("k"), some.column("k").type)))
    for index, call in enumerate(draw(st.lists(sketched(), min_size=1, max_size=2))):
        named += [NamedAggregate(f"a{index}", call), NamedAggregate(f"a{index}_bound", bound_of(call))]
    keys = tuple(
        Named(f"key{name}", some.column(name)) for name in draw(st.sampled_from(((), ("k",), ("k", "g"))))
    )
    shown = [Column(key.name, key.expression.type) for key in keys]
    shown += [Column(item.name, item.call.type) for item in named]
    columns = tuple(Named(column.name, column) for column in shown)
    root = Project(Aggregate(node, keys, tuple(named)), columns)
    return Query(root, "windows", quality=QualityOfService(sketches=0.5))


def marked(rows: Sequence[StreamRow], operator: Alternatives, *, is_sketched: bool) -> Batch:
    part = batch(rows, some.SCHEMA).only(operator.columns)
    marks = pa.repeat(pa.scalar(is_sketched), part.rows)
    return Batch({**part.columns, IS_SKETCHED: marks}, part.at, part.position)


def passes(query: Query, row: StreamRow) -> bool:
    assert isinstance(query.root, Project)
    assert isinstance(query.root.source, Aggregate)
    if not isinstance(query.root.source.source, Filter):
        return True
    x = row.values["x"]
    return x is not None and x > -5


def window_of(query: Query) -> TimeSlide:
    assert isinstance(query.root, Project)
    assert isinstance(query.root.source, Aggregate)
    node = query.root.source.source
    windowed = node.source if isinstance(node, Filter) else node
    assert isinstance(windowed, Windowed)
    assert isinstance(windowed.window, TimeSlide)
    return windowed.window


@given(data=st.data())
def test_windows_without_a_sketched_row_are_exact_and_all_others_within_their_bounds(
    data: st.DataObject,
) -> None:
    query = data.draw(queries(some.time_slides()), "query")
    require_bounds(data, query, data.draw(streams.histories(), "history"))


@given(data=st.data())
def test_that_holds_for_windows_that_close_over_several_epochs(data: st.DataObject) -> None:
    """Rows ahead of punctuation are sketched before those of earlier panes, exact panes are converted by and by."""
    query = data.draw(queries(overlapping()), "query")
    require_bounds(data, query, data.draw(moving(), "history"))


def require_bounds(data: st.DataObject, query: Query, history: History) -> None:
    """Answers of epochs that are drawn to be sketched or not, for any cuts, orders, tasks and compactions."""
    note(described(query))
    operator = lower("q", query, "q")
    assert isinstance(operator, Alternatives)
    rows_of = epochs(history.streams["s"])
    chosen = data.draw(st.lists(st.booleans(), min_size=len(rows_of), max_size=len(rows_of)), "sketched")
    final = data.draw(st.booleans(), "final")
    cut = [
        [
            marked(part, operator, is_sketched=is_sketched)
            for part in data.draw(streams.splits(data.draw(st.permutations(rows), "order")), "splits")
        ]
        for rows, is_sketched in zip(rows_of, chosen, strict=True)
    ]
    tasks = data.draw(st.lists(st.integers(1, 4), min_size=len(cut), max_size=len(cut)), "tasks")
    merges = st.dictionaries(st.integers(0, max(len(cut) - 1, 0)), st.integers(1, 4), max_size=3)
    driven = drive(
        operator,
        cut,
        history.streams["s"].punctuations,
        tasks,
        final=final,
        compact_after=data.draw(merges, "compactions"),
        when_due=data.draw(st.booleans(), "when due"),
    )
    verify(query, history, chosen, driven, final=final)


def verify(
    query: Query, history: History, chosen: Sequence[bool], driven: DriveResult, *, final: bool
) -> None:
    """Answers are those of the reference, within bounds where a window holds a row of an epoch that was sketched."""
    truths = windows_answer(query, history, history.punctuation(query), final=final)
    window = window_of(query)
    coarse = [
        row.at
        for rows, is_sketched in zip(epochs(history.streams["s"]), chosen, strict=True)
        for row in rows
        if is_sketched and passes(query, row)
    ]

    def holds_sketched(end: int) -> bool:
        return any(end - window.range <= at < end for at in coarse)

    check(query, plain(driven.results, query), truths, holds_sketched)


@pytest.mark.parametrize("merged", [{}, {3: 4}])
def test_exact_panes_are_converted_once_if_sketched_rows_come_before_earlier_ones(
    merged: dict[int, int],
) -> None:
    """A row far ahead of punctuation is sketched, then one of an earlier pane, of which earlier windows hold more exact panes."""
    call = AggregateCall("approx_percentile", some.column("x"), DOUBLE, within=Fraction(1, 10), share=0.5)
    named = [NamedAggregate("rows", AggregateCall("count", None, BIGINT)), NamedAggregate("a0", call)]
    named.append(NamedAggregate("a0_bound", bound_of(call)))
    node = Aggregate(Windowed(some.SCAN, "s", TimeSlide(9 * some.TICK, some.TICK, 0)), (), tuple(named))
    columns = tuple(Named(item.name, Column(item.name, item.call.type)) for item in named)
    query = Query(Project(node, columns), "windows", quality=QualityOfService(sketches=0.5))
    operator = lower("q", query, "q")
    assert isinstance(operator, Alternatives)
    cut = [(0, 1, 5), (5,), (2, 7), (8,), (12,)]
    rows = [[{"k": "a", "g": 0, "x": at, "y": 0.5, "at": at * some.TICK} for at in times] for times in cut]
    history, chosen = (
        History({"s": record(rows, "at", 3 * some.TICK)}, {"names": ()}),
        [number in (1, 2) for number in range(len(cut))],
    )
    batches = [
        [marked(part, operator, is_sketched=is_sketched)]
        for part, is_sketched in zip(epochs(history.streams["s"]), chosen, strict=True)
    ]
    driven = drive(operator, batches, history.streams["s"].punctuations, final=True, compact_after=merged)
    verify(query, history, chosen, driven, final=True)


def check(query: Query, answered: Sequence[Any], truths: Sequence[Any], holds_sketched: Any) -> None:
    assert isinstance(query.root, Project)
    assert isinstance(query.root.source, Aggregate)
    aggregate = query.root.source
    names = [*(key.name for key in aggregate.keys)]

    def by_group(rows: Sequence[Any]) -> dict[str, Any]:
        return {repr((at, [row[name] for name in names])): (at, row) for at, row in rows}

    answers, expected = by_group(answered), by_group(truths)
    assert len(answers) == len(answered)
    assert answers.keys() == expected.keys()
    for group, (at, row) in answers.items():
        truth = expected[group][1]
        assert [row[name] for name in ("rows", "low") if name in row] == [
            truth[name] for name in ("rows", "low") if name in truth
        ]
        for item in aggregate.aggregates:
            if item.call.within is None or item.call.part != "value":
                continue
            bound = row[f"{item.name}_bound"]
            if not holds_sketched(at):
                assert bound == 0
            if bound is not None and not (isinstance(bound, float) and math.isnan(bound)):
                near(item, row[item.name], truth[item.name], bound, row["rows"], is_sum=False)


def test_a_query_is_lowered_to_both_only_if_it_says_so() -> None:
    x = some.column("x")
    call = AggregateCall("approx_percentile", x, DOUBLE, within=Fraction(1, 10), share=0.5)
    node = Aggregate(
        Windowed(some.SCAN, "s", TimeSlide(some.TICK, some.TICK, 0)), (), (NamedAggregate("m", call),)
    )
    query = Query(Project(node, (Named("m", Column("m", DOUBLE)),)), "windows")
    assert not isinstance(lower("q", query, "q"), Alternatives)
    assert isinstance(lower("q", replace(query, quality=QualityOfService(sketches=1.0)), "q"), Alternatives)
