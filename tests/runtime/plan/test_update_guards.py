"""A stored relation gets other rows while queries look up in it: those over a changelog would never retract what they inserted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import UserError
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND

BY_CHANGES = {
    "derived": "SELECT name, c.v FROM (SELECT k, v FROM a [ROWS 1]) c JOIN names ON c.k = names.k",
    "grouped": "SELECT name, COUNT(*) AS n FROM (SELECT k FROM a [ROWS 1]) c LEFT JOIN names ON c.k = names.k GROUP BY name",
    "marked": "SELECT c.v FROM (SELECT k, v FROM a [ROWS 1]) c WHERE c.k NOT IN (SELECT k FROM names)",
    "pairs": "SELECT name, x.v FROM a x [ROWS 1], a y [RANGE 1 SECOND] JOIN names ON x.k = names.k WHERE x.v = y.v",
    "semijoin": "SELECT name FROM a [ROWS 1] JOIN names ON a.k = names.k WHERE v IN (SELECT v FROM a [RANGE 1 SECOND])",
}
"""Queries that look up rows of a changelog."""
ONCE = {
    "plain": "SELECT name, v FROM a [ROWS 1] JOIN names ON a.k = names.k",
    "inside": "SELECT name, COUNT(*) AS n FROM (SELECT name FROM a [ROWS 2] JOIN names ON a.k = names.k) t GROUP BY name",
    "times": "SELECT name FROM a x [RANGE 1 SECOND], a y [RANGE 2 SECONDS] JOIN names ON x.k = names.k WHERE x.v = y.v",
}
"""Queries that look up a row, or a pair with its end, once."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    write(tmp_path, "one")
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        hub.execute("CREATE STREAM a (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
        hub.execute(
            f"CREATE RELATION names (k STRING, name STRING) USING csv OPTIONS (path '{tmp_path}/names.csv', header 'true')"
        )
        yield hub


def write(folder: Path, name: str) -> None:
    (folder / "names.csv").write_text(f"k,name\na,{name}\n")


def push_row(hub: Hub, second: int, k: str = "a") -> None:
    at = pa.array([second * SECOND]).cast(pa.timestamp("us", tz="UTC"))
    hub.push("a", pa.table({"k": [k], "v": pa.array([second], pa.int64()), "at": at}))
    hub.catch_up()


@pytest.mark.parametrize("name", BY_CHANGES)
def test_what_comes_and_goes_is_looked_up_in_one_version(tmp_path: Path, hub: Hub, name: str) -> None:
    hub.register(BY_CHANGES[name], "q")
    hub.register(ONCE["plain"], "plain")
    push_row(hub, 1)
    push_row(hub, 2)
    write(tmp_path, "uno")
    for statement in (
        "REFRESH RELATION names",
        f"CREATE OR REPLACE RELATION names (k STRING, name STRING) USING csv OPTIONS (path '{tmp_path}/names.csv', header 'true', sep ',')",
    ):
        with pytest.raises(
            UserError, match="'names' cannot be refreshed while q looks up insertions and retractions in it"
        ):
            hub.execute(statement)
    write(tmp_path, "one")
    hub.execute("REFRESH RELATION names")
    write(tmp_path, "uno")
    hub.execute("DROP QUERY q; REFRESH RELATION names")


@pytest.mark.parametrize("name", ONCE)
def test_what_was_looked_up_as_it_was_ingested_goes_as_it_came(tmp_path: Path, hub: Hub, name: str) -> None:
    hub.register(ONCE[name], "q")
    push_row(hub, 1)
    push_row(hub, 2)
    write(tmp_path, "uno")
    hub.execute("REFRESH RELATION names")
    for second in range(3, 8):
        push_row(hub, second, "b")
    assert not hub.query("q").invoke().num_rows
