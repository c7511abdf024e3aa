"""SHOW QUERIES shows whether a query is live and from when on its answers have every row; and that is true."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pytest

from headrace.runtime.backfill.backfill_scheduler import Chunk, ReplaySchedule
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.invoke.home_reader import Reader
from headrace.runtime.statements.show import show
from headrace.time import BEGINNING, SECOND, render_instant
from tests.language.one_statement import parse_statement
from tests.runtime.rig import Rig, cut, made_rows

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
COUNT = "SELECT window_start, COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE]"


class OneEntry(ReplaySchedule):
    """Reads the archive an entry at a time."""

    def turn(self, *, live_waits: bool) -> Chunk:
        return Chunk(1, 1)


def opened(path: Path, *, options: str = "", slack: str = "") -> Hub:
    hub = open_hub(path, local=True)
    given = f" OPTIONS ({options})" if options else ""
    hub.execute(f"CREATE STREAM s (at TIMESTAMP, v BIGINT) USING push{given} TIMESTAMP BY at {slack}")
    return hub


def push(hub: Hub, *seconds: int) -> None:
    """Rows at these seconds, as one epoch."""
    hub.push("s", [{"at": START + dt.timedelta(seconds=each), "v": each} for each in seconds])
    hub.loop.drain()


def shown(hub: Hub, name: str) -> tuple[str, str | None]:
    """State and complete_since, the same from the writer and from a process that only looks."""
    (outcome,) = hub.execute("SHOW QUERIES")
    beside = show(Reader.at(hub.path).home, parse_statement("SHOW QUERIES"))
    assert outcome.table == beside.table
    seen = hub.query(name).completeness()
    (row,) = [row for row in outcome.table.to_pylist() if row["name"] == name]
    assert row["state"] == str(seen)
    assert row["complete_since"] == (
        None if seen.complete_since == BEGINNING else render_instant(seen.complete_since)
    )
    return row["state"], row["complete_since"]


def counted(hub: Hub, name: str) -> dict[dt.datetime, int]:
    return {row["window_start"]: row["n"] for row in hub.query(name).history().to_pylist()}


def test_a_query_over_all_the_past_is_complete_whenever_it_comes(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        hub.register(COUNT, "first")
        assert shown(hub, "first") == ("registered", None)
        push(hub, 10, 70, 130)
        hub.register(COUNT, "late")
        hub.loop.drain()
        assert shown(hub, "first") == shown(hub, "late") == ("live", None)


def test_from_now_is_complete_beyond_every_row_that_came_before(tmp_path: Path) -> None:
    """With slack, a row above the punctuation may have come before the query: so completeness starts at the greatest."""
    with opened(tmp_path / "home", slack="SLACK INTERVAL 2 MINUTES") as hub:
        hub.register(COUNT, "first")
        push(hub, 5, 90, 150, 190)
        hub.register(COUNT, "late", from_now=True)
        push(hub, 100, 200, 250, 310, 900)
        assert shown(hub, "late") == ("live", "2024-01-01T00:03:10.000001Z")
        first, late = counted(hub, "first"), counted(hub, "late")
        since = START + dt.timedelta(seconds=190, microseconds=1)
        assert {at: n for at, n in late.items() if at >= since} == {
            at: n for at, n in first.items() if at >= since
        }
        assert any(late.get(at) != n for at, n in first.items() if at < since)


def test_what_the_archive_has_forgotten_a_late_query_does_not_claim(tmp_path: Path) -> None:
    with opened(tmp_path / "home", options="retain '5 MINUTES'") as hub:
        hub.register(COUNT, "first")
        for minute in range(20):
            push(hub, 60 * minute)
        hub.register(COUNT, "late")
        hub.loop.drain()
        assert shown(hub, "first") == ("live", None)
        assert shown(hub, "late") == ("live", "2024-01-01T00:14:00Z")
        since = START + dt.timedelta(minutes=14)
        assert counted(hub, "late") == {at: n for at, n in counted(hub, "first").items() if at >= since}


def test_a_pause_without_an_archive_loses_what_came_meanwhile(tmp_path: Path) -> None:
    with opened(tmp_path / "home", options="archive 'none'") as hub:
        hub.register(COUNT, "q")
        push(hub, 10, 70)
        assert shown(hub, "q") == ("live", None)
        hub.execute("PAUSE QUERY q")
        assert shown(hub, "q") == ("paused", None)
        push(hub, 130, 135)
        hub.execute("RESUME QUERY q")
        push(hub, 190, 250, 310)
        assert shown(hub, "q") == ("live", "2024-01-01T00:02:15.000001Z")
        assert START + dt.timedelta(minutes=2) not in counted(hub, "q")


@pytest.mark.parametrize("read", [1, 3, 7])
def test_the_past_is_read_so_far(tmp_path: Path, read: int) -> None:
    with opened(tmp_path / "home") as hub:
        hub.register("SELECT v FROM s WHERE v > 0", "other")
        for second in range(9):
            push(hub, second)
        hub.register(COUNT, "late")
        hub.loop.engine.replay_schedule = OneEntry()
        for _ in range(read):
            hub.loop.step(live_first=True)
        assert shown(hub, "late") == (f"backfilling {100 * read // 9} %", None)
        hub.loop.drain()
        assert shown(hub, "late") == ("live", None)


def test_a_query_over_a_query_is_no_more_complete_than_what_it_reads(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        push(hub, 10, 70, 130)
        hub.register(COUNT.replace("window_start, ", ""), "below", from_now=True)
        hub.register("SELECT SUM(n) AS n FROM below [RANGE 5 MINUTES SLIDE 1 MINUTE]", "above")
        push(hub, 190, 250)
        assert shown(hub, "below") == shown(hub, "above") == ("live", "2024-01-01T00:02:10.000001Z")


@pytest.mark.parametrize("seed", range(4))
def test_answers_that_reach_no_further_back_are_those_of_a_query_that_saw_all(
    seed: int, tmp_path: Path
) -> None:
    """Rows in disorder, a query FROM NOW that comes at any time: what `complete_since` promises holds for every window."""
    rng = np.random.default_rng(seed)
    files = cut(made_rows(70 + seed, 120, disorder=3 * SECOND), *range(8, 120, 8))
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"}, slack=2 * SECOND)
    windows = {
        "tumbling": "SELECT window_start, k, COUNT(*) AS n FROM s [RANGE TUMBLING 5 SECONDS] GROUP BY k",
        "sliding": "SELECT window_start, COUNT(*) AS n, MAX(x) AS top FROM s [RANGE 10 SECONDS SLIDE 3 SECONDS] WHERE x > 0",
        "plain": "SELECT window_start, k, x, y FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS]",
    }
    with rig.hub(2, windows) as hub:
        rig.drop(*files[: (first := int(rng.integers(1, 10)))])
        hub.catch_up()
        for name, text in windows.items():
            hub.execute(f"CREATE QUERY late_{name} FROM NOW AS {text}")
        rig.drop(*files[first:])
        hub.catch_up()
        ending = hub.finish()
        assert all(ending[name].num_rows for name in windows)
        for name in windows:
            _, said = shown(hub, f"late_{name}")
            assert said is not None
            since = dt.datetime.fromisoformat(said)
            whole, late = (
                sorted(
                    (row for row in hub.query(each).history().to_pylist() if row["window_start"] >= since),
                    key=repr,
                )
                for each in (name, f"late_{name}")
            )
            assert whole == late, name
            assert whole
