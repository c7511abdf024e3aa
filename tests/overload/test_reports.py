"""What a hub with queries WITH QOS shows of them: status, SHOW QUERIES, EXPLAIN, metrics; and nothing where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.operators.sharing.pane_transfer import can_give
from headrace.overload.capacity import CostLine
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.ingest.admission import Pending
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.epoch_work import EpochWork
from headrace.runtime.messages.task_messages import Split
from headrace.runtime.plan.adaptive.overload_control import OVERLOAD, FinishedEpoch, decided
from headrace.server.metrics import HubMetrics
from headrace.time import SECOND

COUNTED = "SELECT k, COUNT(*) AS n FROM s [RANGE TUMBLING 10 SECONDS] GROUP BY k"
QOS = "WITH SHEDDING WITH QOS (delay (1 AT 10 MINUTES), loss (1 AT 0 PERCENT, 0.8 AT 90 PERCENT))"


def rows(first: int) -> list[dict[str, Any]]:
    return [{"at": f"2024-05-01 12:{first:02}:{second:02}", "k": second % 3} for second in range(60)]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with open_hub(tmp_path / "home", local=True) as opened:
        opened.execute("CREATE STREAM s (at TIMESTAMP, k INT) USING push TIMESTAMP BY at")
        yield opened


def advance(hub: Hub, first: int) -> None:
    hub.push("s", rows(first))
    hub.catch_up()


def test_without_such_queries_there_is_nothing_of_it_anywhere(hub: Hub) -> None:
    hub.execute(f"CREATE QUERY plain AS {COUNTED}")
    advance(hub, 0)
    assert hub.status()["overload"] is None
    assert OVERLOAD not in hub.home.latest().facts
    assert "utility" not in hub.execute("SHOW QUERIES")[0].table.column_names
    assert "utility" not in hub.execute("EXPLAIN ALL")[0].message
    assert b"headrace_utility" not in HubMetrics(hub).text()


def test_utility_is_in_status_show_explain_and_metrics(hub: Hub) -> None:
    hub.execute(f"CREATE QUERY plain AS {COUNTED}; CREATE QUERY q AS {COUNTED} {QOS}")
    explained = hub.execute("EXPLAIN QUERY q")[0].message
    assert "utility by delay: 1 at 600 s" in explained
    assert "nothing is measured yet: figures come with the first epoch" in explained
    for first in range(3):
        advance(hub, first)
    status = hub.status()["overload"]
    assert (status["utility"], status["best"], status["changes"]) == (1, 1, 0)
    assert status["queries"]["q"]["shares"] == [1.0]
    assert 0 < status["queries"]["q"]["delay"] < 600
    assert status["saturation"] > 0
    shown = hub.execute("SHOW QUERIES")[0].table.to_pylist()
    assert {row["name"]: row["utility"] for row in shown} == {"plain": None, "q": 1}
    assert "now: utility 1.00, " in hub.execute("EXPLAIN QUERY q")[0].message
    assert "quality of service" not in hub.execute("EXPLAIN QUERY plain")[0].message
    assert "utility 1.00 of 1; load: " in hub.execute("EXPLAIN ALL")[0].message
    metrics = HubMetrics(hub).text().decode()
    assert "\nheadrace_utility 1.0\n" in metrics
    assert "\nheadrace_best_utility 1.0\n" in metrics
    assert "\nheadrace_share_changes_total 0.0\n" in metrics
    assert "\nheadrace_demand_ratio " in metrics


def test_a_query_that_is_dropped_or_paused_has_no_utility(hub: Hub) -> None:
    hub.execute(f"CREATE QUERY one AS {COUNTED} {QOS}; CREATE QUERY other AS {COUNTED} {QOS}")
    advance(hub, 0)
    assert hub.status()["overload"]["best"] == 2
    hub.execute("PAUSE QUERY one")
    advance(hub, 1)
    assert hub.status()["overload"]["queries"].keys() == {"other"}
    hub.execute("RESUME QUERY one")
    advance(hub, 2)
    advance(hub, 3)
    assert hub.status()["overload"]["queries"].keys() == {"one", "other"}
    hub.execute("DROP QUERY one; DROP QUERY other")
    advance(hub, 4)
    assert hub.status()["overload"] is None


def test_a_query_over_another_is_as_late_as_the_stream_below(hub: Hub) -> None:
    hub.execute(f"CREATE QUERY below AS {COUNTED}")
    hub.execute("CREATE QUERY above AS SELECT n FROM below WHERE n > 1 WITH QOS (delay (1 AT 10 MINUTES))")
    advance(hub, 0)
    advance(hub, 1)
    assert hub.status()["overload"]["queries"]["above"]["delay"] > 0
    assert len(hub.query("above").history()) > 0


def test_a_select_in_from_states_its_own(hub: Hub) -> None:
    hub.execute(f"CREATE QUERY q AS SELECT n, kept FROM ({COUNTED} {QOS}) WHERE n > 1")
    advance(hub, 0)
    advance(hub, 1)
    assert hub.status()["overload"]["queries"]["q"]["utility"] == 1
    assert hub.query("q").history().to_pylist()[0]["kept"] == 1


def test_what_is_stated_outlives_the_process_and_costs_no_sharing_without_loss(hub: Hub) -> None:
    late = "WITH QOS (delay (1 AT 1 SECOND))"
    hub.execute(
        f"CREATE QUERY a AS {COUNTED}; CREATE QUERY b AS {COUNTED} {late}; CREATE QUERY c AS {COUNTED} {QOS}"
    )
    advance(hub, 0)
    operators = {operator.query: operator for operator in hub.plan.operators.values()}
    assert operators["a"].family == operators["b"].family != operators["c"].family
    path = hub.path
    hub.close()
    with open_hub(path, local=True) as again:
        advance(again, 1)
        assert again.status()["overload"]["queries"].keys() == {"b", "c"}


def test_panes_of_a_share_of_its_own_fill_no_other_query(hub: Hub) -> None:
    hub.execute(f"CREATE QUERY by_hand AS {COUNTED} WITH SHEDDING; CREATE QUERY q AS {COUNTED} {QOS}")
    by_query = {operator.query: operator.over_panes for operator in hub.plan.operators.values()}
    by_hand, chosen = by_query["by_hand"], by_query["q"]
    assert by_hand is not None
    assert chosen is not None
    assert not can_give(chosen, by_hand)
    assert can_give(by_hand, chosen)
    assert can_give(chosen, chosen)  # of the same query, as when its window is changed


def test_an_epoch_of_few_operators_decides_nothing(hub: Hub) -> None:
    """Windows left to emit, or a reduced archive: the other queries are as they were."""
    hub.execute(f"CREATE QUERY q AS {COUNTED} {QOS}")
    advance(hub, 0)
    manifest = hub.home.latest()
    tick = FinishedEpoch(EpochWork("tick"), (), 0.0, 0)
    assert decided(manifest, hub.loop.engine.plan, tick, lambda _: (), lambda name: (name,)) is manifest


def test_what_an_epoch_takes_no_longer_waits_and_the_oldest_row_is_the_delay() -> None:
    arrivals = (3, 1, 2, 4)
    records = [{"arrival": at * SECOND} for at in arrivals]
    splits = tuple((Split("s", number, record=record), 10) for number, record in enumerate(records[:2]))
    waiting = [Pending(number, "s", 99, 0, record) for number, record in enumerate(records)]
    epoch = FinishedEpoch(EpochWork("epoch", splits, taken={"s": (0, 1)}), (), 0.5, 9 * SECOND)
    seen = epoch.observed(EpochPlan(), ["s"], lambda _: waiting)
    assert (seen.at, seen.busy) == (9, 0.5)
    assert (seen.taken, seen.waiting, seen.delays) == ({"s": 20}, {"s": 200}, {"s": 8})


def test_what_answers_are_worth_and_what_is_repaired_are_rows_of_a_built_in_stream_and_gauges(
    hub: Hub,
) -> None:
    """A row when a query is first seen and when it has changed, not in every epoch; what a tick changes is in the next row."""
    hub.execute(
        f"CREATE QUERY q AS {COUNTED} WITH SHEDDING (repair); CREATE QUERY late AS {COUNTED} WITH QOS (delay (1 AT 10 MINUTES));"
        "CREATE QUERY log AS SELECT query, lost, sketched, to_repair, repaired, unrepaired FROM system.quality"
    )
    advance(hub, 0)
    hub.execute("ALTER STREAM s SET (keep '0.25')")
    advance(hub, 1)
    assert b'headrace_repair_windows{query="q",state="waiting"} 5.0' in HubMetrics(hub).text()
    hub.execute("ALTER STREAM s SET (keep '1')")
    for first in (2, 3, 4):
        advance(hub, first)
    assert b'headrace_repair_windows{query="q",state="waiting"} 0.0' in HubMetrics(hub).text()
    logged = [tuple(row.values())[:6] for row in hub.query("log").history().to_pylist()]
    of_query = [row for row in logged if row[0] == "q"]
    assert of_query[0] == ("q", None, False, 0, 0, 0)
    assert of_query[1] == ("q", None, False, 5, 0, 0)
    assert of_query[-1][3:] == (0, hub.status()["repairs"]["q"]["repaired"], 0)
    assert len(of_query) == len(set(of_query))
    assert [row for row in logged if row[0] == "late"] == [("late", 0.0, False, 0, 0, 0)]


def test_costs_know_which_epochs_closed_windows_of_any_query_and_of_each(hub: Hub) -> None:
    """Of epochs of thirty seconds each, one query closes windows in every one, another in every second one at most."""
    minutes = "SELECT k, COUNT(*) AS n FROM s [RANGE TUMBLING 1 MINUTE] GROUP BY k"
    hub.execute(f"CREATE QUERY often AS {COUNTED} {QOS}; CREATE QUERY seldom AS {minutes} {QOS}")
    for first in range(3):
        for half in (slice(0, 30), slice(30, 60)):
            hub.push("s", rows(first)[half])
            hub.catch_up()
    control = hub.home.latest().facts[OVERLOAD]["control"]
    often, seldom = (
        CostLine(*control["costs"][name])
        for name in sorted(control["costs"], key=lambda name: -CostLine(*control["costs"][name]).closed)
    )
    closed = [round(line.closed / line.weight * 6) for line in (often, seldom)]
    assert closed == [6, 2], (
        "windows of ten seconds in all six epochs, of a minute in the first of the next minute"
    )
    assert round(CostLine(*control["others"]).closed) == 6
