"""Owners, tags and patterns: thousands of queries found, paused, resumed and dropped in one statement, durably."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.catalog.catalog import Catalog
from headrace.catalog.definition_json import from_json, to_json
from headrace.catalog.definitions import QueryDefinition
from headrace.errors import UserError
from headrace.language.statements.create_text import create_query_text
from headrace.language.statements.statement import CreateQuery
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.time import DAY
from tests.language.one_statement import parse_statement

STREAM = "CREATE STREAM s (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at;"
COUNT = "SELECT COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE]"


@pytest.fixture
def hub(tmp_path: Path):
    with open_hub(tmp_path / "home", local=True) as opened:
        opened.execute(STREAM)
        yield opened


def shown(hub: Hub, rest: str = "") -> list[str]:
    (outcome,) = hub.execute(f"SHOW QUERIES {rest}")
    return outcome.table.column("name").to_pylist()


def labels(hub: Hub, name: str) -> tuple[str | None, str | None]:
    (outcome,) = hub.execute(f"SHOW QUERIES LIKE '{name}'")
    (row,) = outcome.table.to_pylist()
    return row["owner"], row["tags"]


@pytest.mark.parametrize(
    "definition",
    [
        QueryDefinition("q", COUNT),
        QueryDefinition("q", COUNT, owner="ana"),
        QueryDefinition("q", COUNT, retain=7 * DAY, owner="O'Neil", tags=("alerts", "night shift")),
        QueryDefinition("q", COUNT, from_now=True, tags=("ü",)),
    ],
)
def test_labels_survive_the_text_and_the_log(definition: QueryDefinition) -> None:
    parsed = parse_statement(create_query_text(definition))
    assert isinstance(parsed, CreateQuery)
    assert parsed.definition == definition
    assert from_json(QueryDefinition, to_json(definition)) == definition


def test_labels_are_given_changed_taken_away_and_survive_a_restart(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with open_hub(home, local=True) as hub:
        hub.execute(f"{STREAM} CREATE QUERY a OPTIONS (owner 'ana', tags ' alerts , night') AS {COUNT};")
        hub.register(COUNT, "b", owner="ben", tags=["day"])
        hub.register_many({"c": COUNT, "d": COUNT}, tags=["day", "Alerts"])
        operator = hub.catalog.require_query("a").operator_id
        (outcome,) = hub.execute("ALTER QUERY a SET (tags 'night', owner '')")
        assert outcome.message == "query a has no owner and is tagged night"
        hub.execute("ALTER QUERY b SET (tags '')")
        assert hub.catalog.require_query("a").operator_id == operator  # nothing of it is made again
    with open_hub(home, local=True) as hub:
        assert labels(hub, "a") == (None, "night")
        assert labels(hub, "b") == ("ben", None)
        assert labels(hub, "c") == labels(hub, "d") == (None, "day, Alerts")


def test_altering_and_renaming_keep_the_labels(hub: Hub) -> None:
    hub.register(COUNT, "a", owner="ana", tags=["x"])
    hub.execute("ALTER QUERY a AS SELECT v FROM s WHERE v > 1; ALTER QUERY a RENAME TO b;")
    assert labels(hub, "b") == ("ana", "x")


def test_a_script_runs_again_unless_its_labels_differ(hub: Hub) -> None:
    hub.execute(f"CREATE QUERY a OPTIONS (owner 'ana', tags 'x, y') AS {COUNT}")
    hub.execute(f"CREATE QUERY a OPTIONS (tags 'Y, X', owner 'Ana') AS {COUNT}")
    with pytest.raises(UserError, match=r"differs in tags \(x, y there, x here\)"):
        hub.execute(f"CREATE QUERY a OPTIONS (tags 'x', owner 'ana') AS {COUNT}")
    with pytest.raises(UserError, match=r"differs in owner \(ana there, none here\)"):
        hub.execute(f"CREATE QUERY a OPTIONS (tags 'x, y') AS {COUNT}")


@pytest.mark.parametrize("tags", [["a,b"], [""], ["a", "A"]])
def test_tags_from_a_program_are_checked_as_those_from_text(hub: Hub, tags: list[str]) -> None:
    with pytest.raises(UserError, match="tag"):
        hub.register(COUNT, "a", tags=tags)
    assert shown(hub) == []


@pytest.fixture
def many(hub: Hub) -> Hub:
    hub.register_many({f"day{n}": COUNT for n in range(3)}, owner="ana", tags=["alerts", "day"])
    hub.register_many({f"night{n}": COUNT for n in range(2)}, owner="ben", tags=["alerts", "night"])
    hub.register(COUNT, "plain")
    return hub


@pytest.mark.parametrize(
    ("rest", "names"),
    [
        ("LIKE 'day%'", ["day0", "day1", "day2"]),
        ("LIKE 'NIGHT_'", ["night0", "night1"]),
        ("WHERE tag = 'Night'", ["night0", "night1"]),
        ("WHERE tag <> 'night'", ["day0", "day1", "day2", "plain"]),
        ("WHERE tag LIKE 'al%' AND owner != 'ana'", ["night0", "night1"]),
        ("WHERE owner NOT LIKE '%'", ["plain"]),
        ("LIKE '%1' WHERE owner = 'ana'", ["day1"]),
        ("WHERE name = 'plain' AND state = 'registered'", ["plain"]),
        ("WHERE state = 'live'", []),
    ],
)
def test_queries_are_chosen(many: Hub, rest: str, names: list[str]) -> None:
    assert shown(many, rest) == names


def test_many_are_paused_resumed_and_dropped_as_one_change(many: Hub) -> None:
    many.loop.drain()
    before = many.home.query_log.length
    (outcome,) = many.execute("PAUSE QUERIES WHERE tag = 'alerts'")
    assert outcome.message == "5 queries paused: day0, day1, day2 and 2 more"
    assert shown(many, "WHERE state = 'paused'") == ["day0", "day1", "day2", "night0", "night1"]
    (outcome,) = many.execute("PAUSE QUERIES LIKE '%'")
    assert outcome.message == "1 query paused: plain"
    (outcome,) = many.execute("RESUME QUERIES WHERE owner = 'ben'")
    assert outcome.message == "2 queries resumed, to catch up first: night0, night1"
    assert shown(many, "WHERE state <> 'paused'") == ["night0", "night1"]
    (outcome,) = many.execute("DROP QUERIES WHERE state = 'paused' AND owner = 'ana'")
    assert outcome.message == "3 queries dropped: day0, day1, day2"
    assert shown(many) == ["night0", "night1", "plain"]
    (outcome,) = many.execute("DROP QUERIES LIKE 'day%'")
    assert outcome.message == "no query dropped"
    assert many.home.query_log.length - before <= 5 + 1 + 2 + 3
    many.loop.drain()
    assert set(many.loop.engine.plan.operators) == {q.operator_id for q in many.catalog.queries.values()}


def test_what_is_read_by_a_query_that_stays_is_not_dropped(many: Hub) -> None:
    many.register("SELECT SUM(n) AS n FROM day1 [RANGE 1 HOUR SLIDE 1 HOUR]", "over")
    with pytest.raises(UserError, match="'day1' is read by over, which would stay"):
        many.execute("DROP QUERIES LIKE 'day%'")
    assert len(shown(many, "LIKE 'day%'")) == 3
    many.execute("DROP QUERIES WHERE name LIKE 'day%' AND name <> 'day1'")
    many.execute("DROP QUERIES WHERE name = 'over'")
    many.execute("DROP QUERIES LIKE 'day%'")
    assert shown(many) == ["night0", "night1", "plain"]


def test_a_log_is_folded_the_same_entry_by_entry_and_together() -> None:
    entries = [
        {"do": "put_query", "query": to_json(QueryDefinition(name, COUNT))} for name in ("a", "b", "c")
    ]
    entries += [
        {"do": "pause", "name": "a"},
        {"do": "set", "name": "B", "settings": {"owner": "ana", "tags": ["x"]}},
        {"do": "retain", "name": "b", "retain": DAY},
        {"do": "rename", "name": "c", "to": "d"},
        {"do": "put_query", "query": to_json(QueryDefinition("d", COUNT))},
        {"do": "drop", "kind": "query", "name": "a"},
        {"do": "resume", "name": "b"},
    ]
    together, singly = Catalog().apply_all(entries), Catalog()
    for entry in entries:
        singly = singly.apply(entry)
    assert together == singly
    assert together.position == len(entries)
    assert {name: (q.generation, q.definition.owner) for name, q in together.queries.items()} == {
        "b": (1, "ana"),
        "d": (7, None),
    }


def test_a_script_finds_what_it_has_just_registered(hub: Hub) -> None:
    outcomes = hub.execute(
        f"""CREATE QUERY a OPTIONS (tags 'x') AS {COUNT}; CREATE QUERY b AS {COUNT};
        PAUSE QUERY b; PAUSE QUERIES WHERE tag = 'x'; ALTER QUERY b SET (tags 'x', owner 'ana');
        RESUME QUERIES WHERE owner = 'ana'; DROP QUERIES WHERE state = 'paused'; CREATE QUERY c AS {COUNT};"""
    )
    assert [outcome.message for outcome in outcomes[3:7]] == [
        "1 query paused: a",
        "query b belongs to ana and is tagged x",
        "1 query resumed, to catch up first: b",
        "1 query dropped: a",
    ]
    assert shown(hub) == ["b", "c"]
