"""Questions of the kind that dashboards and desktop clients ask by themselves: over search paths, system tables and times."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.postgres.wire import connected, error, rows, with_rows
from tests.server.serving import Served

PATH = """SELECT trim(part[n]) FROM string_to_array(current_setting('search_path'), ',') part,
  generate_series(array_lower(string_to_array(current_setting('search_path'), ','), 1),
                  array_upper(string_to_array(current_setting('search_path'), ','), 1)) AS n"""
"""The schemas on the search path, as Grafana finds them out."""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with with_rows(tmp_path_factory.mktemp("served") / "home") as running:
        yield running


def asked(hub: Served, text: str) -> list[list[str | None]]:
    with connected(hub.postgres) as raw:
        found = raw.query(text)
        assert not [body for kind, body in found if kind == b"E"], error(found)
        return [[None if cell is None else cell.decode() for cell in row] for row in rows(found)]


def test_tables_and_columns_are_found_by_the_search_path(hub: Served) -> None:
    assert asked(hub, "SELECT current_setting('server_version_num')::int / 100") == [["1400"]]
    assert asked(hub, "SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'") == []
    near = asked(
        hub,
        f"SELECT quote_ident(table_name) FROM information_schema.tables WHERE table_schema IN ({PATH}) ORDER BY 1",
    )
    assert near == [["all_of_tail"], ["q"], ["s"], ["tail"], ["total"]]
    far = "SELECT table_schema || '.' || quote_ident(table_name) FROM information_schema.tables"
    assert ["answers.q"] in asked(hub, f"{far} WHERE NOT quote_ident(table_schema) IN ({PATH})")
    columns = "SELECT column_name, data_type FROM information_schema.columns"
    assert asked(
        hub, f"{columns} WHERE table_name = 's' AND table_schema IN ({PATH}) ORDER BY ordinal_position"
    ) == [
        ["k", "text"],
        ["v", "bigint"],
        ["at", "timestamp with time zone"],
    ]
    parts = "(parse_ident('answers.\"total\"'))"
    named = f"{columns} WHERE array_length({parts}, 1) = 2 AND table_schema = {parts}[1] AND table_name = {parts}[2]"
    assert asked(hub, named) == [["n", "bigint"]]
    assert asked(hub, "SELECT quote_ident('a b\"c'), quote_literal('it''s')") == [['"a b""c"', "'it''s'"]]


def test_a_panel_of_a_dashboard_groups_by_intervals_of_time(hub: Served) -> None:
    panel = """SELECT floor(extract(epoch from at)/10)*10 AS "time", k AS metric, sum(v) AS "v" FROM s
      WHERE at BETWEEN '2024-01-01T00:00:00Z' AND '2024-01-01T00:01:00Z' GROUP BY 1, 2 ORDER BY 1, 2"""
    assert [[row[1], row[2]] for row in asked(hub, panel)] == [["a", "1"], ["b", "2"]]
    binned = "SELECT date_trunc('minute', at) AS t, count(*) FROM s GROUP BY 1"
    assert asked(hub, binned) == [["2024-01-01 00:00:00+00", "2"]]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT n.oid, n.* FROM pg_catalog.pg_namespace n LEFT JOIN pg_description d ON d.classoid = 'pg_namespace'::regclass",
        "SELECT c.*, pg_get_expr(c.relpartbound, c.oid), pg_get_partkeydef(c.oid) FROM pg_class c WHERE c.relnamespace = 2200",
        "SELECT db.oid, db.* FROM pg_catalog.pg_database db WHERE datallowconn AND NOT datistemplate",
        "SELECT format_type(nullif(t.typbasetype, 0), t.typtypmod) FROM pg_type t LEFT JOIN pg_type e ON e.oid = t.typelem",
        "SELECT current_schema(), session_user",
        "SHOW search_path",
        "SHOW TRANSACTION ISOLATION LEVEL",
    ],
)
def test_the_tree_of_a_desktop_client_is_answered(hub: Served, text: str) -> None:
    assert asked(hub, text)


def test_names_are_those_of_postgresql(hub: Served) -> None:
    with connected(hub.postgres) as raw:
        for text, name in (
            ("SELECT count(*) FROM s", b"count"),
            ("SELECT version()", b"version"),
            ("SELECT max(v) FROM s", b"max"),
            ("SELECT v AS Value FROM s", b"Value"),
        ):
            described = raw.query(text)[0]
            assert described[1][2:].startswith(name + b"\0"), text
