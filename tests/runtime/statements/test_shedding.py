"""Shedding as a user meets it: declared of a query, turned on and off of a stream while it runs, and shown wherever streams are."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.catalog.definitions import StreamDefinition
from headrace.errors import UserError
from headrace.language.statements.statement import CreateStream
from headrace.operators.sharing.pane_transfer import can_give
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.introspection.loss_report import loss_report
from headrace.store.logs.manifest import Manifest
from tests.language.one_statement import parse_statement
from tests.language.rendering.definition_text import render_stream

START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
STREAM = "CREATE STREAM s (at TIMESTAMP, k INT, v INT) USING push{} TIMESTAMP BY at;"
COUNTED = (
    "SELECT window_end, COUNT(*) AS n, SUM(v) AS total, MAX(v) AS top FROM s [RANGE TUMBLING 10 SECONDS]"
)
A_WINDOW = 400
"""Rows."""


def rows(window: int) -> list[dict[str, Any]]:
    """Those of one window of ten seconds."""
    first = START + dt.timedelta(seconds=10 * window)
    return [
        {"at": first + dt.timedelta(milliseconds=25 * i), "k": i % 4, "v": i % 10} for i in range(A_WINDOW)
    ]


def partial_column(hub: Hub, *windows: int) -> None:
    for window in windows:
        hub.push("s", rows(window))
        hub.catch_up()


def emitted(hub: Hub, name: str) -> list[dict[str, Any]]:
    return hub.query(name).history().to_pylist()


@pytest.fixture
def hub(tmp_path: Path):
    with open_hub(tmp_path / "home", local=True) as opened:
        opened.execute(
            STREAM.format("") + f"CREATE QUERY q AS {COUNTED} WITH SHEDDING; CREATE QUERY exact AS {COUNTED};"
        )
        yield opened


def test_a_window_says_how_much_of_it_was_looked_at_and_how_wrong_it_may_be(hub: Hub) -> None:
    partial_column(hub, 0)
    hub.execute("ALTER STREAM s SET (keep '0.25')")
    partial_column(hub, 1)
    hub.execute("ALTER STREAM s SET (keep '1')")
    partial_column(hub, 2, 3)
    whole, part, again = emitted(hub, "q")
    for window in (whole, again):
        assert (window["n"], window["total"], window["kept"]) == (A_WINDOW, sum(r["v"] for r in rows(0)), 1)
        assert window["n_error"] == window["total_error"] == window["top_error"] == 0
    assert part["kept"] == 0.25
    assert abs(part["n"] - A_WINDOW) <= 2 * part["n_error"] < A_WINDOW
    assert (part["top"], part["top_error"]) == (9, None)
    assert [row["n"] for row in emitted(hub, "exact")] == [A_WINDOW] * 3


def test_streams_show_what_they_keep_and_what_was_shed(hub: Hub) -> None:
    partial_column(hub, 0)
    hub.execute("alter stream S set (KEEP = 0.5)")
    partial_column(hub, 1, 2)
    seen = hub.status()["streams"]["s"]
    assert seen["keep"] == 0.5
    assert seen["rows"] == 3 * A_WINDOW
    assert 0.4 * 2 * A_WINDOW < seen["shed"] < 0.6 * 2 * A_WINDOW
    (shown,) = hub.execute("SHOW STREAMS")[0].table.to_pylist()
    assert (shown["keep"], shown["shed"]) == (0.5, seen["shed"])
    described = dict(hub.execute("DESCRIBE EXTENDED s")[0].table.to_pydict().items())
    properties = dict(zip(described["property"], described["value"], strict=True))
    assert properties["kept for queries WITH SHEDDING"] == "0.5"
    assert properties["shed rows"] == str(seen["shed"])
    lines = [json.loads(line) for line in (hub.path / "epochs.jsonl").read_text().splitlines()]
    streams = [line["streams"]["s"] for line in lines if line["kind"] == "epoch"]
    assert [stream["keep"] for stream in streams] == [1, 0.5, 0.5]
    assert sum(stream["shed"] for stream in streams) == seen["shed"]
    (plan,) = hub.execute("EXPLAIN QUERY q")
    assert "maybe fewer than there are (WITH SHEDDING)" in plan.message
    assert "WITH SHEDDING" not in hub.execute("EXPLAIN QUERY exact")[0].message


def test_nothing_is_shed_of_a_stream_without_such_queries(tmp_path: Path) -> None:
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(STREAM.format(" OPTIONS (keep '0.1')") + f"CREATE QUERY exact AS {COUNTED};")
        partial_column(hub, 0, 1)
        assert hub.status()["streams"]["s"]["shed"] == 0
        assert [row["n"] for row in emitted(hub, "exact")] == [A_WINDOW]


def test_a_share_outlives_the_process_and_a_script_that_is_run_again(tmp_path: Path) -> None:
    script = STREAM.format(" OPTIONS (keep '0.5')") + f"CREATE QUERY q AS {COUNTED} WITH SHEDDING;"
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(script)
        assert hub.catalog.sample_rate_of("S") == 0.5
        hub.execute("ALTER STREAM s SET (keep '0.25')")
    with open_hub(tmp_path / "home", local=True) as hub:
        assert hub.execute(script)[0].message == "stream s is there already"
        assert hub.catalog.sample_rate_of("s") == 0.25
        partial_column(hub, 0, 1)
        assert emitted(hub, "q")[0]["kept"] == 0.25
        hub.execute("DROP QUERY q; DROP STREAM s;" + STREAM.format(""))
        assert hub.catalog.sample_rate_of("s") == 1


def test_a_change_of_the_share_changes_no_operator(hub: Hub) -> None:
    partial_column(hub, 0)
    before = hub.loop.engine.plan
    hub.execute("ALTER STREAM s SET (keep '0.5')")
    after = hub.loop.engine.plan
    assert all(after.operators[name] is operator for name, operator in before.operators.items())
    assert after.sample_rate_of("s") == 0.5
    position = hub.catalog.position
    hub.execute("ALTER STREAM s SET (keep '0.50')")
    assert hub.catalog.position == position


def test_late_rows_that_a_query_with_revisions_takes_in_are_lost_to_one_with_shedding(hub: Hub) -> None:
    hub.execute(f"DROP QUERY exact; CREATE QUERY mended AS {COUNTED} WITH REVISIONS")
    partial_column(hub, 1, 0)
    lines = list(loss_report(hub.home, Manifest(0, 0), hub.home.latest(), persistent=True))
    assert any("but of queries WITH REVISIONS" in line for line in lines), lines


def test_there_must_be_such_a_stream(hub: Hub) -> None:
    with pytest.raises(UserError, match=r"there is no stream 't'"):
        hub.execute("ALTER STREAM t SET (keep '0.5')")


def test_a_late_query_is_shown_what_the_first_one_was(hub: Hub) -> None:
    for window, keep in enumerate(("1", "0.5", "0.1", "0.3", "1")):
        hub.execute(f"ALTER STREAM s SET (keep '{keep}')")
        partial_column(hub, window)
    hub.execute(f"CREATE QUERY late AS {COUNTED} WITH SHEDDING")
    hub.catch_up()
    assert emitted(hub, "late") == emitted(hub, "q")
    assert hub.status()["streams"]["s"]["rows"] == 5 * A_WINDOW


def test_estimates_are_read_as_columns_by_other_queries_also_in_from(hub: Hub) -> None:
    hub.execute("ALTER STREAM s SET (keep '0.5')")
    hub.execute("CREATE QUERY surely AS SELECT n, n_error FROM q WHERE n - n_error > 100")
    inner = "SELECT COUNT(*) AS n FROM s [RANGE TUMBLING 10 SECONDS] WITH SHEDDING"
    hub.execute(f"CREATE QUERY nested AS SELECT n, kept FROM ({inner}) WHERE n_error > 0")
    partial_column(hub, 0, 1)
    (estimate,) = emitted(hub, "q")
    assert [(row["n"], row["n_error"]) for row in emitted(hub, "surely")] == [
        (estimate["n"], estimate["n_error"])
    ]
    assert [(row["n"], row["kept"]) for row in emitted(hub, "nested")] == [(estimate["n"], 0.5)]


def test_panes_of_kept_rows_fill_no_window_of_all_rows_and_none_of_all_rows_one_of_kept(hub: Hub) -> None:
    plan = hub.loop.engine.plan
    by_name = {operator.query: operator for operator in plan.operators.values()}
    shed, exact = by_name["q"], by_name["exact"]
    assert isinstance(shed, PaneAggregate)
    assert isinstance(exact, PaneAggregate)
    assert not can_give(shed, exact)
    assert not can_give(exact, shed)
    assert can_give(shed, shed)
    assert shed.family != exact.family


def test_a_window_may_be_changed_while_rows_are_shed(hub: Hub) -> None:
    hub.execute("ALTER STREAM s SET (keep '0.5')")
    partial_column(hub, 0, 1)
    hub.execute("ALTER QUERY q SET WINDOW [RANGE 20 SECONDS SLIDE 10 SECONDS]")
    partial_column(hub, 2, 3)
    hub.execute(
        f"CREATE QUERY wide AS {COUNTED.replace('TUMBLING 10 SECONDS', '20 SECONDS SLIDE 10 SECONDS')} WITH SHEDDING"
    )
    hub.catch_up()
    latest = emitted(hub, "wide")[-1]
    assert emitted(hub, "q")[-1] == latest
    assert latest["kept"] == 0.5


def test_a_trial_is_exact_and_says_so() -> None:
    (first, *_) = hr.test(f"{COUNTED} WITH SHEDDING", s=rows(0))
    assert (first["n"], first["n_error"], first["kept"]) == (A_WINDOW, 0, 1)


@pytest.mark.parametrize("keep", [1.0, 0.25, 0.1, 1e-9])
def test_a_share_survives_being_rendered(keep: float) -> None:
    parsed = parse_statement("CREATE STREAM s (a INT) USING push")
    assert isinstance(parsed, CreateStream)
    definition = StreamDefinition("s", parsed.definition.schema, "push", keep=keep)
    again = parse_statement(render_stream(definition))
    assert isinstance(again, CreateStream)
    assert again.definition == definition


@pytest.mark.spark
def test_on_spark_shedding_is_turned_on_and_off_while_the_archive_stays_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    with open_hub(tmp_path / "home", spark=spark, tasks=2) as hub:
        hub.execute(
            STREAM.format("") + f"CREATE QUERY q AS {COUNTED} WITH SHEDDING; CREATE QUERY exact AS {COUNTED};"
        )
        for window, keep in enumerate(("1", "0.25", "0.25", "1", "1")):
            hub.execute(f"ALTER STREAM s SET (keep '{keep}')")
            partial_column(hub, window)
        hub.execute(f"CREATE QUERY late AS {COUNTED} WITH SHEDDING")
        hub.catch_up()
        assert [round(row["kept"], 9) for row in emitted(hub, "q")] == [1, 0.25, 0.25, 1]
        assert emitted(hub, "late") == emitted(hub, "q")
        assert [row["n"] for row in emitted(hub, "exact")] == [A_WINDOW] * 4
        pushed = sorted((row["k"], row["v"]) for window in range(5) for row in rows(window))
        archived = hub.archive("s").toPandas()
        assert sorted(zip(archived["k"], archived["v"], strict=True)) == pushed
