"""`x IN (SELECT …)` over what changes, worked by hand: ties, NULLs, equal rows, rows emitted late and emitted again."""

from __future__ import annotations

from typing import Any

from headrace.language.binder.query_binder import bind_query
from headrace.reference.evaluate import changes, relation_at, stream_answer
from headrace.reference.history import History, record
from headrace.reference.relational import Rejects
from headrace.time import FOREVER, SECOND
from tests.language.catalog import Catalog
from tests.reference.building import row

SCRIPT = """
CREATE STREAM s (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at;
CREATE STREAM t (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at;
CREATE QUERY busy AS SELECT k, COUNT(*) AS n FROM t [RANGE 5 SECONDS] GROUP BY k;
"""
CATALOG = Catalog(SCRIPT)


def over(s: list[dict[str, Any]], t: list[dict[str, Any]]) -> History:
    return History({"s": record([s], "at", 0), "t": record([t], "at", 0)})


def emitted(text: str, past: History) -> list[tuple[Any, ...]]:
    """(second, values …) of a stream's rows."""
    answer = stream_answer(bind_query(text, CATALOG), past, FOREVER)
    return [(at / SECOND, *values.values()) for at, values in answer]


def held(text: str, past: History, second: float) -> list[tuple[Any, ...]]:
    relation = relation_at(bind_query(text, CATALOG), past, round(second * SECOND))
    return [tuple(values.values()) for values in relation]


def test_a_row_is_emitted_once_and_when_it_first_qualifies() -> None:
    text = "SELECT k, v FROM s WHERE k IN (SELECT k FROM t [RANGE UNBOUNDED])"
    past = over(
        [row("a", 1, 1), row("b", 2, 2), row("a", 3, 6)], [row("a", 0, 5), row("a", 0, 5), row("a", 9, 7)]
    )
    assert emitted(text, past) == [(5, "a", 1), (6, "a", 3)]


def test_rows_of_one_instant_meet_each_other() -> None:
    text = "SELECT v FROM s WHERE k IN (SELECT k FROM t [NOW])"
    past = over([row("a", 1, 5), row("a", 1, 5), row("a", 2, 6)], [row("a", 0, 5), row("a", 1, 5)])
    assert emitted(text, past) == [(5, 1), (5, 1)]


def test_a_null_meets_nothing_on_either_side() -> None:
    text = "SELECT v FROM s WHERE k IN (SELECT k FROM t [RANGE UNBOUNDED])"
    past = over([row(None, 1, 5), row("a", 2, 6)], [row(None, 0, 5), row("a", 0, 5)])
    assert emitted(text, past) == [(6, 2)]
    pairs = "SELECT v FROM s WHERE (k, v) IN (SELECT k, v FROM t [RANGE UNBOUNDED])"
    past = over([row("a", None, 5), row("a", 2, 6)], [row("a", None, 1), row("a", 2, 1), row(None, 2, 1)])
    assert emitted(pairs, past) == [(6, 2)]


def test_what_goes_and_comes_again_takes_the_rows_with_it() -> None:
    text = "SELECT v FROM s WHERE k IN (SELECT k FROM t [ROWS 1])"
    past = over([row("a", 1, 1), row("b", 2, 1)], [row("a", 0, 2), row("b", 0, 3), row("a", 0, 4)])
    assert emitted(text, past) == [(2, 1), (3, 2), (4, 1)]
    unbounded = text.replace("FROM s ", "FROM s [RANGE UNBOUNDED] ")
    changelog = [
        (at // SECOND, sign, values["v"])
        for at, sign, values in changes(bind_query(unbounded, CATALOG), past, FOREVER)
    ]
    assert changelog == [(2, 1, 1), (3, -1, 1), (3, 1, 2), (4, -1, 2), (4, 1, 1)]


def test_equal_rows_inside_count_once_until_the_last_of_them_goes() -> None:
    text = "SELECT v FROM s [RANGE UNBOUNDED] WHERE k IN (SELECT k FROM t [ROWS 2])"
    inside = [row("a", 2, 2), row("a", 3, 3), row("a", 4, 4), row("b", 5, 5), row("b", 6, 6)]
    past = over([row("a", 1, 1), row("a", 1, 1)], inside)
    assert held(text, past, 3) == [(1,), (1,)]
    assert held(text, past, 5) == [(1,), (1,)]
    assert held(text, past, 6) == []
    assert [(at // SECOND, sign) for at, sign, _ in changes(bind_query(text, CATALOG), past, FOREVER)] == [
        (2, 1),
        (2, 1),
        (6, -1),
        (6, -1),
    ]


def test_values_that_are_equal_as_what_they_are_compared_as_count_once() -> None:
    """'1' and '01' are one number: the row outside is there once."""
    text = "SELECT v FROM s WHERE v IN (SELECT k FROM t [RANGE UNBOUNDED])"
    past = over([row("a", 1, 3)], [row("1", 0, 1), row("01", 0, 2)])
    assert emitted(text, past) == [(3, 1)]


def test_a_group_qualifies_while_it_is_large_enough() -> None:
    text = "SELECT v FROM s [RANGE UNBOUNDED] WHERE k IN (SELECT k FROM t [RANGE 2 SECONDS] GROUP BY k HAVING COUNT(*) > 1)"
    past = over([row("a", 1, 1)], [row("a", 0, 3), row("b", 0, 3), row("a", 0, 4)])
    assert [held(text, past, second) for second in (3, 4, 5, 5.000001)] == [[], [(1,)], [(1,)], []]
    registered = "SELECT v FROM s [RANGE UNBOUNDED] WHERE k IN (SELECT k FROM busy WHERE n > 1)"
    assert [held(registered, past, second) for second in (3, 4, 8, 8.000001)] == [[], [(1,)], [(1,)], []]


def test_the_first_rows_are_the_first_of_all_also_of_equal_ones() -> None:
    text = "SELECT v FROM s [RANGE UNBOUNDED] WHERE k IN (SELECT k FROM t [ROWS 9] ORDER BY v LIMIT 2)"
    past = over([row("a", 1, 0), row("b", 2, 0)], [row("a", 1, 1), row("a", 2, 2), row("b", 3, 3)])
    assert held(text, past, 3) == [(1,)]


def test_two_conditions_hold_at_one_instant_or_not_at_all() -> None:
    text = "SELECT v FROM s WHERE k IN (SELECT k FROM t [NOW]) AND v IN (SELECT v FROM t [ROWS 1]) AND v > 1"
    past = over(
        [row("a", 1, 1), row("a", 2, 1), row("a", 3, 1)], [row("a", 2, 4), row("b", 3, 5), row("a", 1, 6)]
    )
    assert emitted(text, past) == [(4, 2)]


def test_a_source_is_its_row_place_by_place() -> None:
    text = "SELECT k, v FROM s WHERE s IN (SELECT * FROM t [ROWS 2])"
    past = over([row("a", 1, 1), row("b", 2, 2)], [row("b", 1, 1), row("b", 2, 2), row("a", 1, 3)])
    assert emitted(text, past) == [(2, "b", 2)]


def test_a_condition_inside_may_look_into_what_changes_too() -> None:
    text = "SELECT v FROM s WHERE k IN (SELECT k FROM t [ROWS 3] WHERE v IN (SELECT v FROM s [NOW]))"
    past = over([row("a", 7, 1), row("b", 8, 4)], [row("a", 8, 2), row("b", 7, 3)])
    assert emitted(text, past) == [(4, 7)]


def test_a_row_inside_that_is_no_value_is_left_out() -> None:
    rejects = Rejects()
    query = bind_query("SELECT v FROM s WHERE v IN (SELECT k FROM t [RANGE UNBOUNDED])", CATALOG)
    past = over([row("a", 1, 3)], [row("x", 0, 1), row("1", 0, 2)])
    assert [values["v"] for _, values in stream_answer(query, past, FOREVER, rejects=rejects)] == [1]
    assert len(rejects.rows) == 1
