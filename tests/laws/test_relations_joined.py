"""The laws of relations in FROM: windows of rows joined with others, SELECTs that hold a relation, and such queries by name."""

from __future__ import annotations

import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.time import SECOND
from tests.examples import examples
from tests.laws.two_streams import Row, check, expected, opened, script, table
from tests.runtime.rig import answer

ROWS_OF_EACH = "a x [ROWS 2], b y [ROWS 3]"
COUNTS = "(SELECT k, COUNT(*) AS n, MAX(v) AS m FROM a [RANGE 2 SECONDS] GROUP BY k) AS c"
WINDOWS = "(SELECT k, COUNT(*) AS n FROM a [RANGE TUMBLING 2 SECONDS] GROUP BY k)"
JOINS = {
    "pairs": f"SELECT x.k, x.v, y.v AS w FROM {ROWS_OF_EACH} WHERE x.k = y.k",
    "new pairs": f"SELECT ISTREAM(x.k, x.v, y.v AS w) FROM {ROWS_OF_EACH} WHERE x.k = y.k AND x.v > 0",
    "gone pairs": f"SELECT DSTREAM(x.k) FROM {ROWS_OF_EACH} WHERE x.k = y.k AND x.v <> y.v",
    "groups": f"SELECT x.k, COUNT(*) AS n, MIN(y.v) AS m, SUM(x.v) AS s FROM {ROWS_OF_EACH} WHERE x.k = y.k GROUP BY x.k",
    "one row": f"SELECT COUNT(*) AS n, SUM(x.v) AS s FROM {ROWS_OF_EACH} WHERE x.k = y.k AND x.v > 0",
    "distinct": f"SELECT DISTINCT x.k FROM {ROWS_OF_EACH} WHERE x.v = y.v",
    "best": f"SELECT x.v, y.v AS w FROM {ROWS_OF_EACH} WHERE x.k = y.k ORDER BY w DESC, x.v LIMIT 2",
    "rows and time": "SELECT x.k, y.v FROM a x [ROWS 2], b y [RANGE 2 SECONDS] WHERE x.k = y.k AND x.v < 2",
    "rows and now": "SELECT ISTREAM(x.v, y.v AS w) FROM a x [ROWS 3], b y [NOW] WHERE x.k = y.k",
    "rows and ever": "SELECT ISTREAM(x.v, y.v AS w) FROM a x [ROWS 1], b y [ROWS UNBOUNDED] WHERE x.k = y.k",
    "parts": "SELECT x.k, x.v, y.v AS w FROM a x [PARTITION BY k ROWS 1], b y [PARTITION BY v ROWS 1] WHERE x.v = y.v",
    "no key": f"SELECT x.v, y.v AS w FROM {ROWS_OF_EACH} WHERE x.v < y.v",
    "all with all": f"SELECT COUNT(*) AS n FROM {ROWS_OF_EACH}",
    "itself": "SELECT x.v, y.v AS w FROM a x [ROWS 2], a y [RANGE 3 SECONDS] WHERE x.k = y.k AND x.v < y.v",
    "named": f"SELECT name, COUNT(*) AS n FROM {ROWS_OF_EACH} JOIN names ON y.k = names.k WHERE x.v = y.v GROUP BY name",
    "three": "SELECT x.v, y.v AS w, z.v AS u FROM a x [ROWS 2], b y [RANGE 3 SECONDS], a z [ROWS 1]"
    " WHERE x.k = y.k AND z.k = x.k AND z.v + y.v > x.v",
    "three in one row": "SELECT COUNT(*) AS n, MAX(z.v) AS m FROM a x [RANGE 2 SECONDS], b y [ROWS 2], a z [ROWS 3]"
    " WHERE x.k = y.k AND z.v = y.v",
    "of a union": "SELECT x.k, y.v FROM (a UNION ALL b) AS x [ROWS 2], b y [ROWS 2] WHERE x.k = y.k",
}
DERIVED = {
    "again": "SELECT k, v + 1 AS w FROM (SELECT k, v FROM a [ROWS 2]) AS t WHERE v > 0",
    "told": "SELECT ISTREAM(k, n) FROM (SELECT k, COUNT(*) AS n FROM a [ROWS 3] GROUP BY k) AS t",
    "count of counts": f"SELECT n, COUNT(*) AS groups FROM {COUNTS} GROUP BY n",
    "most": f"SELECT MAX(n) AS top, SUM(m) AS s, COUNT(*) AS c FROM {COUNTS}",
    "different": f"SELECT DISTINCT n FROM {COUNTS}",
    "gone": f"SELECT DSTREAM(k, n) FROM {COUNTS} WHERE n > 1",
    "top": f"SELECT k, n FROM {COUNTS} ORDER BY n DESC LIMIT 1",
    "joined": f"SELECT b.v, c.n FROM b [ROWS 2], {COUNTS} WHERE b.k = c.k",
    "bare and joined": f"SELECT ISTREAM(b.v, c.n) FROM b, {COUNTS} WHERE b.k = c.k",
    "two": f"SELECT c.k, c.n, d.v FROM {COUNTS} JOIN (SELECT DISTINCT k, v FROM b [ROWS 3]) AS d ON c.k = d.k",
    "whole": "SELECT c.n, d.n AS m FROM (SELECT COUNT(*) AS n FROM a [ROWS 2]) c,"
    " (SELECT COUNT(*) AS n FROM b [RANGE 1 SECOND]) d WHERE c.n >= d.n",
    "deep": "SELECT COUNT(*) AS n FROM (SELECT DISTINCT k FROM (SELECT k, COUNT(*) AS n FROM a [ROWS 4] GROUP BY k) t"
    " WHERE n > 1) u",
    "of a join": "SELECT k, SUM(w) AS s FROM (SELECT x.k, y.v AS w FROM a x [ROWS 2], b y [RANGE 2 SECONDS]"
    " WHERE x.k = y.k) AS p GROUP BY k",
    "with names": f"SELECT c.n, name FROM {COUNTS} LEFT JOIN names ON c.k = names.k",
    # Rows of one instant have no order in a query's results: two of a partition by all columns are the same row.
    "of a stream": "SELECT t.w, b.v FROM (SELECT k, v * 2 AS w FROM a WHERE v > 0) AS t [PARTITION BY k, w ROWS 2], b [ROWS 1]"
    " WHERE t.k = b.k",
    "of windows": f"SELECT t.n, b.v FROM {WINDOWS} AS t [RANGE 4 SECONDS], b [RANGE 4 SECONDS] WHERE t.k = b.k",
    "of windows of windows": f"SELECT t.n, b.v FROM (SELECT k, SUM(n) AS n FROM {WINDOWS} AS w [RANGE TUMBLING 4 SECONDS]"
    " GROUP BY k) AS t [RANGE 4 SECONDS], b [RANGE 4 SECONDS] WHERE t.k = b.k",
    "of a join of windows": f"SELECT n, COUNT(*) AS c FROM (SELECT t.n, b.v FROM {WINDOWS} AS t [RANGE 4 SECONDS],"
    " b [RANGE 4 SECONDS] WHERE t.k = b.k) AS p GROUP BY n",
}

OFTEN = "(SELECT k FROM b [RANGE 3 SECONDS] GROUP BY k HAVING COUNT(*) > 1)"
SEMIJOINS = {
    "streamed": "SELECT k, v FROM a WHERE k IN (SELECT k FROM b [ROWS 2])",
    "everything": "SELECT * FROM a WHERE v > 0 AND k IN (SELECT k FROM b [NOW] WHERE v > 0)",
    "often": f"SELECT v FROM a WHERE k IN {OFTEN}",
    "two of them": f"SELECT k, v FROM a WHERE k IN (SELECT k FROM b [ROWS 3]) AND k IN {OFTEN}",
    "of itself": "SELECT k, v FROM a WHERE k IN (SELECT k FROM a [RANGE 2 SECONDS] GROUP BY k HAVING COUNT(*) > 1)",
    "pairs of values": "SELECT v FROM a [RANGE 4 SECONDS] WHERE (k, v) IN (SELECT k, v FROM b [ROWS 3])",
    "whole rows": "SELECT k, v FROM a [RANGE UNBOUNDED] WHERE a IN (SELECT * FROM b [ROWS 4])",
    "other types": "SELECT v FROM a WHERE d IN (SELECT v FROM b [ROWS 2]) AND v IN (SELECT d FROM b [RANGE 2 SECONDS])",
    "grouped": f"SELECT k, COUNT(*) AS n, SUM(v) AS s FROM a [ROWS 4] WHERE k IN {OFTEN} GROUP BY k",
    "one number": "SELECT COUNT(*) AS n FROM a [RANGE 2 SECONDS] WHERE v IN (SELECT v FROM b [ROWS 1])",
    "gone again": "SELECT DSTREAM(k, v) FROM a [ROWS 3] WHERE k IN (SELECT k FROM b [ROWS 1])",
    "first of all": "SELECT k, v FROM a [ROWS 3] WHERE k IN (SELECT k FROM b [ROWS 4] ORDER BY v DESC, k LIMIT 2)",
    "most of all": "SELECT v FROM a [ROWS 5] WHERE k IN (SELECT k FROM b GROUP BY k ORDER BY COUNT(*) DESC, k LIMIT 1)",
    "beside a join": f"SELECT x.v, y.v AS w FROM {ROWS_OF_EACH} WHERE x.k = y.k AND x.v IN (SELECT v FROM a [RANGE 1 SECOND])",
    "with a relation": "SELECT name, v FROM a [ROWS 3] JOIN names ON a.k = names.k WHERE a.v IN (SELECT v FROM b [ROWS 2])",
    "column of a relation": "SELECT name FROM a [ROWS 3] JOIN names ON a.k = names.k WHERE name IN (SELECT CASE k WHEN 'a' THEN 'one' END FROM b [ROWS 1])",
    "listed too": "SELECT v FROM a WHERE k IN (SELECT k FROM b [ROWS 2]) AND (k NOT IN (SELECT k FROM names WHERE name = 'two') OR v = 1)",
    "in what is in": "SELECT v FROM a WHERE k IN (SELECT k FROM b [ROWS 3] WHERE v IN (SELECT v FROM a [ROWS 2]))",
    "of a derived one": "SELECT v FROM a [ROWS 2] WHERE v IN (SELECT n FROM (SELECT k, COUNT(*) AS n FROM b [ROWS 4] GROUP BY k) AS c)",
    "derived": "SELECT k, COUNT(*) AS n FROM (SELECT k, v FROM a [ROWS 4] WHERE k IN (SELECT k FROM b [ROWS 2])) AS t GROUP BY k",
    "up to now": "SELECT k, v FROM a WHERE k IN (SELECT k FROM b [ROWS 2]) BEGIN NOW - INTERVAL 2 SECONDS END NOW",
    "of windows": f"SELECT v FROM b [RANGE 4 SECONDS] WHERE k IN (SELECT k FROM {WINDOWS} AS t [RANGE 4 SECONDS])",
    "a constant": "SELECT k, v FROM a [ROWS 2] WHERE 1 IN (SELECT v FROM b [NOW])",
}  # fmt: skip

OVER_WINDOWS = (
    DERIVED["of windows"],
    DERIVED["of windows of windows"],
    DERIVED["of a join of windows"],
    SEMIJOINS["of windows"],
)
"""Relations of which the NOW is that of results of windows."""


@examples(30)
@given(data=st.data())
def test_windows_of_rows_are_joined_as_the_reference_joins_them(data: st.DataObject) -> None:
    check(JOINS, data)


@examples(30)
@given(data=st.data())
def test_what_a_select_in_from_holds_is_read_as_the_reference_reads_it(data: st.DataObject) -> None:
    check(DERIVED, data)


@examples(30)
@given(data=st.data())
def test_what_is_in_another_relation_is_what_the_reference_finds_in_it(data: st.DataObject) -> None:
    check(SEMIJOINS, data)


@pytest.mark.parametrize("tasks", [1, 3])
def test_windows_of_rows_over_results_of_one_instant_hold_any_of_them(tasks: int) -> None:
    def row(k: str | None, second: int = 0) -> dict[str, object]:
        return {"k": k, "v": 1, "d": None, "at": second * SECOND}

    with tempfile.TemporaryDirectory() as folder, opened(folder, tasks) as hub:
        hub.execute(script(folder, (0, 0)))
        query = hub.register("SELECT k FROM (SELECT k, v FROM a WHERE v > 0) AS t [ROWS 2]", "q")
        for epoch in ([row("b"), row(None)], [row(None)]):
            hub.push("a", table(epoch))
            hub.catch_up()
        held = sorted(str(answer["k"]) for answer in query.invoke().to_pylist())
        assert held in (["None", "None"], ["None", "b"])
        hub.push("a", table([row("c", 1), row("d", 2)]))
        hub.catch_up()
        assert [answer["k"] for answer in query.invoke().to_pylist()] == ["c", "d"]  # an order there is


@pytest.mark.parametrize("at_the_end", ["live", "paused", "not there"])
@pytest.mark.parametrize("text", OVER_WINDOWS)
def test_relations_over_the_last_windows_hold_them_when_one_stream_ends_far_behind_the_other(
    text: str, at_the_end: str
) -> None:
    """Results of the last window are later than all rows of `b`, whose slack has held the join back until the end."""
    rows: list[Row] = [{"k": "c", "v": 1, "d": None, "at": 8 * SECOND}]
    slacks = 0, 3 * SECOND
    with tempfile.TemporaryDirectory() as folder, opened(folder, 3) as hub:
        hub.execute(script(folder, slacks))
        if at_the_end != "not there":
            hub.register(text, "q")
        for name in "ab":
            hub.push(name, table(rows))
        hub.catch_up()
        if at_the_end == "paused":
            hub.execute("PAUSE QUERY q")
        hub.finish(seal=True)
        if at_the_end == "paused":
            hub.execute("RESUME QUERY q")
        if at_the_end == "not there":
            hub.register(text, "q")
        hub.catch_up()
        _, query = hub.operator_and_query("q")
        answered = answer(hub, "q", {})
        assert answered
        assert answered == expected(query, [(rows, rows)], slacks)
