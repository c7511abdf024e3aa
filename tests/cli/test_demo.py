"""The demo, on the executor without a JVM: it ends, shows every query, and can be run again."""

from __future__ import annotations

import pytest

from tests.cli.building import headrace


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
