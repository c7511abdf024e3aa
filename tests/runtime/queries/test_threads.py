"""Queries have no threads of their own (AU-30): their number does not follow that of the queries."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.time import SECOND

COUNT = "SELECT COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] WHERE v = {}"


def threads() -> int:
    """All threads of the process, those of libraries too."""
    return len(list(Path("/proc/self/task").iterdir()))


def answer(hub: Hub, minute: int, queries: int) -> None:
    rows = [{"v": v % queries, "at": (60 * minute + v) * SECOND} for v in range(50)]
    hub.push("s", [*rows, {"v": 0, "at": 60 * (minute + 2) * SECOND}])
    hub.loop.drain()
    assert hub.query("q7").history().num_rows


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads in /proc")
@pytest.mark.parametrize("queries", [2_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_the_number_of_threads_does_not_follow_the_number_of_queries(tmp_path: Path, queries: int) -> None:
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute("CREATE STREAM s (v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
        hub.register_many({f"q{n}": COUNT.format(n) for n in range(10)})
        answer(hub, 0, 10)
        few = threads()
        hub.register_many({f"q{n}": COUNT.format(n) for n in range(10, queries)})
        for minute in (10, 20):
            answer(hub, minute, queries)
        assert len(hub.loop.engine.plan.operators) == queries
        assert threads() <= few + 2 * (os.cpu_count() or 1), "pools start their threads as they need them"
