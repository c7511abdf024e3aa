"""Every kind of query as a table: the columns and rows of its history over HTTP, and of INVOKE."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from tests.server.postgres.wire import connected, error, rows, until, with_rows
from tests.server.serving import Served

QUERIES = {
    "windows": "SELECT k, COUNT(*) AS n, window_end FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k",
    "sessions": "SELECT k, COUNT(*) AS n FROM s GROUP BY k, session_window(at, '2 SECONDS')",
    "instants": "SELECT k, MAX(v) AS top FROM s [RANGE 10 SECONDS] GROUP BY k",
    "inserted": "SELECT ISTREAM(k, v) FROM s [ROWS 1]",
    "deleted": "SELECT DSTREAM(k, v) FROM s [ROWS 1]",
    "revised": "SELECT k, COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k WITH REVISIONS",
    "last_rows": "SELECT k, v FROM s [PARTITION BY k ROWS 1]",
    "filtered": "SELECT k, v FROM s [RANGE UNBOUNDED] WHERE v > 0",
    "between": "SELECT k, v FROM s BEGIN TIMESTAMP '2024-01-01 00:00:00' END NOW",
    "over_results": "SELECT COUNT(*) AS windows FROM windows",
    "types": "SELECT CAST(v AS TINYINT) AS a, CAST(v AS FLOAT) AS b, CAST(v AS DECIMAL(10, 2)) AS c, CAST(at AS DATE) AS d, "
    "CAST(at AS TIMESTAMP_NTZ) AS e, INTERVAL 5 SECONDS AS f, NULL AS g, struct(v, k) AS h, v > 1 AS j, "
    'CAST(k AS BINARY) AS l, v AS `the "value"` FROM s',
}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with with_rows(tmp_path_factory.mktemp("served") / "home") as running:
        made = [f"CREATE QUERY {name} AS {text}" for name, text in QUERIES.items()]
        status, outcomes = running.post("/v1/statements", ";".join(made))
        assert status == 200, outcomes
        until(lambda: len(running.get("/v1/queries/types/results")["rows"]) == 2)
        yield running


@pytest.mark.parametrize("name", QUERIES)
def test_a_table_has_the_columns_and_rows_of_the_query(hub: Served, name: str) -> None:
    with connected(hub.postgres) as raw:
        for table, path in ((name, "results"), (f"answers.{name}", "answer")):
            found = raw.query(f"SELECT * FROM {table}")
            assert found[0][0] == b"T", error(found)
            wanted = hub.get(f"/v1/queries/{name}/{path}")["rows"]
            if (name, path) != (
                "between",
                "results",
            ):  # HTTP has the results that are stored, and of this query none are
                assert len(rows(found)) == len(wanted)
            described, listed = (
                found[0][1],
                raw.query(
                    f"SELECT attname FROM pg_attribute WHERE attrelid = '{table}'::regclass ORDER BY attnum"
                ),
            )
            assert struct.unpack_from("!h", described)[0] == len(rows(listed))
            for row in wanted[:1]:
                assert [column.decode() for (column,) in rows(listed) if column is not None] == list(row)


def test_values_of_every_type_are_written(hub: Served) -> None:
    with connected(hub.postgres) as raw:
        (row,) = rows(raw.query("SELECT * FROM types WHERE j"))
        assert [None if cell is None else cell.decode() for cell in row] == [
            *("2", "2", "2.00", "2024-01-01", "2024-01-01 00:00:12.5", "00:00:05", None),
            *('{"v":2,"k":"b"}', "t", "\\x62", "2"),
        ]
