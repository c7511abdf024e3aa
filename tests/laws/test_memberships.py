"""IN (SELECT …) and EXISTS against the reference, with NULLs on both sides, alone, negated and under OR."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.expressions.expression import Call, Column, Expression, Literal
from headrace.algebra.query import Filter, Query, RelationScan, SemijoinColumn, Windowed
from headrace.algebra.windows.window import TimeSlide, Unbounded
from headrace.reference.evaluate import stream_answer, windows_answer
from headrace.reference.history import History, record
from headrace.reference.relational import Rejects
from headrace.schema import BOOLEAN, INT, STRING
from tests.laws import strategies as some
from tests.laws import streams
from tests.laws.comparing import canonical
from tests.laws.driving import driven, plain, run

SCHEMAS = {"s": some.SCHEMA, "names": some.NAMES}
RIGHT = RelationScan("names", "in0", some.NAMES)


def inner(name: str) -> Column:
    return Column(f"in0.{name}", some.NAMES.field(name).type)


def conditions() -> st.SearchStrategy[Expression | None]:
    """None; of the relation alone; correlated by an equality; by an inequality; both; one that fails on some rows."""
    by_constant = some.call("=", inner("name"), Literal("one", STRING))
    equal = some.call("=", some.column("g"), inner("id"))
    below = some.call("<", some.column("g"), inner("id"))
    fails = some.call("=", some.call("div", Literal(6, INT), inner("id"), kind=INT), Literal(6, INT))
    failing_pair = some.call("=", some.call("div", some.column("g"), inner("id"), kind=INT), Literal(1, INT))
    choices = [
        None,
        by_constant,
        equal,
        below,
        fails,
        failing_pair,
        Call("and", (by_constant, below), BOOLEAN),
    ]
    return st.sampled_from(choices)


def compared() -> st.SearchStrategy[Call | None]:
    return st.sampled_from(
        [
            None,
            some.call("=", some.column("g"), inner("id")),
            some.call("=", some.column("k"), inner("name")),
            some.call("=", Literal(1, INT), inner("id")),
            some.call("=", some.call("div", Literal(2, INT), some.column("g"), kind=INT), inner("id")),
        ]
    )


@st.composite
def queries(draw: st.DrawFn) -> Query:
    truth = Column("in0.matched", BOOLEAN)
    use = draw(
        st.sampled_from(
            [
                truth,
                some.call("not", truth),
                some.call("isnull", truth),
                Call("or", (truth, some.call(">", some.column("x"), Literal(0, some.BIGINT))), BOOLEAN),
                Call("and", (truth, some.call(">", some.column("x"), Literal(0, some.BIGINT))), BOOLEAN),
            ]
        )
    )
    window = draw(st.sampled_from([Unbounded(), TimeSlide(4 * some.TICK, 2 * some.TICK)]))
    node = SemijoinColumn(
        Windowed(some.SCAN, "s", window), RIGHT, "in0.matched", draw(conditions()), draw(compared())
    )
    chosen = some._projected(Filter(node, use), ["s.k", "s.g", "s.x"])
    return Query(chosen, "stream" if isinstance(window, Unbounded) else "windows")


@given(query=queries(), history=streams.histories(with_late=False))
def test_a_subquery_of_where_is_the_reference_s(query: Query, history: History) -> None:
    done, rejects = driven(query, history, SCHEMAS), Rejects()
    answer = stream_answer if query.emission == "stream" else windows_answer
    expected = answer(query, history, history.punctuation(query), final=True, rejects=rejects)
    assert canonical(plain(done.results, query)) == canonical(expected)
    failed = {(row["#s"], reason) for row, reason in rejects.rows.values()}
    assert {
        ((int(at), int(position)), reason)
        for rejected in done.rejected
        for at, position, reason in zip(rejected.at, rejected.position, rejected.reasons, strict=True)
    } == failed


@pytest.mark.parametrize(
    ("g", "ids", "truth"),
    [
        (1, (1, None), True),
        (1, (2, None), None),
        (1, (2,), False),
        (1, (), False),
        (None, (2,), None),
        (None, (), False),
        (None, (None,), None),
    ],
)
def test_in_has_sql_s_three_values(g: int | None, ids: tuple[int | None, ...], truth: bool | None) -> None:
    """By hand: NOT IN over a set with a NULL is never true, over an empty set it is true even for NULL."""
    row: dict[str, Any] = {"k": "a", "g": g, "x": 1, "y": 0.0, "at": 0}
    history = History(
        {"s": record([[row]], "at")}, {"names": tuple({"id": id_, "name": None} for id_ in ids)}
    )
    mark = SemijoinColumn(
        Windowed(some.SCAN, "s", Unbounded()),
        RIGHT,
        "in0.matched",
        None,
        some.call("=", some.column("g"), inner("id")),
    )
    column = Column("in0.matched", BOOLEAN)
    for test, expected in (
        (column, truth is True),
        (some.call("not", column), truth is False),
        (some.call("isnull", column), truth is None),
    ):
        query = Query(some._projected(Filter(mark, test), ["s.x"]), "stream")
        assert len(stream_answer(query, history, 0)) == expected
        assert len(plain(run(query, history, SCHEMAS), query)) == expected


def test_a_test_that_fails_rejects_the_row_also_where_another_condition_is_false() -> None:
    rows: list[dict[str, Any]] = [{"k": "a", "g": g, "x": g, "y": 0.0, "at": 0} for g in (-1, 0, 1)]
    history = History({"s": record([rows], "at")}, {"names": ({"id": 0, "name": "one"},)})
    fails = some.call("=", some.call("div", some.column("g"), inner("id"), kind=INT), Literal(1, INT))
    mark = SemijoinColumn(Windowed(some.SCAN, "s", Unbounded()), RIGHT, "in0.matched", fails, None)
    above = some.call(">", some.column("x"), Literal(0, some.BIGINT))
    test = Call("and", (Column("in0.matched", BOOLEAN), above), BOOLEAN)
    query = Query(some._projected(Filter(mark, test), ["s.x"]), "stream")
    rejects = Rejects()
    assert not stream_answer(query, history, 0, rejects=rejects)
    rejected = driven(query, history, SCHEMAS).rejected
    assert len(rejects.rows) == sum(len(part.at) for part in rejected) == 3
