"""INVOKE of a part of a window: what the query with that shorter window would answer, for any query, history, cut and compaction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st

from headrace.algebra.query import Node, Query, Windowed
from headrace.algebra.windows.window import CHANGE, TimeRange, TimeSlide, Window
from headrace.errors import UserError
from headrace.operators.approximate import histogram_store
from headrace.operators.approximate.approximate_instants import ApproximateInstants
from headrace.operators.approximate.approximate_windows import ApproximateWindows
from headrace.operators.base.operator import Operator
from headrace.operators.on_demand.subwindow_check import check, full_length
from headrace.planner.lowering.lower import lower
from headrace.reference.evaluate import invoke
from headrace.reference.history import History
from tests.laws import strategies as some
from tests.laws import streams
from tests.laws.comparing import canonical
from tests.laws.driving import batch, described, epochs, plain, table
from tests.laws.test_approximate import SCHEMAS, queries, within_bounds
from tests.operators.local_driver import drive

TICK = some.TICK


@pytest.fixture(autouse=True, scope="module")
def _thin_at_once() -> Iterator[None]:
    """Generated histories are short: a histogram is made from the first cells on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(histogram_store, "_LEAST_CELLS", 0)
        yield


def over(query: Query, window: Window) -> Query:
    """The same query over another window."""

    def changed(node: Node) -> Node:
        if isinstance(node, Windowed):
            return replace(node, window=window)
        parts = {f.name: changed(getattr(node, f.name)) for f in fields(node) if f.name == "source"}
        if hasattr(node, "left"):
            parts["left"] = changed(node.left)
        return replace(node, **parts)

    return replace(query, root=changed(query.root))


def asked(data: st.DataObject, operator: Operator, query: Query, history: History, length: int) -> list[Any]:
    """The operator's answer for a shorter window, over any split, tasks and compaction; the bag that a relation's changes make."""
    stream = history.streams["s"]
    cut = [
        [
            batch(part, some.SCHEMA).only(operator.columns)
            for part in data.draw(streams.splits(epoch), "splits")
        ]
        for epoch in epochs(stream)
    ]
    tasks = data.draw(st.lists(st.integers(1, 4), min_size=len(cut), max_size=len(cut)), "tasks")
    merges = st.dictionaries(st.integers(0, max(len(cut) - 1, 0)), st.integers(1, 4), max_size=3)
    relations = {name: table(rows, SCHEMAS[name]) for name, rows in history.relations.items()}
    compactions = data.draw(merges, "compactions")
    driven = drive(
        operator,
        cut,
        stream.punctuations,
        tasks,
        final=False,
        relations=relations,
        compact_after=compactions,
    )
    now, closed = history.now(query), history.punctuation(query)
    if now is None:
        return []
    answered = operator.answer_subwindow(length, driven.runs, closed, max(now, closed - 1))
    if answered is not None and CHANGE in answered.column_names:
        assert set(answered.column(CHANGE).to_pylist()) <= {1}
    return [row for _, row in plain(answered, query)]


def windows() -> st.SearchStrategy[TimeSlide]:
    """Several slides long; some are no multiple of their slide."""
    return st.builds(
        lambda many, slide, more, origin: TimeSlide(many * slide + more, slide, origin),
        st.integers(2, 12),
        st.sampled_from((TICK // 2, TICK, 2 * TICK)),
        st.sampled_from((0, 0, TICK // 4)),
        st.sampled_from((0, TICK // 3)),
    )


@given(data=st.data())
def test_a_part_of_a_window_is_answered_as_by_the_query_with_that_window(data: st.DataObject) -> None:
    window = data.draw(windows(), "window")
    query = data.draw(some.queries(st.just(window), some.Shape(emits=False)), "query")
    note(described(query))
    operator = lower("q", query, "q")
    assume(full_length(operator) == window.range)
    history = data.draw(streams.histories(), "history")
    length = window.range - window.slide * data.draw(
        st.integers(1, (window.range - 1) // window.slide), "slides less"
    )
    # empty windows with gaps between them are refused
    assume(length >= window.slide or not getattr(operator, "answers_empty", False))
    check(operator, length)
    answered = asked(data, operator, query, history, length)
    shortened = over(query, TimeSlide(length, window.slide, window.anchor))
    assert canonical(answered) == canonical(invoke(shortened, history, history.punctuation(query)))


@given(data=st.data())
def test_a_part_of_a_relation_is_answered_as_by_the_query_with_that_range(data: st.DataObject) -> None:
    window = TimeRange(data.draw(st.sampled_from((TICK, 3 * TICK, 10 * TICK)), "range"))
    query = data.draw(some.queries(st.just(window), some.Shape(emits=False)), "query")
    note(described(query))
    operator = lower("q", query, "q")
    assume(full_length(operator) == window.range)
    history = data.draw(streams.histories(), "history")
    length = data.draw(st.sampled_from((1, TICK - 1, TICK, 3 * TICK, 5 * TICK)), "length")
    assume(length <= window.range)
    answered = asked(data, operator, query, history, length)
    expected = invoke(over(query, TimeRange(length)), history, history.punctuation(query))
    assert canonical(answered) == canonical(expected)


@given(data=st.data())
def test_any_size_up_to_the_window_is_within_its_bound_from_one_histogram(data: st.DataObject) -> None:
    slides = data.draw(st.booleans(), "slides")
    slide = data.draw(st.sampled_from((TICK // 2, TICK)), "slide")
    many = data.draw(st.integers(9, 33), "panes")
    window: Window = TimeSlide(many * slide, slide, 0) if slides else TimeRange(many * TICK)
    query = data.draw(queries(st.just(window)), "query")
    query = query if slides else replace(query, emission="relation")
    note(described(query))
    operator = lower("q", query, "q")
    assume(isinstance(operator, ApproximateWindows | ApproximateInstants))
    history = data.draw(streams.histories(), "history")
    length = data.draw(st.integers(1, many - 1), "part") * (slide if slides else TICK)
    check(operator, length)
    answered = asked(data, operator, query, history, length)
    shortened = over(query, TimeSlide(length, slide, 0) if slides else TimeRange(length))
    expected = invoke(shortened, history, history.punctuation(query))
    within_bounds(query, [(0, row) for row in answered], [(0, row) for row in expected])


@pytest.mark.parametrize(
    ("window", "length", "said"),
    [
        (TimeSlide(10 * TICK, TICK, 0), 11 * TICK, "keeps"),
        (TimeSlide(10 * TICK, TICK, 0), TICK // 2, "does not begin at one of its slides"),
        (TimeSlide(10 * TICK, 3 * TICK, 0), 9 * TICK, "does not begin at one of its slides"),
        (TimeRange(10 * TICK), 0, "cannot be asked"),
    ],
)
def test_a_window_that_is_not_kept_is_refused(window: Window, length: int, said: str) -> None:
    query = some.queries(st.just(window), some.Shape(False, False, False, False, False))
    aggregate = query.filter(lambda candidate: full_length(lower("q", candidate, "q")) is not None)

    @given(aggregate)
    def refused(candidate: Query) -> None:
        with pytest.raises(UserError, match=said):
            check(lower("q", candidate, "q"), length)

    refused()
