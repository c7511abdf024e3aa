"""The set operators on docs/semantics.md as algebra: a union of what each SELECT holds, and what is asked of its rows."""

from __future__ import annotations

from headrace.algebra.expressions.expression import Case, Column, Literal, Named
from headrace.algebra.query import (
    Distinct,
    Emit,
    Filter,
    Project,
    Query,
    QueryScan,
    SortKey,
    Top,
    UnionAll,
    Windowed,
)
from headrace.algebra.windows.window import CHANGE, Changing, Rows, TimeRange, TimeSlide, Unbounded
from headrace.schema import BIGINT, STRING, TINYINT
from headrace.time import SECOND
from tests.reference.building import agg, col, compare, grouped, number, query, select, text, windowed

SIDE = Column("u.side", BIGINT)


def keys(window, side=None, where=None, key=None):
    """SELECT k FROM s [window], with the side that it is on."""
    source = windowed(window) if where is None else Filter(windowed(window), where)
    more = () if side is None else (Named("side", number(side)),)
    return Query(Project(source, (Named("k", col("k") if key is None else key), *more)), "relation")


def together(*members):
    scans = tuple(
        QueryScan(f"{index}", f"{index}", query.schema, query) for index, query in enumerate(members)
    )
    return UnionAll(scans, "u", members[0].schema)


def held(*members):
    return Windowed(together(*members), "u", Changing(Column(f"u.{CHANGE}", TINYINT)))


def counted(one, other, *, common):
    """The groups of equal rows that have none on the other side, or some on both."""
    calls = {f"n{side}": agg("count", where=compare("=", SIDE, number(side))) for side in (0, 1)}
    groups = grouped(held(one, other), [], **calls)
    groups = type(groups)(groups.source, (Named("k", Column("u.k", STRING)),), groups.aggregates)
    some = [compare(">", Column(name, BIGINT), number(0)) for name in ("n0", "n1")]
    none = compare("=", Column("n1", BIGINT), number(0))
    return Filter(groups, compare("and", *some) if common else none)


DEAR = Case(((compare(">", col("v"), number(1)), col("k")),), Literal(None, STRING), STRING)
FOUR = windowed(TimeSlide(4 * SECOND, 4 * SECOND))
PER_WINDOW = select(grouped(FOUR, [], n=agg("count")), "n")
PER_WINDOW = Project(PER_WINDOW.source, (Named("k", text("all")), Named("v", Column("n", BIGINT))))
BARE = Query(Emit(select(windowed(Unbounded()), "s.k", "s.v"), "istream"), "stream")
COMMON = counted(keys(Rows(3), 0), keys(Unbounded(), 1, key=DEAR), common=True)

SETS = {
    "SELECT k FROM s [ROWS 2] UNION ALL SELECT k FROM s [RANGE 2 SECONDS] WHERE v < 3": query(
        select(
            held(keys(Rows(2)), keys(TimeRange(2 * SECOND), where=compare("<", col("v"), number(3)))), "u.k"
        )
    ),
    "SELECT k FROM s [ROWS 2] UNION SELECT k FROM s [NOW]": query(
        Distinct(select(held(keys(Rows(2)), keys(TimeRange(0))), "u.k"))
    ),
    "SELECT k FROM s [RANGE UNBOUNDED] EXCEPT SELECT k FROM s [ROWS 2]": query(
        select(counted(keys(Unbounded(), 0), keys(Rows(2), 1), common=False), "k")
    ),
    "ISTREAM(SELECT k FROM s [RANGE UNBOUNDED] EXCEPT SELECT k FROM s [ROWS 1])": query(
        Emit(select(counted(keys(Unbounded(), 0), keys(Rows(1), 1), common=False), "k"), "istream")
    ),
    "SELECT k FROM s [ROWS 3] INTERSECT SELECT CASE WHEN v > 1 THEN k END FROM s [RANGE UNBOUNDED] ORDER BY k DESC LIMIT 1": query(
        select(Top(COMMON, (SortKey(Column("k", STRING), descending=True, nulls_first=False),), 1), "k")
    ),
    "SELECT k, v FROM s UNION ALL SELECT 'all', COUNT(*) FROM s [RANGE 4 SECONDS SLIDE 4 SECONDS]": Query(
        Emit(
            select(Windowed(together(BARE, Query(PER_WINDOW, "windows")), "u", Unbounded()), "u.k", "u.v"),
            "istream",
        ),
        "stream",
    ),
}
