"""Quotas of state and result rows: what is beyond them is suspended with the reason, and no other owner notices."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.runtime.hub.hub import Hub
from headrace.server.monitoring.plan_snapshot import PlanSnapshots
from headrace.server.open_or_connect import open_hub
from headrace.server.problems import Refused
from headrace.server.security.principal import Principal
from headrace.server.security.quotas import Quotas
from headrace.server.security.usage import Usage
from tests.server.serving import STREAM, served
from tests.server.test_access import tokens_of

GROUPED = "SELECT k, COUNT(*) AS n FROM s [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k"
ANA, BEN = Principal("ana", "register"), Principal("ben", "register")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """Two owners with the same query, and a larger one of ana's."""
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(STREAM)
        hub.register(GROUPED.replace("COUNT(*)", "MAX(v)"), "small", owner="ben")
        hub.register(GROUPED + ", v", "large", owner="Ana")
        hub.register("SELECT k FROM s", "each", owner="ana")
        yield hub


def push(hub: Hub, rows: int, hour: int = 0) -> None:
    at = f"2024-01-01T{hour:02d}:00:01Z"
    hub.push("s", [{"k": f"k{n % 10}", "v": n, "at": at} for n in range(rows)])
    hub.loop.drain()


def usage(hub: Hub, quotas: Quotas) -> Usage:
    used = Usage(hub, PlanSnapshots(hub), quotas)
    hub.on_epoch(used.epoch)
    return used


def failure(hub: Hub, name: str) -> str | None:
    return hub.catalog.require_query(name).definition.failure


def test_the_query_with_most_state_of_an_owner_beyond_its_quota_is_suspended(hub: Hub) -> None:
    quotas = Quotas(state_bytes=1)
    used = usage(hub, quotas)
    push(hub, 2000)
    state = {owner: use.state_bytes for owner, use in used.by_owner().items()}
    assert state["ana"] > 10 * state["ben"] > 0
    quotas.state_bytes = state["ben"]
    used.check()
    assert failure(hub, "large") == (
        f"the queries of 'ana' have {state['ana']:,} bytes of state, and may have {state['ben']:,}"
    )
    assert (failure(hub, "each"), failure(hub, "small")) == (None, None)
    assert list(hub.status()["failed"]) == ["large"]
    with pytest.raises(Refused, match=r"'ana' have .* bytes of state"):
        quotas.require_query(hub.catalog, ANA)
    with pytest.raises(Refused, match="'ben' have"):
        quotas.require_query(hub.catalog, BEN)
    quotas.state_bytes = state["ana"] + 1
    quotas.require_query(hub.catalog, ANA)
    quotas.require_query(hub.catalog, Principal("chris", "register"))


def test_a_suspended_query_is_not_suspended_again_nor_another_for_its_state(hub: Hub) -> None:
    used = usage(hub, Quotas(state_bytes=1000))
    push(hub, 2000)
    used.check()
    before = hub.catalog.position
    used.check()
    assert hub.catalog.position == before
    hub.execute("RESUME QUERY large")
    used.check()
    assert failure(hub, "large") is not None


def test_state_of_paused_queries_suspends_no_other(hub: Hub) -> None:
    quotas = Quotas(state_bytes=1)
    used = usage(hub, quotas)
    push(hub, 2000)
    quotas.state_bytes = used.by_owner()["ana"].state_bytes
    hub.execute(
        "PAUSE QUERY large; RESUME QUERY large; PAUSE QUERY small; ALTER QUERY small SET (owner 'ana')"
    )
    used.check()
    assert failure(hub, "large") is None


def test_state_that_owners_share_counts_in_equal_parts(hub: Hub) -> None:
    for owner in ("ana", "ben", "chris"):
        hub.register(
            "SELECT k, SUM(v) AS s FROM s [RANGE 2 HOURS SLIDE 1 HOUR] GROUP BY k",
            f"same_{owner}",
            owner=owner,
        )
    used = usage(hub, Quotas(state_bytes=1))
    push(hub, 200)
    graph = used.snapshots.current().graph
    assert graph.seen is not None
    works = zip(graph.sharing.works, graph.seen.state_bytes, strict=True)
    assert any(size and len(work.users) > 1 for work, size in works)
    total = sum(use.state_bytes for use in used.by_owner().values())
    assert sum(graph.seen.state_bytes) <= total <= sum(graph.seen.state_bytes) + 10  # parts are rounded up


def test_result_rows_of_an_owner_are_counted_for_a_minute(hub: Hub) -> None:
    now = [0.0]
    used = Usage(hub, PlanSnapshots(hub), Quotas(result_rows=150), seconds=lambda: now[0])
    hub.on_epoch(used.epoch)
    push(hub, 100)
    used.check()
    assert failure(hub, "each") is None
    assert used.by_owner()["ana"].result_rows == 100
    now[0] = 61.0
    push(hub, 100)  # of another minute
    used.check()
    assert failure(hub, "each") is None
    push(hub, 100)
    used.check()
    assert failure(hub, "each") == ("the queries of 'ana' have 200 result rows in a minute, and may have 150")
    hub.execute("RESUME QUERY each")
    hub.loop.drain()
    used.check()
    assert failure(hub, "small") is None


def test_a_served_hub_suspends_what_exceeds_a_quota_and_says_so(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with served(home, "--max-results", "50", "--max-state", "1000000", auth=True) as hub:
        ana = tokens_of(home)("ana", "register")
        assert hub.curl("/v1/statements", "-d", STREAM, token=hub.token)[0] == 200
        assert hub.curl("/v1/statements", "-d", "CREATE QUERY q AS SELECT k FROM s", token=ana)[0] == 200
        rows = "\n".join(json.dumps({"k": "a", "v": n, "at": "2024-01-01T00:00:01Z"}) for n in range(60))
        assert hub.curl("/v1/streams/s/rows", "--data-binary", rows, token=ana)[0] == 200
        described = {}
        while not described.get("failure"):
            described = json.loads(hub.curl("/v1/queries/q", token=ana)[1])
        assert "60 result rows in a minute, and may have 50" in described["failure"]
        summary = json.loads(hub.curl("/v1/summary", token=ana)[1])
        assert summary["owners"]["ana"]["result_rows"] == 60
        assert (summary["quotas"]["result_rows"], summary["quotas"]["state_bytes"]) == (50, 1_000_000)
        ben = tokens_of(home)("ben", "read")
        assert json.loads(hub.curl("/v1/summary", token=ben)[1])["owners"] == {}
