"""The life of queries over a stream, its archive and a stored relation: registered, paused, altered and dropped at any time."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path

from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
BY_NAME = (
    "SELECT names.name, COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] JOIN names ON s.k = names.k"
    " GROUP BY names.name"
)


def push(hub: Hub, minute: int, *keys: str) -> None:
    """A row a key, as one epoch."""
    at = START + dt.timedelta(minutes=minute)
    hub.push("s", [{"k": key, "at": at} for key in keys])
    hub.loop.drain()


def emitted(hub: Hub, name: str) -> list[tuple[str, int]]:
    return sorted((row["name"], row["n"]) for row in hub.query(name).history().to_pylist())


def test_queries_come_rest_change_and_go_while_rows_arrive(tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text("k,name\na,Ann\nb,Bob\n", encoding="utf-8")
    home = tmp_path / "home"
    with open_hub(home, local=True) as hub:
        hub.execute(
            f"""CREATE STREAM s (k STRING, at TIMESTAMP) USING push TIMESTAMP BY at;
            CREATE RELATION names (k STRING, name STRING) USING csv OPTIONS (path '{tmp_path}/names.csv', header 'true');
            CREATE QUERY first AS {BY_NAME};"""
        )
        push(hub, 0, "a", "b", "c")
        push(hub, 1, "a")
        hub.register(BY_NAME, "late")  # over the archive
        push(hub, 2, "b", "b")
        assert emitted(hub, "first") == emitted(hub, "late") == [("Ann", 1), ("Ann", 1), ("Bob", 1)]
        hub.execute("PAUSE QUERY late")
        push(hub, 3, "a", "a", "a")
    with open_hub(home, local=True) as hub:  # another process
        assert emitted(hub, "late") == [("Ann", 1), ("Ann", 1), ("Bob", 1)]
        push(hub, 4, "c")
        hub.execute("RESUME QUERY late")
        hub.loop.drain()
        assert (
            emitted(hub, "first")
            == emitted(hub, "late")
            == [("Ann", 1), ("Ann", 1), ("Ann", 3), ("Bob", 1), ("Bob", 2)]
        )
        hub.execute(f"ALTER QUERY late AS {BY_NAME} HAVING n > 1")
        hub.loop.drain()
        assert emitted(hub, "late") == [("Ann", 3), ("Bob", 2)]


def test_a_name_that_is_used_again_is_another_query_and_state_goes_with_the_old_one(tmp_path: Path) -> None:
    ids: list[str] = []
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute("CREATE STREAM s (k STRING, at TIMESTAMP) USING push TIMESTAMP BY at")
        for _ in range(3):
            hub.register("SELECT k, COUNT(*) AS n FROM s [RANGE 1 DAY SLIDE 1 HOUR] GROUP BY k", "q")
            ids.append(hub.catalog.require_query("q").operator_id)
            push(hub, len(ids), *"abcdefgh")
            hub.execute("DROP QUERY q")
        push(hub, 9, "a")
        line = hub.status()["last_epoch"]
        assert len(set(ids)) == 3
        assert (line["operators"], line["state_bytes"]) == ({}, 0)


def test_workers_know_the_executions_of_a_home_from_those_of_the_one_before_in_its_folder(
    tmp_path: Path,
) -> None:
    """They keep what the last execution has left for the next one: a number alone would be that of the other home, too."""
    executions: list[str] = []
    for _ in range(2):
        shutil.rmtree(tmp_path / "home", ignore_errors=True)
        with open_hub(tmp_path / "home", local=True) as hub:
            rounds = hub.loop.engine.rounds
            executions += [rounds.messages(hub.home.latest()).execution for _ in range(3)]
    assert len(set(executions)) == 6


def test_a_home_that_is_made_again_in_a_folder_has_no_answer_of_the_one_before(tmp_path: Path) -> None:
    """As in a notebook that deletes its home and runs again: the epochs, queries and streams have the same numbers and names."""
    for count in (5, 3, 4):
        shutil.rmtree(tmp_path / "home", ignore_errors=True)
        with open_hub(tmp_path / "home", local=True) as hub:
            hub.execute("CREATE STREAM s (v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
            hub.register("SELECT COUNT(*) AS n, SUM(v) AS total FROM s", "stored")
            between = " BEGIN NOW - INTERVAL 1 HOUR END NOW"
            hub.register(f"SELECT v FROM s{between}", "asked", materialize="none")
            hub.push("s", [{"v": count, "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC)}] * count)
            hub.catch_up()
            assert hub.query("stored").invoke().to_pylist() == [{"n": count, "total": count * count}]
            assert hub.query("asked").invoke().to_pylist() == [{"v": count}] * count
