"""The laws of outer joins, of EXISTS and NOT IN, of SELECTs as values, of RSTREAM over [NOW] joined, and of interval joins."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.laws.two_streams import check

RANGES = "a x [RANGE 2 SECONDS] {} JOIN b y [RANGE 3 SECONDS] ON x.k = y.k"
ROWS = "a x [ROWS 2] {} JOIN b y [ROWS 3] ON x.k = y.k"
COUNTS = "(SELECT k, COUNT(*) AS n FROM b [RANGE 2 SECONDS] GROUP BY k) AS c"
OUTER = {
    "left": f"SELECT x.k, x.v, y.v AS w FROM {RANGES.format('LEFT')}",
    "right": f"SELECT x.k, y.k AS l, y.v AS w FROM {RANGES.format('RIGHT')}",
    "full": f"SELECT x.k, x.v, y.k AS l, y.v AS w FROM {RANGES.format('FULL')}",
    "left of rows": f"SELECT x.k, x.v, y.v AS w FROM {ROWS.format('LEFT')}",
    "full of rows": f"SELECT x.v, y.v AS w FROM {ROWS.format('FULL OUTER')}",
    "on more": f"SELECT x.v, y.v AS w FROM {RANGES.format('LEFT')} AND x.v > 0 AND y.v > 0 AND x.v <= y.v",
    "right on more": f"SELECT x.v, y.v AS w FROM {RANGES.format('RIGHT')} AND x.v > 0 AND y.v > 0 AND x.v <= y.v",
    "full on more": f"SELECT x.v, y.v AS w FROM {RANGES.format('FULL')} AND x.v > 0 AND y.v > 0 AND x.v <= y.v",
    "no key": "SELECT x.v, y.v AS w FROM a x [ROWS 2] FULL JOIN b y [RANGE 2 SECONDS] ON x.v < y.v",
    "all with all": "SELECT x.v, y.v AS w FROM a x [ROWS 1] FULL JOIN b y [NOW] ON TRUE",
    "without a pair": f"SELECT x.v FROM {RANGES.format('LEFT')} WHERE y.at IS NULL AND x.v > 0",
    "with a pair": f"SELECT x.v, y.v AS w FROM {RANGES.format('LEFT')} WHERE y.v = x.v",
    "full and a condition": f"SELECT x.v, y.v AS w FROM {RANGES.format('FULL')} WHERE x.v > 0",
    "right and a condition": f"SELECT x.v, y.v AS w FROM {ROWS.format('RIGHT')} WHERE y.v > 0 AND x.v IS NULL",
    "new": f"SELECT ISTREAM(x.k, x.v, y.v AS w) FROM {RANGES.format('LEFT')}",
    "gone": f"SELECT DSTREAM(x.k, x.v, y.v AS w) FROM {RANGES.format('FULL')}",
    "groups": f"SELECT x.k, COUNT(*) AS n, COUNT(y.v) AS m, SUM(y.v) AS s FROM {RANGES.format('LEFT')} GROUP BY x.k",
    "one row": f"SELECT COUNT(*) AS n, COUNT(x.v) AS m FROM {RANGES.format('FULL')}",
    "one row of the left": f"SELECT COUNT(*) AS n FROM {ROWS.format('LEFT')} WHERE x.v > 0",
    "different": f"SELECT DISTINCT x.v, y.v AS w FROM {ROWS.format('LEFT')}",
    "best": f"SELECT x.v, y.v AS w FROM {ROWS.format('FULL')} ORDER BY w DESC, x.v LIMIT 2",
    "bare": "SELECT x.v, y.v AS w FROM a x LEFT JOIN b y ON x.k = y.k AND x.v = y.v",
    "bare and range": "SELECT x.v, y.v AS w FROM a x [RANGE 1 SECOND] LEFT JOIN b y ON x.k = y.k",
    "of a relation": f"SELECT a.k, a.v, c.n FROM a [ROWS 3] LEFT JOIN {COUNTS} ON a.k = c.k",
    "of relations": f"SELECT d.k, c.k AS l, c.n, d.v FROM (SELECT k, v FROM a [ROWS 3]) AS d FULL JOIN {COUNTS} ON c.k = d.k AND c.n = d.v",
    "itself": "SELECT x.v, y.v AS w FROM a x [ROWS 2] LEFT JOIN a y [RANGE 2 SECONDS] ON x.k = y.k AND y.v > x.v",
    "three": f"SELECT x.v, y.v AS w, z.v AS u FROM {ROWS.format('LEFT')} LEFT JOIN a z [RANGE 1 SECOND] ON z.v = y.v",
    "three kinds": f"SELECT x.v, y.v AS w, z.v AS u FROM {ROWS.format('FULL')} JOIN a z [ROWS 2] ON z.k = y.k RIGHT JOIN b u [ROWS 2] ON u.v = z.v",
    "a comma": "SELECT x.v, y.v AS w, z.v AS u FROM a x [ROWS 2], b y [ROWS 2] LEFT JOIN a z [RANGE 1 SECOND] ON z.v = y.v WHERE x.k = y.k",
    "three in one row": f"SELECT COUNT(*) AS n, COUNT(z.v) AS m FROM {ROWS.format('LEFT')} LEFT JOIN a z [RANGE 1 SECOND] ON z.v = y.v",
    "named": f"SELECT name, x.v, y.v AS w FROM {RANGES.format('LEFT')} LEFT JOIN names ON x.k = names.k",
    "using": "SELECT k, x.v, y.v AS w FROM a x [ROWS 2] LEFT JOIN b y [ROWS 2] USING (k)",
    "doubles": "SELECT x.d, y.d AS e FROM a x [ROWS 3] FULL JOIN b y [ROWS 3] ON x.d = y.d",
    "in a select": f"SELECT w, COUNT(*) AS n FROM (SELECT x.v, y.v AS w FROM {RANGES.format('LEFT')}) AS t GROUP BY w",
    "failing": f"SELECT x.v, y.v AS w FROM {ROWS.format('LEFT')} AND 2 DIV x.v = y.v",
}  # fmt: skip

SLIDING = (
    "a x [RANGE {} SECONDS SLIDE {} SECONDS] {} JOIN b y [RANGE {} SECONDS SLIDE {} SECONDS] ON x.k = y.k"
)
WINDOWS = {
    "left": f"SELECT x.k, x.v, y.v AS w FROM {SLIDING.format(4, 2, 'LEFT', 4, 2)}",
    "right": f"SELECT y.k, x.v, y.v AS w FROM {SLIDING.format(3, 2, 'RIGHT', 5, 2)}",
    "full": f"SELECT x.k, x.v, y.k AS l, y.v AS w FROM {SLIDING.format(3, 1, 'FULL', 2, 1)}",
    "tumbling": f"SELECT x.v, y.v AS w FROM {SLIDING.format(2, 2, 'FULL', 2, 2)}",
    "on more": f"SELECT x.v, y.v AS w FROM {SLIDING.format(4, 2, 'LEFT', 2, 2)} AND x.v < y.v AND y.v > 0 AND x.v >= 0",
    "between windows": f"SELECT x.v, y.v AS w FROM {SLIDING.format(1, 2, 'FULL', 3, 2)}",
    "bounds": f"SELECT x.window_start, x.window_end, x.v, y.window_start AS s, y.v AS w FROM {SLIDING.format(2, 2, 'FULL', 4, 2)}",
    "groups": f"SELECT x.k, COUNT(*) AS n, COUNT(y.v) AS m FROM {SLIDING.format(4, 2, 'LEFT', 4, 2)} GROUP BY x.k",
    "one row": f"SELECT COUNT(*) AS n, COUNT(y.v) AS m FROM {SLIDING.format(4, 2, 'LEFT', 4, 2)}",
    "without a pair": f"SELECT x.v FROM {SLIDING.format(4, 2, 'LEFT', 2, 2)} WHERE y.at IS NULL",
    "best": f"SELECT x.v, y.v AS w FROM {SLIDING.format(2, 1, 'FULL', 2, 1)} ORDER BY w DESC, x.v LIMIT 2",
    "no key": "SELECT x.v, y.v AS w FROM a x [RANGE 2 SECONDS SLIDE 1 SECOND] FULL JOIN b y [RANGE 2 SECONDS SLIDE 1 SECOND] ON x.v < y.v",
    "a select": "SELECT t.n, y.v FROM (SELECT k, COUNT(*) AS n FROM a [RANGE TUMBLING 1 SECOND] GROUP BY k) AS t [RANGE TUMBLING 2 SECONDS]"
    " LEFT JOIN b y [RANGE TUMBLING 2 SECONDS] ON t.k = y.k",
    "read again": f"SELECT COUNT(*) AS n FROM (SELECT x.v, y.v AS w FROM {SLIDING.format(2, 2, 'LEFT', 2, 2)}) AS t [RANGE TUMBLING 4 SECONDS]",
}  # fmt: skip

OFTEN = "SELECT k FROM b [RANGE 3 SECONDS] GROUP BY k HAVING COUNT(*) > 1"
EXISTENCE = {
    "exists": "SELECT k, v FROM a [RANGE 4 SECONDS] WHERE EXISTS (SELECT 1 FROM b [ROWS 2] WHERE b.k = a.k)",
    "not exists": "SELECT k, v FROM a [RANGE 4 SECONDS] WHERE NOT EXISTS (SELECT 1 FROM b [ROWS 2] WHERE b.k = a.k)",
    "streamed": "SELECT k, v FROM a WHERE NOT EXISTS (SELECT * FROM b [RANGE 2 SECONDS] y WHERE y.k = a.k AND y.v = a.v)",
    "less": "SELECT k, v FROM a [ROWS 3] WHERE NOT EXISTS (SELECT b.v FROM b [ROWS 3] WHERE b.v < a.v AND b.d IS NOT NULL)",
    "more": "SELECT k, v FROM a [ROWS 3] WHERE EXISTS (SELECT b.v FROM b [ROWS 3] WHERE b.v < a.v AND b.v > 0) AND v > 0",
    "any at all": "SELECT k, v FROM a [ROWS 3] WHERE EXISTS (SELECT 1 FROM b [RANGE 1 SECOND] WHERE v > 0)",
    "none at all": "SELECT k, v FROM a [ROWS 3] WHERE NOT EXISTS (SELECT 1 FROM b [RANGE 1 SECOND])",
    "no group": f"SELECT k, v FROM a [ROWS 3] WHERE NOT EXISTS ({OFTEN})",
    "not in": "SELECT k, v FROM a [RANGE 4 SECONDS] WHERE k NOT IN (SELECT k FROM b [ROWS 2])",
    "not in groups": f"SELECT v FROM a WHERE k NOT IN ({OFTEN})",
    "not of it": "SELECT k, v FROM a [ROWS 4] WHERE NOT k IN (SELECT k FROM b [ROWS 2] WHERE k IS NOT NULL)",
    "other types": "SELECT v FROM a [ROWS 3] WHERE d NOT IN (SELECT v FROM b [ROWS 2])",
    "in and not in": f"SELECT k, v FROM a [ROWS 4] WHERE k IN (SELECT k FROM b [ROWS 4]) AND k NOT IN ({OFTEN})",
    "one number": "SELECT COUNT(*) AS n FROM a [RANGE 2 SECONDS] WHERE v NOT IN (SELECT v FROM b [ROWS 1])",
    "groups": "SELECT k, COUNT(*) AS n FROM a [ROWS 4] WHERE NOT EXISTS (SELECT 1 FROM b [NOW] WHERE b.k = a.k) GROUP BY k",
    "beside a join": "SELECT x.v, y.v AS w FROM a x [ROWS 2], b y [ROWS 2] WHERE x.k = y.k AND NOT EXISTS (SELECT 1 FROM a z [ROWS 1] WHERE z.v = y.v)",
    "beside an outer join": f"SELECT x.v, y.v AS w FROM {ROWS.format('LEFT')} WHERE NOT EXISTS (SELECT 1 FROM a z [ROWS 1] WHERE z.v = y.v)",
    "of equal rows": "SELECT k FROM (SELECT k FROM a [ROWS 4]) AS t WHERE NOT EXISTS (SELECT 1 FROM b [ROWS 1] WHERE b.k = t.k)",
    "of a union": "SELECT k FROM a [ROWS 3] WHERE NOT EXISTS (SELECT 1 FROM (SELECT k FROM b [ROWS 1] UNION ALL SELECT k FROM a [ROWS 1]) u WHERE u.k = a.k)",
    "gone": "SELECT DSTREAM(k, v) FROM a [ROWS 3] WHERE NOT EXISTS (SELECT 1 FROM b [ROWS 1] WHERE b.k = a.k)",
}  # fmt: skip

MAX = "(SELECT MAX(v) FROM b [RANGE 3 SECONDS])"
VALUES = {
    "above the maximum": f"SELECT k, v FROM a [ROWS 4] WHERE v > {MAX}",
    "either": f"SELECT k, v FROM a [ROWS 4] WHERE v > {MAX} OR k = 'a' OR {MAX} IS NULL",
    "selected": f"SELECT k, v, v - {MAX} AS under, (SELECT COUNT(*) FROM b [ROWS 3]) AS n FROM a [ROWS 3]",
    "streamed": f"SELECT k, v FROM a WHERE v = {MAX}",
    "the last one": "SELECT k, v FROM a [ROWS 3] WHERE v >= (SELECT v FROM b [ROWS 3] ORDER BY at DESC, v LIMIT 1)",
    "of its key": "SELECT k, v, (SELECT SUM(v) FROM b [ROWS 4] WHERE b.k = a.k) AS s FROM a [ROWS 3]",
    "number of its key": "SELECT k, v FROM a [ROWS 3] WHERE (SELECT COUNT(*) FROM b [ROWS 4] y WHERE y.k = a.k) < v",
    "of all": "SELECT k, v FROM a [ROWS 4] WHERE v >= ALL (SELECT v FROM b [ROWS 2])",
    "not of all": "SELECT k, v FROM a [ROWS 4] WHERE NOT (v < ALL (SELECT v FROM b [ROWS 2]))",
    "of any": "SELECT k, v FROM a [ROWS 4] WHERE v < ANY (SELECT v FROM b [ROWS 2] WHERE v IS NOT NULL)",
    "not of some": "SELECT k, v FROM a [ROWS 4] WHERE NOT v > SOME (SELECT v FROM b [ROWS 2])",
    "equal to any": "SELECT k, v FROM a [ROWS 4] WHERE v = ANY (SELECT v FROM b [ROWS 2])",
    "other than all": "SELECT k, v FROM a [ROWS 4] WHERE v <> ALL (SELECT v FROM b [ROWS 2])",
    "of doubles": "SELECT k, d FROM a [ROWS 4] WHERE d >= ALL (SELECT d FROM b [ROWS 3])",
    "of groups": "SELECT k, v FROM a [ROWS 4] WHERE v <= ALL (SELECT COUNT(*) FROM b [ROWS 3] GROUP BY k)",
    "one number": f"SELECT COUNT(*) AS n FROM a [ROWS 4] WHERE v > {MAX}",
}  # fmt: skip

NOW = {
    "tolls": f"SELECT RSTREAM(a.k, a.v, c.n) FROM a [NOW], {COUNTS} WHERE a.k = c.k",
    "condition": f"SELECT RSTREAM(a.k, c.n) FROM a [NOW], {COUNTS} WHERE a.k = c.k AND c.n > a.v",
    "equal rows": "SELECT RSTREAM(y.k) FROM a x [NOW], b y [ROWS 3] WHERE x.v >= y.v",
    "before it": "SELECT RSTREAM(x.v, y.v AS w) FROM b y [RANGE 2 SECONDS], a x [NOW] WHERE x.k = y.k",
    "both now": "SELECT RSTREAM(x.v, y.v AS w) FROM a x [NOW], b y [NOW] WHERE x.k = y.k",
    "or none": f"SELECT RSTREAM(a.k, a.v, c.n) FROM a [NOW] LEFT JOIN {COUNTS} ON a.k = c.k",
    "three": f"SELECT RSTREAM(a.v, c.n, y.v AS w) FROM a [NOW], {COUNTS}, b y [ROWS 2] WHERE a.k = c.k AND y.v = a.v",
    "groups": "SELECT RSTREAM(x.k, COUNT(*) AS n, SUM(y.v) AS s) FROM a x [NOW], b y [ROWS 4] WHERE x.k = y.k GROUP BY x.k",
    "different": "RSTREAM(SELECT DISTINCT y.v FROM a x [NOW], b y [ROWS 4] WHERE x.k = y.k)",
    "named": "SELECT RSTREAM(name, y.v) FROM a x [NOW], b y [ROWS 4] JOIN names ON names.k = x.k WHERE x.k = y.k",
    "in": "SELECT RSTREAM(k, v) FROM a [NOW] WHERE k IN (SELECT k FROM b [ROWS 3])",
    "not exists": "SELECT RSTREAM(k, v) FROM a [NOW] WHERE NOT EXISTS (SELECT 1 FROM b [ROWS 3] WHERE b.k = a.k)",
    "maximum": f"SELECT RSTREAM(k, v) FROM a [NOW] WHERE v >= {MAX}",
    "read again": f"SELECT COUNT(*) AS n FROM (SELECT RSTREAM(a.k, c.n) FROM a [NOW], {COUNTS} WHERE a.k = c.k) AS t [RANGE TUMBLING 2 SECONDS]",
}  # fmt: skip

WITHIN = "x.at BETWEEN y.at - INTERVAL '2' SECOND AND y.at + INTERVAL '1' SECOND"
INTERVALS = {
    "within": f"SELECT x.v, y.v AS w FROM a x, b y WHERE x.k = y.k AND {WITHIN}",
    "joined": f"SELECT x.v, y.v AS w FROM a x JOIN b y ON x.k = y.k AND {WITHIN}",
    "after": "SELECT x.v, y.v AS w FROM a x, b y WHERE x.k = y.k AND y.at > x.at + INTERVAL 1 SECOND AND y.at <= x.at + INTERVAL 3 SECONDS",
    "same time": "SELECT x.v, y.v AS w FROM a x, b y WHERE x.k = y.k AND x.at = y.at",
    "one end": "SELECT x.v, y.v AS w FROM a x, b y WHERE x.k = y.k AND x.at >= y.at - INTERVAL 1 SECOND",
    "never": "SELECT x.v, y.v AS w FROM a x, b y WHERE x.at > y.at + INTERVAL 1 SECOND AND x.at < y.at - INTERVAL 1 SECOND",
    "no key": f"SELECT x.v, y.v AS w FROM a x, b y WHERE {WITHIN}",
    "counted": f"SELECT x.k, COUNT(*) AS n FROM a x, b y WHERE x.k = y.k AND {WITHIN} GROUP BY x.k",
    "held": f"SELECT x.v, y.v AS w FROM a x [RANGE UNBOUNDED], b y [RANGE UNBOUNDED] WHERE x.k = y.k AND {WITHIN}",
    "under ranges": f"SELECT x.v, y.v AS w FROM a x [RANGE 1 SECOND], b y [RANGE 4 SECONDS] WHERE x.k = y.k AND {WITHIN}",
    "outer": f"SELECT x.v, y.v AS w FROM a x [RANGE 4 SECONDS] LEFT JOIN b y [RANGE 4 SECONDS] ON x.k = y.k AND {WITHIN}",
    "itself": "SELECT x.v, y.v AS w FROM a x, a y WHERE x.k = y.k AND y.at >= x.at AND y.at - INTERVAL 2 SECONDS < x.at",
}  # fmt: skip


@examples(30)
@given(data=st.data())
def test_outer_joins_of_relations_keep_the_rows_that_the_reference_keeps(data: st.DataObject) -> None:
    check(OUTER, data)


@examples(30)
@given(data=st.data())
def test_outer_joins_of_windows_add_the_rows_without_a_pair_of_each_window(data: st.DataObject) -> None:
    check(WINDOWS, data)


@examples(30)
@given(data=st.data())
def test_exists_and_not_in_hold_when_the_reference_finds_a_row_or_none(data: st.DataObject) -> None:
    check(EXISTENCE, data)


@examples(30)
@given(data=st.data())
def test_a_select_as_a_value_is_what_its_relation_holds(data: st.DataObject) -> None:
    check(VALUES, data)


@examples(30)
@given(data=st.data())
def test_rstream_of_now_emits_the_whole_relation_at_the_instants_with_rows(data: st.DataObject) -> None:
    check(NOW, data)


@examples(30)
@given(data=st.data())
def test_conditions_on_both_times_bound_the_state_and_not_the_answer(data: st.DataObject) -> None:
    check(INTERVALS, data)
