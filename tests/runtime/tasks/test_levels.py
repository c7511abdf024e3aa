"""Queries over queries: all levels of an epoch in one execution, against the same levels in rounds."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.runtime.epoch import rounds
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.messages.task_messages import ScanMessage, StateMessage, StateReceipt
from headrace.store.files.disk import Disk
from headrace.store.files.filesystem import LocalStore
from headrace.time import SECOND

STREAMS = "".join(
    f"CREATE STREAM {name} (k INT, x BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 2 SECONDS;"
    for name in ("s", "u")
)
QUERIES = {
    "picked": "SELECT k, x, at FROM s WHERE x > 2",
    "counted": "SELECT k, COUNT(*) AS n FROM s [RANGE TUMBLING 3 SECONDS] GROUP BY k",
    "brief": "SELECT k, SUM(x) AS n FROM s [RANGE 4 SECONDS] GROUP BY k",
    "over": "SELECT k, MAX(n) AS n FROM counted [RANGE 9 SECONDS SLIDE 3 SECONDS] GROUP BY k",
    "last": "SELECT SUM(x) AS n FROM picked [ROWS 3]",
    "each": "SELECT k, MAX(x) AS n FROM picked [PARTITION BY k ROWS 2] GROUP BY k",
    "again": "SELECT k, x, at FROM picked WHERE k = 1",
    "third": "SELECT COUNT(*) AS n FROM again [RANGE TUMBLING 5 SECONDS]",
    "both": "SELECT k, x, at FROM u UNION ALL SELECT k, x, at FROM again",
    "above": "SELECT k, COUNT(*) AS n FROM both [RANGE 6 SECONDS] GROUP BY k",
    "joined": "SELECT u.k AS k, u.x AS x, picked.x AS y FROM u [RANGE 3 SECONDS], picked [RANGE 3 SECONDS]"
    " WHERE u.k = picked.k",
    "nested": "SELECT MAX(c.n) AS n FROM (SELECT k, COUNT(*) AS n FROM s [RANGE 5 SECONDS] GROUP BY k) AS c",
    "deltas": "SELECT n FROM over WHERE n > 1",
}
LATER = {
    "late_rows": "SELECT SUM(x) AS n FROM picked [ROWS 4]",
    "late_union": "SELECT SUM(x) AS n FROM both [RANGE TUMBLING 4 SECONDS]",
}


class Counting(LocalExecutor):
    """Counts executions; with `rounds` each level is one."""

    def __init__(self, *, rounds: bool = False) -> None:
        self.rounds, self.executions = rounds, 0

    def run(self, scans: Sequence[ScanMessage], states: Sequence[StateMessage]) -> list[StateReceipt]:
        self.executions += 1
        return super().run(scans, states)

    def has_all_slots(self, tasks: int) -> bool:
        return not self.rounds and super().has_all_slots(tasks)


def rows_of(rng: np.random.Generator, second: int, count: int) -> pa.Table:
    at = np.sort(second * SECOND + rng.integers(-2 * SECOND, SECOND, count) // (SECOND // 2) * (SECOND // 2))
    return pa.table(
        {
            "k": pa.array(rng.integers(0, 3, count), pa.int32()),
            "x": pa.array(rng.integers(0, 9, count), pa.int64()),
            "at": pa.array(at, pa.timestamp("us", tz="UTC")),
        }
    )


def register(hub: Hub, texts: dict[str, str]) -> None:
    hub.execute("".join(f"CREATE QUERY {name} AS {text};" for name, text in texts.items()))


def answers(hub: Hub) -> dict[str, list[Any]]:
    return {name: hub.query(name).history().to_pylist() for name in hub.catalog.queries}


def progress(hub: Hub) -> dict[str, Any]:
    manifest = hub.home.latest()
    streams = {name: manifest.stream(name) for name in manifest.streams}
    operators = {name: manifest.operator(name) for name in manifest.operators}
    entries = {
        name: [
            (entry["rows"], entry["late"], entry["before"], entry["after"], entry["greatest"])
            for _, entry in listed.iterate(hub.home.store.read)
        ]
        for name, listed in manifest.lists.items()
        if name.startswith("archive:")
    }
    return (
        entries
        | {
            name: (stream.punctuation, stream.rows, stream.late, stream.greatest)
            for name, stream in streams.items()
        }
        | {name: (operator.emitted_to, operator.follows) for name, operator in operators.items()}
    )


def driven(folder: Path, executor: Counting, tasks: int) -> list[Any]:
    """Answers and progress after each part of a run: registered late, and opened again."""
    rng, seen = np.random.default_rng(7), []
    for part in range(3):
        with Hub(folder, executor, tasks=tasks) as hub:
            if not part:
                hub.execute(STREAMS)
                register(hub, QUERIES)
            if part == 1:
                register(hub, LATER)
            for second in range(10 * part, 10 * part + 10):
                for stream in ("s", "u")[: 1 + second % 3]:
                    hub.push(stream, rows_of(rng, second, int(rng.integers(1, 9))))
                hub.loop.drain()
            hub.catch_up()
            seen += [answers(hub), progress(hub)]
    return seen


@pytest.mark.parametrize("tasks", [1, 3])
def test_levels_in_one_execution_are_as_in_rounds(tmp_path: Path, tasks: int) -> None:
    at_once, in_rounds = Counting(), Counting(rounds=True)
    run = driven(tmp_path / "once", at_once, tasks)
    expected = driven(tmp_path / "rounds", in_rounds, tasks)
    assert all(expected[-2].values()), [name for name, rows in expected[-2].items() if not rows]
    for one, other in zip(run, expected, strict=True):
        assert one == other
    assert at_once.executions < in_rounds.executions / 2


def chain(hub: Hub, depth: int) -> None:
    hub.execute(STREAMS)
    below = "s"
    for level in range(depth):
        hub.register(f"SELECT k, x, at FROM {below} WHERE x > -1", f"q{level}")
        below = f"q{level}"
    hub.register(f"SELECT k, COUNT(*) AS n FROM {below} [RANGE TUMBLING 1 MINUTE] GROUP BY k", "counts")


def test_executions_files_and_syncs_do_not_follow_the_depth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()

    def counting(name: str) -> Any:
        original = getattr(Disk, name)

        def called(self: Disk, *args: Any) -> Any:
            with lock:
                calls[name] += 1
            return original(self, *args)

        return called

    mapped: list[str] = []
    map_file = LocalStore.map

    def noting(self: LocalStore, name: str) -> pa.Buffer:
        mapped.append(name)
        return map_file(self, name)

    monkeypatch.setattr(LocalStore, "map", noting)
    monkeypatch.setattr(
        Disk, "nameless", lambda *_: None
    )  # whether there are spare files is a matter of time
    lock, seen = threading.Lock(), []
    for name in ("create", "fsync", "fsync_file", "fsync_folder"):
        monkeypatch.setattr(Disk, name, counting(name))
    for depth in (1, 8):
        executor, rng = Counting(), np.random.default_rng(1)
        with Hub(tmp_path / str(depth), executor, tasks=2) as hub:
            chain(hub, depth)
            for second in range(4):
                hub.push("s", rows_of(rng, second, 10))
                hub.loop.drain()
            executor.executions = 0
            calls.clear()
            mapped.clear()
            for second in range(4, 7):
                hub.push("s", rows_of(rng, second, 10))
                assert hub.loop.drain() == 1
            seen.append((executor.executions, dict(calls)))
            assert not any(name.startswith(("state/", "results/")) for name in mapped)
            assert len(hub.query(f"q{depth - 1}").history()) == len(hub.query("q0").history()) > 50
    assert seen[0] == seen[1]
    assert seen[0][0] == 3


class Changing(Counting):
    """Has another number of state tasks in each epoch, or one that stays."""

    stays: int | None = None

    def state_tasks(self, most: int, rows: int, levels: int) -> int:
        return self.stays or 1 + self.executions % most


def test_runs_of_another_number_of_tasks_are_divided_once_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "_SETTLED", 3)
    executor = Changing()
    answered = driven(tmp_path / "changing", executor, 3)[-2]
    expected = driven(tmp_path / "same", Counting(), 1)[-2]
    for name in QUERIES.keys() - {"last", "each"}:  # which count rows of one instant: tasks order them
        assert sorted(map(str, answered[name])) == sorted(map(str, expected[name])), name
    with Hub(tmp_path / "changing", executor, tasks=3) as hub:
        rng, second = np.random.default_rng(3), 100

        def epochs(count: int) -> list[int]:
            """The number of runs with slots of several of two tasks after each of so many epochs."""
            nonlocal second
            shared = []
            for _ in range(count):
                second += 1
                hub.push("s", rows_of(rng, second, 4))
                assert hub.loop.drain() == 1
                runs = hub.home.latest().state
                shared.append(sum(run.low_slot < 128 < run.high_slot for run in runs))
            return shared

        executor.stays = 1
        assert all(epochs(4))
        executor.stays = 2
        before, after = epochs(3), epochs(3)
        assert all(before)
        assert not after[-1]
