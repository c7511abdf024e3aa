"""What each kind of operator stores: operators that answer row by row nothing, joins and groups rows that their keys find.

The synopses of Babu 2005, section 2.3 (Table 2.1): selection, projection and union have none, joins and aggregates have indexes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.operators.base.operator import SLOT
from headrace.operators.rows.sorted_rows import HASH
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.home.run_cache import open_run
from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND

WITHOUT = {
    "select": "SELECT k, v FROM a WHERE v > 1",
    "project": "SELECT k + v AS s FROM a",
    "union": "SELECT k FROM a UNION ALL b",
    "rows inserted of a bare stream": "SELECT ISTREAM(k, v) FROM a",
    "join with a stored relation": "SELECT v, name FROM a JOIN names ON a.k = names.k",
}
WITH = {
    "binary join": "SELECT ISTREAM(x.v, y.v AS w) FROM a x [RANGE 1 HOUR], b y [RANGE 1 HOUR] WHERE x.k = y.k",
    "join of three": "SELECT ISTREAM(x.v, y.v AS w, z.v AS u) FROM a x [RANGE 1 HOUR], b y [RANGE 1 HOUR], a z [RANGE 1 HOUR]"
    " WHERE x.k = y.k AND y.k = z.k",
    "aggregate": "SELECT k, COUNT(*) AS n FROM a [RANGE TUMBLING 1 HOUR] GROUP BY k",
    "distinct": "SELECT DISTINCT k FROM a [RANGE 1 HOUR]",
    "window of rows": "SELECT k FROM a [ROWS 5]",
}


def stored(folder: Path, text: str) -> dict[str, list[pa.Table]]:
    """The sections of state, by name, of all operators of a query, after two epochs of rows of five keys."""
    names = folder / "names.csv"
    names.write_text("k,name\n1,one\n")
    sections: dict[str, list[pa.Table]] = {}
    with Hub(folder / "home", LocalExecutor(), tasks=1) as hub:
        for name in "ab":
            hub.execute(f"CREATE STREAM {name} (k BIGINT, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
        hub.execute(
            f"CREATE RELATION names (k BIGINT, name STRING) USING csv OPTIONS (path '{names}', header 'true')"
        )
        hub.register(text, "asked")
        for epoch in range(2):
            numbers = np.arange(40) + 40 * epoch
            at = pa.array(numbers * SECOND).cast(pa.timestamp("us", "UTC"))
            for name in "ab":
                hub.push(name, pa.table({"k": numbers * 7 % 5, "v": numbers, "at": at}))
            hub.catch_up()
        for run in hub.home.latest().state:
            for name, rows in open_run(hub.home.store, run.name).items():
                sections.setdefault(name, []).append(rows)
    return {name: [table for table in tables if table.num_rows] for name, tables in sections.items()}


@pytest.mark.parametrize("name", WITHOUT)
def test_an_operator_that_answers_row_by_row_stores_nothing(name: str, tmp_path: Path) -> None:
    assert not any(stored(tmp_path, WITHOUT[name]).values())


@pytest.mark.parametrize("name", WITH)
def test_an_operator_with_a_synopsis_stores_rows(name: str, tmp_path: Path) -> None:
    assert any(stored(tmp_path, WITH[name]).values())


@pytest.mark.parametrize("name", ["binary join", "join of three"])
def test_each_side_of_a_join_is_indexed_by_its_key(name: str, tmp_path: Path) -> None:
    """Rows of one key are together in a run: found by bisection of their hashes."""
    sides = {
        name: tables
        for name, tables in stored(tmp_path, WITH[name]).items()
        if HASH in tables[0].column_names
    }
    assert len(sides) == (2 if name == "binary join" else 3)
    for table in (table for tables in sides.values() for table in tables):
        hashes = table.column(HASH).to_numpy()
        assert (np.diff(hashes) >= 0).all(), "in the order of the hashes"
        assert len(set(hashes.tolist())) == 5


def test_a_group_is_one_row_of_each_pane_in_the_slot_of_its_key(tmp_path: Path) -> None:
    tables = [table for tables in stored(tmp_path, WITH["aggregate"]).values() for table in tables]
    groups = [table for table in tables if "k0" in table.column_names]
    assert groups
    for table in groups:
        assert table.num_rows == 5, "80 rows of five keys in two epochs"
        assert len(set(zip(table.column(SLOT).to_pylist(), table.column("k0").to_pylist(), strict=True))) == 5
