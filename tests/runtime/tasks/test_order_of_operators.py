"""Where an epoch holds rows, and why no order of its operators holds fewer (AQP-14): a scan task reads a batch once the one before has gone through all
operators, and results are held until the epoch is written, as it is published whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.operators.base.operator import Operator, Step
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.tasks.scan import scan_task
from headrace.runtime.tasks.scan.row_reader import Arrival
from headrace.runtime.tasks.scan.stream_scan import StreamTask
from headrace.runtime.tasks.state.state_task import StateTask
from headrace.time import SECOND

WINDOW = "[RANGE 1 MINUTE]"
QUERIES = {
    "expands": f"SELECT ISTREAM(a.v, b.v AS w) FROM a {WINDOW}, b {WINDOW} WHERE a.k = b.k",
    "reduces": f"SELECT ISTREAM(a.v, b.v AS w) FROM a {WINDOW}, b {WINDOW} WHERE a.v = b.v",
    "counts": "SELECT k, COUNT(*) AS n FROM a [RANGE 10 SECONDS] GROUP BY k",
    "of_pairs": f"SELECT COUNT(*) AS n FROM (SELECT ISTREAM(a.v, b.v AS w) FROM a {WINDOW}, b {WINDOW} WHERE a.k = b.k) [RANGE 10 SECONDS]",
}


def opened(folder: Path) -> Hub:
    hub = Hub(folder, LocalExecutor(), tasks=1)
    for name in ("a", "b"):
        hub.execute(f"CREATE STREAM {name} (k BIGINT, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
    for name, text in QUERIES.items():
        hub.execute(f"CREATE QUERY {name} OPTIONS (sharing 'off') AS {text}")
    return hub


def push(hub: Hub, rows: int, batches: int = 1) -> None:
    """Pairs by k are twenty times the rows; by v there are few."""
    for name, drawn in (("a", np.random.default_rng(1)), ("b", np.random.default_rng(2))):
        for number in range(batches):
            at = np.sort(drawn.integers(0, 50, rows)) + 50 * number
            columns = {"k": drawn.integers(0, rows // 20, rows), "v": drawn.integers(0, 100 * rows, rows)}
            times = pa.array(at * SECOND).cast(pa.timestamp("us", tz="UTC"))
            hub.push(name, pa.table({**{key: pa.array(one) for key, one in columns.items()}, "at": times}))


def peaks(folder: Path, order: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """The most bytes of results that an epoch held while its operators ran in an order, on each level; and those that it has written."""
    held = list[tuple[StateTask, list[int]]]()
    advance_all, collect = StateTask.advance_all, StateTask._collect

    def in_order(task: StateTask) -> None:
        visited: Mapping[str, list[Operator]] = task._visited
        names = sorted(visited)
        chosen = sorted(names, key=lambda name: order[names.index(name) % len(order)])
        task._visited = {name: visited[name] for name in chosen}
        held.append((task, []))
        advance_all(task)

    def noting(task: StateTask, operator: str, step: Step, state_rows: int) -> int:
        results = collect(task, operator, step, state_rows)
        for one, sizes in held:
            if one is task:
                sizes.append(sum(table.nbytes for table in task.results.values()))
        return results

    with monkeypatch.context() as patched, opened(folder) as hub:
        patched.setattr(StateTask, "advance_all", in_order)
        patched.setattr(StateTask, "_collect", noting)
        push(hub, 200)
        hub.run_once()
    most = max((sizes for _, sizes in held if sizes), key=max)
    return max(most), most[-1]


def test_no_order_of_operators_holds_fewer_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FIFO, Greedy (first those that reduce) and Chain are among the orders: all results are there at the end, whatever came first."""
    seen = {
        order: peaks(tmp_path / "".join(map(str, order)), order, monkeypatch)
        for order in permutations(range(3))
    }
    ((peak, last),) = set(seen.values())
    assert peak == last > 200 * 20 * 8


def test_a_scan_task_holds_a_batch_and_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, done, most = [0], [0], [0]
    arrivals, take = scan_task.arrivals, StreamTask.take

    def reading(*arguments: Any) -> Iterator[Arrival]:
        for arrival in arrivals(*arguments):
            read[0] += 1
            most[0] = max(most[0], read[0] - done[0])
            yield arrival

    def taking(*arguments: Any) -> None:
        take(*arguments)
        done[0] += 1

    with opened(tmp_path) as hub:
        monkeypatch.setattr(scan_task, "arrivals", reading)
        monkeypatch.setattr(StreamTask, "take", taking)
        push(hub, 100, batches=12)
        hub.run_once()
    assert read == done
    assert read[0] >= 12
    assert most[0] <= 2
