"""The laws of set operators: what SELECTs hold together, one without the other, and in common, at every instant."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.laws.two_streams import check

A, B = "SELECT k, v FROM a [ROWS 3]", "SELECT k, v FROM b [RANGE 2 SECONDS]"
COUNTS = "SELECT k, COUNT(*) AS n FROM a [RANGE 2 SECONDS] GROUP BY k"
RELATIONS = {
    "all": f"{A} UNION ALL {B}",
    "different": f"{A} UNION {B}",
    "without": f"{A} EXCEPT {B}",
    "common": f"{A} INTERSECT {B}",
    "without as often": f"{A} EXCEPT ALL {B}",
    "in common as often": f"{A} INTERSECT ALL {B}",
    "of three as often": f"{A} EXCEPT ALL {B} EXCEPT ALL SELECT k, v FROM a [NOW]",
    "in common of three as often": f"{A} INTERSECT ALL SELECT k, v FROM a [RANGE 3 SECONDS] INTERSECT ALL SELECT k, v FROM a [ROWS 4]",
    "one value as often": "SELECT 1 AS one FROM a [ROWS 4] EXCEPT ALL SELECT 1 FROM b [RANGE 2 SECONDS]",
    "doubles as often": "SELECT d FROM a [ROWS 5] INTERSECT ALL SELECT d FROM b [RANGE 4 SECONDS]",
    "wider as often": "SELECT v FROM a [ROWS 5] EXCEPT ALL SELECT d FROM b [ROWS 3]",
    "most as often": "SELECT v FROM a [ROWS 5] EXCEPT ALL SELECT v FROM b [ROWS 2] ORDER BY v DESC LIMIT 2",
    "other types": "SELECT v FROM a [ROWS 2] UNION SELECT d FROM b [ROWS 3]",
    "doubles": "SELECT d FROM a [ROWS 4] EXCEPT SELECT d FROM b [NOW]",
    "negative zero": "SELECT -d FROM a [ROWS 4] INTERSECT SELECT d FROM b [ROWS 3]",
    "itself": f"{A} UNION ALL {A}",
    "nothing": f"{A} EXCEPT {A}",
    "of three": f"{A} EXCEPT {B} EXCEPT SELECT k, v FROM a [NOW]",
    "in common of three": f"{A} INTERSECT {B} INTERSECT SELECT k, v FROM a [RANGE UNBOUNDED] WHERE v > 0",
    "first in common": f"SELECT k, v FROM a [NOW] UNION ALL {A} INTERSECT {B}",
    "left to right": f"{A} UNION ALL {B} EXCEPT SELECT k, 1 FROM a [RANGE 1 SECOND]",
    "in parentheses": f"{A} EXCEPT ({B} UNION ALL SELECT k, 1 FROM a [NOW])",
    "groups": f"{COUNTS} UNION ALL SELECT k, COUNT(*) FROM b [ROWS 3] GROUP BY k",
    "whole": "SELECT COUNT(*) AS n FROM a [ROWS 2] EXCEPT SELECT COUNT(*) FROM b [RANGE 1 SECOND]",
    "tops": "(SELECT k, v FROM a [ROWS 4] ORDER BY v DESC LIMIT 2) UNION (SELECT DISTINCT k, d FROM b [ROWS 4] ORDER BY k LIMIT 2)",
    "most": f"{A} UNION {B} ORDER BY v DESC, 1 LIMIT 2",
    "most in common": f"{A} INTERSECT {B} ORDER BY k LIMIT 1",
    "most of all": f"{A} UNION ALL {B} ORDER BY v DESC LIMIT 3",
    "ever": "SELECT k FROM a [RANGE UNBOUNDED] EXCEPT SELECT k FROM b [RANGE UNBOUNDED]",
    "of joins": "SELECT x.k, y.v FROM a x [ROWS 2], b y [RANGE 2 SECONDS] WHERE x.k = y.k EXCEPT SELECT k, n FROM"
    f" ({COUNTS}) t",
    "named": "SELECT name FROM a [ROWS 2] JOIN names ON a.k = names.k INTERSECT SELECT name FROM b [ROWS 3] JOIN names ON b.k = names.k",
    "fails": "SELECT CAST(k AS BIGINT) AS n, k FROM a [ROWS 3] EXCEPT SELECT 10 DIV v, k FROM b [RANGE 2 SECONDS]",
    "fails when ordered": "SELECT 10 DIV v AS n, k FROM a [ROWS 3] UNION ALL SELECT v, k FROM b [NOW] ORDER BY 10 DIV n LIMIT 2",
    "up to now": "SELECT k, v FROM a BEGIN NOW - INTERVAL 2 SECONDS END NOW EXCEPT SELECT k, v FROM b [NOW]",
}
AROUND = {
    "new": f"ISTREAM({A} UNION ALL {B})",
    "new and different": f"ISTREAM({A} UNION {B})",
    "gone": f"DSTREAM({A} EXCEPT {B})",
    "gone from both": f"DSTREAM({A} INTERSECT {B})",
    "counted": f"SELECT k, COUNT(*) AS n, SUM(v) AS s FROM ({A} UNION ALL {B}) AS t GROUP BY k",
    "one row": f"SELECT COUNT(*) AS n FROM ({A} EXCEPT {B}) AS t",
    "joined": f"SELECT t.v, b.v AS w FROM ({A} UNION {B}) AS t, b [ROWS 1] WHERE t.k = b.k",
    "looked into": f"SELECT k, v FROM a WHERE (k, v) IN ({B} EXCEPT SELECT k, v FROM a [ROWS 1])",
    "either": "SELECT v FROM a [ROWS 3] WHERE k IN ((SELECT k FROM b [NOW]) UNION ALL SELECT k FROM b [ROWS 3] WHERE v > 0)",
    "first of either": "SELECT v FROM a [ROWS 3] WHERE v IN (SELECT v FROM a [NOW] UNION SELECT d FROM b [ROWS 2] ORDER BY v LIMIT 1)",
    "new as often": f"ISTREAM({A} EXCEPT ALL {B})",
    "gone as often": f"DSTREAM({A} INTERSECT ALL {B})",
    "counted as often": f"SELECT k, COUNT(*) AS n FROM ({A} EXCEPT ALL {B}) AS t GROUP BY k",
    "joined as often": f"SELECT t.v, b.v AS w FROM ({A} EXCEPT ALL {B}) AS t, b [ROWS 1] WHERE t.k = b.k",
    "two at once": f"SELECT t.k, u.v FROM ({A} UNION {B}) t, ({A} INTERSECT {B}) u WHERE t.k = u.k",
    "within": f"SELECT k FROM ({A} EXCEPT {B}) t UNION ALL SELECT k FROM ({A} INTERSECT {B}) u",
}
STREAMS = {
    "rows": "SELECT k, v FROM a UNION ALL SELECT k, v + 1 FROM b WHERE v > 0",
    "wider": "SELECT v FROM a UNION ALL SELECT d FROM b",
    "windows": "SELECT k, COUNT(*) AS n FROM a [RANGE TUMBLING 2 SECONDS] GROUP BY k UNION ALL SELECT k, v FROM b",
    "both windows": "SELECT COUNT(*) AS n FROM a [RANGE 4 SECONDS SLIDE 1 SECOND] UNION ALL SELECT MAX(d) FROM b [RANGE TUMBLING 2 SECONDS]",
    "emitted": f"ISTREAM({A}) UNION ALL DSTREAM({B})",
    "wider when told": "ISTREAM(SELECT v FROM a [ROWS 2]) UNION ALL DSTREAM(SELECT d FROM b [ROWS 1])",
    "windowed": "SELECT k, COUNT(*) AS n FROM (SELECT k FROM a UNION ALL SELECT k FROM b) t [RANGE 2 SECONDS] GROUP BY k",
    "of unions": f"ISTREAM({A} UNION {B}) UNION ALL (SELECT k, v FROM a UNION ALL SELECT k, v FROM b)",
    "relations of streams": "SELECT k FROM (SELECT k FROM a UNION ALL SELECT k FROM b) t [RANGE 2 SECONDS] EXCEPT"
    " SELECT k FROM (SELECT k FROM b UNION ALL SELECT k FROM b WHERE v > 0) t [NOW]",
}  # fmt: skip

HELD = (A, B, COUNTS, "SELECT DISTINCT k, d FROM b [ROWS 2]", "SELECT k, v FROM a [NOW] WHERE v > 0", "SELECT k, v FROM b [RANGE UNBOUNDED]",
    "(SELECT k, v FROM a [ROWS 4] ORDER BY v DESC, k LIMIT 2)", "SELECT NULL AS k, COUNT(*) AS n FROM b [RANGE 1 SECOND]",
    "SELECT x.k, y.v FROM a x [ROWS 2], b y [RANGE 2 SECONDS] WHERE x.k = y.k")  # fmt: skip


def beside(members: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(("UNION ALL", "UNION", "EXCEPT", "INTERSECT", "EXCEPT ALL", "INTERSECT ALL"))
    return st.builds("({} {} {})".format, members, operators, members)


@st.composite
def several(draw: st.DrawFn) -> str:
    text = draw(beside(st.recursive(st.sampled_from(HELD), beside, max_leaves=4)))
    text += draw(st.sampled_from(("", "", " ORDER BY 2, 1 DESC LIMIT 3")))
    return draw(st.sampled_from((text, f"ISTREAM({text})", f"SELECT COUNT(*) AS n FROM ({text}) AS t")))


@examples(20)
@given(data=st.data())
def test_whatever_stands_beside_each_other(data: st.DataObject) -> None:
    check({f"drawn {number}": data.draw(several()) for number in range(3)}, data)


@examples(30)
@given(data=st.data())
def test_what_several_hold_together_is_what_the_reference_puts_together(data: st.DataObject) -> None:
    check(RELATIONS, data)


@examples(30)
@given(data=st.data())
def test_set_operators_are_read_as_any_relation_is(data: st.DataObject) -> None:
    check(AROUND, data)


@examples(20)
@given(data=st.data())
def test_streams_of_several_selects_are_one_stream(data: st.DataObject) -> None:
    check(STREAMS, data)
