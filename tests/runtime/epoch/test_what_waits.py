"""Queries that wait: an epoch visits, sends and writes what its rows and its punctuation concern, at all levels at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import EpochFailed
from headrace.operators.base.operator import Advance, Operator
from headrace.operators.row_windows.tuple_slides import TupleSlides
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.messages.task_messages import ScanMessage, StateMessage, StateReceipt
from headrace.runtime.progress.failing_queries import ATTEMPTS
from headrace.runtime.tasks.state import state_task
from headrace.runtime.tasks.state.agenda import visits
from headrace.time import SECOND

STREAM = "CREATE STREAM {name} (k INT, x BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at;"
KINDS = (
    "SELECT k, COUNT(*) AS n FROM {name} [RANGE TUMBLING 5 SECONDS] WHERE x > {i} GROUP BY k",
    "SELECT k, COUNT(*) AS n FROM {name} [RANGE 7 SECONDS] WHERE x > {i} GROUP BY k",
    "SELECT SUM(x) AS n FROM {name} [ROWS 4] WHERE x > {i}",
    "SELECT MAX(c.n) AS n FROM (SELECT k, COUNT(*) AS n FROM {name} [RANGE 9 SECONDS] WHERE x > {i} GROUP BY k) AS c",
)


def opened(path: Path, executor: LocalExecutor | None = None) -> Hub:
    hub = Hub(path / "home", executor or LocalExecutor(), tasks=2)
    hub.execute("".join(STREAM.format(name=name) for name in ("s", "t")))
    return hub


def push(hub: Hub, stream: str, second: int, xs: Sequence[int] = (0, 1, 2, 3)) -> None:
    at = [second * SECOND + number for number in range(len(xs))]
    hub.push(
        stream,
        pa.table(
            {
                "k": pa.array([x % 2 for x in xs], pa.int32()),
                "x": pa.array(xs, pa.int64()),
                "at": pa.array(at, pa.timestamp("us", tz="UTC")),
            }
        ),
    )


def epoch(hub: Hub, stream: str, second: int, xs: Sequence[int] = (0, 1, 2, 3)) -> set[str]:
    """Push rows and run one epoch; the operators that it has visited."""
    push(hub, stream, second, xs)
    seen = hub.loop.step()
    assert seen is not None
    return set(seen.operators)


def many(hub: Hub, stream: str, count: int) -> None:
    texts = [KINDS[number % len(KINDS)].format(name=stream, i=-1 - number) for number in range(count)]
    hub.execute("".join(f"CREATE QUERY {stream}{number} AS {text};" for number, text in enumerate(texts)))


def test_an_epoch_visits_what_its_rows_concern(tmp_path: Path) -> None:
    with opened(tmp_path) as hub:
        many(hub, "s", 12)
        hub.register("SELECT COUNT(*) AS n FROM t [RANGE TUMBLING 5 SECONDS]", "watch")
        for second in range(3):
            epoch(hub, "s", second)
            epoch(hub, "t", second)
        watch = hub.catalog.require_query("watch").operator_id
        assert epoch(hub, "t", 3) == {watch}
        assert watch not in epoch(hub, "s", 3)


def test_an_operator_without_state_is_not_visited_when_punctuation_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    visited: list[str] = []

    def noted(*task: Any) -> dict[str, list[Operator]]:
        states = visits(*task)
        visited.extend(operator.query for operators in states.values() for operator in operators)
        return states

    monkeypatch.setattr(state_task, "visits", noted)
    with opened(tmp_path) as hub:
        hub.register("SELECT k, MAX(x) AS n FROM s [RANGE 5 SECONDS] WHERE x > 1000 GROUP BY k", "none")
        hub.register("SELECT k, SUM(x) AS n FROM s [RANGE 5 SECONDS] GROUP BY k", "all")
        for second in range(3):
            visited.clear()
            epoch(hub, "s", second)
        assert set(visited) == {"all"}
        epoch(hub, "s", 3, [1001])
        assert set(visited) == {"all", "none"}


def test_a_manifest_does_not_grow_with_the_queries_that_wait(tmp_path: Path) -> None:
    sizes = []
    for count in (40, 400):
        with opened(tmp_path / str(count)) as hub:
            many(hub, "s", count)
            hub.register("SELECT COUNT(*) AS n FROM t [RANGE TUMBLING 5 SECONDS]", "watch")
            for second in range(2):
                epoch(hub, "s", second)
            hub.loop.drain()
            for second in range(3):
                epoch(hub, "t", second)
            manifest = hub.home.latest()
            assert not manifest.operators.moving
            assert set(manifest.streams.moving) == {"s", "t"}
            sizes.append(len(manifest.encode()) - len(manifest.lists["results"].json()))
    assert sizes[1] < 2 * sizes[0]


@pytest.mark.parametrize("depth", [2, 5])
def test_a_push_is_answered_at_every_level_in_one_epoch(tmp_path: Path, depth: int) -> None:
    with opened(tmp_path) as hub:
        hub.register("SELECT k, x, at FROM s WHERE x > 0", "q0")
        for level in range(1, depth):
            hub.register(f"SELECT k, x, at FROM q{level - 1} WHERE x > {level}", f"q{level}")
        epoch(hub, "s", 0)
        before = hub.home.latest().epoch
        push(hub, "s", 1, range(9))
        assert hub.loop.drain() == 1
        assert hub.home.latest().epoch == before + 1
        last = hub.query(f"q{depth - 1}").history().to_pylist()
        assert [row["x"] for row in last if row["at"].second == 1] == list(range(depth, 9))


def test_a_level_does_not_visit_those_below_again(tmp_path: Path) -> None:
    """New queries are due at once; the round of the upper one is not theirs."""
    with opened(tmp_path) as hub:
        hub.register("SELECT k, COUNT(*) AS n FROM s [RANGE 5 SECONDS] GROUP BY k", "counts")
        hub.register(KINDS[3].format(name="s", i=-1), "nested")
        for second in range(3):
            epoch(hub, "s", second, [0, 0])
        changes = hub.query("counts").history().to_pylist()
        inserted = [row["n"] for row in changes if row["__change"] > 0]
        assert inserted == [1, 2, 3, 4, 5]


def test_what_follows_a_query_that_lags_is_visited_when_that_catches_up(tmp_path: Path) -> None:
    """The reader's sources stay where they are while the inner query, which was paused, reads what it missed."""
    with opened(tmp_path) as hub:
        hub.register("SELECT COUNT(*) AS n FROM s [RANGE TUMBLING 2 SECONDS] WHERE x < 100", "below")
        hub.register("SELECT COUNT(*) AS c FROM below [RANGE TUMBLING 8 SECONDS]", "outer")
        for second in range(5):
            epoch(hub, "s", second)
        epoch(hub, "s", 6, [1000])
        hub.execute("PAUSE QUERY below")
        for second in range(7, 20):
            epoch(hub, "s", second, [1000])
        assert not hub.query("outer").history().num_rows
        hub.execute("RESUME QUERY below")
        hub.catch_up()
        assert [row["c"] for row in hub.query("outer").history().to_pylist()] == [3]


class Losing(LocalExecutor):
    """Runs every task, and once loses the receipts."""

    loses = False

    def run(self, scans: Sequence[ScanMessage], states: Sequence[StateMessage]) -> list[StateReceipt]:
        receipts = super().run(scans, states)
        if self.loses:
            self.loses = False
            raise EpochFailed("the receipts are lost")
        return receipts


def test_an_execution_whose_receipts_are_lost_leaves_nothing_undone(tmp_path: Path) -> None:
    """Its tasks have run in this process: what was due then is due again, though no other process has taken over."""
    executor = Losing()
    with opened(tmp_path, executor) as hub:
        hub.register("SELECT COUNT(*) AS n FROM s [RANGE TUMBLING 5 SECONDS] WHERE x < 100", "q")
        hub.register("SELECT SUM(n) AS m FROM q [RANGE TUMBLING 10 SECONDS]", "over")
        epoch(hub, "s", 1)
        push(hub, "s", 12, [1000])  # it only passes the ends of windows
        executor.loses = True
        with pytest.raises(EpochFailed):
            hub.loop.step()
        assert hub.loop.step() is not None
        assert [row["n"] for row in hub.query("q").history().to_pylist()] == [4]
        assert [row["m"] for row in hub.query("over").history().to_pylist()] == [4]


def test_a_query_that_fails_above_the_first_level_is_left_out_of_the_whole_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance = TupleSlides.advance_family

    def fails(self: TupleSlides, *arguments: Any) -> Any:
        if any(isinstance(to, Advance) and to.punctuation >= 1 * SECOND for to in arguments):
            raise MemoryError("a second is too much")
        return advance(self, *arguments)

    monkeypatch.setattr(TupleSlides, "advance_family", fails)
    with opened(tmp_path) as hub:
        hub.register("SELECT k, x, at FROM s WHERE x >= 0", "rows")
        hub.register("SELECT COUNT(*) AS n FROM rows [RANGE 5 SECONDS SLIDE 1 ROW]", "failing")
        hub.register("SELECT x, at FROM rows WHERE x > 1", "other")
        for second in range(ATTEMPTS + 2):
            epoch(hub, "s", second, [1, 2])
        hub.loop.drain()
        assert [row["x"] for row in hub.query("other").history().to_pylist()] == [2] * (ATTEMPTS + 2)
        assert "a second is too much" in str(hub.status()["failed"]["failing"])
        monkeypatch.undo()
        hub.execute("RESUME QUERY failing")
        hub.catch_up()
        counts = [row["n"] for row in hub.query("failing").history().to_pylist()]
        assert (
            counts
            == [min(2 * second + row, 10) for second in range(ATTEMPTS + 2) for row in (1, 2)][: len(counts)]
        )
        assert len(counts) >= 2 * ATTEMPTS


def test_who_takes_part_is_found_once_and_again_after_a_statement(tmp_path: Path) -> None:
    with opened(tmp_path) as hub:
        hub.execute("CREATE QUERY q AS SELECT COUNT(*) AS n FROM s [RANGE TUMBLING 5 SECONDS];")
        epoch(hub, "s", 1)
        engine = hub.loop.engine
        (operator,) = engine.plan.operators
        first = engine.rounds.participants(engine.manifest)
        assert operator in first
        assert engine.rounds.participants(engine.manifest) is first
        hub.execute("PAUSE QUERY q;")
        assert operator not in engine.rounds.participants(engine.manifest)
        hub.execute("RESUME QUERY q;")
        assert operator in engine.rounds.participants(engine.manifest)
