"""A bound query rendered as text and read back is the same query; a definition too."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, note

from headrace.catalog.definition_json import from_json, to_json
from headrace.catalog.definitions import ActionDefinition, QueryDefinition, StreamDefinition
from headrace.errors import UserError
from headrace.language.binder.query_binder import bind_query
from headrace.language.statements.create_text import create_query_text
from headrace.language.statements.statement import CreateQuery, CreateRelation, CreateStream
from headrace.time import HOUR, SECOND
from tests.language.catalog import Catalog
from tests.language.one_statement import parse_statement
from tests.language.rendering.definition_text import render_relation, render_stream
from tests.language.rendering.query_text import render
from tests.language.texts import selects

CATALOG = Catalog()
ACTIONS = (
    ActionDefinition("call", "https://example.org/a'b", (("attempts", "3"), ("batch", "10"))),
    ActionDefinition("notify", "mailto:a@b.org", (("sender", "c@d.org"), ("server", "smtps://d.org"))),
    ActionDefinition("stream", "two words"),
    ActionDefinition("folder", "/data/out", (("format", "json"),)),
)


@given(selects())
def test_every_query_survives_being_rendered(text: str) -> None:
    query = bind_query(text, CATALOG)
    rendered = render(query)
    note(text)
    note(rendered)
    assert bind_query(rendered, CATALOG) == query
    assert render(bind_query(rendered, CATALOG)) == rendered


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM bids",
        "SELECT * FROM bids LATE WHERE price > 1",
        "SELECT reason FROM bids REJECTS",
        "SELECT `odd name` AS `a``b`, 'it''s' AS s, 'back\\\\slash' AS t FROM events",
        "SELECT d * 2, d + 1.5, d / n, -d, 9999999999999999999 AS big FROM events",
        "SELECT ntz - INTERVAL '1 02:03:04.5' DAY TO SECOND, day + 1, NULL AS nothing FROM events",
        "SELECT n + NULL, CAST(NULL AS DECIMAL(5,2)), -2147483648 AS a, -9223372036854775808 AS b FROM events",
        "SELECT n FROM dear [RANGE 1 HOUR SLIDE 1 HOUR] WHERE n > 2",
        "SELECT window.end, n FROM (SELECT window_end, COUNT(*) AS n FROM bids [RANGE TUMBLING 1 HOUR]) [RANGE TUMBLING 1 DAY]",
        "SELECT auction FROM bids WHERE price > 2 WITH REVISIONS",
        "SELECT auction FROM bids [NOW] EXCEPT ALL SELECT auction FROM bids [ROWS 3] EXCEPT ALL SELECT n FROM events [NOW]",
        "ISTREAM(SELECT auction FROM bids [NOW] INTERSECT ALL SELECT auction FROM bids [ROWS 3] ORDER BY auction LIMIT 2)",
        "SELECT COUNT(*) FROM (SELECT ISTREAM(x.at AS t, y.price) FROM bids x [RANGE 1 HOUR], bids y [NOW]) AS p [RANGE 5 MINUTES SLIDE 1 MINUTE WATTR t]",
        "SELECT COUNT(*) FROM (SELECT ISTREAM(x.at AS t) FROM bids x [NOW], bids y [NOW]) AS p WHERE p.t IS NOT NULL GROUP BY window(p.t, '5 minutes')",
        "SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM bids [RANGE TUMBLING 1 HOUR] GROUP BY auction) [RANGE 2 HOURS]",
        "SELECT t.a FROM (SELECT a FROM (SELECT auction AS a, price FROM bids) WHERE price > 3) AS t [ROWS 3 SLIDE 3]",
        "SELECT auction FROM bids WHERE auction NOT IN (SELECT id FROM category) OR bidder IN (SELECT id FROM people)",
        "SELECT COUNT(*) FROM bids JOIN category ON id = auction WHERE NOT EXISTS (SELECT * FROM people p WHERE p.id = bidder) GROUP BY price",
        "SELECT * FROM bids WHERE price > 1 AND auction IN (SELECT auction FROM dear [NOW]) AND bids IN (SELECT * FROM bids [ROWS 9])",
        (
            "SELECT in0.price FROM bids in0 LEFT JOIN category c ON c.id = in0.auction WHERE c.name IN (SELECT k FROM events [NOW])"
            " AND bidder IN (SELECT id FROM people) AND at IN (SELECT at FROM bids [ROWS 2] ORDER BY price LIMIT 1)"
        ),
        "SELECT bidder FROM bids WHERE auction IN (SELECT x.n FROM (SELECT n FROM events [ROWS 9] WHERE n IN (SELECT n FROM counted)) x)",
        "SELECT auction FROM bids [ROWS 2] UNION ALL SELECT n FROM events [NOW] UNION ALL SELECT id FROM people, bids [NOW]",
        "SELECT auction, price FROM bids [NOW] UNION SELECT n, d FROM events [ROWS 3] ORDER BY price DESC, 1 LIMIT 3",
        (
            "SELECT auction FROM bids [ROWS 2] EXCEPT SELECT n FROM events [NOW] MINUS SELECT 1 FROM bids [RANGE 1 HOUR] INTERSECT"
            " DISTINCT SELECT bidder FROM bids [ROWS 9] ORDER BY auction LIMIT 2"
        ),
        "ISTREAM((SELECT d FROM events [ROWS 5] ORDER BY n LIMIT 2) UNION ALL (SELECT DISTINCT n FROM events [NOW] UNION SELECT 1 FROM bids [NOW]))",
        "SELECT auction FROM bids UNION ALL ISTREAM(SELECT n FROM events [NOW]) UNION ALL SELECT n FROM dear",
        "SELECT t.x FROM (SELECT auction AS x FROM bids [NOW] EXCEPT SELECT 1 FROM events [NOW]) t WHERE x IN (SELECT n FROM counted UNION SELECT 1 FROM bids [NOW])",
        "SELECT auction FROM bids WHERE auction IN (SELECT n FROM counted EXCEPT SELECT 1 FROM bids [NOW] ORDER BY 1) AND price IN (SELECT n FROM counted INTERSECT SELECT n FROM counted)",
        "SELECT auction FROM bids WHERE auction IN (SELECT n FROM counted UNION ALL SELECT 1 FROM bids [NOW]) AND bidder IN (SELECT n FROM events [NOW] UNION SELECT n FROM events [ROWS 2] ORDER BY n LIMIT 1)",
        "SELECT price FROM bids [NOW] UNION ALL (SELECT n FROM counted EXCEPT SELECT 1 FROM events [NOW] LIMIT 3)",
        "SELECT 1 AS a, n FROM events [NOW] UNION (SELECT 1, 1 FROM bids [NOW]) EXCEPT SELECT 2, 2 FROM bids [NOW]",
        "SELECT n FROM events UNION ALL SELECT ISTREAM(d) FROM events [ROWS 2]",
        "SELECT COUNT(*) FROM bids [RANGE TUMBLING 1 HOUR] EMIT EMPTY WITH REVISIONS FOR INTERVAL 90 MINUTES",
        (
            "SELECT auction, COUNT(*) AS n, AVG(price) FILTER (WHERE bidder > 1), MAX(price) AS top "
            "FROM bids [RANGE TUMBLING 1 HOUR] WHERE price > 1 GROUP BY auction ORDER BY n DESC WITH SHEDDING"
        ),
        "SELECT SUM(price) AS s, COUNT(bidder) AS c, window.end FROM bids GROUP BY window(at, '1 minute') WITH SHEDDING",
        "SELECT m FROM (SELECT COUNT(*) AS m FROM bids [LANDMARK SLIDE 1 HOUR] WITH SHEDDING) [RANGE 1 HOUR] WHERE m_error < 5",
        (
            "SELECT COUNT(*) AS n FROM bids [RANGE TUMBLING 1 HOUR] WITH SHEDDING WITH QOS (delay (1 AT 2 SECONDS, 0 AT 10 SECONDS),"
            " loss (1 AT 0 PERCENT, 0.9 AT 10 PERCENT, 0 AT 50 PERCENT), value PRICE (0.1 BELOW -1.5, 0.5 BELOW 100, 1 OTHERWISE))"
        ),
        "SELECT auction FROM bids WITH REVISIONS FOR INTERVAL 5 SECONDS WITH QOS (delay (1 AT 500 MILLISECONDS))",
        (
            "SELECT APPROX_COUNT_DISTINCT(auction) WITHIN 2 PERCENT AS n, ERROR_BOUND(n) AS b FROM bids [RANGE TUMBLING 1 HOUR]"
            " WITH QOS (error (1 AT 1 TIMES, 0.9 AT 4 TIMES, 0.5 AT 8 TIMES))"
        ),
        "SELECT window.start FROM bids GROUP BY window(at, '1 minute')",
        "SELECT count(*) FROM bids WHERE price > 1 GROUP BY window(at, '1 minute'), 'x', 5 + 0",
        "SELECT APPROX_COUNT(*) WITHIN 0.125 PERCENT AS n, ERROR_BOUND(n) + 1 AS b FROM bids [RANGE TUMBLING 1 HOUR]",
        (
            "SELECT APPROX_DISTINCT(k) WITHIN 5 PERCENT AS d, APPROX_TOP_K(k, 3) AS t, APPROX_PERCENTILE(n, 0.9) AS p, "
            "ERROR_BOUND(p) AS b, L2_NORM(k) WITHIN 5 PERCENT AS l FROM events [RANGE 5 MINUTES SLIDE 1 MINUTE]"
        ),
        (
            "SELECT COUNT(*) FILTER (WHERE n > AVG(n)) BUCKETS 3 AS a, SUM(n) FILTER (WHERE n >= MIN(n) + 1) WITHIN 2 PERCENT AS s "
            "FROM events [RANGE 5 MINUTES SLIDE 1 MINUTE]"
        ),
        "SELECT APPROX_SUM(n) FILTER (WHERE ok) AS s, ERROR_BOUND(APPROX_COUNT(k)) AS b FROM events [ROWS 5]",
        "SELECT auction, COUNT(*) FILTER (WHERE price > AVG(price)) AS n FROM bids [ROWS 5 SLIDE 5] GROUP BY auction",
        "SELECT COUNT_IF(n > 2 * MIN(n) FILTER (WHERE n > AVG(n))), MIN(n) FROM events [RANGE TUMBLING 1 HOUR]",
        "SELECT count(DISTINCT 1), count(NULL) FROM bids",
        "SELECT `select`.`from` FROM s `select` [PARTITION BY `from` ROWS 2]",
    ],
)
def test_these_queries_survive_being_rendered(text: str) -> None:
    catalog = Catalog()
    stream = parse_statement("CREATE STREAM s (`from` INT) USING push")
    assert isinstance(stream, CreateStream)
    catalog.streams["s"] = stream.definition
    query = bind_query(text, catalog)
    assert bind_query(render(query), catalog) == query


def test_definitions_survive_being_rendered() -> None:
    stream = CATALOG.streams["bids"]
    variants: list[StreamDefinition] = [
        *CATALOG.streams.values(),
        replace(
            stream,
            punctuated_by="price > 1",
            idle_timeout=HOUR,
            max_ahead=SECOND,
            archive="in place",
            slack=0,
        ),
        replace(stream, name="odd `name`", options={"path": "it's\\", "a.b": "1"}),
    ]
    for definition in variants:
        parsed = parse_statement(render_stream(definition))
        assert isinstance(parsed, CreateStream)
        assert parsed.definition == definition
    for relation in CATALOG.relations.values():
        again = parse_statement(render_relation(relation))
        assert isinstance(again, CreateRelation)
        assert again.definition == relation
    query = QueryDefinition("q", "SELECT price\n  FROM bids -- all of it", from_now=True, actions=ACTIONS)
    read = parse_statement(create_query_text(query))
    assert isinstance(read, CreateQuery)
    assert read.definition == replace(query, text="SELECT price\n  FROM bids")
    assert from_json(QueryDefinition, json.loads(json.dumps(to_json(query)))) == query


def test_a_rendered_query_may_fail_to_parse_only_when_it_nests_too_deep() -> None:
    text = "SELECT " + "+".join(["auction"] * 99) + " AS v FROM bids"
    rendered = render(bind_query(text, CATALOG))
    try:
        assert bind_query(rendered, CATALOG) == bind_query(text, CATALOG)
    except UserError as error:
        assert "nest deeper" in error.message  # noqa: PT017
