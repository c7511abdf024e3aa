"""The laws of queries over several streams: unions and window joins, as the whole engine answers them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.laws.two_streams import check

UNIONS = {
    "tumbling": "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM a UNION ALL b [RANGE TUMBLING 4 SECONDS] GROUP BY k",
    "sliding": "SELECT COUNT(*) AS n, MAX(d) AS top FROM a UNION ALL b [RANGE 5 SECONDS SLIDE 2 SECONDS]",
    "landmark": "SELECT k, COUNT(*) AS n FROM a UNION ALL b [LANDMARK SLIDE 3 SECONDS] GROUP BY k",
    "rows": "SELECT COUNT(*) AS n, FIRST(v) AS f, LAST(v) AS l FROM a UNION ALL b [ROWS 4 SLIDE 3]",
    "parts": "SELECT k, MAX(v) AS top FROM a UNION ALL b [PARTITION BY k ROWS 2] GROUP BY k",
    "ends": "SELECT COUNT(*) AS n FROM a UNION ALL b [RANGE 3 SECONDS SLIDE 2 ROWS]",
    "sessions": "SELECT k, COUNT(*) AS n FROM a UNION ALL b GROUP BY session_window(at, '1 second'), k",
    "instants": "SELECT k, COUNT(*) AS n FROM a UNION ALL b [RANGE 2 SECONDS] GROUP BY k",
    "ever": "SELECT COUNT(*) AS n, SUM(v) AS s FROM a UNION ALL b",
    "passing": "SELECT k, v + 1 AS w FROM (a UNION ALL b) AS u WHERE u.v > 0",
    "named": "SELECT name, COUNT(*) AS n FROM a UNION ALL b u [RANGE 3 SECONDS SLIDE 3 SECONDS]"
    " JOIN names ON u.k = names.k GROUP BY name",
    "three": "SELECT v, COUNT(*) AS n FROM b UNION ALL a UNION ALL b [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY v",
}
X_TWO, Y_TWO = "a x [RANGE 2 SECONDS]", "b y [RANGE 4 SECONDS]"
SLIDING = "a x [RANGE 3 SECONDS SLIDE 2 SECONDS], b y [RANGE 5 SECONDS SLIDE 2 SECONDS]"
TUMBLING = "a x [RANGE TUMBLING 4 SECONDS] JOIN b y [RANGE TUMBLING 4 SECONDS] ON x.k = y.k"
JOINS = {
    "pairs of windows": f"SELECT x.k, x.v, y.v AS w, x.window_start AS s, y.window_end AS e FROM {TUMBLING}",
    "counts of windows": f"SELECT x.k, COUNT(*) AS n, SUM(x.v + y.v) AS s, MAX(y.d) AS t FROM {TUMBLING} GROUP BY x.k",
    "sliding pairs": f"SELECT x.v, y.v AS w, x.window_start AS s, y.window_start AS t FROM {SLIDING} WHERE x.k = y.k",
    "sliding counts": f"SELECT COUNT(*) AS n, SUM(y.v) AS s, x.window_id AS i FROM {SLIDING} WHERE x.k = y.k AND x.v < y.v",
    "gaps": "SELECT x.v, y.v AS w FROM a x [RANGE 1 SECOND SLIDE 3 SECONDS], b y [RANGE 2 SECONDS SLIDE 3 SECONDS]"
    " WHERE x.k = y.k",
    "no key": f"SELECT x.v, COUNT(*) AS n FROM {SLIDING} WHERE x.v > y.v GROUP BY x.v HAVING COUNT(*) > 1",
    "new pairs": f"SELECT ISTREAM(x.k, x.v, y.v AS w) FROM {X_TWO}, {Y_TWO} WHERE x.k = y.k",
    "gone pairs": f"SELECT DSTREAM(x.k) FROM {X_TWO}, {Y_TWO} WHERE x.k = y.k AND x.v <> y.v",
    "relation": f"SELECT x.k, x.v, y.v AS w FROM {X_TWO} JOIN {Y_TWO} ON x.k = y.k AND x.v + 1 > y.v WHERE y.d > 0",
    "now": "SELECT x.v, y.v AS w FROM a x [NOW], b y [NOW] WHERE x.k = y.k",
    "groups": f"SELECT x.k, COUNT(*) AS n, MIN(y.v) AS m FROM {X_TWO}, {Y_TWO} WHERE x.k = y.k GROUP BY x.k",
    "one row": f"SELECT COUNT(*) AS n, SUM(x.v) AS s FROM {X_TWO}, {Y_TWO} WHERE x.k = y.k AND x.v > 0",
    "half bounded": "SELECT x.k, COUNT(*) AS n FROM a x [RANGE 2 SECONDS], b y [RANGE UNBOUNDED] WHERE x.k = y.k GROUP BY x.k",
    "bare": "SELECT x.v, y.v AS w FROM a x, b y WHERE x.k = y.k AND x.v = 1",
    "between": "SELECT ISTREAM(x.v, y.v AS w) FROM a x [RANGE 3 SECONDS], b y [RANGE 3 SECONDS]"
    " WHERE x.k = y.k AND y.at BETWEEN x.at AND x.at + INTERVAL 3 SECONDS",
    "distinct": f"SELECT DISTINCT x.k FROM {SLIDING} WHERE x.k = y.k",
    "conditions read again": f"SELECT x.v > 0 AS up, COUNT(*) FILTER (WHERE y.v > 0) AS n, SUM(x.v + y.v) AS s FROM {TUMBLING}"
    " WHERE x.v > 0 AND y.v > 0 GROUP BY x.v > 0",
    "best": f"SELECT x.v, y.v AS w FROM {SLIDING} WHERE x.k = y.k ORDER BY w DESC LIMIT 2",
    "itself": "SELECT x.v, y.v AS w FROM a x [RANGE 3 SECONDS SLIDE 3 SECONDS], a y [RANGE 3 SECONDS SLIDE 3 SECONDS]"
    " WHERE x.k = y.k AND x.v < y.v",
    "with names": f"SELECT name, COUNT(*) AS n FROM {TUMBLING} JOIN names ON y.k = names.k GROUP BY name",
    "of a union": "SELECT x.k, y.v FROM (a UNION ALL b) AS x [RANGE 2 SECONDS SLIDE 2 SECONDS],"
    " b y [RANGE 2 SECONDS SLIDE 2 SECONDS] WHERE x.k = y.k AND x.v > 0",
    "three": "SELECT x.k, COUNT(*) AS n, SUM(z.v) AS s FROM a x [RANGE 4 SECONDS SLIDE 2 SECONDS],"
    " b y [RANGE 3 SECONDS SLIDE 2 SECONDS], a z [RANGE 2 SECONDS SLIDE 2 SECONDS]"
    " WHERE x.k = y.k AND z.k = y.k AND z.v >= x.v GROUP BY x.k",
    "three at instants": "SELECT x.v, y.v AS w, z.v AS u FROM a x [RANGE 2 SECONDS], b y [RANGE 3 SECONDS],"
    " a z [RANGE 1 SECOND] WHERE x.k = y.k AND z.k = x.k AND z.v + y.v > x.v",
    "since an instant": "SELECT x.v, y.v AS w FROM a x, b y WHERE x.k = y.k"
    " BEGIN TIMESTAMP '1970-01-01 00:00:02' END NOW",
    "until an instant": "SELECT x.v, COUNT(*) AS n FROM a x, b y [RANGE 2 SECONDS] WHERE x.k = y.k"
    " BEGIN NOW - INTERVAL 3 SECONDS END TIMESTAMP '1970-01-01 00:00:07' GROUP BY x.v",
    "until before now": "SELECT x.k, x.v, y.v AS w FROM a x, b y WHERE x.k = y.k AND x.v <> y.v"
    " BEGIN NOW - INTERVAL 4 SECONDS END NOW - INTERVAL 1 SECOND",
    "one row until before now": f"SELECT COUNT(*) AS n, SUM(x.v) AS s FROM {X_TWO}, {Y_TWO} WHERE x.k = y.k"
    " BEGIN NOW - INTERVAL 9 SECONDS END NOW - INTERVAL 1500 MILLISECONDS",
    "groups since an instant until before now": "SELECT x.k, COUNT(*) AS n, MIN(y.v) AS m FROM a x, b y [RANGE 4 SECONDS]"
    " WHERE x.k = y.k BEGIN TIMESTAMP '1970-01-01 00:00:01' END NOW - INTERVAL 2 SECONDS GROUP BY x.k",
    "bare since an instant until before now": "SELECT x.v, y.v AS w FROM a x, b y WHERE x.k = y.k"
    " BEGIN TIMESTAMP '1970-01-01 00:00:01' END NOW - INTERVAL 2 SECONDS",
    "new until before now": "SELECT ISTREAM(x.k, y.v AS w, z.v AS u) FROM a x, b y, a z WHERE x.k = y.k AND z.k = y.k"
    " BEGIN NOW - INTERVAL 3 SECONDS END NOW - INTERVAL 500 MILLISECONDS",
    "three in one row": "SELECT COUNT(*) AS n FROM a x [RANGE 2 SECONDS], b y [RANGE 3 SECONDS],"
    " a z [RANGE 1 SECOND] WHERE x.k = y.k AND z.v = y.v",
}


@examples(20)
@pytest.mark.parametrize("queries", [UNIONS, JOINS], ids=["unions", "joins"])
@given(data=st.data())
def test_the_answer_is_the_reference_s_for_any_cut_order_registration_restart_and_tasks(
    queries: dict[str, str], data: st.DataObject
) -> None:
    check(queries, data)
