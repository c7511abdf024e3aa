"""EXPLAIN's class of a query by the rows that it reads: archived ones, live ones, or both with the entry at which it continues live."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.time import SECOND

COUNT = "SELECT COUNT(*) AS n FROM s"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """Three entries in the archive: the rows of the first three minutes of 1970."""
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute("CREATE STREAM s (at TIMESTAMP, v BIGINT) USING push TIMESTAMP BY at")
        for minute in range(3):
            push(hub, minute)
        yield hub


def push(hub: Hub, minute: int) -> None:
    hub.push("s", [{"at": (60 * minute + second) * SECOND, "v": second} for second in range(60)])
    hub.catch_up()


def shown(hub: Hub, statement: str) -> str:
    """The line of EXPLAIN with the class."""
    (outcome,) = hub.execute(statement)
    assert outcome.table is not None
    (line,) = [
        line.strip()
        for line in outcome.table["plan"].to_pylist()
        if line.strip().startswith(("historical", "live", "hybrid"))
    ]
    return str(line)


@pytest.mark.parametrize(
    ("tail", "meaning"),
    [
        (
            " BEGIN TIMESTAMP '1970-01-01 00:00:10' END TIMESTAMP '1970-01-01 00:02:58'",
            "historical: every row",
        ),
        (
            " BEGIN TIMESTAMP '1970-01-01 00:00:10' END TIMESTAMP '1970-01-01 00:02:59'",
            "hybrid: the archive of s to entry 3",
        ),
        (" BEGIN TIMESTAMP '1970-01-01 00:00:10' END NOW", "hybrid: the archive of s to entry 3"),
        (
            " BEGIN TIMESTAMP '1970-01-01 00:03:00' END TIMESTAMP '1971-01-01 00:00:00'",
            "live: rows that arrive",
        ),
        ("", "hybrid: the archive of s to entry 3, and live rows from there"),
    ],
)
def test_the_class_is_that_of_a_query_registered_now(hub: Hub, tail: str, meaning: str) -> None:
    assert shown(hub, f"EXPLAIN {COUNT}{tail}").startswith(meaning)


def test_a_registered_query_has_the_class_of_what_it_reads(hub: Hub) -> None:
    hub.execute(f"CREATE QUERY new FROM NOW AS {COUNT}; CREATE QUERY whole AS {COUNT}")
    assert (
        shown(hub, "EXPLAIN QUERY whole") == "hybrid: the archive of s to entry 3, and live rows from there"
    )
    hub.catch_up()
    assert shown(hub, "EXPLAIN QUERY new") == "live: rows that arrive from now on"
    assert (
        shown(hub, "EXPLAIN QUERY whole") == "hybrid: has read every archived row of s, and reads live rows"
    )
    push(hub, 3)
    assert hub.query("new").invoke().to_pylist() == [{"n": 60}]
    assert hub.query("whole").invoke().to_pylist() == [{"n": 240}]


def test_before_the_first_row_every_query_is_live_and_no_line_is_needed(tmp_path: Path) -> None:
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute("CREATE STREAM s (at TIMESTAMP, v BIGINT) USING push TIMESTAMP BY at")
        (outcome,) = hub.execute(f"EXPLAIN {COUNT}")
        assert outcome.table is not None
        assert not any("live" in line for line in outcome.table["plan"].to_pylist())
