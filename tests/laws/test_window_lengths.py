"""Windows of many lengths over the same panes answer as the reference does, over histories in which windows close all along.

Rows arrive in order but for a slack, so punctuation follows them: panes are sealed, expire and are merged epoch by epoch.
Each query stores what it would store alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.expressions.expression import Expression, Named
from headrace.algebra.query import Aggregate, Filter, Node, Query, Windowed
from headrace.algebra.windows.window import TimeSlide
from headrace.operators.families.family import numbers_in
from headrace.operators.sharing import shared_panes
from headrace.operators.window_assembly import window_closing
from headrace.planner.lowering.lower import lower
from headrace.reference.history import History, StreamRow, record
from headrace.schema import BIGINT, BOOLEAN, DOUBLE
from tests.laws import strategies as some
from tests.laws.comparing import canonical
from tests.laws.driving import described, plain
from tests.laws.families import Families, Registered
from tests.laws.strategies import SCAN, TICK, column, literal
from tests.laws.test_laws import SCHEMAS, expected

CALLS = (
    (AggregateCall("count", None, BIGINT), AggregateCall("sum", column("x"), BIGINT)),
    (AggregateCall("max", column("y"), DOUBLE),),
    (AggregateCall("count", column("g"), BIGINT, distinct=True), AggregateCall("min", column("x"), BIGINT)),
)
KEYS = ((), ("k",), ("k", "g"))
LENGTHS = (0, 1, 2, 3, 6, 7, 8, 11, 15, 16, 23, 30)
"""Slides by which a window is longer than the shortest: around the lengths from which blocks have another level."""


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Rows of some ten epochs without a late one, but for an epoch the stream leaps over all windows."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16), "seed"))
    count, slack = draw(st.integers(20, 90), "rows"), draw(st.integers(0, 3), "slack")
    at = np.arange(count) * (TICK // 2) - 5 * TICK
    at[rng.integers(count) :] += draw(st.sampled_from((0, 0, 4, 50)), "a leap") * TICK
    at -= rng.integers(0, slack + 1, count) * TICK
    rows = [
        {
            "k": ["a", "b", None][rng.integers(3)],
            "g": [0, 1, None][rng.integers(3)],
            "x": [None, *range(-3, 7)][rng.integers(11)],
            "y": [None, 0.5, -1.25, 3.0][rng.integers(4)],
            "at": int(instant),
        }
        for instant in at
    ]
    places = draw(st.lists(st.integers(0, count), min_size=4, max_size=14).map(sorted), "epochs")
    parts = [rows[low:high] for low, high in itertools.pairwise([0, *places, count])]
    return History({"s": record(parts, "at", slack * TICK)}, {"names": ()})


def query(
    window: TimeSlide, where: Expression | None, keys: Sequence[str], calls: Sequence[AggregateCall]
) -> Query:
    node: Node = Windowed(SCAN, "s", window)
    node = node if where is None else Filter(node, where)
    named = tuple(NamedAggregate(f"a{index}", call) for index, call in enumerate(calls))
    node = Aggregate(node, tuple(Named(key, column(key)) for key in keys), named)
    return Query(
        some._projected(node, [*keys, *(n.name for n in named), "s.window_start", "s.window_end"]), "windows"
    )


@st.composite
def registered(draw: st.DrawFn, last: int) -> list[Registered]:
    """Queries of one family, of which one is there all the time."""
    slide, anchor = draw(st.sampled_from((1, 2, 3))) * TICK, draw(st.sampled_from((0, TICK // 3)))
    shortest = draw(st.sampled_from((slide, slide, max(1, slide // 2))))
    calls, keys = draw(st.sampled_from(CALLS)), draw(st.sampled_from(KEYS))
    wheres = draw(st.lists(st.one_of(st.none(), some.predicates()), min_size=1, max_size=2))
    queries = []
    for number in range(draw(st.integers(2, 6))):
        window = TimeSlide(shortest + draw(st.sampled_from(LENGTHS)) * slide, slide, anchor)
        asked = query(window, draw(st.sampled_from(wheres)), keys, calls)
        since = draw(st.sampled_from((0, 0, 0, last // 2))) if number else 0
        until = draw(st.sampled_from((1 << 30, 1 << 30, 1 << 30, since + 2)))
        queries.append(Registered(asked, lower(f"q{number}", asked, f"q{number}"), since, until))
    return queries


@given(data=st.data())
def test_windows_of_many_lengths_answer_and_store_as_each_alone(data: st.DataObject) -> None:
    history = data.draw(histories(), "history")
    stream = history.streams["s"]
    count = len(stream.punctuations)
    queries = data.draw(registered(count - 1), "queries")
    cuts = [_splits([row for row in stream.rows if row.epoch == number + 1]) for number in range(count)]
    tasks = data.draw(st.lists(st.integers(1, 2), min_size=count, max_size=count), "tasks")
    merges = data.draw(st.dictionaries(st.integers(0, count - 1), st.sampled_from((2, 99))), "merges")
    stores_rows = data.draw(st.booleans(), "stores rows")
    most, gain = data.draw(st.sampled_from(((4, 4), (0, 0), (1 << 20, 0))), "ways")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window_closing, "_MOST_MIXED", most)
        patch.setattr(shared_panes, "_LEAST_GAIN", gain)
        takes_portions = data.draw(st.booleans(), "takes portions")
        driven = Families(queries, history, SCHEMAS, stores_rows=stores_rows, takes_portions=takes_portions)
        driven.run(cuts, tasks, merges)
        driven.merge_all()
        for asked in queries:
            note(f"{asked.operator.id} since {asked.since} until {asked.until}: {described(asked.query)}")
            if asked.until > count:
                alone = rows_alone(asked, history, cuts)
                assert stores_rows or rows_stored(driven, asked) == alone
        driven.end()
    for asked in queries:
        if asked.until > count:
            answer = [row for part in asked.results for row in plain(part, asked.query)]
            assert canonical(answer) == canonical(expected(asked.query, history, final=True)), (
                asked.operator.id
            )


@pytest.mark.parametrize("short", [0, 1])
def test_a_query_that_is_behind_keeps_the_rows_of_its_own_windows(short: int) -> None:
    rows = [{"k": str(n), "g": 0, "x": n, "y": 0.5, "at": n * TICK // 2} for n in range(80)]
    history = History({"s": record([rows[:40], rows[40:]], "at")}, {"names": ()})
    lengths = (2 * TICK, 30 * TICK)
    wheres = (None, some.call("<", column("x"), literal(1000, BIGINT), kind=BOOLEAN))
    asked = [
        query(TimeSlide(length, TICK), where, ["k"], CALLS[0])
        for length, where in zip(lengths, wheres, strict=True)
    ]
    queries = [Registered(query, lower(f"q{n}", query, f"q{n}"), 0, 1 << 30) for n, query in enumerate(asked)]
    cuts = [_splits([row for row in history.streams["s"].rows if row.epoch == epoch]) for epoch in (1, 2)]
    driven = Families(queries, history, SCHEMAS, stores_rows=True)
    driven.run(cuts, [1, 1], {})
    queries[short].emitted_to -= TICK  # as if it were paused; the other's windows have other lengths
    driven.merge_all()
    stored = [sum(rows_stored(driven, registered_query).values()) for registered_query in queries]
    assert stored[1] > 10 * stored[0] > 0
    driven.end()
    answer = [row for part in queries[1 - short].results for row in plain(part, asked[1 - short])]
    assert canonical(answer) == canonical(expected(asked[1 - short], history, final=True))


def _splits(rows: Sequence[StreamRow]) -> list[list[StreamRow]]:
    half = len(rows) // 2
    return [list(rows[:half]), list(rows[half:])]


def rows_stored(driven: Families, query: Registered) -> dict[str, int]:
    """The rows of a query by section, when all runs are merged."""
    number, counts = int(query.operator.id[1:]), dict[str, int]()
    for run in driven.runs:
        for name, rows in run.items():
            count = int((numbers_in(rows) == number).sum())
            if count:
                section = name.partition("/")[2]
                counts[section] = counts.get(section, 0) + count
    return counts


def rows_alone(query: Registered, history: History, cuts: Sequence[Any]) -> dict[str, int]:
    alone = Registered(query.query, query.operator, query.since, query.until)
    driven = Families([alone], history, SCHEMAS)
    driven.run(cuts, [1] * len(cuts), {})
    driven.merge_all()
    return rows_stored(driven, alone)
