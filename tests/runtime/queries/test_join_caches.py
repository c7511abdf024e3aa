"""Caches of joins as a hub chooses them: what is recorded, what a restart uses, what is shown, and that answers stay the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.adaptive.joins import hot_keys
from headrace.observation import CacheObservation
from headrace.overload.memory import SOFT, Limits
from headrace.runtime.epoch import task_orders
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.introspection.epoch_log import last_lines
from headrace.runtime.plan.adaptive.join_caches import join_caches
from headrace.time import SECOND

THREE = (
    "SELECT t.k, r.n AS rn, s.n AS sn, t.n AS tn FROM r [RANGE 20 SECONDS] JOIN s [RANGE 20 SECONDS] ON s.k = r.k AND s.v = r.v"
    " JOIN t [RANGE 1 SECOND] ON t.k = r.k"
)
KEYS, FAN, REPEATS = 4, 30, 60


@pytest.fixture(autouse=True)
def _undivided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys stay in one task each, though so few make tasks uneven."""
    monkeypatch.setattr(hot_keys, "UNEVEN", float("inf"))


def opened(folder: Path) -> Hub:
    return Hub(folder / "home", LocalExecutor(), tasks=2)


def prepared(folder: Path) -> Hub:
    hub = opened(folder)
    columns = "(k BIGINT, v BIGINT, n BIGINT, at TIMESTAMP)"
    hub.execute(";".join(f"CREATE STREAM {name} {columns} USING push TIMESTAMP BY at" for name in "rst"))
    hub.register(THREE, "q")
    return hub


def push(hub: Hub, epoch: int, *, again: bool = True) -> None:
    """In every fourth epoch rows of r and s, each with a value of its own; rows of t, `again` of few keys, else each of its own."""
    for number, name in enumerate("rst"):
        if name == "t":
            keys = np.repeat(np.arange(KEYS), REPEATS) if again else np.arange(KEYS * REPEATS) + 1000 * epoch
        else:
            keys = np.repeat(np.arange(KEYS), FAN) if epoch % 4 == 0 else np.empty(0, np.int64)
        values = np.arange(len(keys)) % FAN if name != "t" else np.zeros(len(keys), np.int64)
        at = pa.array(epoch * 5 * SECOND + number + np.arange(len(keys))).cast(pa.timestamp("us", tz="UTC"))
        rows = {"k": keys, "v": values, "n": np.arange(len(keys)) + 1000 * epoch, "at": at}
        if len(keys):
            hub.push(name, pa.table(rows))


def run(hub: Hub, epochs: range, *, again: bool = True) -> list[list[dict[int, tuple[int, ...]]]]:
    """Run epochs; the caches that are chosen after each."""
    chosen = []
    for epoch in epochs:
        push(hub, epoch, again=again)
        hub.run_once()
        chosen.append(list(join_caches(hub.home.latest()).values()))
    return chosen


def answers(hub: Hub) -> list[tuple[int, ...]]:
    found = hub.query("q").history()
    return sorted(zip(*(found.column(name).to_pylist() for name in ("k", "rn", "sn", "tn")), strict=True))


def looked_up(folder: Path) -> list[int]:
    """The look-ups of each epoch with rows."""
    lines = [line["caches"] for line in last_lines(folder / "home", 100) if "caches" in line]
    return [sum(CacheObservation(**fields).lookups for fields in line.values()) for line in lines]


def test_a_cache_is_chosen_and_used_and_answers_are_those_of_a_hub_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = prepared(tmp_path / "with")
    chosen = run(hub, range(10))
    assert chosen[0] == []
    assert chosen[-1] == [{2: (0, 1)}]
    assert looked_up(tmp_path / "with")[-1] == KEYS * REPEATS
    found = answers(hub)
    hub.close()
    monkeypatch.setattr(task_orders, "join_caches", lambda _: {})
    other = prepared(tmp_path / "without")
    run(other, range(10))
    assert looked_up(tmp_path / "without")[-1] == 0
    assert answers(other) == found
    assert found
    other.close()


def test_a_cache_is_used_after_a_restart_and_filled_again(tmp_path: Path) -> None:
    hub = prepared(tmp_path)
    run(hub, range(6))
    hub.close()
    again = opened(tmp_path)
    before = len(looked_up(tmp_path))
    run(again, range(6, 8))
    seen = [line["caches"] for line in last_lines(tmp_path / "home", 100) if "caches" in line][before:]
    hits = [sum(CacheObservation(**fields).hits for fields in line.values()) for line in seen]
    assert hits == [KEYS * REPEATS - KEYS, KEYS * REPEATS]  # what a process remembers is gone with it
    assert looked_up(tmp_path)[before:] == [KEYS * REPEATS] * 2
    again.close()


def test_a_cache_is_left_when_keys_do_not_come_again(tmp_path: Path) -> None:
    hub = prepared(tmp_path)
    assert run(hub, range(5))[-1] == [{2: (0, 1)}]
    assert run(hub, range(5, 9), again=False)[-1] == []
    hub.close()


def test_explain_adaptive_shows_who_looks_up_what_and_since_when(tmp_path: Path) -> None:
    hub = prepared(tmp_path)
    run(hub, range(6))
    (outcome,) = hub.execute("EXPLAIN ADAPTIVE q")
    lines = outcome.message.splitlines()
    place = next(number for number, line in enumerate(lines) if "in a cache" in line)
    assert lines[place].strip() == "new rows of t look up the combinations of r, s in a cache"
    assert "look-ups" in lines[place + 1]
    assert "without a cache" in lines[place + 2]
    hub.close()


def test_caches_are_the_first_that_a_short_memory_budget_gives_up(tmp_path: Path) -> None:
    hub = prepared(tmp_path / "with")
    hub.loop.engine.rounds.memory.limits = Limits(10**9)
    assert run(hub, range(8))[-1] == [{2: (0, 1)}]
    kinds = hub.status()["memory"]["kinds"]
    assert kinds["caches"] > 1000
    hub.loop.engine.rounds.memory.limits = Limits(int((sum(kinds.values()) - kinds["caches"] / 2) / SOFT))
    assert run(hub, range(8, 12))[-1] == []
    assert looked_up(tmp_path / "with")[-1] == 0
    assert hub.status()["memory"]["given_up"][-1] == "caches of joins, and of sums for questions"
    assert hub.status()["memory"]["kinds"]["caches"] == 0
    found = answers(hub)
    hub.close()
    other = prepared(tmp_path / "without")
    run(other, range(12))
    assert answers(other) == found
    other.close()
