"""Operators that store rows, by hand: emission, refusals, rejects, and the size of the state."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate, result_type
from headrace.algebra.expressions.expression import Call, Cast, Expression, Named
from headrace.algebra.query import (
    Aggregate,
    Ago,
    Bounds,
    Distinct,
    Emit,
    Filter,
    Node,
    Project,
    Query,
    SortKey,
    Top,
    Windowed,
)
from headrace.algebra.windows.window import (
    Delta,
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
from headrace.errors import UnsupportedQuery
from headrace.planner.lowering.lower import lower
from headrace.planner.lowering.lowering_context import finish_of
from headrace.planner.lowering.query_shape import shape_of
from headrace.reference.history import record
from headrace.runtime.results.result_log import ordered as ordered_results
from headrace.schema import BIGINT, DOUBLE, INT
from headrace.time import SECOND
from tests.laws.driving import batch, epochs, plain
from tests.laws.strategies import SCAN, SCHEMA, call, column, literal
from tests.operators.local_driver import drive

ROW = {"k": "a", "g": 1, "x": 1, "y": 0.0}


def rows(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**ROW, **change} for change in changes]


def counted(window: Window, *keys: str, where: Expression | None = None) -> Node:
    node: Node = Windowed(SCAN, "s", window)
    if where is not None:
        node = Filter(node, where)
    count = NamedAggregate("n", AggregateCall("count", None, result_type("count", None)))
    grouped = Aggregate(node, tuple(Named(key, column(key)) for key in keys), (count,))
    fields = {field.name: field.type for field in grouped.schema}
    from headrace.algebra.expressions.expression import Column

    return Project(grouped, tuple(Named(name, Column(name, fields[name])) for name in (*keys, "n")))


def selected(window: Window, *names: str, where: Expression | None = None) -> Node:
    node: Node = Windowed(SCAN, "s", window)
    if where is not None:
        node = Filter(node, where)
    return Project(node, tuple(Named(name, column(name)) for name in names))


def query(root: Node, window: Window) -> Query:
    if slides(window):
        return Query(root, "windows")
    return Query(root, "stream" if isinstance(root, Emit) else "relation")


def emitted(
    wanted: Query, cut: Sequence[list[dict[str, Any]]], *, final: bool = False, **options: Any
) -> list[Any]:
    stream = record(cut, "at")
    operator = lower("q", wanted, "q")
    driven = drive(
        operator,
        [[batch(epoch, SCHEMA)] for epoch in epochs(stream)],
        stream.punctuations,
        final=final,
        **options,
    )
    return sorted(
        (
            tuple(item[:-1]) + tuple(item[-1].values())
            for item in plain(driven.results, wanted, wanted.emission == "relation")
        ),
        key=repr,
    )


# -------------------------------------------------------------------------------------------------------- relations


def test_a_relation_without_group_by_has_one_row_from_the_first_row_on_even_one_that_where_drops() -> None:
    window = TimeRange(SECOND)
    positive = call(">", column("x"), literal(5, BIGINT))
    cut = [rows({"at": 0}), rows({"at": 3 * SECOND, "x": 9}), rows({"at": 10 * SECOND})]
    assert emitted(query(counted(window, where=positive), window), cut) == [
        (0, 1, 0),
        (3 * SECOND, -1, 0),
        (3 * SECOND, 1, 1),
        (4 * SECOND + 1, -1, 1),
        (4 * SECOND + 1, 1, 0),
    ]


def test_a_row_that_leaves_and_an_equal_one_that_comes_at_the_same_instant_are_no_change() -> None:
    window = Rows(1)
    cut = [rows({"at": 1}, {"at": 2}), rows({"at": 3, "x": 7}), rows({"at": 4, "x": 7}), rows({"at": 9})]
    assert emitted(query(selected(window, "x"), window), cut) == [(1, 1, 1), (3, -1, 1), (3, 1, 7)]


def test_at_the_end_a_relation_is_emitted_up_to_now_and_a_stream_with_its_expiries() -> None:
    window = TimeRange(SECOND)
    cut = [rows({"at": 0}), rows({"at": SECOND, "x": 5})]
    relation = query(selected(window, "x"), window)
    assert emitted(relation, cut, final=True) == [(0, 1, 1), (SECOND, 1, 5)]
    gone = query(Emit(selected(window, "x"), "dstream"), window)
    assert emitted(gone, cut) == []
    assert emitted(gone, cut, final=True) == [(SECOND + 1, 1), (2 * SECOND + 1, 5)]


def test_a_snapshot_holds_rows_between_its_bounds_as_now_moves() -> None:
    source = Bounds(Windowed(SCAN, "s", Unbounded()), Ago(2 * SECOND), Ago(SECOND))
    wanted = Query(Project(source, (Named("x", column("x")),)), "relation")
    cut = [rows({"at": 0, "x": 1}), rows({"at": SECOND, "x": 2}), rows({"at": 9 * SECOND, "x": 3})]
    assert emitted(wanted, cut) == [
        (SECOND, 1, 1),
        (2 * SECOND, 1, 2),
        (2 * SECOND + 1, -1, 1),
        (3 * SECOND + 1, -1, 2),
    ]


def test_the_first_by_order_at_every_instant() -> None:
    window = TimeRange(SECOND)
    node = selected(window, "k", "x")
    assert isinstance(node, Project)
    key = SortKey(column("x"), descending=True)
    top = Project(Top(node.source, (key,), 1), node.columns)
    cut = [rows({"at": 0}, {"at": 1, "x": 8, "k": "b"}), rows({"at": 2, "x": 4}), rows({"at": 9 * SECOND})]
    assert emitted(query(top, window), cut) == [
        (0, 1, "a", 1),
        (1, -1, "a", 1),
        (1, 1, "b", 8),
        (SECOND + 2, -1, "b", 8),
        (SECOND + 2, 1, "a", 4),
        (SECOND + 3, -1, "a", 4),
    ]


# ----------------------------------------------------------------------------------------------------- windows of rows


def test_a_window_of_rows_closes_at_every_mth_row_and_counts_what_where_drops() -> None:
    window = RowsSlide(3, 2)
    positive = call(">", column("x"), literal(0, BIGINT))
    cut = [rows(*({"at": at, "x": at % 2} for at in range(7)))]
    assert emitted(query(selected(window, "at", where=positive), window), cut) == [
        (1, 1),
        (3, 1),
        (3, 3),
        (5, 3),
        (5, 5),
    ]


def test_an_incomplete_last_slide_emits_nothing_even_at_the_end() -> None:
    window = RowsSlide(2, 2, (column("k"),))
    cut = [rows({"at": 1}, {"at": 2, "k": "b"}, {"at": 3}), rows({"at": 4, "k": "b"}, {"at": 5, "k": None})]
    assert emitted(query(counted(window, "k"), window), cut, final=True, tasks=3) == [
        (3, "a", 2),
        (4, "b", 2),
    ]


# -------------------------------------------------------------------------------------------------- rejects, refusals


def divided(name: str) -> Expression:
    return Call("div", (literal(10, BIGINT), column(name)), BIGINT)


@pytest.mark.parametrize(
    "window",
    [
        Unbounded(),
        TimeRange(SECOND),
        Rows(2),
        TimeSlide(SECOND, SECOND),
        RowsSlide(1, 1),
        TupleSlide(1, 1),
    ],
    ids=repr,
)
def test_a_row_on_which_an_expression_fails_leaves_the_query_with_a_reason_and_nothing_else_happens(
    window: Window,
) -> None:
    root: Node = Project(Windowed(SCAN, "s", window), (Named("q", divided("x")),))
    wanted = Query(root, "windows") if slides(window) else Query(Emit(root, "istream"), "stream")
    stream = record([rows({"at": 0, "x": 5}, {"at": 1, "x": 0}, {"at": 2, "x": 2})], "at")
    operator = lower("q", wanted, "q")
    driven = drive(operator, [[batch(epochs(stream)[0], SCHEMA)]], stream.punctuations)
    assert driven.results is not None
    assert sorted(driven.results.column("q").to_pylist()) == [2, 5]
    assert [(r.position.tolist(), len(r.reasons)) for r in driven.rejected] == [([1], 1)]


@pytest.mark.parametrize(
    ("root", "message"),
    [
        (Emit(selected(TimeRange(SECOND), "x"), "rstream"), r"RSTREAM needs a window with SLIDE, or \[NOW\]"),
        (
            Project(Bounds(Windowed(SCAN, "s", TimeSlide(2, 1)), 0, 9), (Named("x", column("x")),)),
            r"BEGIN ... END \w+ a window that slides",
        ),
        (
            Project(Bounds(Windowed(SCAN, "s", Rows(2)), 0, 9), (Named("x", column("x")),)),
            r"BEGIN ... END \w+ a window that slides",
        ),
    ],
)
def test_what_no_operator_answers_is_refused_with_the_reason(root: Node, message: str) -> None:
    with pytest.raises(UnsupportedQuery, match=message) as refused:
        lower("q", Query(root, "stream"), "q")
    assert isinstance(refused.value, UnsupportedQuery)


# ------------------------------------------------------------------------------------------------------------- state

NEAR = Delta(2.0, Cast(column("x"), DOUBLE))
VISIT = Session(2, (column("g"),))


@pytest.mark.parametrize(
    ("root", "window", "bound"),
    [
        (selected(Unbounded(), "k", "x"), Unbounded(), 2),
        (Distinct(selected(Unbounded(), "x")), Unbounded(), 10 + 2),
        (counted(Unbounded(), "g"), Unbounded(), 2 * 7 + 4),
        (counted(TimeRange(10), "g"), TimeRange(10), 7 + 2 * 13),  # cells, and the same in buckets
        (counted(TimeRange(10)), TimeRange(10), 2 * 13 + 2),  # few cells are not combined
        (selected(TimeRange(10), "k", "x"), TimeRange(10), 13),
        (selected(Rows(5), "k"), Rows(5), 6),
        (selected(Rows(5, (column("g"),)), "k"), Rows(5, (column("g"),)), 7 * 5 + 1),
        (counted(Rows(5)), Rows(5), 7),
        (selected(TimeSlide(20, 5), "k"), TimeSlide(20, 5), 20),
        (Emit(counted(TimeSlide(20, 5), "g"), "istream"), TimeSlide(20, 5), 20 + 7 + 8),
        (counted(RowsSlide(12, 5), "k"), RowsSlide(12, 5), 18),
        (counted(RowsSlide(12, 5, (), "row_num"), "k"), RowsSlide(12, 5, (), "row_num"), 18),
        (counted(TupleSlide(20, 1), "k"), TupleSlide(20, 1), 20 + 1 + 1),
        (counted(NEAR, "g"), NEAR, 1 + 1 + 3 + 3),
        (selected(NEAR, "k"), NEAR, 1 + 1 + 3 + 3),
        (counted(Session(2), "g"), Session(2), 1 + 1 + 7),  # one session without end
        (counted(VISIT), VISIT, 1 + 3 + 7 + 7),
        (selected(VISIT, "k"), VISIT, 1 + 3 + 7 + 7),
        (counted(TupleSlide(20, 3), "g"), TupleSlide(20, 3), 20 + 1 + 1 + 7),
        (counted(TupleSlide(20, 3, (column("g"),))), TupleSlide(20, 3, (column("g"),)), 20 + 1 + 7 + 7),
        (selected(TupleSlide(20, 2, (), "row_num"), "k"), TupleSlide(20, 2, (), "row_num"), 20 + 1 + 1 + 20),
    ],
    ids=lambda value: type(value).__name__,
)
def test_state_stays_within_what_later_answers_need(root: Node, window: Window, bound: int) -> None:
    cut = [rows(*({"at": 5 * n + at, "x": at, "g": (5 * n + at) % 7} for at in range(5))) for n in range(60)]
    stream = record(cut, "at")
    operator = lower("q", query(root, window), "q")
    driven = drive(
        operator,
        [[batch(epoch, SCHEMA)] for epoch in epochs(stream)],
        stream.punctuations,
        compact_after=range(60),
        final=False,
    )
    assert driven.state_rows <= bound


def test_operators_travel_to_tasks() -> None:
    counting = (RowsSlide(2, 1), TupleSlide(2, 1), NEAR, VISIT)
    for window in (Unbounded(), TimeRange(1), Rows(2), TimeSlide(2, 1), *counting):
        for root in (counted(window, "g"), selected(window, "x")):
            operator = lower("q", query(root, window), "q")
            assert pickle.loads(pickle.dumps(operator)) == operator


def test_answers_stand_by_instant_then_order_by_then_columns() -> None:
    window = TimeSlide(SECOND, SECOND)
    node = counted(window, "g")
    key = SortKey(call("negate", shape_column(node), kind=INT))
    wanted = query(Project(Top(node.source, (key,), None), node.columns), window)  # type: ignore[attr-defined]
    stream = record(
        [rows({"at": 0, "g": 1}, {"at": 1, "g": 3}, {"at": 2, "g": 2}, {"at": SECOND, "g": 9})], "at"
    )
    driven = drive(lower("q", wanted, "q"), [[batch(epochs(stream)[0], SCHEMA)]], stream.punctuations)
    assert driven.results is not None
    ordered = ordered_results(driven.results, finish_of(shape_of(wanted)).sort, wanted.schema.names)
    assert ordered.column("g").to_pylist() == [3, 2, 1, 9]


def shape_column(node: Node) -> Expression:
    assert isinstance(node, Project)
    return node.columns[0].expression
