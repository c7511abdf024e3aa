"""OPTIONS (retain '…'): the archive forgets what is older, never what an operator still has to read."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from headrace.runtime.hub import Hub
from headrace.runtime.opening import open_hub

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
COUNT = "SELECT COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE]"


def minutes(hub: Hub, wanted: range) -> None:
    """One row a minute, each an epoch."""
    for minute in wanted:
        hub.push("s", [{"at": START + dt.timedelta(minutes=minute), "v": minute}])
        hub.loop.drain()


def archived(hub: Hub) -> tuple[int, int]:
    """First kept and next index of the archive list."""
    entries = hub.home.list_of(hub.home.latest(), "archive:s")
    return entries.start, entries.length


def prepared(path: Path) -> Hub:
    """A stream that keeps five minutes."""
    hub = open_hub(path, local=True)
    hub.execute(
        "CREATE STREAM s (at TIMESTAMP, v BIGINT) USING push OPTIONS (retain '5 MINUTES') TIMESTAMP BY at"
    )
    return hub


def test_old_entries_go_and_a_late_query_starts_at_what_is_kept(tmp_path: Path) -> None:
    """Twenty minutes pass; a query registered then sees the last five."""
    with prepared(tmp_path / "home") as hub:
        hub.register(COUNT, "first")
        minutes(hub, range(20))
        assert archived(hub) == (14, 20)
        hub.register(COUNT, "late")
        hub.loop.drain()
        assert hub.query("first").history().num_rows == 19
        assert hub.query("late").history().num_rows == 5


def test_a_paused_query_holds_back_what_it_has_not_seen(tmp_path: Path) -> None:
    """RESUME finds everything; then the archive catches up with its retention."""
    with prepared(tmp_path / "home") as hub:
        hub.register(COUNT, "q")
        minutes(hub, range(3))
        hub.execute("PAUSE QUERY q")
        minutes(hub, range(3, 20))
        assert archived(hub) == (3, 20)
        hub.execute("RESUME QUERY q")
        hub.loop.drain()
        assert hub.query("q").history().num_rows == 19
        minutes(hub, range(20, 21))
        assert archived(hub)[0] == 15
