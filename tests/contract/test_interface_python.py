"""§6 of the interface: what a program types. Without a JVM; tests/runtime has the same on Spark."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pyarrow as pa
import pytest

import headrace as hr
from headrace.runtime.hub.opening import open_hub


def at(seconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


ROWS = [
    {"k": "a", "v": 1, "at": at(0)},
    {"k": None, "v": 2, "at": at(61)},
    {"k": "a", "v": 3, "at": at(59.999999)},
]
STREAM = "CREATE STREAM cars (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 5 SECONDS"
MINUTES = "SELECT window_end, k, COUNT(*) AS n FROM cars [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k"


@pytest.fixture
def hub(tmp_path):
    with open_hub(tmp_path / "home", local=True) as opened:
        opened.execute(STREAM)
        yield opened


def test_a_query_is_tried_on_rows_without_anything_running() -> None:
    answer = hr.test("SELECT k, COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k", s=ROWS)
    assert answer == [{"k": "a", "n": 2}, {"k": None, "n": 1}]
    joined = hr.test(
        "SELECT s.k, v, name FROM s LEFT JOIN r ON s.k = r.k", s=ROWS, r=[{"k": "a", "name": "A"}]
    )
    assert [row["name"] for row in joined] == ["A", "A", None]
    with pytest.raises(hr.UserError, match=r"line 1, column 8: there is no column 'x'"):
        hr.test("SELECT x FROM s", s=ROWS)


def test_before_anything_an_answer_is_zero_rows_with_the_schema(hub) -> None:
    names = {"w": MINUTES, "r": "SELECT SUM(v) AS t FROM cars", "s": "SELECT k, v FROM cars"}
    queries = {name: hub.register(text, name=name) for name, text in names.items()}
    assert [query.invoke().num_rows for query in queries.values()] == [0, 0, 0]
    assert queries["w"].invoke().schema.types == [pa.timestamp("us", tz="UTC"), pa.string(), pa.int64()]
    assert queries["w"].history().column_names == ["window_end", "k", "n"]
    assert queries["r"].history().column_names == ["t", "__change", "__at"]


def test_rows_are_pushed_in_any_shape_and_answers_asked_followed_and_looked_back_at(hub) -> None:
    busy, now = (
        hub.register(MINUTES, name="busy"),
        hub.register("SELECT SUM(v) AS t FROM cars [NOW]", name="now"),
    )
    table = pa.Table.from_pylist(ROWS)
    assert (
        hub.push("cars", ROWS)
        == hub.push("cars", table.to_pandas())
        == hub.push("cars", table.select([2, 1, 0]))
        == 3
    )
    hub.run_once()
    assert busy.invoke().to_pylist() == []  # punctuation is 56: no window is closed
    assert now.invoke().to_pylist() == [{"t": 6}]
    hub.push("cars", [{"k": "z", "v": 7, "at": at(130)}, {"k": "late", "v": 1, "at": at(55)}])
    hub.run_once()
    first, second = {"window_end": at(60), "k": "a", "n": 6}, {"window_end": at(120), "k": None, "n": 3}
    assert busy.history().to_pylist() == [first, second]
    assert busy.history(since=at(60.000001)).to_pylist() == busy.invoke().to_pylist() == [second]
    assert [row for part in busy.follow(since=at(0)) for row in part.to_pylist()] == [first, second]
    assert list(busy.follow()) == []  # only rows from now on, and nothing runs
    busy.drop()
    with pytest.raises(hr.UserError, match="there is no query 'busy'"):
        busy.invoke()


def test_a_relation_is_followed_as_changes_once_per_instant_below_punctuation(hub) -> None:
    sums = hub.register("SELECT k, SUM(v) AS t FROM cars [RANGE 20 SECONDS] GROUP BY k", name="sums")
    hub.push(
        "cars",
        [{"k": "a", "v": 1, "at": at(0)}, {"k": "a", "v": 2, "at": at(0)}, {"k": "b", "v": 4, "at": at(30)}],
    )
    hub.run_once()
    changes = [tuple(row.values()) for part in sums.follow(since=at(0)) for row in part.to_pylist()]
    assert changes == [("a", 3, 1, at(0)), ("a", 3, -1, at(20.000001))]
    assert sums.invoke().to_pylist() == [{"k": "b", "t": 4}]


def test_what_makes_no_sense_to_a_standing_query_is_refused_in_words(hub) -> None:
    with pytest.raises(hr.UserError, match="a name cannot be empty"):
        hub.register("SELECT k FROM cars", name="")
    query = hub.register("SELECT k FROM cars", name="q")
    for since in ("1970-01-01", at(0).date()):
        with pytest.raises(hr.UserError, match=f"not {type(since).__name__}"):
            query.history(since=since)


WRONG = {
    "no stream": ("nope", ROWS, "there is no stream 'nope'"),
    "a column too many": ("cars", [{"zz": 1}], "has no column 'zz'"),
    "a wrong type": ("cars", [{"k": "a", "v": "x", "at": at(1)}], "column v has to be BIGINT"),
}


@pytest.mark.parametrize("name", WRONG)
def test_rows_that_do_not_fit_are_refused_whole(hub, name) -> None:
    stream, rows, message = WRONG[name]
    with pytest.raises(hr.UserError, match=message):
        hub.push(stream, rows)
    hub.run_once()
    assert hub.status()["streams"]["cars"].get("rows", 0) == 0


@pytest.mark.parametrize(
    ("master", "chosen", "used"),
    [
        ("local[2]", "python3", sys.executable),
        ("local[2]", "/my/python", "/my/python"),
        ("yarn", "python3", "python3"),
    ],
)
def test_workers_of_a_users_local_session_run_this_python_unless_one_was_chosen(master, chosen, used) -> None:
    from headrace.runtime.spark.given_session import our_python

    context = SimpleNamespace(master=master, pythonExec=chosen)
    with our_python(context):
        assert context.pythonExec == used
    assert context.pythonExec == chosen


HIDDEN = {
    "windows, ordered by what is not selected": (
        "SELECT k, COUNT(*) AS n FROM cars [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k ORDER BY MAX(v) DESC LIMIT 2",
        ["k", "n"],
    ),
    "windows of partitions": ("SELECT k, v FROM cars [PARTITION BY k ROWS 2 SLIDE 1]", ["k", "v"]),
    "HAVING on what is not selected": (
        "SELECT k FROM cars [RANGE TUMBLING 1 MINUTE] GROUP BY k HAVING COUNT(v) FILTER (WHERE v > 0) > 0",
        ["k"],
    ),
    "differences of windows": ("SELECT ISTREAM(k) FROM cars [RANGE TUMBLING 1 MINUTE]", ["k"]),
    "a stream": ("SELECT v FROM cars WHERE k IS NOT NULL", ["v"]),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_an_answer_has_exactly_the_selected_columns_however_it_is_asked_for(hub, name) -> None:
    text, columns = HIDDEN[name]
    query = hub.register(text, name="q")
    hub.push("cars", [*ROWS, {"k": "b", "v": 9, "at": at(200)}])
    closing = hub.run_once()
    assert query.history().num_rows > 0
    for answer in (query.history(), query.invoke(), *closing.values()):
        assert answer.column_names == columns
