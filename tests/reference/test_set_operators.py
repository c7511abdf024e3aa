"""UNION, EXCEPT and INTERSECT of relations, worked by hand: what is equal, when it comes, and when it goes."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.language.binder.query_binder import bind_query
from headrace.reference.derived import with_derived
from headrace.reference.evaluate import changes, invoke, relation_at, stream_answer
from headrace.reference.history import History, record
from headrace.time import FOREVER, SECOND
from tests.language.catalog import Catalog
from tests.reference.building import row

SCRIPT = """
CREATE STREAM s (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at;
CREATE STREAM t (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at;
CREATE QUERY busy AS SELECT k FROM s [ROWS 1];
"""
CATALOG = Catalog(SCRIPT)
PAST = History(
    {
        "s": record([[row("a", 1, 1), row("a", 1, 2), row(None, 2, 4)]], "at", 0),
        "t": record([[row("a", 9, 3), row(None, 2, 5), row("b", 3, 6)]], "at", 0),
    }
)


def held(text: str, second: float, past: History = PAST) -> list[tuple[Any, ...]]:
    relation = relation_at(bind_query(text, CATALOG), past, round(second * SECOND))
    return [tuple(values.values()) for values in relation]


def test_a_null_is_equal_to_a_null() -> None:
    assert held("SELECT k FROM s [RANGE UNBOUNDED] INTERSECT SELECT k FROM t [RANGE UNBOUNDED]", 5) == [
        (None,),
        ("a",),
    ]
    assert held("SELECT k, v FROM s [RANGE UNBOUNDED] EXCEPT SELECT k, v FROM t [RANGE UNBOUNDED]", 5) == [
        ("a", 1)
    ]
    assert held("SELECT k FROM s [RANGE UNBOUNDED] UNION SELECT k FROM t [RANGE UNBOUNDED]", 6) == [
        (None,),
        ("a",),
        ("b",),
    ]


@pytest.mark.parametrize(
    ("operator", "expected"), [("UNION", 1), ("UNION ALL", 2), ("INTERSECT", 1), ("EXCEPT", 0)]
)
def test_nan_is_equal_to_nan_and_zeros_of_both_signs_are_one(operator: str, expected: int) -> None:
    for one, other in (("'NaN'", "'NaN'"), ("'0.0'", "'-0.0'")):
        text = f"SELECT CAST({one} AS DOUBLE) AS x FROM s [ROWS 1] {operator} SELECT CAST({other} AS DOUBLE) FROM t [ROWS 1]"
        assert len(held(text, 5)) == expected


def test_a_row_comes_back_when_what_took_it_away_goes() -> None:
    text = "SELECT k FROM s [RANGE UNBOUNDED] EXCEPT SELECT k FROM t [ROWS 1]"
    changelog = changes(bind_query(text, CATALOG), PAST, FOREVER)
    assert [(at / SECOND, sign, values["k"]) for at, sign, values in changelog] == [
        (1, 1, "a"),
        (3, -1, "a"),
        (4, 1, None),
        (5, -1, None),
        (5, 1, "a"),
        (6, 1, None),
    ]


def test_an_aggregate_of_all_rows_begins_with_the_first_row_of_its_own_stream() -> None:
    text = "SELECT COUNT(*) AS n FROM s [NOW] UNION ALL SELECT -COUNT(*) FROM t [NOW]"
    assert held(text, 0.5) == []
    assert held(text, 2.5) == [(0,)]
    assert held(text, 3) == [(-1,), (0,)]


def test_now_is_that_of_all_streams() -> None:
    query = bind_query("SELECT k FROM s [NOW] UNION ALL SELECT k FROM t [NOW]", CATALOG)
    assert [values["k"] for values in invoke(query, PAST, 0)] == ["b"]


def test_order_and_limit_are_of_the_whole() -> None:
    text = "SELECT v FROM s [RANGE UNBOUNDED] UNION SELECT v FROM t [RANGE UNBOUNDED] ORDER BY v DESC LIMIT 2"
    assert held(text, 6) == [(9,), (3,)]
    assert held(text, 2) == [(1,)]
    assert held(f"SELECT SUM(v) AS n FROM ({text}) AS u", 6) == [(12,)]


def test_intersect_comes_first_and_others_from_left_to_right() -> None:
    one, two, three = (f"SELECT {value} AS x FROM s [ROWS 1]" for value in (1, 2, 3))
    assert held(f"{one} UNION ALL {two} INTERSECT {two}", 1) == [(1,), (2,)]
    assert held(f"({one} UNION ALL {two}) INTERSECT {two}", 1) == [(2,)]
    assert held(f"{one} EXCEPT {one} UNION ALL {three}", 1) == [(3,)]
    assert held(f"{one} EXCEPT ({one} UNION ALL {three})", 1) == []
    assert held(f"{one} UNION ALL {one} UNION {one} UNION ALL {one}", 1) == [(1,), (1,)]


def test_queries_by_name_are_members_like_others() -> None:
    assert held("SELECT * FROM busy EXCEPT SELECT k FROM t [RANGE UNBOUNDED]", 2) == [("a",)]
    assert held("SELECT * FROM busy EXCEPT SELECT k FROM t [RANGE UNBOUNDED]", 3) == []


def test_what_widens_is_compared_as_what_it_becomes() -> None:
    text = "SELECT DISTINCT v FROM s [RANGE UNBOUNDED] UNION ALL SELECT 0.5 FROM t [ROWS 1] EXCEPT SELECT 1 FROM s [NOW]"
    assert [str(value) for (value,) in held(text, 4)] == ["0.5", "2.0"]
    big = "SELECT CAST(9007199254740993 AS BIGINT) AS x FROM s [NOW] UNION SELECT 9007199254740992D FROM s [NOW]"
    assert held(big, 1) == [(9007199254740992.0,)]
    limited = "(SELECT 9007199254740992 + v AS x FROM s [RANGE UNBOUNDED] ORDER BY x LIMIT 2) UNION ALL SELECT 1D FROM t [NOW]"
    assert held(limited, 3) == [(1.0,), (9007199254740992.0,), (9007199254740992.0,)]


def test_a_stream_of_both_has_each_row_at_its_time() -> None:
    text = "ISTREAM(SELECT k FROM s [ROWS 1]) UNION ALL DSTREAM(SELECT k FROM t [RANGE 1 SECOND])"
    query = bind_query(text, CATALOG)
    answer = stream_answer(query, with_derived(query, PAST, final=True), FOREVER)
    assert [(at / SECOND, values["k"]) for at, values in answer] == [
        (1, "a"),
        (4, None),
        (4.000001, "a"),
        (6.000001, None),
        (7.000001, "b"),
    ]
