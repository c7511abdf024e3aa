"""What `x IN (SELECT …)` over what changes is bound to: a join with the different rows of what the SELECT holds."""

import pytest

from headrace.algebra.expressions.expression import Column
from headrace.algebra.query import Project, Query, QueryScan, SemijoinColumn, Windowed, walk
from headrace.algebra.windows.window import Changing, TimeRange, Unbounded
from headrace.errors import UserError
from headrace.language.binder.query_binder import bind_query
from headrace.time import HOUR
from tests.language.catalog import Catalog
from tests.language.rendering.query_text import render

CATALOG = Catalog()


def bound(text: str) -> Query:
    return bind_query(text, CATALOG)


def shape(query: Query) -> str:
    return " < ".join(type(node).__name__ for node in walk(query.root))


def looked_into(query: Query) -> list[Query]:
    """The relations that are read in FROM, seen or not."""
    return [node.query for node in walk(query.root) if isinstance(node, QueryScan) and node.query is not None]


def test_in_is_a_join_with_each_different_row_and_the_stream_is_as_bare_as_before() -> None:
    query = bound("SELECT price FROM bids WHERE price > 1 AND auction IN (SELECT auction FROM bids [ROWS 5])")
    assert (query.emission, shape(query)) == (
        "stream",
        "Emit < Project < Filter < Join < Windowed < StreamScan < Windowed < QueryScan",
    )
    left, right = (node for node in walk(query.root) if isinstance(node, Windowed))
    assert left.window == Unbounded()
    assert isinstance(right.window, Changing)
    (inner,) = looked_into(query)
    assert (inner.emission, shape(inner)) == ("relation", "Distinct < Project < Windowed < StreamScan")


ONE, TWO = "b.auction = in0.c0", "b.auction = in0.c0 AND b.bidder = in0.c1"
ALL = f"{TWO} AND b.price = in0.c2 AND b.at = in0.c3"


@pytest.mark.parametrize(
    ("condition", "join", "on"),
    [
        ("auction IN (SELECT bidder FROM bids [ROWS 5])", "SELECT DISTINCT bidder AS c0 FROM bids [ROWS 5]", ONE),
        ("auction IN (SELECT DISTINCT bidder FROM bids [NOW])", "SELECT DISTINCT bidder AS c0 FROM bids [NOW]", ONE),
        ("auction IN (SELECT n FROM counted)", "SELECT DISTINCT n AS c0 FROM counted", ONE),
        ("auction IN (SELECT n FROM events [NOW])", "SELECT DISTINCT CAST(n AS BIGINT) AS c0 FROM events [NOW]", ONE),
        ("auction IN (SELECT k FROM events [NOW])", "SELECT DISTINCT CAST(k AS BIGINT) AS c0 FROM events [NOW]", ONE),
        ("auction IN (SELECT bidder FROM bids [NOW] ORDER BY price)", "SELECT DISTINCT bidder AS c0 FROM bids [NOW]", ONE),
        (
            "auction + 1 IN (SELECT auction DIV 7 FROM bids [NOW])",
            "SELECT DISTINCT auction DIV 7 AS c0 FROM bids [NOW]",
            "b.auction + 1 = in0.c0",
        ),
        (
            "(auction, price) IN (SELECT auction, MAX(n) FROM dear [RANGE 1 HOUR] GROUP BY auction HAVING COUNT(*) > 3)",
            "SELECT DISTINCT auction AS c0, CAST(MAX(n) AS DOUBLE) AS c1 FROM dear [RANGE 1 HOUR] GROUP BY auction HAVING COUNT(*) > 3",
            "b.auction = in0.c0 AND b.price = in0.c1",
        ),
        (
            "(auction, bidder) IN (SELECT auction AS a, bidder AS a FROM bids [NOW])",
            "SELECT DISTINCT auction AS c0, bidder AS c1 FROM bids [NOW]",
            TWO,
        ),
        (
            "(auction, bidder) IN (SELECT x.auction, y.auction FROM bids x [NOW] JOIN dear y [NOW] USING (auction))",
            "SELECT DISTINCT x.auction AS c0, y.auction AS c1 FROM bids x [NOW] JOIN dear y [NOW] USING (auction)",
            TWO,
        ),
        (
            "b IN (SELECT * FROM bids [NOW])",
            "SELECT DISTINCT auction AS c0, bidder AS c1, price AS c2, at AS c3 FROM bids [NOW]",
            ALL,
        ),
        (
            "B IN (SELECT x.auction, y.* FROM bids x [NOW], (SELECT bidder, price, at FROM bids [ROWS 3]) y)",
            "SELECT DISTINCT x.auction AS c0, y.bidder AS c1, y.price AS c2, y.at AS c3 FROM bids x [NOW], (SELECT bidder, price, at FROM bids [ROWS 3]) y",
            ALL,
        ),
        (
            "auction IN (SELECT bidder FROM bids [ROWS 9] ORDER BY price LIMIT 3)",
            "SELECT DISTINCT c0 FROM (SELECT bidder AS c0 FROM bids [ROWS 9] ORDER BY price LIMIT 3) AS members",
            ONE,
        ),
        (
            "auction IN (SELECT DISTINCT bidder FROM bids [ROWS 9] ORDER BY 1 LIMIT 3)",
            "SELECT DISTINCT c0 FROM (SELECT DISTINCT bidder AS c0 FROM bids [ROWS 9] ORDER BY 1 LIMIT 3) AS members",
            ONE,
        ),
        (
            "auction IN (SELECT bidder FROM bids [NOW] WHERE bidder IN (SELECT auction FROM dear [NOW]) AND bidder IN (SELECT id FROM people))",
            "SELECT DISTINCT bidder AS c0 FROM bids [NOW] WHERE bidder IN (SELECT auction FROM dear [NOW]) AND bidder IN (SELECT id FROM people)",
            ONE,
        ),
    ],
)  # fmt: skip
def test_in_is_the_join_that_could_be_written(condition: str, join: str, on: str) -> None:
    written = f"SELECT b.price FROM bids b [RANGE UNBOUNDED] JOIN ({join}) AS in0 ON {on}"
    assert bound(f"SELECT price FROM bids b WHERE {condition}") == bound(f"ISTREAM({written})")
    windowed = written.replace("b [RANGE UNBOUNDED]", "b [RANGE 1 HOUR]")
    assert bound(f"SELECT price FROM bids b [RANGE 1 HOUR] WHERE {condition}") == bound(windowed)


def test_what_is_looked_into_is_hidden() -> None:
    query = bound(
        "SELECT * FROM bids in0 WHERE auction IN (SELECT n FROM counted) AND bidder IN (SELECT id FROM people)"
    )
    assert query.schema.names == ("auction", "bidder", "price", "at")
    (project,) = (node for node in walk(query.root) if isinstance(node, Project))
    assert project.columns[0].expression == Column("in0.auction", project.columns[0].expression.type)
    assert [node.alias for node in walk(query.root) if isinstance(node, Windowed)] == ["in0", "in1"]
    assert [node.right.alias for node in walk(query.root) if isinstance(node, SemijoinColumn)] == ["in2"]
    with pytest.raises(UserError, match="there is no source 'in0' in FROM"):
        bound("SELECT in0.c0 FROM bids WHERE auction IN (SELECT n FROM counted)")
    with pytest.raises(UserError, match="there is no column 'c0'"):
        bound("SELECT c0 FROM bids WHERE auction IN (SELECT n FROM counted)")


def test_a_column_called_as_its_source_is_the_column() -> None:
    script = Catalog("CREATE STREAM s (s INT, t INT) USING push")
    query = bind_query("SELECT t FROM s WHERE s IN (SELECT t FROM s [NOW])", script)
    assert "(s.s = in0.c0)" in render(query)


def test_conditions_stand_where_they_stood_without_it() -> None:
    with_in = "SELECT name FROM bids b, category c WHERE price > 1 AND (auction IN (SELECT n FROM counted) AND b.auction = c.id) AND name > 'a'"
    written = "SELECT name FROM bids b [RANGE UNBOUNDED] JOIN (SELECT DISTINCT n AS c0 FROM counted) in0 ON b.auction = in0.c0, category c WHERE price > 1 AND b.auction = c.id AND name > 'a'"
    assert bound(with_in) == bound(f"ISTREAM({written})")


def test_over_stored_relations_alone_nothing_is_joined() -> None:
    for condition in (
        "auction IN (SELECT id FROM category)",
        "auction IN (SELECT c.id other FROM category AS c WHERE c.name > 'a' AND c.id <> bidder)",
        "auction IN (SELECT DISTINCT id FROM category)",
        "EXISTS (SELECT c.* FROM category c WHERE c.id = auction)",
    ):
        query = bound(f"SELECT price FROM bids WHERE {condition}")
        assert (
            shape(query) == "Emit < Project < Filter < SemijoinColumn < Windowed < StreamScan < RelationScan"
        )


def test_a_stretch_up_to_now_is_the_window_beside_it() -> None:
    query = bound(
        "SELECT price FROM bids WHERE auction IN (SELECT n FROM counted) BEGIN NOW - INTERVAL 1 HOUR END NOW"
    )
    assert query.emission == "relation"
    assert next(node.window for node in walk(query.root) if isinstance(node, Windowed)) == TimeRange(HOUR)


def test_times_inside_are_read_by_the_clocks_of_the_query() -> None:
    text = "SELECT price FROM bids WHERE at IN (SELECT '2020-01-01' FROM events [NOW]) AND 3 IN (SELECT hour(at) FROM bids [NOW])"
    query = bind_query(text, CATALOG, zone="Europe/Berlin")
    assert render(query).count("'Europe/Berlin'") == 2
    assert bind_query(render(query), CATALOG) == query


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("(bids [PARTITION BY auction ROWS 1]) AS b", "bids [PARTITION BY auction ROWS 1] AS b"),
        ("(bids [ROWS 1])", "bids [ROWS 1]"),
        ("(bids a [ROWS 1]) b", "bids [ROWS 1] AS b"),
        ("(bids b [ROWS 1])", "bids AS b [ROWS 1]"),
        ("(bids) [ROWS 1] AS b", "bids AS b [ROWS 1]"),
        ("(bids UNION ALL bids [ROWS 1]) AS b", "bids UNION ALL bids [ROWS 1] AS b"),
    ],
)
def test_a_source_may_stand_in_parentheses(written: str, plain: str) -> None:
    assert bound(f"SELECT COUNT(*) AS n FROM {written}") == bound(f"SELECT COUNT(*) AS n FROM {plain}")
