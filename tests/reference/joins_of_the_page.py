"""The queries of docs/semantics.md on joins and their aggregates, windows over the time of a side, SELECTs inside expressions, joins of
[NOW], EXCEPT ALL and INTERSECT ALL, bound from their text.
"""

from __future__ import annotations

from headrace.language.binder.query_binder import bind_query
from tests.language.catalog import Catalog

_CATALOG = Catalog("CREATE STREAM s (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
_TEXTS = (
    "SELECT x.v, y.v AS w FROM s x, s y WHERE x.at BETWEEN y.at - INTERVAL '2' SECOND AND y.at - INTERVAL '1' SECOND",
    "SELECT x.v, y.v AS w FROM s x [RANGE 2 SECONDS] LEFT JOIN s y [RANGE 2 SECONDS] ON x.k = y.k AND x.v <> y.v",
    "SELECT ISTREAM(x.v, y.v AS w) FROM s x [RANGE 3 SECONDS] FULL JOIN s y [NOW] ON x.k = y.k AND x.v < y.v",
    (
        "SELECT x.v, y.v AS w FROM s x [RANGE 2 SECONDS SLIDE 2 SECONDS]"
        " LEFT JOIN s y [RANGE 4 SECONDS SLIDE 2 SECONDS] ON x.k = y.k AND y.v < x.v"
    ),
    "SELECT x.k, COUNT(y.v) AS n FROM s x [ROWS 2] LEFT JOIN s y [RANGE UNBOUNDED] ON x.k = y.k AND y.v < x.v GROUP BY x.k",
    "SELECT v FROM s [RANGE UNBOUNDED] WHERE NOT EXISTS (SELECT 1 FROM s [RANGE 2 SECONDS] t WHERE t.k = s.k AND t.v > s.v)",
    "SELECT v FROM s WHERE k NOT IN (SELECT k FROM s [ROWS 1])",
    "SELECT v FROM s [NOW] WHERE EXISTS (SELECT k FROM s [RANGE 10 SECONDS] GROUP BY k HAVING COUNT(*) > 1)",
    (
        "SELECT v, (SELECT MAX(v) FROM s [RANGE 1 SECOND] t WHERE t.k = s.k) AS top,"
        " (SELECT COUNT(*) FROM s [ROWS 3] t WHERE t.k = s.k) AS n FROM s [ROWS 3]"
    ),
    "ISTREAM(SELECT v FROM s [NOW] WHERE v > (SELECT AVG(v) FROM s [ROWS 2]))",
    "SELECT v FROM s [ROWS 2] WHERE v >= ALL (SELECT v FROM s [ROWS 3])",
    "SELECT v FROM s [ROWS 2] WHERE v < ANY (SELECT v FROM s [ROWS 3])",
    "SELECT RSTREAM(s.v, c.n) FROM s [NOW], (SELECT k, COUNT(*) AS n FROM s [RANGE 10 SECONDS] GROUP BY k) AS c WHERE s.k = c.k",
    "SELECT x.k, y.k AS l FROM s x, s y WHERE x.v < y.v BEGIN '1970-01-01 00:00:02' END NOW",
    "SELECT x.k, y.k AS l FROM s x, s y WHERE x.v < y.v BEGIN NOW - INTERVAL 2 SECONDS END NOW - INTERVAL 1 SECOND",
    "SELECT RSTREAM(y.k) FROM s [NOW] x, s [ROWS 3] y",
    (
        "SELECT x.k, COUNT(*) AS n, SUM(x.v) AS s, MAX(y.v) AS m FROM s x [RANGE 4 SECONDS SLIDE 4 SECONDS]"
        " JOIN s y [RANGE 8 SECONDS SLIDE 4 SECONDS] ON x.k = y.k GROUP BY x.k"
    ),
    (
        "SELECT COUNT(*) AS n, SUM(w) AS s FROM (SELECT x.at AS first, y.v AS w FROM s x, s y WHERE x.at BETWEEN y.at -"
        " INTERVAL '2' SECOND AND y.at - INTERVAL '1' SECOND) AS p [RANGE 2 SECONDS SLIDE 1 SECOND WATTR first]"
    ),
    "SELECT k FROM s [RANGE UNBOUNDED] EXCEPT ALL SELECT k FROM s [ROWS 2]",
    "SELECT k FROM s [RANGE UNBOUNDED] INTERSECT ALL SELECT 'a' FROM s [RANGE UNBOUNDED]",
    "SELECT RSTREAM(x.v, y.v AS w) FROM s [NOW] x LEFT JOIN s [ROWS 2] y ON x.k = y.k AND x.v > y.v",
)
JOINS = {text: bind_query(text, _CATALOG) for text in _TEXTS}
