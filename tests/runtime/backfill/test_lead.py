"""The lead of one archive over another, and over live rows, while a late join reads both: it stores what its windows have, however many epochs were before."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND
from tests.overload.test_repair import in_parts

START = 1_700_000_000 * SECOND
JOIN = (
    "SELECT x.k, COUNT(*) AS n, MAX(y.v) AS top FROM a x [RANGE 10 SECONDS SLIDE 5 SECONDS],"
    " b y [RANGE 10 SECONDS SLIDE 5 SECONDS] WHERE x.k = y.k GROUP BY x.k"
)


def push(hub: Hub, number: int) -> None:
    """Five seconds of both streams; one has ten times as many rows."""
    for stream, rows in (("a", 2), ("b", 20)):
        at = [START + (5 * number + row % 5) * SECOND for row in range(rows)]
        hub.push(stream, [{"at": one, "k": row % 3, "v": row} for row, one in enumerate(at)])


def most_stored(path: Path, epochs: int) -> int:
    """The most bytes of state while a join of `epochs` past epochs catches up, with live rows between; its answers are those of one that was there."""
    with Hub(path, LocalExecutor()) as hub:
        for stream in ("a", "b"):
            hub.execute(f"CREATE STREAM {stream} (at TIMESTAMP, k INT, v INT) USING push TIMESTAMP BY at")
        for number in range(epochs):
            push(hub, number)
            hub.catch_up()
        hub.execute(f"CREATE QUERY late AS {JOIN}")
        most = steps = 0
        while hub.loop.step() is not None:
            most = max(most, sum(run.bytes for run in hub.home.latest().state))
            steps += 1
            if steps in (3, 6):
                push(hub, epochs + steps // 3 - 1)
        assert steps > epochs // 4
        hub.execute(f"CREATE QUERY whole AS {JOIN}")
        hub.catch_up()
        assert hub.query("late").history().to_pylist() == hub.query("whole").history().to_pylist()
        assert hub.query("late").history().num_rows > 2 * (epochs - 3)
    return most


def test_a_late_join_of_a_long_past_stores_what_one_of_a_short_past_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_parts(60, monkeypatch)
    short, long = most_stored(tmp_path / "short", 16), most_stored(tmp_path / "long", 64)
    assert 0 < long <= 1.3 * short, (short, long)
