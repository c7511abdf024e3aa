"""The reader of tables by itself: what it refuses, how far it reads, and that it can be ended."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.server.postgres.protocol.problems import Failed
from headrace.server.postgres.tables.reader import Rows, TableReader
from headrace.server.postgres.tables.sources import Source, Tables
from headrace.server.security.principal import LOCAL


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[TableReader]:
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        made = TableReader(Tables(hub, LOCAL))
        yield made
        made.close()


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE x (a INT)",
        "SELECT 1; SELECT 2",
        "SET threads = 8",
        "COPY (SELECT 1) TO 'x'",
        "PRAGMA version",
        "",
    ],
)
def test_what_is_not_one_select_is_refused(reader: TableReader, text: str) -> None:
    with pytest.raises(Failed) as failed:
        reader.select(text, "UTC")
    assert failed.value.problem.code == "0A000"


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("SELECT * FROM s LATE", "LATE"),
        ("SELECT * FROM s rejects WHERE true", "rejects"),
        ('SELECT count(*) FROM public."s" /* of */ Late', "Late"),
        ("SELECT 1 FROM t JOIN s LATE ON true", "LATE"),
        ("SELECT 1 FROM t, (SELECT v FROM S LATE) x", "LATE"),
    ],
)
def test_late_and_rejected_rows_of_a_stream_are_not_read_as_its_accepted_ones(
    reader: TableReader, text: str, at: str
) -> None:
    reader.tables.hub.execute("CREATE STREAM s (v BIGINT) USING push; CREATE STREAM t (s BIGINT) USING push")
    with pytest.raises(Failed) as failed:
        reader.select(text, "UTC")
    problem = failed.value.problem
    assert (problem.code, problem.position) == ("0A000", text.index(at) + 1)
    assert f" {at.upper()}, and read its results" in str(problem.hint)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT late.v FROM s AS late",
        'SELECT 1 FROM s "late"',
        "SELECT 0, s late FROM t",
        "SELECT 0 FROM t ORDER BY s, t.s",
        "SELECT late.v FROM s x JOIN (SELECT 1 AS v) late ON true",
        "WITH late AS (SELECT 1) SELECT * FROM s, late",
    ],
)
def test_late_may_be_an_alias_of_something_else(reader: TableReader, text: str) -> None:
    reader.tables.hub.execute("CREATE STREAM s (v BIGINT) USING push; CREATE STREAM t (s BIGINT) USING push")
    assert reader.select(text, "UTC").take(0) is None


def test_no_more_is_read_than_a_statement_needs(reader: TableReader, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    schema = pa.schema([("i", pa.int64())])

    def batches() -> Iterator[pa.Table]:
        for number in range(1000):
            made.append(number)
            yield pa.table({"i": pa.array([number] * 5000)})

    def found(_: Any, schema_name: str, name: str) -> Source | None:
        return Source(schema, batches) if (schema_name, name) == ("public", "numbers") else None

    monkeypatch.setattr(Tables, "table", found)
    rows = reader.select("SELECT i FROM numbers LIMIT 7", "UTC")
    assert rows.schema == schema
    first = rows.take(0)
    assert first is not None
    assert first.num_rows == 7
    assert rows.take(0) is None
    assert len(made) < 100
    made.clear()
    rows = reader.select("SELECT i FROM numbers", "UTC")
    assert rows.take(10) == pa.table({"i": pa.array([0] * 10)})
    rows.end()
    assert len(made) < 100


def test_closing_ends_what_is_read_in_another_thread(reader: TableReader) -> None:
    text = "SELECT sum(a.i * b.i) FROM generate_series(1, 1000000) a(i), generate_series(1, 1000000) b(i)"
    failed: list[Failed] = []

    def read() -> None:
        try:
            reader.select(text, "UTC").take(0)
        except Failed as error:
            failed.append(error)

    reading = threading.Thread(target=read)
    reading.start()
    while not reader._using.locked() and reading.is_alive():
        pass
    reader.close()
    reading.join(30)
    assert [error.problem.code for error in failed] == ["57014"]


def read_all(rows: Rows) -> None:
    while rows.take(0) is not None:
        pass


@pytest.mark.parametrize(
    ("late", "code", "message", "has_place"),
    [
        (
            "CASE i WHEN 90000 THEN 'x' ELSE '1' END::INT",
            "22P02",
            "Could not convert string 'x' to INT32",
            True,
        ),
        ("i // (i - 90000)", "22000", "Division by zero", False),
    ],
)
def test_an_error_after_the_first_rows_is_that_of_the_statement(
    reader: TableReader, late: str, code: str, message: str, has_place: bool
) -> None:
    rows = reader.select(f"SELECT {late} AS late FROM range(100000) t(i) WHERE i > 1", "UTC")
    with pytest.raises(Failed, match=message) as failed:
        read_all(rows)
    assert failed.value.problem.code == code
    assert (failed.value.problem.position is not None) == has_place
    assert reader.select("SELECT 1", "UTC").take(0) is not None


def test_what_is_read_in_parts_can_be_ended(reader: TableReader) -> None:
    rows = reader.select("SELECT i FROM range(1000000000) t(i)", "UTC")
    assert rows.take(0) is not None
    reader.interrupt()
    with pytest.raises(Failed, match="canceling statement") as failed:
        read_all(rows)
    assert failed.value.problem.code == "57014"


@pytest.mark.parametrize("text", ["SELECT * FROM s", "SELECT count(*) FROM s", "TABLE s"])
def test_a_table_that_cannot_be_read_fails_with_its_own_reason(reader: TableReader, text: str) -> None:
    hub = reader.tables.hub
    hub.execute(
        "CREATE STREAM s (i BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at OPTIONS (archive 'none')"
    )
    with pytest.raises(Failed) as failed:
        reader.select(text, "UTC").take(0)
    problem = failed.value.problem
    assert problem.message == "the stream 's' keeps no copy of its rows (archive 'none')"
    assert problem.hint == "A standing query over it has its rows as results."
