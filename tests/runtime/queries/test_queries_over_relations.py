"""A registered query that holds a relation, and those that read it: what either may do while the other is there."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import UserError
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub

COUNTS = "SELECT k, COUNT(*) AS n FROM s [ROWS 3] GROUP BY k"
OVER = "SELECT n, COUNT(*) AS c FROM counts GROUP BY n"


def row(k: str, second: int) -> dict[str, Any]:
    return {"k": k, "at": datetime.fromtimestamp(second, UTC)}


def opened(folder: Path) -> Hub:
    return Hub(folder / "home", LocalExecutor(), tasks=2)


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    with opened(tmp_path) as hub:
        hub.execute("CREATE STREAM s (k STRING, at TIMESTAMP) USING push TIMESTAMP BY at")
        hub.register(COUNTS, "counts")
        hub.register(OVER, "over")
        return hub


def rows_of(tables: Iterable[pa.Table]) -> list[dict[str, Any]]:
    return [row for table in tables for row in table.to_pylist()]


def push_rows(hub: Hub, *rows: dict[str, Any]) -> None:
    hub.push("s", pa.Table.from_pylist(list(rows)))
    hub.catch_up()


def test_it_is_read_by_name_and_answers_the_same_after_it_was_opened_again(tmp_path: Path, hub: Hub) -> None:
    with opened(tmp_path) as again:
        push_rows(again, row("a", 1), row("b", 2), row("b", 3))
        assert again.query("over").invoke().to_pylist() == [{"n": 1, "c": 1}, {"n": 2, "c": 1}]
        again.register("SELECT MAX(n) AS top FROM counts", "later")
        again.catch_up()
        assert again.query("later").invoke().to_pylist() == [{"top": 2}]
    with opened(tmp_path) as again:
        push_rows(again, row("b", 4))
        assert again.query("over").invoke().to_pylist() == [{"n": 3, "c": 1}]
        assert again.query("later").invoke().to_pylist() == [{"top": 3}]


def test_while_it_is_read_it_is_neither_dropped_nor_altered_nor_is_its_stream(
    tmp_path: Path, hub: Hub
) -> None:
    with opened(tmp_path) as again:
        for statement in (
            "DROP QUERY counts",
            "ALTER QUERY counts AS SELECT k, 1 AS n FROM s [ROWS 2]",
            "DROP QUERIES WHERE name = 'counts'",
        ):
            with pytest.raises(UserError, match="over"):
                again.execute(statement)
        with pytest.raises(UserError, match="counts"):
            again.execute("DROP STREAM s")
        again.execute("DROP QUERY over; DROP QUERY counts; DROP STREAM s")


def test_a_select_in_from_with_the_alias_of_a_query_does_not_read_that(tmp_path: Path, hub: Hub) -> None:
    with opened(tmp_path) as again:
        again.execute("DROP QUERY over")
        again.register("SELECT COUNT(*) AS c FROM (SELECT k FROM s [ROWS 2]) AS counts", "other")
        again.execute("DROP QUERY counts")


def test_its_reader_goes_on_while_it_is_paused(tmp_path: Path, hub: Hub) -> None:
    with opened(tmp_path) as again:
        again.execute("PAUSE QUERY counts")
        push_rows(again, row("a", 1))
        assert again.query("over").invoke().to_pylist() == [{"n": 1, "c": 1}]
        again.execute("RESUME QUERY counts; PAUSE QUERY over")
        push_rows(again, row("a", 2))
        assert again.query("counts").invoke().to_pylist() == [{"k": "a", "n": 2}]
        assert again.query("over").invoke().to_pylist() == [{"n": 1, "c": 1}]
        again.execute("RESUME QUERY over")
        again.catch_up()
        assert again.query("over").invoke().to_pylist() == [{"n": 2, "c": 1}]


def test_a_dropped_reader_leaves_nothing_and_the_query_may_go(tmp_path: Path, hub: Hub) -> None:
    with opened(tmp_path) as again:
        push_rows(again, row("a", 1))
        again.execute("DROP QUERY over")
        again.catch_up()
        plan = again.loop.engine.plan
        assert list(plan.operators) == ["q1"]
        assert not any(planned.is_inlined_view for planned in plan.planned.values())
        assert not [name for name in plan.streams if name.startswith("@")]


def test_a_query_is_not_altered_so_that_it_reads_itself(tmp_path: Path, hub: Hub) -> None:
    with opened(tmp_path) as again:
        again.execute("DROP QUERY over")
        with pytest.raises(UserError, match="itself"):
            again.execute("ALTER QUERY counts AS SELECT k, n FROM counts")


def test_explain_says_whose_relation_is_read(tmp_path: Path, hub: Hub) -> None:
    with opened(tmp_path) as again:
        push_rows(again, row("a", 1))
        again.register(
            "SELECT x.k, y.k AS other FROM s x [ROWS 2], s y [RANGE 1 MINUTE] WHERE x.k = y.k", "met"
        )
        again.catch_up()
        over, met = again.explain("over"), again.explain("met")
    assert "a row is valid until an equal row is retracted" in over
    assert "emits insertions and retractions at each instant, for the query that reads it" in over
    assert "read changes of a relation that over reads" in over
    assert "RelationJoin: pairs where (x.k = y.k)" in met
    assert "x: a row follows its changelog and is added to the relation" in met
    assert "y: a row is valid for 1 MINUTE and is added to the relation" in met
    assert "read pairs of met" in met
    assert "read x and y of met together" in met


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("SELECT k AS __change FROM s [ROWS 1]", "change"),
        ("SELECT k AS __x FROM s [ROWS 2]", "x"),
        ("SELECT n FROM (SELECT k AS __k, COUNT(*) AS n FROM s [ROWS 2] GROUP BY k) t", "k"),
    ],
)
def test_a_column_that_is_called_as_ours_are_is_refused(
    tmp_path: Path, hub: Hub, text: str, name: str
) -> None:
    """Such a column was none of the answer's: equal rows were distinguished by the others alone."""
    with opened(tmp_path) as again:
        with pytest.raises(UserError, match=f"names that begin with __ are reserved\n.* AS {name}\\."):
            again.register(text, "odd")
        with pytest.raises(UserError, match="names that begin with __ are reserved"):
            again.execute(f"CREATE QUERY odd AS {text}")


def test_followers_sinks_and_clients_get_all_and_miss_nothing_of_it(tmp_path: Path, hub: Hub) -> None:
    """What the levels below emitted to each other expires meanwhile: that is no loss of theirs."""
    followed, sunk = list[Any](), list[Any]()
    with opened(tmp_path) as again:
        again.register("SELECT ISTREAM(n, c) FROM over", "new")
        again.sink("new", lambda _, table: sunk.extend(table.to_pylist()))
        reading = Thread(target=lambda: followed.extend(rows_of(again.query("over").follow(since=0))))
        with again.running():
            reading.start()
            for second in range(1, 25):
                again.push(
                    "s", pa.Table.from_pylist([row("aabab"[second % 5] if second % 4 else "c", second)])
                )
                time.sleep(0.1)
        reading.join(timeout=20)
        assert not reading.is_alive()
        assert again.home.list_of(again.home.latest(), "results").start > 0
        assert followed == again.query("over").history().to_pylist()
        assert len(followed) > 8
        assert sunk == again.query("new").history().to_pylist()
        deliveries = list(again.query("over").client("phone").pending())
        assert [pending.missed for pending in deliveries] == [0] * len(deliveries)
        assert [row for delivery in deliveries for row in delivery.rows.to_pylist()] == followed
