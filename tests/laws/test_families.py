"""Queries of one family, with windows of different extents, answer as the reference does: laws 1, 2, 6 and 7.

They are registered together and later, and dropped, while their state is in one set of tables, cut, merged and moved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st

from headrace.algebra.query import Emit, Query, find_window
from headrace.algebra.windows.window import (
    Rows,
    RowsSlide,
    Session,
    TimeRange,
    TimeSlide,
    TupleSlide,
    Unbounded,
    Window,
    slides,
)
from headrace.reference.history import History, record
from tests.laws import strategies as some
from tests.laws import streams
from tests.laws.comparing import canonical
from tests.laws.driving import described, epochs, plain
from tests.laws.families import Families, Registered, families
from tests.laws.test_laws import SCHEMAS, aggregates, expected, is_said, rounds

LENGTHS = st.sampled_from((0, 1, some.TICK, 2 * some.TICK, 3 * some.TICK, 10 * some.TICK, 1000 * some.TICK))


@dataclass(frozen=True)
class Kind:
    """Queries over windows of one kind that differ in extent."""

    first: st.SearchStrategy[Window]
    others: Callable[[Window], st.SearchStrategy[Window]]
    shape: some.Shape = field(default_factory=some.Shape)
    aggregate: bool = False
    """Whether only aggregates have families."""


def rows_of(window: Window) -> st.SearchStrategy[Window]:
    assert isinstance(window, Rows)
    return st.builds(Rows, st.integers(1, 6), st.just(window.partition))


def over_same_panes(window: Window) -> st.SearchStrategy[Window]:
    """Windows of the same slide and phase: their ranges differ by multiples of the slide."""
    assert isinstance(window, TimeSlide)
    longer = st.sampled_from((0, 1, 2, 3, 8, 20)).map(lambda n: window.range + n * window.slide)
    shortest = window.range % window.slide or window.slide
    lengths = st.one_of(longer, st.just(shortest))
    return lengths.map(lambda length: TimeSlide(length, window.slide, window.anchor))


def slides_of(window: Window) -> st.SearchStrategy[Window]:
    assert isinstance(window, RowsSlide)
    return st.builds(replace, st.just(window), count=st.integers(1, 6))


def ranges_of(window: Window) -> st.SearchStrategy[Window]:
    assert isinstance(window, TupleSlide)
    lengths = st.sampled_from((1, 2, some.TICK, 2 * some.TICK, 5 * some.TICK, 100 * some.TICK))
    return st.builds(replace, st.just(window), range=lengths)


def gaps_of(window: Window) -> st.SearchStrategy[Window]:
    assert isinstance(window, Session)
    gaps = st.sampled_from((1, some.TICK, 2 * some.TICK, 5 * some.TICK, 100 * some.TICK))
    return st.builds(replace, st.just(window), gap=gaps)


KINDS = {
    "slides": Kind(some.time_slides(), over_same_panes, some.Shape(emits=False), aggregate=True),
    "ranges": Kind(st.builds(TimeRange, LENGTHS), lambda _: st.builds(TimeRange, LENGTHS)),
    "counts": Kind(st.builds(Rows, st.integers(1, 5), some.partitions()), rows_of),
    "windows at every m-th row": Kind(some.rows_slides(), slides_of),
    "windows that end at rows": Kind(some.tuple_slides(), ranges_of),
    "sessions": Kind(some.sessions(), gaps_of),
    "delta windows": Kind(some.deltas(), st.just),
    "all rows": Kind(st.just(Unbounded()), lambda _: st.just(Unbounded())),
}


@st.composite
def members(draw: st.DrawFn, kind: Kind, last: int) -> list[Registered]:
    window = draw(kind.first)
    base = some.queries(st.just(window), kind.shape).filter(lambda q: aggregates(q) or not kind.aggregate)
    chosen = base.filter(is_said).filter(lambda q: not (aggregates(q) and rounds(q)))
    if not slides(window):
        chosen = chosen.filter(lambda q: not isinstance(q.root, Emit) or q.root.kind != "rstream")
    conditions = st.one_of(st.none(), some.predicates())
    return draw(families(chosen, kind.others(window), conditions, last))


@st.composite
def moving(draw: st.DrawFn) -> History:
    """A history in which punctuation follows the rows, so that they expire and windows close from epoch to epoch."""
    gaps = st.sampled_from((0, 0, 1, some.TICK // 2, some.TICK, some.TICK, 4 * some.TICK))
    rows: list[dict[str, Any]] = []
    at = draw(st.integers(-3, 3)) * some.TICK
    for values in draw(st.lists(streams.values(), min_size=6, max_size=24)):
        at += draw(gaps)
        rows.append({**values, "at": at})
    cuts = sorted(draw(st.lists(st.integers(1, len(rows) - 1), min_size=1, max_size=5)))
    parts = [rows[start:end] for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    names = draw(streams.histories()).relations
    return History({"s": record(parts, "at", draw(st.sampled_from((0, 0, some.TICK))))}, names)


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(data=st.data())
def test_each_query_of_a_family_answers_as_the_reference_does(kind: str, data: st.DataObject) -> None:
    history = data.draw(st.one_of(moving(), moving(), streams.histories()), "history")
    count = len(history.streams["s"].punctuations)
    queries = data.draw(members(KINDS[kind], count - 1), "queries")
    check(queries, history, data)


def check(queries: list[Registered], history: Any, data: st.DataObject) -> None:
    count = len(history.streams["s"].punctuations)
    cut = [data.draw(streams.splits(epoch), "splits") for epoch in epochs(history.streams["s"])]
    tasks = data.draw(st.lists(st.integers(1, 3), min_size=count, max_size=count), "tasks")
    merges = data.draw(st.dictionaries(st.integers(0, count - 1), st.integers(1, 4), max_size=3), "merges")
    driven = Families(queries, history, SCHEMAS, takes_portions=data.draw(st.booleans(), "takes portions"))
    driven.run(cut, tasks, merges)
    final = data.draw(st.booleans(), "final")
    if final:
        driven.end()
    names = {query.operator.family_key for query in queries}
    assert len(names) == 1
    assume(None not in names)
    for query in queries:
        if query.until <= count:
            continue
        note(f"since {query.since}: {described(query.query)}")
        answer = [row for part in query.results for row in plain_rows(part, query.query)]
        assert canonical(answer) == canonical(expected(query.query, history, final))


def plain_rows(results: Any, query: Query) -> list[Any]:
    assert find_window(query.root) is not None
    return plain(results, query, changes=query.emission == "relation")
