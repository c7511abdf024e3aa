"""A file of a source that is read in place is gone: a query that needs it waits and reports so, all others continue."""

from __future__ import annotations

from pathlib import Path

from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from tests.cli.building import headrace

STREAM = """
    CREATE STREAM s (at TIMESTAMP, v INT) USING csv OPTIONS (path '{rows}', header 'true', archive 'in place') TIMESTAMP BY at;
"""
QUERY = (
    "CREATE QUERY {name} AS SELECT window_end, SUM(v) AS total FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS];"
)


def a_file(rows: Path, number: int) -> Path:
    """Ten seconds of rows."""
    rows.mkdir(exist_ok=True)
    lines = [f"2024-05-01T00:00:{10 * number + second:02d}Z,{number}" for second in range(10)]
    file = rows / f"part-{number}.csv"
    file.write_text("\n".join(["at,v", *lines]) + "\n")
    return file


def totals(hub: Hub, name: str) -> list[int]:
    return hub.query(name).history().column("total").to_pylist()


def test_a_query_waits_for_a_file_that_is_gone_and_the_others_do_not(tmp_path: Path) -> None:
    rows, home = tmp_path / "rows", tmp_path / "home"
    first, away = a_file(rows, 0), tmp_path / "away.csv"
    a_file(rows, 1)
    with open_hub(home, local=True) as hub:
        hub.execute(STREAM.format(rows=rows) + QUERY.format(name="early"))
        hub.catch_up()
        first.rename(away)
        hub.execute(QUERY.format(name="late"))
        a_file(rows, 2)
        hub.catch_up()
        assert totals(hub, "early") == [0, 10]
        assert totals(hub, "late") == []
        unread = hub.status()["unread"]
        assert list(unread) == ["late"]
        assert "part-0.csv" in unread["late"]
        assert "gone" in unread["late"]
        assert hub.status()["failures"]["count"] == 0
    with open_hub(home, local=True) as hub:
        a_file(rows, 3)
        hub.catch_up()
        assert totals(hub, "early") == [0, 10, 20]
        assert list(hub.status()["unread"]) == ["late"]
        away.rename(first)
        hub.execute(QUERY.format(name="latest"))
        hub.catch_up()
        assert hub.status()["unread"] == {}
        assert totals(hub, "late") == totals(hub, "latest") == totals(hub, "early") == [0, 10, 20]


def test_one_that_waits_may_be_dropped(tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    first = a_file(rows, 0)
    a_file(rows, 1)
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(STREAM.format(rows=rows) + QUERY.format(name="early"))
        hub.catch_up()
        first.unlink()
        hub.execute(QUERY.format(name="late"))
        hub.catch_up()
        assert list(hub.status()["unread"]) == ["late"]
        hub.execute("DROP QUERY late")
        assert hub.status()["unread"] == {}
        a_file(rows, 2)
        hub.catch_up()
        assert totals(hub, "early") == [0, 10]


def test_the_command_line_says_so_answers_the_rest_and_ends_with_an_error(tmp_path: Path) -> None:
    rows, script, out = tmp_path / "rows", tmp_path / "script.cql", tmp_path / "out"
    first = a_file(rows, 0)
    a_file(rows, 1)
    run = ("run", script, "--once", "--home", tmp_path / "home", "--output", out)
    script.write_text(STREAM.format(rows=rows) + QUERY.format(name="early"))
    assert headrace(*run).returncode == 0
    first.unlink()
    a_file(rows, 2)
    script.write_text(QUERY.format(name="late"))
    done = headrace(*run)
    assert done.returncode == 2
    assert "late: its archived rows cannot be read, so it waits and the others continue." in done.stderr
    assert "Put the old file back" in done.stderr
    assert len((out / "early.csv").read_text().splitlines()) == 4, (
        "a header and three windows, the last provisional"
    )
