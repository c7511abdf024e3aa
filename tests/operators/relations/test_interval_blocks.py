"""[RANGE r] reads the rows that enter and leave, and a few blocks of the others: the same answers, at a cost that follows the change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate, result_type
from headrace.algebra.expressions.expression import Column, Named
from headrace.algebra.query import Aggregate, Node, Project, Query, Windowed
from headrace.algebra.windows.window import TimeRange
from headrace.operators.aggregates.cell_table import Layout, gather
from headrace.operators.families.extents import Extents
from headrace.operators.relations import instant_cells, interval_blocks
from headrace.operators.relations.instant_aggregate import InstantAggregate
from headrace.operators.relations.interval_blocks import IntervalBlocks
from headrace.planner.lowering.lower import lower
from headrace.reference.history import record
from tests.examples import examples
from tests.laws.driving import batch, epochs, plain
from tests.laws.strategies import SCAN, SCHEMA, column
from tests.operators.local_driver import drive

CALLS = (("count", None), ("sum", "x"), ("min", "x"), ("max", "y"), ("min", "k"), ("sum", "y"))
VALUE = "__value"
BY_VALUE = (("count", "x"), ("sum", "y"), ("mode", "x"), ("count", "k"))
"""With DISTINCT, or of the values themselves."""


@pytest.fixture(autouse=True, params=[0, 64])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of rows that are not combined: none, or all."""
    monkeypatch.setattr(interval_blocks, "FEW", request.param)


def grouped(length: int, *keys: str) -> Query:
    """Every kind of partial over the rows of a length of time, at every instant."""
    calls = []
    for index, (function, of) in enumerate(CALLS):
        argument = None if of is None else column(of)
        kind = result_type(function, None if argument is None else argument.type)
        calls.append(NamedAggregate(f"a{index}", AggregateCall(function, argument, kind)))
    for index, (function, of) in enumerate(BY_VALUE):
        argument, distinct = column(of), function != "mode"
        call = AggregateCall(function, argument, result_type(function, argument.type), distinct)
        calls.append(NamedAggregate(f"v{index}", call))
    node: Node = Windowed(SCAN, "s", TimeRange(length))
    aggregate = Aggregate(node, tuple(Named(key, column(key)) for key in keys), tuple(calls))
    fields = {field.name: field.type for field in aggregate.schema}
    names = [*keys, *(call.name for call in calls)]
    return Query(
        Project(aggregate, tuple(Named(name, Column(name, fields[name])) for name in names)), "relation"
    )


def answer(
    query: Query, cut: Sequence[Sequence[dict[str, object]]], tasks: int, merged: range
) -> list[object]:
    """The changelog over epochs."""
    stream = record(cut, "at")
    splits = [[batch(epoch[0::2], SCHEMA), batch(epoch[1::2], SCHEMA)] for epoch in epochs(stream)]
    operator = lower("q", query, "q")
    driven = drive(operator, splits, stream.punctuations, tasks, compact_after=merged)
    return sorted(plain(driven.results, query, changes=True), key=repr)


@examples(25)
@given(data=st.data())
def test_sums_of_stretches_say_what_all_the_rows_say(data: st.DataObject) -> None:
    """Long windows over short epochs: every level of buckets is made, read, merged and dropped; halves add exactly."""
    length = data.draw(st.sampled_from((5, 40, 300, 1100)))
    gaps = data.draw(st.lists(st.integers(0, 60), min_size=5, max_size=60))
    at, rows = -200, []
    for index, gap in enumerate(gaps):
        at += gap
        y = data.draw(st.sampled_from((None, -1.5, 0.5, 2.0)))
        rows.append({"k": "abc"[index % 3], "g": index % 2, "x": (index * 7) % 11 - 5, "y": y, "at": at})
    size = data.draw(st.integers(1, 6))
    cut = [rows[low : low + size] for low in range(0, len(rows), size)]
    keys = data.draw(st.sampled_from(((), ("g",))))
    query = grouped(length, *keys)
    tasks, merged = (
        data.draw(st.sampled_from((1, 3))),
        range(0, len(cut), data.draw(st.sampled_from((1, 4, 99)))),
    )
    answered = answer(query, cut, tasks, merged)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InstantAggregate, "buckets", ())
        assert answered == answer(query, cut, tasks, merged)


@given(
    spans=st.lists(
        st.tuples(st.integers(-3000, 3000), st.integers(0, 2000), st.sampled_from((4, 100, 512, 5000))),
        min_size=1,
        max_size=4,
    )
)
def test_stretches_are_apart_and_make_up_the_whole(spans: list[tuple[int, int, int]]) -> None:
    """For each of several queries with windows of different lengths."""
    low, size, length = (np.array(part) for part in zip(*spans, strict=True))
    extents = Extents(np.arange(len(spans)), length, np.zeros(len(spans), np.int16))
    cover = list(IntervalBlocks(Layout((), ()), extents).cover(low, low + size))
    for index, (begin, count, _) in enumerate(spans):
        pieces = sorted((int(start[index]), int(stop[index])) for _, start, stop in cover)
        covered = [instant for start, stop in pieces for instant in range(start, stop)]
        assert covered == list(range(begin, begin + count))


def gathered_in_an_epoch(length: int, monkeypatch: pytest.MonkeyPatch) -> tuple[float, float]:
    """Cells of groups, and of values, that an epoch of 20 rows over 20 instants goes through on average, the window being full."""
    cut = [
        [{"k": "a", "g": n % 2, "x": n, "y": 0.5, "at": 20 * number + n} for n in range(20)]
        for number in range(2 * length // 20)
    ]
    stream = record(cut, "at")
    seen: dict[bool, list[int]] = {False: [], True: []}

    def counting(layout: Layout, tables: Sequence[pa.Table]) -> object:
        seen[layout.keys[-1].name == VALUE].append(sum(table.num_rows for table in tables))
        return gather(layout, tables)

    operator = lower("q", grouped(length, "g"), "q")
    with monkeypatch.context() as patch:
        patch.setattr(instant_cells, "gather", counting)
        batches = [[batch(epoch, SCHEMA)] for epoch in epochs(stream)]
        drive(
            operator,
            batches,
            stream.punctuations,
            final=False,
            compact_after=dict.fromkeys(range(0, 9999, 6), 6),
        )
    late = {of_values: each[len(each) // 2 :] for of_values, each in seen.items()}
    return sum(late[False]) / len(late[False]), sum(late[True]) / len(late[True])


def test_what_an_epoch_goes_through_follows_what_changes_not_what_the_window_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A window of twenty times the rows, with as many coming and leaving: counted, far from twenty times."""
    one, twenty = gathered_in_an_epoch(100, monkeypatch), gathered_in_an_epoch(2000, monkeypatch)
    assert twenty[0] < 1.6 * one[0], (one, twenty)
    assert twenty[1] < 3 * one[1], (one, twenty)  # values of an interval, not its rows
