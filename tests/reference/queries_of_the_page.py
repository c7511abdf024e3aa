"""The queries in docs/semantics.md as algebra: the page is tested without a parser."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.expressions.expression import Call, Cast, Column, Literal, Named
from headrace.algebra.expressions.series import chosen, pair, placed, seconds_of, timed
from headrace.algebra.query import (
    Aggregate,
    Ago,
    Bounds,
    Distinct,
    Emit,
    Filter,
    Join,
    Project,
    Query,
    QueryScan,
    Revisions,
    SemijoinColumn,
    SortKey,
    Top,
    UnionAll,
    Windowed,
)
from headrace.algebra.windows.window import (
    CHANGE,
    Changing,
    Delta,
    Landmark,
    Rows,
    RowsSlide,
    Session,
    TimeRange,
    TimeSlide,
    TupleSlide,
    Unbounded,
)
from headrace.schema import BIGINT, BOOLEAN, DOUBLE, STRING, TINYINT
from headrace.time import SECOND
from tests.reference.building import (
    TABLE,
    agg,
    col,
    compare,
    count_of,
    grouped,
    heavy,
    number,
    percentile,
    query,
    select,
    windowed,
    with_names,
)

TEN = TimeSlide(10 * SECOND, 10 * SECOND)
BIG = grouped(
    Filter(windowed(TEN), compare(">", col("v"), number(5))), [], n=agg("count"), top=agg("max", col("v"))
)
SIXTH = Call("/", (Cast(number(6), DOUBLE), Cast(col("v"), DOUBLE)), DOUBLE)
PARTS = (col("k"),)
LATE = replace(windowed(Unbounded()), source=replace(windowed(Unbounded()).source, channel="late"))
DISTINCT = Distinct(select(windowed(TEN), "s.v", "s.k"))
RECENT = Bounds(windowed(Unbounded()), Ago(2 * SECOND), Ago(SECOND))

TOTAL = "SELECT SUM(v) AS total FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]"
FROM_THE_SECOND = Filter(windowed(TEN), compare(">", Column("s.window_id", BIGINT), number(1)))
TOTALS = query(select(grouped(windowed(TEN), [], total=agg("sum", col("v"))), "total"))

IDS = Column("in0.id", STRING)
FOUND = Column("in0.matched", BOOLEAN)
NOT_FOUND = Call("not", (FOUND,), BOOLEAN)


TWICE = Filter(
    grouped(windowed(TimeRange(10 * SECOND)), ["k"], n=agg("count")),
    compare(">", Column("n", BIGINT), number(1)),
)


def member(test, condition=None):
    right = replace(with_names(windowed(Unbounded()), "inner").right, alias="in0")
    return SemijoinColumn(windowed(Unbounded()), right, "in0.matched", condition, test)


def over(window, *names: str):
    return select(windowed(window), *(f"s.{name}" for name in names))


def visits(parts):
    window = windowed(Session(3 * SECOND, parts))
    return query(select(grouped(window, [], n=agg("count"), total=agg("sum", col("v"))), "n", "total"))


def approximate(function, argument=None, part="value"):
    return replace(agg(function, argument), within=Fraction(1, 100), part=part)


def of_weighted(function, argument, part):
    return replace(agg(function, argument), part=part, type=DOUBLE)


TOP = AggregateCall("approx_top_k", Cast(col("v"), STRING), STRING, within=Fraction(1, 100), most=1)
MEAN = Column("mean", DOUBLE)
VALUE = Cast(col("v"), DOUBLE)
ABOVE = compare(">=", Cast(col("v"), DOUBLE), MEAN)

FOUR = TimeSlide(4 * SECOND, 4 * SECOND)
BOTH = UnionAll((windowed(FOUR).source, windowed(FOUR, alias="t").source), "u", TABLE, "at")


def joined(left, right):
    """`SELECT x.v, y.v AS w FROM s x [left], s y [right] WHERE x.k = y.k AND x.v > y.v`."""
    pairs = Join(windowed(left, alias="x"), windowed(right, alias="y"), "inner", equal("x.k", "y.k", STRING))
    passed = Filter(pairs, compare(">", Column("x.v", BIGINT), Column("y.v", BIGINT)))
    return Project(passed, (Named("v", Column("x.v", BIGINT)), Named("w", Column("y.v", BIGINT))))


def over_counts(inner):
    """`SELECT n, COUNT(*) AS groups FROM (inner) AS t GROUP BY n`."""
    counts = Windowed(QueryScan("t", "t", inner.schema, inner), "t", Changing(Column("t.__change", TINYINT)))
    groups = Aggregate(
        counts, (Named("n", Column("t.n", BIGINT)),), (NamedAggregate("groups", agg("count")),)
    )
    return Project(groups, (Named("n", Column("n", BIGINT)), Named("groups", Column("groups", BIGINT))))


def semijoin(window, inner, *names):
    """`SELECT … FROM s [window] WHERE (names) IN (inner)`, below the select list."""
    held = Query(Distinct(select(inner, *names)), "relation")
    scan = QueryScan("in0", "in0", held.schema, held)
    right = Windowed(scan, "in0", Changing(Column(f"in0.{CHANGE}", TINYINT)))
    equalities = [equal(f"s.{field.name}", f"in0.{field.name}", field.type) for field in held.schema]
    met = equalities[0] if len(equalities) == 1 else compare("and", *equalities)
    return Join(windowed(window), right, "inner", met)


def equal(one, other, kind):
    return compare("=", Column(one, kind), Column(other, kind))


QUERIES = {
    f"{TOTAL} WHERE window_id > 1": query(
        select(grouped(FROM_THE_SECOND, [], total=agg("sum", col("v"))), "total")
    ),
    "SELECT COUNT(*) AS n FROM s UNION ALL s [RANGE 4 SECONDS SLIDE 4 SECONDS]": query(
        select(grouped(Windowed(BOTH, "u", FOUR), [], n=agg("count")), "n")
    ),
    "SELECT x.v, y.v AS w FROM s x [RANGE 4 SECONDS SLIDE 4 SECONDS], s y [RANGE 8 SECONDS SLIDE 4 SECONDS]"
    " WHERE x.k = y.k AND x.v > y.v": query(joined(FOUR, TimeSlide(8 * SECOND, 4 * SECOND))),
    "SELECT ISTREAM(x.v, y.v AS w) FROM s x [RANGE 4 SECONDS], s y [RANGE 6 SECONDS] WHERE x.k = y.k AND x.v > y.v": query(
        Emit(joined(TimeRange(4 * SECOND), TimeRange(6 * SECOND)), "istream"), "stream"
    ),
    "SELECT DSTREAM(x.v, y.v AS w) FROM s x [ROWS 1], s y [RANGE 8 SECONDS] WHERE x.k = y.k AND x.v > y.v": query(
        Emit(joined(Rows(1), TimeRange(8 * SECOND)), "dstream"), "stream"
    ),
    "SELECT n, COUNT(*) AS groups FROM (SELECT k, COUNT(*) AS n FROM s GROUP BY k) AS t GROUP BY n": query(
        over_counts(count_of(Unbounded(), ["k"])), "relation"
    ),
    "SELECT k, COUNT(*) FILTER (WHERE v >= AVG(v)) AS above FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k": query(
        select(
            grouped(windowed(TEN), ["k"], mean=agg("avg", col("v")), above=agg("count", where=ABOVE)),
            "k",
            "above",
        )
    ),
    "SELECT k, APPROX_COUNT(*) WITHIN 1 PERCENT AS n, APPROX_SUM(v) AS total, ERROR_BOUND(total) AS bound "
    "FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k": query(
        select(
            grouped(
                windowed(TEN),
                ["k"],
                n=approximate("approx_count"),
                total=approximate("approx_sum", col("v")),
                bound=approximate("approx_sum", col("v"), "bound"),
            ),
            "k",
            "n",
            "total",
            "bound",
        )
    ),
    "SELECT APPROX_DISTINCT(v) AS d, APPROX_PERCENTILE(v, 0.5) AS m, APPROX_TOP_K(v, 1) AS t, ERROR_BOUND(t) AS b, L2_NORM(v) AS l "
    "FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]": query(
        select(
            grouped(
                windowed(TEN),
                [],
                d=AggregateCall("approx_distinct", col("v"), BIGINT, within=Fraction(1, 100)),
                m=AggregateCall("approx_percentile", col("v"), DOUBLE, within=Fraction(1, 100), share=0.5),
                t=TOP,
                b=replace(TOP, type=BIGINT, part="bound"),
                l=AggregateCall("l2_norm", col("v"), DOUBLE),
            ),
            *"dmtbl",
        )
    ),
    "SELECT k, SLOPE(v) AS s, LAST(v) AS l, EWMA(v, INTERVAL 2 SECONDS) AS e "
    "FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k": query(
        select(
            grouped(
                windowed(TEN),
                ["k"],
                s=agg("regr_slope", pair(VALUE, seconds_of("s"))),
                l=agg("last", placed(col("v"), "s")),
                e=replace(
                    agg("count", timed(VALUE, "s")), function="ewma", type=DOUBLE, half_life=2 * SECOND
                ),
            ),
            "k",
            "s",
            "l",
            "e",
        )
    ),
    "SELECT MAX_BY(k, v) AS top, MIN_BY(v, k) AS low FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]": query(
        select(
            grouped(
                windowed(TEN),
                [],
                top=agg("max_by", chosen(col("k"), col("v"))),
                low=agg("min_by", chosen(col("v"), col("k"))),
            ),
            "top",
            "low",
        )
    ),
    "SELECT CORR(v, v) AS r, COVAR_POP(v, v) AS c, FIRST(k) AS f, KURTOSIS(v) AS u "
    "FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] WHERE v < 4": query(
        select(
            grouped(
                Filter(windowed(TEN), compare("<", col("v"), number(4))),
                [],
                r=agg("corr", pair(VALUE, VALUE)),
                c=agg("covar_pop", pair(VALUE, VALUE)),
                f=agg("first", placed(col("k"), "s")),
                u=agg("kurtosis", col("v")),
            ),
            "r",
            "c",
            "f",
            "u",
        )
    ),
    "SELECT k FROM s": query(over(Unbounded(), "k"), "stream"),
    "SELECT k FROM s LATE": query(select(LATE, "s.k"), "stream"),
    "SELECT k FROM s WHERE 6 / v = 3": query(
        select(Filter(windowed(Unbounded()), compare("=", SIXTH, Cast(number(3), DOUBLE))), "s.k"), "stream"
    ),
    "SELECT k FROM s WHERE k <> 'a' AND 6 / v = 3": query(
        select(
            Filter(
                windowed(Unbounded()),
                compare(
                    "and",
                    compare("<>", col("k"), Literal("a", STRING)),
                    compare("=", SIXTH, Cast(number(3), DOUBLE)),
                ),
            ),
            "s.k",
        ),
        "stream",
    ),
    "SELECT COUNT(*) AS n FROM s [RANGE 9 SECONDS SLIDE 6 SECONDS]": count_of(
        TimeSlide(9 * SECOND, 6 * SECOND)
    ),
    "SELECT k FROM s [RANGE 2 SECONDS SLIDE 5 SECONDS]": query(over(TimeSlide(2 * SECOND, 5 * SECOND), "k")),
    "SELECT COUNT(*) AS n FROM s [LANDMARK SLIDE 10 SECONDS]": count_of(Landmark(10 * SECOND)),
    "SELECT SUM(v) AS total FROM s [PARTITION BY k ROWS 3 SLIDE 2]": query(
        select(grouped(windowed(RowsSlide(3, 2, PARTS)), [], total=agg("sum", col("v"))), "total")
    ),
    "SELECT COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 1 ROW]": count_of(TupleSlide(10 * SECOND, 1)),
    "SELECT COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 2 ROWS]": count_of(TupleSlide(10 * SECOND, 2)),
    "SELECT COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 2 ROWS SATTR row_num]": count_of(
        TupleSlide(10 * SECOND, 2, numbered="row_num")
    ),
    "SELECT COUNT(*) AS n, SUM(v) AS total FROM s [PARTITION BY k SESSION 3 SECONDS]": visits(PARTS),
    "SELECT COUNT(*) AS n, SUM(v) AS total FROM s [SESSION 3 SECONDS]": visits(()),
    "SELECT SUM(v) AS total, COUNT(*) AS n FROM s [DELTA 2 ON v]": query(
        select(
            grouped(
                windowed(Delta(2.0, Cast(col("v"), DOUBLE))), [], total=agg("sum", col("v")), n=agg("count")
            ),
            "total",
            "n",
        )
    ),
    "SELECT k, v FROM s [RANGE 10 SECONDS]": query(over(TimeRange(10 * SECOND), "k", "v")),
    "SELECT k, v FROM s [ROWS 1]": query(over(Rows(1), "k", "v")),
    "SELECT k, v FROM s [PARTITION BY k ROWS 1]": query(over(Rows(1, PARTS), "k", "v")),
    "SELECT k FROM s BEGIN NOW - INTERVAL 2 SECONDS END NOW - INTERVAL 1 SECOND": query(
        select(RECENT, "s.k")
    ),
    "SELECT v, name FROM s LEFT JOIN names ON s.k = names.id": query(
        select(with_names(windowed(Unbounded()), "left"), "s.v", "names.name"), "stream"
    ),
    "SELECT COUNT(*) AS n, MAX(v) AS top FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] WHERE v > 5": query(
        select(BIG, "n", "top")
    ),
    "SELECT COUNT(*) AS n, MAX(v) AS top FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] WHERE v > 5 EMIT EMPTY": query(
        select(BIG, "n", "top"), emit_empty=True
    ),
    "SELECT COUNT(*) AS n FROM s [RANGE 2 SECONDS]": count_of(TimeRange(2 * SECOND)),
    "SELECT MEDIAN(v) AS m, PERCENTILE(v, 0.9) AS p, PERCENTILE(DISTINCT v, 0.25) AS d, MODE(v) AS o "
    "FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]": query(
        select(
            grouped(
                windowed(TEN),
                [],
                m=percentile("v", 0.5),
                p=percentile("v", 0.9),
                d=percentile("v", 0.25, distinct=True),
                o=agg("mode", col("v")),
            ),
            *"mpdo",
        )
    ),
    "SELECT HEAVY_HITTERS(v, 0.5) AS half, HEAVY_HITTERS(k, 0.4) AS k FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]": query(
        select(grouped(windowed(TEN), [], half=heavy("v", 0.5), k=heavy("k", 0.4)), "half", "k")
    ),
    "SELECT k, MEDIAN(v) AS m, MODE(k) AS o FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k": query(
        select(grouped(windowed(TEN), ["k"], m=percentile("v", 0.5), o=agg("mode", col("k"))), "k", "m", "o")
    ),
    "SELECT DISTINCT v, k FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] ORDER BY v DESC LIMIT 3": query(
        Top(DISTINCT, (SortKey(Column("v", BIGINT), descending=True, nulls_first=False),), 3)
    ),
    "SELECT ISTREAM(k, v) FROM s [RANGE 4 SECONDS]": query(
        Emit(over(TimeRange(4 * SECOND), "k", "v"), "istream")
    ),
    "SELECT DSTREAM(k) FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS]": query(
        Emit(over(TimeSlide(10 * SECOND, 5 * SECOND), "k"), "dstream")
    ),
    "SELECT COUNT(*) AS n FROM s [RANGE 4 SECONDS]": count_of(TimeRange(4 * SECOND)),
    "SELECT COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]": count_of(TEN),
    "SELECT COUNT(*) AS n FROM s [RANGE 40 SECONDS SLIDE 10 SECONDS]": count_of(
        TimeSlide(40 * SECOND, 10 * SECOND)
    ),
    "SELECT COUNT(*) AS n FROM s [SESSION 3 SECONDS] WITH REVISIONS": replace(
        count_of(Session(3 * SECOND)), revisions=Revisions()
    ),
    "SELECT COUNT(*) AS n, AVG(v) AS mean, MAX(v) AS top FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] WITH SHEDDING": replace(
        query(
            select(
                grouped(
                    windowed(TEN),
                    [],
                    n=of_weighted("count", None, "estimate"),
                    n_error=of_weighted("count", None, "error"),
                    mean=of_weighted("avg", col("v"), "estimate"),
                    mean_error=of_weighted("avg", col("v"), "error"),
                    top=agg("max", col("v")),
                    top_error=of_weighted("max", col("v"), "error"),
                    kept=of_weighted("count", None, "kept"),
                ),
                *("n", "n_error", "mean", "mean_error", "top", "top_error", "kept"),
            )
        ),
        shedding=True,
    ),
    "SELECT COUNT(*) AS n, MAX(v) AS top FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] WITH SHEDDING (repair)": replace(
        query(
            select(
                grouped(
                    windowed(TEN),
                    [],
                    n=of_weighted("count", None, "estimate"),
                    n_error=of_weighted("count", None, "error"),
                    top=agg("max", col("v")),
                    top_error=of_weighted("max", col("v"), "error"),
                    kept=of_weighted("count", None, "kept"),
                ),
                *("n", "n_error", "top", "top_error", "kept"),
            )
        ),
        shedding=True,
        repair=True,
    ),
    TOTAL + " WITH REVISIONS": replace(TOTALS, revisions=Revisions()),
    TOTAL + " WITH REVISIONS FOR INTERVAL 12 SECONDS": replace(TOTALS, revisions=Revisions(12 * SECOND)),
    "SELECT v FROM s WHERE k IN (SELECT k FROM s [RANGE 10 SECONDS] GROUP BY k HAVING COUNT(*) > 1)": query(
        Emit(select(semijoin(Unbounded(), TWICE, "k"), "s.v"), "istream"), "stream"
    ),
    "SELECT at, v FROM s WHERE (k, v) IN (SELECT k, v FROM s [ROWS 1])": query(
        Emit(select(semijoin(Unbounded(), windowed(Rows(1)), "s.k", "s.v"), "s.at", "s.v"), "istream"),
        "stream",
    ),
    "SELECT v FROM s [RANGE 1 SECOND] WHERE (k, v) IN (SELECT k, v FROM s [ROWS 1])": query(
        select(semijoin(TimeRange(SECOND), windowed(Rows(1)), "s.k", "s.v"), "s.v")
    ),
    "SELECT v FROM s WHERE k IN (SELECT id FROM names)": query(
        select(Filter(member(compare("=", col("k"), IDS)), FOUND), "s.v"), "stream"
    ),
    "SELECT v FROM s WHERE k NOT IN (SELECT id FROM names)": query(
        select(Filter(member(compare("=", col("k"), IDS)), NOT_FOUND), "s.v"), "stream"
    ),
    "SELECT v FROM s WHERE NOT EXISTS (SELECT 1 FROM names WHERE id = k)": query(
        select(Filter(member(None, compare("=", IDS, col("k"))), NOT_FOUND), "s.v"), "stream"
    ),
}
"""By the text on the page."""
