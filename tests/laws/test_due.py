"""An operator that is visited only when it is due answers as one that each epoch visits: law of `due_after`.

Punctuation moves on in many small steps without rows, also long after the last row, so that every beginning, expiry and end
is an epoch of its own. An answer that is due too late is lost, since the operator is next visited from a later instant on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.expressions.expression import Column, Named
from headrace.algebra.query import Aggregate, Project, Query, Revisions, Windowed
from headrace.algebra.windows.window import Landmark, TimeRange, TimeSlide
from headrace.operators.approximate import histogram_store
from headrace.operators.base.operator import Operator
from headrace.planner.lowering.lower import lower
from headrace.planner.lowering.query_shape import shape_of
from headrace.reference.history import History, RecordedStream, StreamRow
from headrace.schema import BIGINT
from headrace.time import BEGINNING, FOREVER, Instant
from tests.laws import strategies as some
from tests.laws import streams, test_approximate
from tests.laws.comparing import canonical
from tests.laws.driving import batch, described, epochs, plain, table
from tests.laws.test_laws import KINDS, SCHEMAS, aggregates, rounds
from tests.laws.test_revisions import admitted, session_queries, time_queries
from tests.operators.local_driver import DriveResult, drive

LATER = 150 * some.TICK
"""No window that may end is open so long after the last row."""
RANGES = st.builds(TimeRange, st.sampled_from((8, 20, 40)).map(lambda n: n * some.TICK))
RESTING = {
    **KINDS,
    "aggregates over long ranges": lambda: some.queries(
        RANGES, some.Shape(joins=False, top=False, distinct=False)
    ).filter(lambda query: aggregates(query) and not rounds(query)),
}
"""Of a long range the cells between the edges are read from blocks, which are made when they end."""
REVISED = {
    "revised windows": lambda: time_queries(emits=False),
    "revised sessions": session_queries,
}
APPROXIMATE = {
    "approximate windows": lambda: test_approximate.queries(test_approximate.windows()),
    "approximate instants": lambda: test_approximate.queries(test_approximate.relations()).map(
        lambda query: replace(query, emission="relation")
    ),
}


@st.composite
def timelines(draw: st.DrawFn, stream: RecordedStream, rows: Sequence[Any]) -> list[tuple[Any, Instant]]:
    """(rows, punctuation) of epochs: those of the stream, and after each some without rows on the way to its punctuation."""
    before, timeline = BEGINNING, []
    for arrived, after in zip(rows, stream.punctuations, strict=True):
        timeline.append((arrived, before))
        low = max(before, min((row.at for row in arrived), default=after) if before == BEGINNING else before)
        steps = (
            st.lists(st.integers(min(low, after), after), max_size=5) if after != BEGINNING else st.just([])
        )
        timeline += [([], at) for at in sorted(draw(steps, "steps"))] + [([], after)]
        before = after
    if before != BEGINNING:
        ticks = draw(st.sampled_from((1, 3)), "ticks a step") * some.TICK
        far = draw(st.lists(st.integers(before, before + LATER), max_size=12), "later steps")
        near = [before + step * ticks // 2 + draw(st.sampled_from((0, 1, -1))) for step in range(1, 14)]
        timeline += [([], at) for at in sorted({*far, *near, before + 2 * LATER})]
    return timeline


def driven(
    operator: Operator, timeline: Sequence[tuple[Any, Instant]], history: History, when_due: bool, **how: Any
) -> DriveResult:
    batches = [[batch(rows, some.SCHEMA).only(operator.columns)] for rows, _ in timeline]
    relations = {name: table(rows, SCHEMAS[name]) for name, rows in history.relations.items()}
    punctuations = [at for _, at in timeline]
    return drive(operator, batches, punctuations, final=False, relations=relations, when_due=when_due, **how)


def compared(
    data: st.DataObject, query: Query, history: History, rows: Sequence[Any], *, most_merges: int = 6
) -> None:
    """The answers of both, and that nothing is due when all is over."""
    note(described(query))
    timeline = data.draw(timelines(history.streams["s"], rows), "timeline")
    merges = st.dictionaries(st.integers(0, len(timeline) - 1), st.integers(1, 4), max_size=most_merges)
    how = {"compact_after": data.draw(merges, "compactions")} if timeline else {}
    operator = lower("q", query, "q")
    always = driven(operator, timeline, history, when_due=False, **how)
    when_due = driven(operator, timeline, history, when_due=True, **how)
    changes = query.emission == "relation" or query.revisions is not None
    expected, answered = (plain(run.results, query, changes=changes) for run in (always, when_due))
    assert canonical(answered) == canonical(expected)
    never_ends = isinstance(shape_of(query).window, Landmark) or query.emit_empty
    if timeline and timeline[-1][1] != BEGINNING and not never_ends:
        assert when_due.due == FOREVER


@pytest.mark.parametrize("kind", RESTING)
@given(data=st.data())
def test_visits_when_due_answer_as_visits_in_each_epoch(kind: str, data: st.DataObject) -> None:
    query, history = data.draw(RESTING[kind](), "query"), data.draw(streams.histories(), "history")
    compared(data, query, history, epochs(history.streams["s"]))


@pytest.mark.parametrize("kind", REVISED)
@given(data=st.data())
def test_so_do_revisions(kind: str, data: st.DataObject) -> None:
    within = data.draw(st.one_of(st.none(), st.integers(0, 12).map(lambda n: n * some.TICK)), "within")
    query = replace(data.draw(REVISED[kind](), "query"), revisions=Revisions(within))
    history = data.draw(streams.histories(), "history")
    compared(data, query, history, admitted(history.streams["s"], within))


@pytest.mark.parametrize("kind", APPROXIMATE)
@given(data=st.data())
def test_so_do_approximate_answers(kind: str, data: st.DataObject) -> None:
    """To the same figures: a histogram changes only where a count of it expires. Runs are not merged, since each visit writes
    one: other runs would be merged, which thins other cells, within the same bound (`test_approximate`)."""
    query, history = data.draw(APPROXIMATE[kind](), "query"), data.draw(streams.histories(), "history")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(histogram_store, "_LEAST_CELLS", data.draw(st.sampled_from((0, 2)), "least cells"))
        compared(data, query, history, epochs(history.streams["s"]), most_merges=0)


def test_counts_that_expire_do_not_make_a_histogram_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve counts begin within 28 s and expire one by one: visits in between, where nothing is due, leave the others as they are."""
    monkeypatch.setattr(histogram_store, "_LEAST_CELLS", 2)
    great = some.call(">", some.column("x"), some.literal(3, BIGINT))
    calls = [
        AggregateCall("approx_count", None, BIGINT, condition=great, within=Fraction(1)),
        AggregateCall("approx_count", None, BIGINT, within=Fraction(1)),
        AggregateCall("approx_sum", some.column("x"), BIGINT, condition=great, within=Fraction(1)),
    ]
    parts = [part for call in calls for part in (call, test_approximate.bound_of(call))]
    named = tuple(NamedAggregate(f"a{index}", part) for index, part in enumerate(parts))
    shown = tuple(Named(item.name, Column(item.name, item.call.type)) for item in named)
    windowed = Windowed(some.SCAN, "s", TimeRange(20 * some.TICK))
    query = Query(Project(Aggregate(windowed, (), named), shown), "relation")
    seconds = (-2, 5, 21, 4.000001, 6.999999, 25.999999, 14, 23, 22.000001, 14, 7, 11.999999)
    rows = [
        StreamRow({"k": None, "g": None, "x": 9 if number == 4 else -1, "y": None, "at": at}, at, number)
        for number, at in enumerate(round(second * some.TICK) for second in seconds)
    ]
    steps = (0, 19, 20.5, 22, 23.5, 25, 26.5, 28, 29.5, 31, 32.5, 34, 35.5, 37, 38.5, 45, 85, 319)
    timeline = [(rows, BEGINNING), *(([], round(step * some.TICK) - 1) for step in steps)]
    operator, history = lower("q", query, "q"), History({"s": RecordedStream((), ())}, {})
    always, when_due = (driven(operator, timeline, history, when_due=due) for due in (False, True))
    assert canonical(plain(when_due.results, query, changes=True)) == canonical(
        plain(always.results, query, changes=True)
    )


def test_a_pane_that_closes_before_its_window_is_due_where_empty_windows_are_answered() -> None:
    """Windows [4n - 5 s, 4n s) have panes of 3 and 1 s: one closes at 23 s, a second before the window that ends at 24 s."""
    windowed = Windowed(some.SCAN, "s", TimeSlide(5 * some.TICK, 4 * some.TICK, 0))
    named = (NamedAggregate("n", AggregateCall("sum", some.column("x"), BIGINT)),)
    shown = (Named("n", Column("n", BIGINT)),)
    query = Query(Project(Aggregate(windowed, (), named), shown), "windows", emit_empty=True)
    arriving = [
        StreamRow({"k": None, "g": None, "x": 1, "y": None, "at": at * some.TICK}, at * some.TICK, at)
        for at in (20, 27)
    ]
    timeline = [([], BEGINNING), (arriving, 19 * some.TICK)]
    timeline += [([], step * some.TICK) for step in (20, 22, 23, 24, 28, 40)]
    operator, history = lower("q", query, "q"), History({"s": RecordedStream((), ())}, {})
    always, when_due = (driven(operator, timeline, history, when_due=due) for due in (False, True))
    expected = plain(always.results, query, changes=False)
    assert (24 * some.TICK, 1) in [(at, row["n"]) for at, row in expected]
    assert canonical(plain(when_due.results, query, changes=False)) == canonical(expected)
