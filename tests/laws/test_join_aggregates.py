"""The laws of aggregates over joins of sliding windows that are made of partial aggregates of the sides, as the whole engine answers them.

Two queries of one graph would each aggregate its streams by itself, so pairs are made for none of these.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.joins.join_aggregate import JoinAggregate
from tests.examples import examples
from tests.laws.two_streams import check, opened, script

TUMBLING = "[RANGE TUMBLING 4 SECONDS]"
TWO = f"a x {TUMBLING} JOIN b y {TUMBLING} ON x.k = y.k"
LONG, SHORT = "[RANGE 5 SECONDS SLIDE 2 SECONDS]", "[RANGE 3 SECONDS SLIDE 2 SECONDS]"
SLIDING = f"a x {LONG} JOIN b y {SHORT} ON x.k = y.k"
GAPS = "[RANGE 1 SECONDS SLIDE 3 SECONDS]"
OF_SIDES = {
    "count": f"SELECT COUNT(*) AS n FROM {TWO}",
    "all kinds": f"SELECT x.k, COUNT(*) AS n, COUNT(x.v) AS c, SUM(x.v) AS s, SUM(y.d) AS t, AVG(y.v) AS m, MIN(x.d) AS least,"
    f" MAX(y.v) AS most FROM {TWO} GROUP BY x.k",
    "of all keys": f"SELECT x.window_end AS e, SUM(x.v) AS s, AVG(x.v) AS m, COUNT(y.d) AS c, MIN(y.k) AS k FROM {TWO}",
    "sliding": f"SELECT y.k, COUNT(*) AS n, SUM(x.v) AS s, SUM(y.v) AS t FROM {SLIDING} GROUP BY y.k",
    "sliding bounds": f"SELECT x.window_start AS b, y.window_start AS c, y.window_end AS e, MAX(x.d) AS m FROM {SLIDING}",
    "gaps": f"SELECT x.k, COUNT(*) AS n FROM a x {GAPS} JOIN b y {LONG.replace('2 S', '3 S')} ON x.k = y.k GROUP BY x.k",
    "by a column": f"SELECT x.v, COUNT(*) AS n, SUM(y.v) AS s FROM {TWO} GROUP BY x.v",
    "by both columns": f"SELECT x.v, y.v AS w, COUNT(*) AS n, MAX(x.d) AS m FROM {SLIDING} GROUP BY x.v, y.v",
    "by key and column": f"SELECT y.k, x.v > 0 AS up, COUNT(*) AS n, MIN(y.d) AS m FROM {TWO} GROUP BY y.k, x.v > 0",
    "by a constant": f"SELECT 7 AS seven, COUNT(*) AS n, SUM(2) AS twos FROM {TWO} GROUP BY seven",
    "conditions": f"SELECT x.k, COUNT(*) AS n, COUNT(*) FILTER (WHERE y.v > 0) AS p, SUM(x.v) FILTER (WHERE x.d >= 0) AS s"
    f" FROM {TWO} WHERE x.v <> 2 AND y.v > -1 GROUP BY x.k HAVING COUNT(*) > 1",
    "spread": f"SELECT x.k, STDDEV(x.v) AS s, VAR_POP(y.v) AS v FROM {TWO} GROUP BY x.k",
    "the most": f"SELECT x.k, COUNT(*) AS n FROM {TWO} GROUP BY x.k ORDER BY n DESC LIMIT 1",
    "with itself": f"SELECT x.k, COUNT(*) AS n, SUM(y.v) AS s FROM a x {LONG} JOIN a y {SHORT} ON x.k = y.k GROUP BY x.k",
    "two keys": f"SELECT x.k, x.v, COUNT(*) AS n FROM a x {TUMBLING} JOIN b y {TUMBLING} ON x.k = y.k AND x.v = y.v"
    " GROUP BY x.k, x.v",
    "one of two keys": f"SELECT y.v, COUNT(*) AS n, SUM(x.d) AS s FROM a x {LONG} JOIN b y {LONG} ON x.k = y.k AND x.v = y.v"
    " GROUP BY y.v",
    "not a number": f"SELECT x.d, COUNT(*) AS n FROM a x {SHORT} JOIN b y {SHORT} ON x.d = y.d GROUP BY x.d",
    "three": f"SELECT z.k, COUNT(*) AS n, SUM(x.v) AS s, AVG(y.v) AS m, MAX(z.d) AS t FROM {SLIDING}"
    f" JOIN a z {LONG} ON z.k = y.k GROUP BY z.k",
    "four": f"SELECT COUNT(*) AS n, SUM(u.v) AS s, MIN(z.v) AS m FROM {TWO} JOIN a z {TUMBLING} ON z.k = x.k"
    f" JOIN b u {TUMBLING} ON u.k = y.k",
    "shorter numbers": f"SELECT x.k, SUM(CAST(x.v AS INT)) AS s, AVG(CAST(y.v AS TINYINT)) AS m FROM {SLIDING} GROUP BY x.k",
    "of a SELECT": f"SELECT x.k, COUNT(*) AS n, SUM(x.v) AS s FROM (SELECT k, v FROM a WHERE v > 0) x {SHORT}"
    f" JOIN b y {SHORT} ON x.k = y.k GROUP BY x.k",
    "products": f"SELECT x.k, COUNT(*) AS n, SUM(x.v * y.v) AS s, AVG(y.v * x.v) AS m, COUNT(x.v * y.d) AS c FROM {TWO} GROUP BY x.k",
    "products of all keys": f"SELECT SUM(x.d * y.v) AS s, COUNT(*) AS n, SUM(y.v) AS t, MIN(x.k) AS k FROM {SLIDING}",
    "products of doubles": f"SELECT y.v, SUM(x.d * y.d) AS s, AVG((x.d + 1.0D) * (y.v * 2)) AS m FROM {SLIDING} GROUP BY y.v",
    "products that fail": f"SELECT x.k, COUNT(*) AS n, SUM((x.v * {2 * 10**9}) * (y.v * {3 * 10**9 // 2})) AS s, MIN(x.d) AS m,"
    f" MAX(y.k) AS t FROM {SLIDING} GROUP BY x.k",
    "shorter products": f"SELECT COUNT(*) AS n, SUM(CAST(x.v AS TINYINT) * CAST(y.v * 50 AS TINYINT)) AS s FROM {TWO}",
    "products among three": f"SELECT z.v AS w, SUM(x.v * z.v) AS s, SUM(y.v * (x.v * {2**62})) AS t, COUNT(*) AS n FROM {SLIDING}"
    f" JOIN a z {LONG} ON z.k = y.k GROUP BY z.v",
    "sums": f"SELECT x.k, COUNT(*) AS n, SUM(x.v + y.v) AS s, AVG(y.v - x.v) AS m, COUNT(x.v - y.v) AS c FROM {TWO} GROUP BY x.k",
    "sums that fail": f"SELECT x.k, COUNT(*) AS n, SUM(x.v * {4 * 10**18} - y.v * {4 * 10**18}) AS s, MIN(x.d) AS m, SUM(x.v * y.v) AS t"
    f" FROM {SLIDING} GROUP BY x.k",
    "shorter sums": f"SELECT COUNT(*) AS n, SUM(CAST(x.v AS TINYINT) + CAST(y.v * 50 AS TINYINT)) AS s FROM {TWO}",
    "sums among three": f"SELECT z.v AS w, SUM(x.v + z.v) AS s, SUM(y.v - x.v) AS t, COUNT(*) AS n FROM {SLIDING}"
    f" JOIN a z {LONG} ON z.k = y.k GROUP BY z.v",
    "in a SELECT": f"SELECT MAX(n) AS m FROM (SELECT x.k, COUNT(*) AS n FROM {TWO} GROUP BY x.k) [RANGE TUMBLING 8 SECONDS]",
}


@pytest.mark.parametrize("name", sorted(OF_SIDES))
def test_pairs_are_made_for_none(name: str, tmp_path: Path) -> None:
    with opened(str(tmp_path), 1) as hub:
        hub.execute(script(str(tmp_path), (0, 0)))
        hub.register(OF_SIDES[name], "q")
        operators = hub.loop.engine.plan.operators.values()
        assert sum(isinstance(operator, JoinAggregate) for operator in operators) == 1
        assert not any(operator.makes_pairs for operator in operators)


@examples(80)
@given(data=st.data())
def test_aggregates_of_sides_answer_as_the_reference(data: st.DataObject) -> None:
    check(OF_SIDES, data)
