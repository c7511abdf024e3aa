"""What each clause means: the tree a SELECT is bound to."""

import re

import pytest

from headrace.algebra.expressions.aggregates import AggregateCall, NamedAggregate
from headrace.algebra.expressions.expression import (
    Call,
    Cast,
    Column,
    Expression,
    Literal,
    Named,
    conjuncts,
    transform,
)
from headrace.algebra.query import (
    Aggregate,
    Ago,
    Bounds,
    Emit,
    Filter,
    Join,
    Node,
    Project,
    Query,
    QueryScan,
    SortKey,
    StreamScan,
    Top,
    Windowed,
    walk,
)
from headrace.algebra.windows.window import (
    Delta,
    Landmark,
    Rows,
    RowsSlide,
    Session,
    TimeRange,
    TimeSlide,
    TupleSlide,
    Unbounded,
    Window,
)
from headrace.language.binder.expressions.expression_binder import bind_expression
from headrace.language.binder.query_binder import bind_query
from headrace.schema import BIGINT, BOOLEAN, DOUBLE, INT, TIMESTAMP
from headrace.time import HOUR, MINUTE, SECOND
from tests.language.catalog import Catalog

CATALOG = Catalog()
AUCTION = Column("bids.auction", BIGINT)
PRICE = Column("bids.price", DOUBLE)
BIDDER = Column("bids.bidder", BIGINT)


def bound(text: str) -> Query:
    return bind_query(text, CATALOG)


def only(query: Query, kind: type) -> Node:
    (only_node,) = [node for node in walk(query.root) if isinstance(node, kind)]
    return only_node


def shape(query: Query) -> str:
    return " < ".join(type(node).__name__ for node in walk(query.root))


def value(text: str, source: str = "events") -> Expression:
    query = bound(f"SELECT {text} AS v FROM {source}")
    project = only(query, Project)
    assert isinstance(project, Project)
    return project.columns[0].expression


def test_a_sliding_aggregate_is_one_tree_from_scan_to_select_list() -> None:
    bids = CATALOG.streams["bids"]
    scan = StreamScan("bids", "bids", bids.schema, "at")
    windowed = Windowed(scan, "bids", TimeSlide(10 * MINUTE, MINUTE))
    filtered = Filter(windowed, Call(">", (PRICE, Literal(100.0, DOUBLE)), BOOLEAN))
    aggregate = Aggregate(
        filtered,
        (Named("key0", AUCTION),),
        (
            NamedAggregate("agg0", AggregateCall("count", None, BIGINT)),
            NamedAggregate("agg1", AggregateCall("max", PRICE, DOUBLE)),
        ),
    )
    columns = (
        Named("auction", Column("key0", BIGINT)),
        Named("n", Column("agg0", BIGINT)),
        Named("top", Column("agg1", DOUBLE)),
    )
    assert CATALOG.queries["dear"][1] == Query(Project(aggregate, columns), "windows")


@pytest.mark.parametrize(
    ("written", "window"),
    [
        ("[RANGE 10 MINUTES]", TimeRange(10 * MINUTE)),
        ("[RANGE INTERVAL '10' MINUTE]", TimeRange(10 * MINUTE)),
        ("[RANGE '10 minutes']", TimeRange(10 * MINUTE)),
        ("[RANGE 6.4 SECONDS]", TimeRange(6_400_000)),
        ("[RANGE 1 h 30 min]", TimeRange(90 * MINUTE)),
        ("[RANGE 10 MINUTES SLIDE 1 MINUTE]", TimeSlide(10 * MINUTE, MINUTE)),
        ("[RANGE 10 min, SLIDE 1 min, WATTR at]", TimeSlide(10 * MINUTE, MINUTE)),
        ("[WA at, RANGE 10 MINUTES, SLIDE 1 MINUTE]", TimeSlide(10 * MINUTE, MINUTE)),
        ("[WATTR row_num ROWS 5 SLIDE 2]", RowsSlide(5, 2, (), "row_num")),
        ("[WA at RANGE ALL SLIDE 1 min]", Landmark(MINUTE)),
        ("[RANGE 1 MINUTE SLIDE 10 MINUTES]", TimeSlide(MINUTE, 10 * MINUTE)),
        ("[RANGE TUMBLING 10 MINUTES]", TimeSlide(10 * MINUTE, 10 * MINUTE)),
        (
            "[RANGE 2 s SLIDE 1 s ORIGIN TIMESTAMP '1970-01-01 00:00:07']",
            TimeSlide(2 * SECOND, SECOND, 7 * SECOND),
        ),
        ("[ROWS 5]", Rows(5)),
        ("[RANGE 5 ROWS]", Rows(5)),
        ("[ROWS 5 SLIDE 2]", RowsSlide(5, 2)),
        ("[ROWS 5 SLIDE 2 ROWS]", RowsSlide(5, 2)),
        ("[RANGE 5 ROWS, SLIDE 2 ROWS, PA auction]", RowsSlide(5, 2, (AUCTION,))),
        ("[PARTITION BY auction ROWS 5]", Rows(5, (AUCTION,))),
        ("[ROWS 5 SLIDE 2 WATTR row_num]", RowsSlide(5, 2, (), "row_num")),
        (
            "[RANGE 1000 rows, SLIDE 10 rows, WA row-num, PA auction]",
            RowsSlide(1000, 10, (AUCTION,), "row_num"),
        ),
        ("[RANGE 5 ROWS RATTR row_num SLIDE 2 ROWS SATTR row_num]", RowsSlide(5, 2, (), "row_num")),
        ("[ROWS 5 SLIDE 2 WATTR rank(at)]", RowsSlide(5, 2)),
        ("[RANGE 5 MINUTES SLIDE 1 ROW]", TupleSlide(5 * MINUTE, 1)),
        ("[RANGE 5 min RATTR at, SLIDE 1 row SATTR row-num]", TupleSlide(5 * MINUTE, 1, (), "row_num")),
        ("[RANGE 5 min RATTR at SLIDE 5 rows SATTR rank(bids.at)]", TupleSlide(5 * MINUTE, 5)),
        ("[RANGE 5 MINUTES SLIDE 3 PA auction]", TupleSlide(5 * MINUTE, 3, (AUCTION,))),
        ("[RANGE 5 MINUTES RATTR at, SLIDE 1 MINUTE SATTR at]", TimeSlide(5 * MINUTE, MINUTE)),
        ("[RANGE ALL, SLIDE 1 min, WATTR at]", Landmark(MINUTE)),
        ("[SESSION 5 MINUTES]", Session(5 * MINUTE)),
        ("[PARTITION BY auction, price SESSION 5 MINUTES WA at]", Session(5 * MINUTE, (AUCTION, PRICE))),
        ("[SESSION 5 min, PA auction]", Session(5 * MINUTE, (AUCTION,))),
        ("[DELTA 2.5 ON price]", Delta(2.5, PRICE)),
        ("[PARTITION BY auction DELTA 0 ON bidder]", Delta(0.0, Cast(BIDDER, DOUBLE), (AUCTION,))),
        ("[DELTA 1 ON price, PA auction]", Delta(1.0, PRICE, (AUCTION,))),
        ("[PARTITION BY auction, bids.price ROWS 5 SLIDE 1]", RowsSlide(5, 1, (AUCTION, PRICE))),
        ("[NOW]", TimeRange(0)),
        ("[RANGE UNBOUNDED]", Unbounded()),
        ("[ROWS UNBOUNDED]", Unbounded()),
        ("[LANDMARK SLIDE 1 HOUR]", Landmark(HOUR)),
        ("[RANGE ALL SLIDE 1 HOUR]", Landmark(HOUR)),
    ],
)
def test_each_bracket_is_its_window(written: str, window: Window) -> None:
    query = bound(f"SELECT auction FROM bids {written}")
    assert only(query, Windowed).window == window


def test_windows_of_group_by_and_of_table_functions_start_at_multiples() -> None:
    written = [
        "SELECT count(*) FROM bids GROUP BY window(at, '10 minutes', '1 minute', '5 seconds')",
        "SELECT count(*) FROM HOP(TABLE bids, DESCRIPTOR(at), INTERVAL 1 MINUTE, INTERVAL 10 MINUTES, INTERVAL 5 SECONDS)",
    ]
    for text in written:
        assert only(bound(text), Windowed).window == TimeSlide(10 * MINUTE, MINUTE, 10 * MINUTE + 5 * SECOND)
    tumble = bound("SELECT count(*) FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL 10 MINUTES)) AS b")
    assert only(tumble, Windowed).window == TimeSlide(10 * MINUTE, 10 * MINUTE, 10 * MINUTE)


def test_a_bracket_stands_below_where_and_group_by_window_above_it() -> None:
    bracket = bound("SELECT auction FROM bids [ROWS 5] WHERE price > 1")
    assert shape(bracket) == "Project < Filter < Windowed < StreamScan"
    grouped = bound("SELECT count(*) FROM bids WHERE price > 1 GROUP BY window(at, '1 minute')")
    assert shape(grouped) == "Project < Aggregate < Windowed < Filter < StreamScan"


def test_every_clause_has_its_place() -> None:
    query = bound(
        "SELECT DISTINCT name, count(*) AS n FROM bids [RANGE 1 HOUR] JOIN category ON auction = id"
        " WHERE price > 1 BEGIN NOW - INTERVAL 1 DAY END NOW GROUP BY name HAVING count(*) > 2 ORDER BY n DESC LIMIT 5"
    )
    expected = "Top < Distinct < Project < Filter < Aggregate < Bounds < Filter < Join < Windowed < StreamScan < RelationScan"
    assert shape(query) == expected
    bounds, top = only(query, Bounds), only(query, Top)
    assert (bounds.begin, bounds.end) == (Ago(24 * HOUR), Ago())
    assert top.order == (SortKey(Column("n", BIGINT), descending=True, nulls_first=False),)


def test_order_and_limit_read_what_the_select_list_reads() -> None:
    query = bound(
        "SELECT auction AS a, max(price) FROM bids [ROWS 9] GROUP BY 1 ORDER BY max(price) DESC, a LIMIT 3"
    )
    assert shape(query) == "Project < Top < Aggregate < Windowed < StreamScan"
    assert [key.expression for key in only(query, Top).order] == [
        Column("agg0", DOUBLE),
        Column("key0", BIGINT),
    ]


def test_an_aggregate_used_twice_is_computed_once() -> None:
    query = bound(
        "SELECT count(*), count(1), COUNT(*) + 1 AS more FROM bids [ROWS 9] HAVING count(*) > 0".replace(
            "count(1),", ""
        )
    )
    assert only(query, Aggregate).aggregates == (
        NamedAggregate("agg0", AggregateCall("count", None, BIGINT)),
    )


def test_a_bare_stream_is_streamed_and_an_aggregate_over_it_is_a_relation() -> None:
    rows = bound("SELECT price FROM bids WHERE price > 1")
    assert (rows.emission, shape(rows)) == ("stream", "Emit < Project < Filter < Windowed < StreamScan")
    assert bound("SELECT max(price) FROM bids").emission == "relation"
    assert bound("SELECT price FROM bids [RANGE UNBOUNDED]").emission == "relation"
    assert bound("SELECT price FROM bids BEGIN '2020-01-01' END '2021-01-01'").emission == "relation"


@pytest.mark.parametrize(
    "written", ["SELECT DSTREAM(price) FROM bids [ROWS 3]", "DSTREAM(SELECT price FROM bids [ROWS 3])"]
)
def test_a_relation_to_stream_operator_may_stand_in_or_around_the_select(written: str) -> None:
    query = bound(written)
    assert isinstance(query.root, Emit)
    assert (query.root.kind, query.emission) == ("dstream", "stream")


def test_a_comma_join_takes_its_equalities_from_where() -> None:
    comma = bound("SELECT name FROM category c, bids b WHERE b.auction = c.id AND price > 1")
    written = bound("SELECT name FROM bids b JOIN category c ON b.auction = c.id WHERE price > 1")
    using = bound("SELECT name FROM dear d [NOW] LEFT JOIN people p ON d.auction = p.id")
    assert comma == written
    assert isinstance(only(using, Join).left.source, QueryScan)


def test_a_column_named_in_using_is_shown_once() -> None:
    script = Catalog(
        "CREATE STREAM s (id BIGINT, x INT) USING push; CREATE RELATION r (id BIGINT, y INT) USING csv OPTIONS (path 'r');"
    )
    query = bind_query("SELECT *, id AS again FROM s JOIN r USING (id)", script)
    assert query.schema.names == ("id", "x", "y", "again")
    assert only(query, Join).condition == Call("=", (Column("s.id", BIGINT), Column("r.id", BIGINT)), BOOLEAN)


def test_window_bounds_are_read_by_both_names_and_are_no_keys() -> None:
    query = bound(
        "SELECT window.start, window_end, count(*) FROM bids GROUP BY window(at, '1 minute'), window_start"
    )
    assert only(query, Aggregate).keys == ()
    assert query.schema.names == ("start", "window_end", "count(1)")
    assert only(query, Project).columns[0].expression == Column("bids.window_start", TIMESTAMP)


def test_late_and_rejected_rows_are_sources_of_their_own() -> None:
    assert only(bound("SELECT price FROM bids LATE"), StreamScan).channel == "late"
    assert bound("SELECT * FROM bids REJECTS").schema.names == ("position", "text", "reason")


def test_silent_conversions_become_casts_and_exact_constants_are_converted_at_once() -> None:
    n = Column("events.n", INT)
    assert value("n + 1L") == Call("+", (Cast(n, BIGINT), Literal(1, BIGINT)), BIGINT)
    assert value("n > 1.5D") == Call(">", (Cast(n, DOUBLE), Literal(1.5, DOUBLE)), BOOLEAN)
    assert value("n + NULL") == Call("+", (n, Literal(None, INT)), INT)


def test_long_conjunctions_are_one_node() -> None:
    text = " AND ".join(f"n <> {number}" for number in range(10_000))
    conjunction = value(text)
    assert isinstance(conjunction, Call)
    assert (conjunction.function, len(conjunction.arguments)) == ("and", 10_000)
    assert transform(conjunction, lambda node: None) == conjunction
    assert len(conjuncts(conjunction)) == 10_000


def test_an_expression_over_a_schema_has_plain_column_names() -> None:
    schema = CATALOG.streams["bids"].schema
    assert bind_expression("price > 1", schema) == Call(
        ">", (Column("price", DOUBLE), Literal(1.0, DOUBLE)), BOOLEAN
    )


def test_a_range_of_nothing_is_now() -> None:
    assert only(bound("SELECT price FROM bids [RANGE 0 SECONDS]"), Windowed).window == TimeRange(0)
    assert bound("RSTREAM(SELECT count(*) FROM bids [RANGE 0 MINUTES])") == bound(
        "RSTREAM(SELECT count(*) FROM bids [NOW])"
    )


@pytest.mark.parametrize(
    ("selected", "grouped"),
    [
        (
            "window(at, '9 minutes').start AS a, window(bids.at, INTERVAL 9 MINUTES).end AS b",
            "window(at, '9 minutes')",
        ),
        (
            "WINDOW(at, '540 seconds').START AS a, MAX(window(at, '9 minutes').end) AS b",
            "window(at, '9 minutes')",
        ),
        (
            "window(at, '9 minutes', '1 minute', '2 seconds').end AS a",
            "window(at, '9 minutes', '1 minute', '2 seconds')",
        ),
        ("session_window(at, '9 minutes').start AS a", "auction, session_window(at, '9 minutes')"),
        (
            "COUNT(*) AS n",
            "window(at, '9 minutes') HAVING window(at, '9 minutes').end > window.start ORDER BY window(at, '9 minutes').start",
        ),
    ],
)
def test_a_window_of_group_by_may_be_written_again(selected, grouped):
    short = re.sub(r"(window)\((?:bids\.)?at[^()]*\)\.", r"\1.", selected, flags=re.IGNORECASE)
    clause, having, rest = grouped.partition(" HAVING ")
    short_rest = re.sub(r"(window)\(at[^()]*\)\.", r"\1.", rest)
    assert short != selected or short_rest != rest
    long_text = f"SELECT {selected} FROM bids GROUP BY {grouped}"
    assert bound(long_text) == bound(f"SELECT {short} FROM bids GROUP BY {clause}{having}{short_rest}")
