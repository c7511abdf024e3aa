"""The examples of "On computing correlated aggregates over continual data streams": calls of customers, section 2."""

from __future__ import annotations

import datetime as dt

import headrace as hr
from headrace.algebra.expressions.correlated import levels
from headrace.algebra.query import Aggregate, walk
from headrace.language.binder.query_binder import bind_query
from tests.language.catalog import Catalog

CALLS = "CREATE STREAM calls (origin INT, dialed INT, duration DOUBLE, international BOOLEAN, at TIMESTAMP) USING push TIMESTAMP BY at;"
EXAMPLES = {
    "one": "SELECT COUNT_IF(international AND duration > 10) AS n FROM calls [RANGE 60 DAYS SLIDE 1 DAY]",
    "two": "SELECT COUNT_IF(international AND duration >= AVG(duration)) AS n FROM calls [LANDMARK SLIDE 1 DAY]",
    "three": "SELECT COUNT_IF(international AND duration >= 0.9 * MAX(duration)) AS n FROM calls [RANGE 14 DAYS SLIDE 1 DAY]",
    "domestic": "SELECT COUNT_IF(international AND duration > AVG(duration) FILTER (WHERE NOT international))"
    " / COUNT(*) AS share FROM calls [RANGE TUMBLING 1 DAY]",
    "by customer": "SELECT origin, COUNT_IF(international AND duration > AVG(duration)) / COUNT_IF(duration > AVG(duration)) AS share"
    " FROM calls [RANGE TUMBLING 1 DAY] GROUP BY origin HAVING COUNT_IF(duration > AVG(duration)) > 0",
    "of the lesser": "SELECT MAX(dialed) FILTER (WHERE duration < AVG(duration)) AS m FROM calls [RANGE TUMBLING 1 DAY]",
}
START = dt.datetime(2024, 1, 1, 6, tzinfo=dt.UTC)
ROWS = [
    {"origin": 1, "dialed": 7, "duration": 12.0, "international": True, "at": START},
    {"origin": 1, "dialed": 8, "duration": 3.0, "international": False, "at": START + dt.timedelta(hours=1)},
    {"origin": 2, "dialed": 5, "duration": 11.0, "international": True, "at": START + dt.timedelta(hours=2)},
    {"origin": 2, "dialed": 9, "duration": 30.0, "international": False, "at": START + dt.timedelta(days=20)},
    {"origin": 2, "dialed": 9, "duration": 28.0, "international": True, "at": START + dt.timedelta(days=21)},
]


def answered(name: str) -> list[dict[str, object]]:
    return hr.test(EXAMPLES[name], calls=ROWS)


def level(name: str) -> int:
    query = bind_query(EXAMPLES[name], Catalog(CALLS))
    (node,) = (node for node in walk(query.root) if isinstance(node, Aggregate))
    return max(levels(node.aggregates).values())


def test_example_1_is_of_level_0_and_examples_2_and_3_of_level_1() -> None:
    assert [level(name) for name in EXAMPLES] == [0, 1, 1, 1, 1, 1]


def test_a_sliding_scope_of_level_0() -> None:
    assert [row["n"] for row in answered("one")][:1] == [2]


def test_a_landmark_scope_compares_with_the_average_since_the_landmark() -> None:
    counts = [row["n"] for row in answered("two")]
    assert counts[0] == 2, "12 and 11 are above the average of 12, 3, 11"
    assert counts[-1] == 1, "of all five only 28 is above 16.8 and international"


def test_a_sliding_scope_compares_with_the_greatest_of_its_own_window() -> None:
    counts = [row["n"] for row in answered("three")]
    assert counts[0] == 2
    assert counts[-1] == 1
    assert 1 in counts


def test_the_share_of_international_calls_longer_than_the_average_domestic_one() -> None:
    assert [row["share"] for row in answered("domestic")] == [2 / 3, 0.0, 0.0]


def test_the_share_of_each_customer() -> None:
    assert [tuple(row.values()) for row in answered("by customer")] == [(1, 1.0)]


def test_the_greatest_of_what_goes_with_values_below_the_average() -> None:
    assert [row["m"] for row in answered("of the lesser")] == [8, None, None]
