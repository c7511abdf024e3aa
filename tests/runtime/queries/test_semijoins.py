"""`x IN (SELECT …)` over what changes, from the text of a query to what it emits."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import UserError
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub


def rows(*values: tuple[str | None, int, float]) -> list[dict[str, Any]]:
    return [{"k": k, "v": v, "at": datetime.fromtimestamp(at, UTC)} for k, v, at in values]


def test_a_row_is_emitted_when_it_begins_to_qualify() -> None:
    answer = hr.test(
        "SELECT k, v FROM s WHERE k IN (SELECT k FROM t [ROWS 10000])"
        " AND k IN (SELECT k FROM t [RANGE 5 MINUTES] GROUP BY k HAVING COUNT(*) > 3)",
        s=rows(("a", 1, 1), ("b", 2, 2), (None, 3, 3), ("a", 4, 500)),
        t=rows(*(("a", 0, second) for second in (2, 3, 4, 5)), ("b", 0, 5), (None, 0, 5)),
    )
    assert answer == [{"k": "a", "v": 1}]


def test_whole_rows_are_compared_place_by_place() -> None:
    rows_of_s, rows_of_t = rows(("a", 1, 1), ("b", 2, 2)), rows(("a", 1, 2), ("b", 2, 2))
    assert hr.test("SELECT k FROM s WHERE s IN (SELECT * FROM t [ROWS 100])", s=rows_of_s, t=rows_of_t) == [
        {"k": "b"}
    ]
    pairs = "SELECT k FROM s WHERE (v, k) IN (SELECT v, k FROM t [ROWS 100])"
    assert hr.test(pairs, s=rows_of_s, t=rows_of_t) == [{"k": "a"}, {"k": "b"}]


def test_rows_come_again_with_what_they_meet() -> None:
    answer = hr.test(
        "SELECT v FROM s WHERE k IN (SELECT k FROM t [ROWS 1])",
        s=rows(("a", 1, 1), ("b", 2, 1)),
        t=rows(("a", 0, 2), ("b", 0, 3), ("a", 0, 4)),
    )
    assert answer == [{"v": 1}, {"v": 2}, {"v": 1}]


def test_numbers_in_strings_meet_once_and_what_is_no_number_is_rejected() -> None:
    answer = hr.test(
        "SELECT v FROM s WHERE v IN (SELECT k FROM t [RANGE UNBOUNDED])",
        s=rows(("a", 1, 3)),
        t=rows(("1", 0, 1), ("01", 0, 2), ("one", 0, 2)),
    )
    assert answer == [{"v": 1}]


SCRIPT = """
CREATE STREAM s (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at;
CREATE QUERY busy AS SELECT k, COUNT(*) AS n FROM s [ROWS 10] GROUP BY k;
CREATE QUERY chosen AS SELECT k, v FROM s [RANGE 1 HOUR] WHERE k IN (SELECT k FROM busy WHERE n > 1);
"""


def test_queries_that_are_looked_into_are_read_and_kept(tmp_path: Path) -> None:
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        hub.execute(SCRIPT)
        hub.push("s", rows(("a", 1, 1), ("b", 2, 2), ("a", 3, 4)))
        hub.catch_up()
        assert hub.query("chosen").invoke().to_pylist() == [{"k": "a", "v": 1}, {"k": "a", "v": 3}]
        with pytest.raises(UserError, match="chosen"):
            hub.execute("DROP QUERY busy")
        with pytest.raises(UserError, match="chosen"):
            hub.execute("DROP STREAM s")
        with pytest.raises(UserError, match="cannot read itself"):
            hub.execute("ALTER QUERY chosen AS SELECT k FROM s WHERE k IN (SELECT k FROM chosen)")
        (outcome,) = hub.execute("EXPLAIN QUERY chosen")
        assert outcome.table is not None
        hub.execute("DROP QUERY chosen; DROP QUERY busy; DROP STREAM s")
