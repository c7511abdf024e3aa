"""Dropping, altering, pausing and resuming: many in one script, and one among many, cost what they change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.errors import UserError
from headrace.runtime.epoch import engine
from headrace.runtime.plan import bound_queries, epoch_planner
from headrace.runtime.statements import show
from tests.runtime.rig import Rig, answers, expected, made_rows


def name(n: int) -> str:
    return f"m{n}" if n >= 0 else f"low{-n}"


def created(names: range, above: int = 0) -> str:
    return "".join(
        f"CREATE QUERY {name(n)} AS SELECT k, COUNT(*) AS n FROM s [RANGE TUMBLING 10 SECONDS] WHERE x > {above + n} GROUP BY k;"
        for n in names
    )


CHANGES: dict[str, Callable[[int], str]] = {
    "drop": lambda n: f"DROP QUERY m{n};",
    "alter": lambda n: (
        f"ALTER QUERY m{n} AS SELECT k, SUM(x) AS n FROM s [RANGE TUMBLING 10 SECONDS] GROUP BY k;"
    ),
    "pause": lambda n: f"PAUSE QUERY m{n};",
    "resume": lambda n: f"RESUME QUERY m{n};",
    "rename": lambda n: f"ALTER QUERY m{n} RENAME TO r{n};",
    "retain": lambda n: f"ALTER QUERY m{n} SET (retain '1 HOUR');",
}


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often what walks over queries is called, or does its work for one of them."""
    calls: dict[str, int] = {}

    def count(module: object, name: str) -> None:
        function = getattr(module, name)

        def counting(*arguments: object, **named: object) -> object:
            calls[name] = calls.get(name, 0) + 1
            return function(*arguments, **named)

        monkeypatch.setattr(module, name, counting)

    for module, name in (
        (engine, "make_plan"),
        (engine, "plan_after"),
        (bound_queries, "bind_query"),
        (epoch_planner, "lowered"),
        (epoch_planner, "bound"),
        (show, "users_of"),
    ):
        count(module, name)
    return calls


@pytest.mark.parametrize("change", CHANGES)
def test_many_changes_in_a_script_are_one_entry_of_the_log_and_one_plan(
    change: str, tmp_path: Path, work: dict[str, int]
) -> None:
    rig = Rig(tmp_path)
    with rig.hub(1, {}) as hub:
        hub.execute(created(range(60)))
        if change == "resume":
            hub.execute("".join(f"PAUSE QUERY m{n};" for n in range(60)))
        hub.catch_up()
        chunks = len(list((rig.home / "querylog").iterdir()))
        work.clear()
        outcomes = hub.execute("".join(CHANGES[change](n) for n in range(10, 50)))
        assert len(outcomes) == 40
        assert len(list((rig.home / "querylog").iterdir())) == chunks + 1
        assert work.get("users_of", 0) == work.get("make_plan", 0) == 0
        assert work["plan_after"] == 1
        assert hub.loop.engine.plan == epoch_planner.make_plan(hub.catalog)


@pytest.mark.parametrize("change", CHANGES)
def test_one_change_among_many_does_the_work_of_one_among_few(
    change: str, tmp_path: Path, work: dict[str, int]
) -> None:
    done = []
    for queries in (12, 120):
        with Rig(tmp_path / str(queries)).hub(1, {}) as hub:
            hub.execute(created(range(queries)))
            if change == "resume":
                hub.execute("PAUSE QUERY m5;")
            hub.catch_up()
            work.clear()
            hub.execute(CHANGES[change](5))
            done.append(dict(work))
    assert done[0] == done[1]
    assert done[0].get("make_plan", 0) == 0


def test_a_query_that_is_read_is_neither_dropped_nor_altered_nor_renamed(tmp_path: Path) -> None:
    over = "CREATE QUERY over AS SELECT MAX(n) AS top FROM m1 [RANGE TUMBLING 20 SECONDS];"
    for before, together in (("", created(range(3)) + over), (created(range(3)) + over, "")):
        with Rig(tmp_path / str(len(before))).hub(1, {}) as hub:
            hub.execute(before or "SHOW QUERIES")
            for change in ("drop", "alter", "rename"):
                with pytest.raises(UserError, match=r"'m1' is read by over"):
                    hub.execute(together + CHANGES[change](1))
            with pytest.raises(UserError, match=r"'m1' is read by over"):
                hub.drop_query("m1")
            assert sorted(hub.catalog.queries) == ["m0", "m1", "m2", "over"]


def test_readers_and_then_what_they_read_go_in_one_script(tmp_path: Path, work: dict[str, int]) -> None:
    with Rig(tmp_path).hub(1, {}) as hub:
        hub.execute(created(range(40)))
        hub.execute(
            "".join(
                f"CREATE QUERY o{n} AS SELECT MAX(n) AS top FROM m{n} [RANGE TUMBLING 20 SECONDS];"
                for n in range(40)
            )
        )
        work.clear()
        hub.execute(
            "".join(f"DROP QUERY o{n};" for n in range(40)) + "".join(f"DROP QUERY m{n};" for n in range(40))
        )
        assert not hub.catalog.queries
        assert work.get("users_of", 0) == 0
        assert work["plan_after"] == 2  # once when it had to be known that no query reads m0 any more
        assert hub.loop.engine.plan == epoch_planner.make_plan(hub.catalog)


def test_changes_of_one_script_count_for_each_other(tmp_path: Path) -> None:
    with Rig(tmp_path).hub(1, {}) as hub:
        hub.execute(
            created(range(3))
            + "DROP QUERY m0; CREATE QUERY m0 AS SELECT x FROM s; PAUSE QUERY m0; ALTER QUERY m0 RENAME TO other;"
            "ALTER QUERY m1 SET (retain '1 HOUR'); ALTER QUERY m1 RENAME TO m0; DROP QUERY m2; RESUME QUERY other;"
        )
        queries = hub.catalog.queries
        assert {name: query.definition.text[:8] for name, query in queries.items()} == {
            "other": "SELECT x",
            "m0": "SELECT k",
        }
        assert not queries["other"].definition.paused
        assert queries["m0"].definition.retain is not None
        assert hub.loop.engine.plan == epoch_planner.make_plan(hub.catalog)
        with pytest.raises(UserError, match="no query 'm2'"):
            hub.execute("DROP QUERY other; PAUSE QUERY m2; DROP QUERY m0;")
        assert list(hub.catalog.queries) == ["m0"]


def test_a_home_that_is_opened_again_has_the_same_queries_in_the_same_order(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    with rig.hub(1, {}) as hub:
        hub.execute(created(range(50)))
        for n in range(0, 50, 3):
            hub.execute(f"DROP QUERY m{n}; PAUSE QUERY m{n + 1};" + created(range(n, n + 1), 5))
        hub.execute("ALTER QUERY m7 RENAME TO a7; DROP QUERY m8;")
        before = dict(hub.catalog.queries)
    with rig.hub(1) as hub:
        assert list(hub.catalog.queries.items()) == list(before.items())


def test_what_stays_answers_as_if_nothing_else_had_come_and_gone(tmp_path: Path) -> None:
    rig, rows = Rig(tmp_path), made_rows(3, 120)
    with rig.hub(2, {}) as hub:
        hub.execute(created(range(-4, 30)))
        rig.drop(rows[:40])
        hub.catch_up()
        hub.execute("".join(f"DROP QUERY m{n};" for n in range(30)) + created(range(30, 60), -40))
        rig.drop(rows[40:80])
        hub.catch_up()
        hub.execute(
            "".join(f"PAUSE QUERY m{n};" for n in range(30, 50))
            + "DROP QUERY m50; ALTER QUERY m51 RENAME TO last;"
        )
        rig.drop(rows[80:])
        hub.catch_up()
        hub.execute("".join(f"RESUME QUERY m{n};" for n in range(30, 50)))
        hub.catch_up()
        answered = answers(hub, {})
        assert len(answered) == 4 + 29
        for name, answer in answered.items():
            query = hub.operator_and_query(name)[1]
            assert answer == expected(query, [rows[:40], rows[40:80], rows[80:]]), name
