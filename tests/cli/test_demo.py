"""The demo, on the executor without a JVM: it ends, shows every query, and can be run again."""

from __future__ import annotations

from datetime import datetime

import duckdb
import pytest

import headrace as hr
from tests.cli.building import headrace

HOUR = 3_600_000_000
DAY = 24 * HOUR
# What DuckDB makes of the same event files, and the columns of the query that it computes. Instants are microseconds.
DEPARTED = "departed AS (SELECT *, epoch_us(departed) AS t, MAX(epoch_us(departed)) OVER () AS last FROM '{data}/departures/*.parquet')"
ELSEWHERE = {
    "traffic": f"""SELECT t // {DAY} * {DAY} AS day, origin, COUNT(*) AS departures, SUM(miles) AS miles
        FROM departed WHERE t // {DAY} < last // {DAY} GROUP BY ALL""",
    "delay_now": f"""SELECT (t // {HOUR // 2} + k) * {HOUR // 2} AS "at", origin, COUNT(*) AS flights,
        AVG(delay) AS mean_delay FROM departed, range(1, 7) AS ends(k) WHERE "at" <= last GROUP BY ALL""",
    "stranded": "SELECT t AS departed, carrier, flight, origin, dest, delay FROM departed WHERE delay > 720",
    "airline_week": f"""SELECT t // {7 * DAY} * {7 * DAY} AS week, name AS airline, COUNT(*) AS flights,
        AVG(delay) AS mean_delay FROM departed JOIN '{{data}}/airlines.csv' USING (carrier)
        WHERE week + {7 * DAY} <= last GROUP BY ALL""",
    "far_away": f"""SELECT t // {7 * DAY} * {7 * DAY} AS week, dest, COUNT(*) AS flights, MAX(delay) AS longest_delay
        FROM departed WHERE miles > 4000 AND week + {7 * DAY} <= last GROUP BY ALL""",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("demo") / "home"


@pytest.fixture(scope="module")
def first(home):
    return headrace("demo", "--home", home)


def test_every_query_shows_rows_of_the_year(first) -> None:
    assert first.returncode == 0, first.stderr
    assert "SLACK INTERVAL 349 MINUTES would have kept all" in first.stderr
    assert "query far_away registered" in first.stderr
    assert "query for_a_while dropped" in first.stderr
    queries = (
        "traffic",
        "delay_now",
        "stranded",
        "airline_week",
        "worst_destinations",
        "storms",
        "carriers",
        "far_away",
    )
    assert [name for name in queries if f"\n{name}: " not in f"\n{first.stdout}"] == []
    assert "for_a_while" not in first.stdout
    assert "2013-12-31T00:00:00Z  LGA            246  202928" in first.stdout
    assert first.stdout.count(f"headrace shell --home {home_of(first)}") == 3


def home_of(done) -> str:
    return str(done.args[2])


def test_a_second_run_on_the_same_home_shows_the_same(first, home) -> None:
    again = headrace("demo", "--home", home)
    assert again.returncode == 0, again.stderr
    assert again.stdout == first.stdout


def test_the_home_can_be_asked_afterwards(first, home) -> None:
    assert first.returncode == 0
    asked = headrace("shell", "--home", home, "-e", "INVOKE carriers; SHOW QUERIES")
    assert "carrier,flights,longest_delay\n9E,17416,747\n" in asked.stdout
    assert headrace("check", "--home", home).returncode == 0


@pytest.mark.parametrize("name", ELSEWHERE)
def test_another_engine_computes_the_same_from_the_files(first, home, name) -> None:
    assert first.returncode == 0
    asked = duckdb.sql(f"WITH {DEPARTED} {ELSEWHERE[name]}".format(data=home / "demo-data"))
    expected = [dict(zip(asked.columns, row, strict=True)) for row in asked.fetchall()]
    with hr.open(home, local=True) as hub:
        rows = hub.query(name).history().select(asked.columns).to_pylist()
    assert len(rows) == len(expected) > 25
    for ours, theirs in zip(sorted(map(plain, rows)), sorted(map(plain, expected)), strict=True):
        assert ours == pytest.approx(theirs, abs=0.0501)  # means are rounded to one decimal


def plain(row: dict) -> tuple:
    """A row with instants in microseconds; a mean is last, so that rounding does not change the order of rows."""
    return tuple(
        round(value.timestamp()) * 1_000_000 if isinstance(value, datetime) else value
        for value in row.values()
    )
