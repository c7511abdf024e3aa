"""A client's script: a mistake in a definition leaves none of its definitions; without one they are one entry of the log."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
from headrace.errors import UserError
from headrace.runtime.hub.hub import Hub

STREAM = "CREATE STREAM s (v BIGINT) USING push;"
A = "CREATE QUERY a AS SELECT COUNT(*) AS n FROM s;"
B = "CREATE QUERY b AS SELECT MAX(n) AS most FROM a;"


@pytest.fixture
def hub(tmp_path: Path):
    with hr.open(tmp_path / "home", local=True) as opened:
        yield opened


def names(hub: Hub) -> list[str]:
    catalog = hub.catalog
    return sorted([*catalog.streams, *catalog.relations, *catalog.queries])


@pytest.mark.parametrize("between", ["", "SHOW STREAMS;", "INVOKE a;"])
@pytest.mark.parametrize(
    "mistake",
    [
        "CREATE QUERY c AS SELECT nothing FROM s",
        "DROP QUERY nobody",
        "CREATE QUERY a AS SELECT 1 AS one FROM s",
        "CREATE RELATION r (k INT) USING csv OPTIONS (path '/nowhere/r.csv')",
        "ALTER QUERY a AS SELECT COUNT(*) AS m FROM s",  # b reads it
    ],
)
def test_a_mistake_leaves_none_of_the_definitions(hub: Hub, between: str, mistake: str) -> None:
    before = hub.home.query_log.length
    with pytest.raises(UserError):
        hub.execute_or_refuse(STREAM + A + between + B + mistake)
    assert names(hub) == []
    assert hub.home.query_log.length == before


def test_definitions_of_a_script_are_one_append_and_in_order(hub: Hub, tmp_path: Path) -> None:
    relation = tmp_path / "r.csv"
    relation.write_text("k\n1\n")
    relation_made = f"CREATE RELATION r (k INT) USING csv OPTIONS (path '{relation}', header 'true');"
    outcomes = hub.execute_or_refuse(STREAM + relation_made + A + B + "DROP QUERY b; PAUSE QUERY a")
    assert [outcome.kind for outcome in outcomes] == ["create"] * 4 + ["drop", "pause"]
    assert names(hub) == ["a", "r", "s"]
    assert len(list(hub.home.query_log.chunks(0))) == 1
    hub.execute_or_refuse("RESUME QUERY a")
    hub.push("s", [{"v": 1}])
    hub.run_once()
    assert hub.query("a").invoke().to_pylist() == [{"n": 1}]


def test_other_statements_see_the_definitions_before_them(hub: Hub) -> None:
    outcomes = hub.execute_or_refuse(
        STREAM + "SHOW STREAMS;" + A + "SHOW QUERIES; DROP QUERY a; SHOW QUERIES"
    )
    shown = [outcome.table.num_rows for outcome in outcomes if outcome.table is not None]
    assert shown == [1, 1, 0]


def test_a_stream_replaced_in_a_script_starts_from_nothing(hub: Hub) -> None:
    hub.execute(STREAM)
    hub.push("s", [{"v": 1}])
    hub.run_once()
    hub.execute_or_refuse(
        "CREATE OR REPLACE STREAM s (w STRING) USING push; CREATE QUERY c AS SELECT COUNT(*) AS n FROM s"
    )
    hub.push("s", [{"w": "a"}])
    hub.run_once()
    assert hub.query("c").invoke().to_pylist() == [{"n": 1}]


def test_a_time_zone_ends_with_its_script(hub: Hub) -> None:
    hub.execute("SET TIME ZONE 'Asia/Tokyo'")
    hub.execute_or_refuse("CREATE STREAM z (at TIMESTAMP) USING push; SET TIME ZONE 'America/Lima'")
    at_noon = "CREATE QUERY noon AS SELECT COUNT(*) AS n FROM z WHERE at > TIMESTAMP'2024-01-01 12:00:00'"
    hub.execute_or_refuse(at_noon)
    with pytest.raises(UserError, match="differs"):
        hub.execute(at_noon)
