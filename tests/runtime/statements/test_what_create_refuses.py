"""A definition that is accepted can be run: what no epoch could read is refused at CREATE, by statement and by call."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import UserError
from headrace.language.statements.parse_script import parse_script
from headrace.language.statements.stream_keywords import stream_from_keywords
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.schema import BIGINT, BOOLEAN, INT, STRING, TIMESTAMP, VOID, Field, Schema, array, struct

SCHEMA = Schema((Field("at", TIMESTAMP), Field("value", BIGINT), Field("k", STRING), Field("last", BOOLEAN)))
COLUMNS = "(at TIMESTAMP, value BIGINT, k STRING, last BOOLEAN)"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        yield hub


@pytest.mark.parametrize(
    ("keywords", "clauses"),
    [
        ({}, ""),
        ({"timestamp": "at"}, "TIMESTAMP BY at"),
        ({"timestamp": "AT", "slack": timedelta(seconds=2)}, "TIMESTAMP BY at SLACK INTERVAL 2 SECONDS"),
        ({"timestamp": "at", "slack": "2 seconds"}, "TIMESTAMP BY at SLACK INTERVAL 2 SECONDS"),
        ({"timestamp": "at", "slack": "100 rows"}, "TIMESTAMP BY at SLACK 100 ROWS"),
        ({"timestamp": "timestamp_millis(value)"}, "TIMESTAMP BY timestamp_millis(value)"),
        (
            {"timestamp": "at", "punctuated_by": "last AND value > 1"},
            "TIMESTAMP BY at PUNCTUATED BY last AND value > 1",
        ),
        ({"idle_timeout": "1 MINUTE"}, "IDLE TIMEOUT 1 MINUTE"),
        (
            {"max_ahead": timedelta(hours=2), "archive": "none", "keep": 0.25},
            "OPTIONS (maxAhead '2 HOURS', archive 'none', keep '0.25')",
        ),
        ({"retain": "7 days", "blocks": 16}, "OPTIONS (retain '7 DAYS', blocks '16')"),
        ({"blocks": 4, "blocks_by": "K"}, "OPTIONS (blocks '4', blocksBy 'k')"),
        ({"latency": timedelta(milliseconds=20)}, "OPTIONS (latency '20 ms')"),
        (
            {"timestamp": "at", "clauses": "PROGRESS PER (k) EXPECT 2 DEDUPLICATE BY (k)"},
            "TIMESTAMP BY at PROGRESS PER (k) EXPECT 2 DEDUPLICATE BY (k)",
        ),
    ],
)
def test_keywords_and_clauses_make_the_same_definition(keywords: dict[str, Any], clauses: str) -> None:
    (statement,) = parse_script(f"CREATE STREAM s {COLUMNS} USING spark {clauses}")
    assert stream_from_keywords("s", SCHEMA, "spark", keywords, "UTC") == statement.definition


@pytest.mark.parametrize(
    ("keywords", "message", "remedy"),
    [
        (
            {"timestamp": "value"},
            "the event time 'value' is BIGINT, not a TIMESTAMP",
            "timestamp_millis(value)",
        ),
        ({"timestamp": "att"}, "there is no column 'att' for TIMESTAMP BY", "at"),
        ({"timestamp": 3}, "timestamp is 3 (int), expected the name of a column, or an expression", "'at'"),
        ({"slack": 5}, "slack is 5 (int), expected a length of time", "slack='5 SECONDS'"),
        ({"slack": -5}, "slack is -5 (int), expected a length of time", "slack='5 SECONDS'"),
        ({"slack": "soon"}, "slack is 'soon', expected a length of time", "slack='5 SECONDS'"),
        ({"slack": timedelta(seconds=-5)}, "SLACK must not be negative", None),
        ({"slack": "-5 SECONDS"}, "SLACK must not be negative", None),
        ({"idle_timeout": "0 SECONDS"}, "IDLE TIMEOUT must be longer than 0", None),
        ({"slakc": "5 SECONDS"}, "create_stream has no keyword 'slakc'", "slack"),
        ({"archive": "tape"}, "there is no archive 'tape'", "'copy', 'in place' or 'none'"),
        ({"blocks": 0}, "blocks must be a number from 1 to 1024, not '0'", None),
        ({"blocks": "many"}, "blocks is 'many', expected a whole number", "blocks=16"),
        ({"blocks": 4, "blocks_by": 3}, "blocks_by is 3 (int), expected the name of a column", "'car'"),
        ({"keep": True}, "keep is True (bool), expected a number", "keep=0.25"),
        ({"keep": 2.0}, "keep is a number above 0 and at most 1, not '2.0'", None),
        ({"keep": float("nan")}, "keep is a number above 0 and at most 1, not 'NaN'", None),
        ({"max_ahead": "-1 DAY"}, "maxAhead must not be negative", None),
        ({"latency": "-1 ms"}, "latency must not be negative", None),
        ({"latency": 20}, "latency is 20 (int), expected a length of time", "latency=timedelta"),
        ({"punctuated_by": "value"}, "PUNCTUATED BY", None),
        ({"clauses": "SIDEWAYS"}, "expected a clause of CREATE STREAM, found 'SIDEWAYS'", None),
    ],
)
def test_a_call_is_refused_with_what_was_expected_found_and_to_do(
    keywords: dict[str, Any], message: str, remedy: str | None
) -> None:
    with pytest.raises(UserError) as refused:
        stream_from_keywords("s", SCHEMA, "spark", keywords, "UTC")
    assert refused.value.message.startswith("stream 's': ")
    assert message in refused.value.message
    assert remedy is None or remedy in str(refused.value.remedy)
    assert refused.value.line_and_column is None


@pytest.mark.parametrize("kind", [array(INT), struct(Field("x", INT)), VOID])
def test_columns_that_no_statement_declares_are_refused(kind: Any) -> None:
    with pytest.raises(UserError, match="rows of a stream are flat"):
        stream_from_keywords("s", Schema((Field("a", kind),)), "spark", {}, "UTC")
    with pytest.raises(UserError, match="names that begin with __ are reserved"):
        stream_from_keywords("s", Schema((Field("__at", INT),)), "spark", {}, "UTC")


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("CREATE STREAM s (a INT) USING csv OPTIONS (path 'a\0b')", "has a NUL character"),
        (f"CREATE STREAM s (a INT) USING csv OPTIONS (path '/tmp/{'x' * 300}')", "a part of 300 bytes"),
        (f"CREATE STREAM s (a INT) USING csv OPTIONS (path '{'/tmp' * 1200}')", "is longer than 4095 bytes"),
        ("CREATE RELATION s (a INT) USING csv OPTIONS (path 'a\0b')", "has a NUL character"),
        ("CREATE STREAM s (a INT) USING csv OPTIONS (path '/tmp', sep '\n')", "option sep ends a line"),
        ("CREATE STREAM s (a INT) USING csv OPTIONS (path '/tmp', quote '\r')", "option quote ends a line"),
        ("CREATE STREAM s (a INT) USING csv OPTIONS (path '/tmp', encoding 'idna')", "which is not known"),
        ("CREATE STREAM s (a INT) USING spark", "there is no format 'spark'"),
        ("CREATE STREAM s (a INT) USING results", "there is no format 'results'"),
        ("CREATE STREAM `a\0b` (a INT) USING push", "has a control character"),
        (f"CREATE STREAM {'x' * 129} (a INT) USING push", "too long for a file's: 129 bytes"),
        (f"CREATE STREAM `{'/' * 43}` (a INT) USING push", "too long for a file's: 129 bytes"),
    ],
)
def test_what_would_stop_every_epoch_is_refused_at_create(hub: Hub, statement: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        hub.execute(statement)
    assert said in refused.value.message
    assert not hub.catalog.streams


def test_a_query_s_name_is_that_of_its_output_file(hub: Hub) -> None:
    """By statement, by call and by renaming."""
    hub.execute("CREATE STREAM s (a INT) USING push")
    with pytest.raises(UserError, match="the name of the query is too long for a file's: 250 bytes"):
        hub.register("SELECT a FROM s", "x" * 250)
    with pytest.raises(UserError, match="the name of the query is too long"):
        hub.execute(f"CREATE QUERY `{'é' * 65}` AS SELECT a FROM s")
    hub.register("SELECT a FROM s", "x" * 128)
    with pytest.raises(UserError, match="the name of the query is too long"):
        hub.execute(f"ALTER QUERY {'x' * 128} RENAME TO {'x' * 129}")
    with pytest.raises(UserError, match="the name of the query has a control character"):
        hub.execute("CREATE QUERY `a\nb` AS SELECT a FROM s")


@pytest.mark.parametrize("name", ["..", "/tmp/outside", "a/b", "../../up"])
def test_no_name_leads_out_of_the_home(hub: Hub, tmp_path: Path, name: str) -> None:
    hub.execute(f"CREATE STREAM `{name}` (a INT) USING push; CREATE QUERY q AS SELECT a FROM `{name}` AS t")
    hub.push(name, [{"a": 1}])
    hub.catch_up()
    assert hub.query("q").history().column("a").to_pylist() == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    hub.push(name, [{"a": 2}] * (1 << 15))
    (folder,) = (hub.path / "segments").iterdir()
    assert list((hub.path / "archive").iterdir()) == [hub.path / "archive" / folder.name]


def test_text_that_is_not_in_its_encoding_is_a_reject(hub: Hub, tmp_path: Path) -> None:
    """UTF-16 without a byte order mark stopped the loop."""
    (tmp_path / "rows.csv").write_text("1\n2\n3\n")
    hub.execute(
        f"CREATE STREAM s (a INT) USING csv OPTIONS (path '{tmp_path}/rows.csv', encoding 'UTF-16');"
        "CREATE QUERY q AS SELECT reason FROM s REJECTS"
    )
    hub.catch_up()
    (reason,) = hub.query("q").history().column("reason").to_pylist()
    assert "not readable as utf-16" in reason


def test_a_registration_s_values_are_those_that_a_statement_could_give(hub: Hub) -> None:
    """Before, an owner that is a number was logged, and a text of tags became a tag a letter."""
    hub.execute("CREATE STREAM s (a INT) USING push")
    select: Any = "SELECT a FROM s"
    for keywords, said in (
        ({"owner": 5}, "the owner is 5"),
        ({"tags": "night"}, "the tags are 'night'"),
        ({"tags": [5]}, "the tags are"),
    ):
        with pytest.raises(UserError, match=said):
            hub.register(select, "q", **keywords)
    for text, name in ((5, "q"), (select, 5)):
        with pytest.raises(UserError, match="a query is a name and a SELECT"):
            hub.register(text, name)
    with pytest.raises(UserError, match="the instant is 'noon'"):
        hub.punctuate("s", "noon")  # type: ignore[arg-type]
    hub.register(select, "q", owner="  ")
    assert hub.catalog.require_query("q").definition.owner is None


@pytest.mark.parametrize(("using", "meant"), [("psuh", "push"), ("parqet", "parquet")])
def test_a_format_that_is_misspelled_is_not_taken_for_one_of_spark(
    tmp_path: Path, using: str, meant: str
) -> None:
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        with pytest.raises(UserError, match=f"there is no format '{using}'") as failed:
            hub.execute(f"CREATE STREAM x (k INT) USING {using} OPTIONS (path '{tmp_path}')")
        assert failed.value.remedy == f"Did you mean '{meant}'?"
