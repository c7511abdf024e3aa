"""A home whose last epoch other code has published: no process reads its plans any more."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND
from tests.runtime.rig import faults_once_tidy

QUERIES = {
    "last": "SELECT k, v FROM a [ROWS 2]",
    "recent": "SELECT k, COUNT(*) AS n FROM a [RANGE 3 SECONDS] GROUP BY k",
    "windows": "SELECT k, COUNT(*) AS n FROM a [RANGE TUMBLING 4 SECONDS] GROUP BY k",
    "over": "SELECT COUNT(*) AS n FROM windows [RANGE TUMBLING 8 SECONDS]",
    "met": "SELECT x.v, y.v AS w FROM a x [ROWS 1], a y [RANGE 2 SECONDS] WHERE x.k = y.k",
}


def opened(folder: Path) -> Hub:
    return Hub(folder / "home", LocalExecutor(), tasks=1)


def push_rows(hub: Hub, *seconds: int) -> None:
    at = pa.array([second * SECOND for second in seconds]).cast(pa.timestamp("us", tz="UTC"))
    hub.push("a", pa.table({"k": ["a"] * len(seconds), "v": pa.array(seconds, pa.int64()), "at": at}))
    hub.catch_up()


def answers(hub: Hub) -> dict[str, list[object]]:
    return {name: hub.query(name).invoke().to_pylist() for name in QUERIES}


def spoil(folder: Path) -> None:
    """Plans as other code would have left them: nothing that can be loaded."""
    plans = list((folder / "home" / "plans").iterdir())
    assert plans
    for plan in plans:
        plan.write_bytes(b"of another version\n" + plan.read_bytes()[:7])


def test_it_answers_and_goes_on(tmp_path: Path) -> None:
    with opened(tmp_path) as hub:
        hub.execute("CREATE STREAM a (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
        for name, text in QUERIES.items():
            hub.register(text, name)
        push_rows(hub, 1, 2, 3)
        push_rows(hub, 6, 9)
        before = answers(hub)
    spoil(tmp_path)
    with opened(tmp_path) as hub:
        assert answers(hub) == before
        push_rows(hub, 10, 17)
        assert hub.query("last").invoke().to_pylist() == [{"k": "a", "v": 10}, {"k": "a", "v": 17}]
        assert hub.query("met").invoke().to_pylist() == [{"v": 17, "w": 17}]
        assert hub.query("over").invoke().to_pylist() == [{"n": 1}]
        assert not faults_once_tidy(hub)


def test_the_same_code_publishes_no_more_than_that_it_has_taken_over(tmp_path: Path) -> None:
    with opened(tmp_path) as hub:
        hub.execute("CREATE STREAM a (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
        hub.register(QUERIES["last"], "last")
        push_rows(hub, 1)
        epoch = hub.home.latest().epoch
    with opened(tmp_path) as hub:
        assert hub.home.latest().epoch == epoch + 1
