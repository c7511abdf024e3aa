"""Hot keys of joins while a hub runs: divided between its tasks by what these measured, in one place again when they are not hot any more,
recorded, shown and found again after a restart; with every pair once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from headrace.adaptive.joins.hot_keys import Division
from headrace.operators.base.group_codes import hashes
from headrace.operators.joins.hot_keys.key_layouts import SplitKey
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.home import run_cache
from headrace.runtime.hub.hub import Hub
from headrace.runtime.messages.task_messages import StateReceipt
from headrace.runtime.plan.adaptive import split_keys as adaptive
from headrace.runtime.plan.adaptive.split_keys import SPLIT_KEYS, SplitKeys, split_keys
from headrace.runtime.tasks.state import state_task
from headrace.time import SECOND

PAIRS = "SELECT ISTREAM(x.v, y.v AS w) FROM a x [RANGE 2 SECONDS], b y [RANGE 2 SECONDS] WHERE x.k = y.k"
ROWS, HOT = 300, 7
Rows = npt.NDArray[np.int64]


def opened(folder: Path, tasks: int = 4) -> Hub:
    return Hub(folder / "home", LocalExecutor(), tasks=tasks)


def prepared(folder: Path, tasks: int = 4) -> Hub:
    hub = opened(folder, tasks)
    for name in "ab":
        hub.execute(f"CREATE STREAM {name} (k BIGINT, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
    return hub


def rows(side: int, epoch: int, hot: int) -> Rows:
    """(key, value, time) of the rows of a side in an epoch, a second: so many of them have the hot key, less for the second side."""
    rng = np.random.default_rng((side, epoch))
    keys = np.where(np.arange(ROWS) < hot * (3 - side) // 3, HOT, rng.integers(100, 300, ROWS))
    values = (epoch * 2 + side) * ROWS + np.arange(ROWS)
    return np.stack([rng.permutation(keys), values, epoch * SECOND + np.sort(rng.integers(0, SECOND, ROWS))])


def push(hub: Hub, epoch: int, hot: int) -> None:
    """Rows of both streams, which count once however often they are pushed."""
    for side, name in enumerate("ab"):
        k, v, at = rows(side, epoch, hot)
        table = pa.table({"k": k, "v": v, "at": pa.array(at).cast(pa.timestamp("us", tz="UTC"))})
        hub.push(name, table, producer="test", sequence=epoch)


def run(hub: Hub, epochs: range, hot: int = 150) -> list[list[int]]:
    """The work of the tasks in each epoch."""
    loads = []
    for epoch in epochs:
        push(hub, epoch, hot)
        hub.catch_up()
        loads += list(hub.status()["last_epoch"].get("loads", {}).values())
    return loads


def answer(hub: Hub, name: str = "q") -> list[tuple[int, int]]:
    found = hub.query(name).history()
    return sorted(zip(found.column("v").to_pylist(), found.column("w").to_pylist(), strict=True))


def met(hot: list[int], joins: Callable[[Any, Any], Any], window: int) -> list[tuple[int, int]]:
    """All pairs, by comparing every row with every other: `joins` gets whether keys are equal, and by how much the second value is greater. The instant of
    the last row is not settled.
    """
    left, right = (
        np.concatenate([rows(side, epoch, count) for epoch, count in enumerate(hot)], axis=1)
        for side in (0, 1)
    )
    equal, value, apart = (right[column][None, :] - left[column][:, None] for column in range(3))
    at = np.maximum(left[2][:, None], right[2][None, :])
    last = min(left[2].max(), right[2].max())
    one, other = np.nonzero(joins(equal == 0, value) & (np.abs(apart) <= window) & (at < last))
    return sorted(zip(left[1][one].tolist(), right[1][other].tolist(), strict=True))


def expected(hot: list[int]) -> list[tuple[int, int]]:
    """The answer of `PAIRS`."""
    return met(hot, lambda equal, _: equal, 2 * SECOND)


def keys(hub: Hub) -> list[SplitKey]:
    return [key for found in split_keys(hub.home.latest()).values() for key in found]


def test_a_hot_key_is_divided_after_two_epochs_and_tasks_are_even(tmp_path: Path) -> None:
    hub = prepared(tmp_path)
    hub.register(PAIRS, "q")
    loads, found = run(hub, range(10)), keys(hub)
    pairs, shown = answer(hub), hub.execute("EXPLAIN ADAPTIVE q")[0].message
    hub.close()
    before, after = np.sum(loads[:2], axis=0), np.sum(loads[5:], axis=0)
    assert max(before) / before.mean() > 2.5
    assert max(after) / after.mean() < 1.15
    assert [key.current.parts for key in found] == [4]
    assert not found[0].former
    assert pairs == expected([150] * 10)
    assert "rows of 1 key are divided between tasks" in shown
    assert "key 7, since epoch 3: those of x are in 4 parts by position, those of y in each" in shown
    assert shown.count("of the mean work in epoch") == 2


def test_a_key_that_is_not_hot_any_more_is_in_one_task_again(tmp_path: Path) -> None:
    hub, hot = prepared(tmp_path), [150] * 5 + [1] * 14
    hub.register(PAIRS, "q")
    run(hub, range(5))
    divided, seen = keys(hub), list[list[SplitKey]]()
    for epoch in range(5, 19):
        run(hub, range(epoch, epoch + 1), 1)
        seen.append(keys(hub))
    pairs = answer(hub)
    facts = hub.home.latest().facts
    hub.close()
    assert divided[0].current.parts == 4
    turning = next(found for found in seen if found[0].current.parts == 1)
    assert seen.index(turning) in (8, 9)
    assert [layout.parts for layout in turning[0].former] == [4]
    assert SPLIT_KEYS not in facts
    assert pairs == expected(hot)


def test_a_restart_with_another_number_of_tasks_finds_the_layouts(tmp_path: Path) -> None:
    hub = prepared(tmp_path)
    hub.register(PAIRS, "q")
    run(hub, range(4))
    before = split_keys(hub.home.latest())
    assert before
    for epoch, tasks in enumerate((4, 3, 2, 8, 8, 8, 8, 8), 4):
        hub.close()
        hub = opened(tmp_path, tasks)
        if epoch == 4:
            assert split_keys(hub.home.latest()) == before
        run(hub, range(epoch, epoch + 1))
    pairs = answer(hub)
    hub.close()
    assert pairs == expected([150] * 12)


def test_state_that_is_written_section_by_section_is_read_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_task, "_LARGE", 0)
    hub = prepared(tmp_path)
    hub.register(PAIRS, "q")
    for epoch in range(6):
        run(hub, range(epoch, epoch + 1))
        hub.close()
        run_cache._cache.clear()
        hub = opened(tmp_path)
    assert answer(hub) == expected([150] * 6)
    hub.close()


def test_a_hub_with_one_task_divides_nothing_and_ends_what_was_divided(tmp_path: Path) -> None:
    hub = prepared(tmp_path)
    hub.register(PAIRS, "q")
    run(hub, range(4))
    assert keys(hub)
    hub.close()
    hub = opened(tmp_path, 1)
    assert run(hub, range(4, 10)) == []
    assert not keys(hub)
    assert answer(hub) == expected([150] * 10)
    hub.close()


def test_a_query_that_is_registered_later_and_one_that_is_dropped(tmp_path: Path) -> None:
    hub = prepared(tmp_path)
    hub.register(PAIRS, "q")
    run(hub, range(5))
    late = PAIRS.replace("2 SECONDS", "1 SECOND") + " AND x.v > y.v"
    hub.execute(f"CREATE QUERY late OPTIONS (sharing 'off') AS {late}")
    run(hub, range(5, 9))
    assert len(split_keys(hub.home.latest())) == 2
    whole = expected([150] * 9)
    time_of = {
        value: at
        for side in (0, 1)
        for epoch in range(9)
        for _, value, at in rows(side, epoch, 150).T.tolist()
    }
    assert answer(hub, "late") == [
        (v, w) for v, w in whole if v > w and abs(time_of[v] - time_of[w]) <= SECOND
    ]
    hub.execute("DROP QUERY q")
    run(hub, range(9, 11))
    assert len(split_keys(hub.home.latest())) == 1
    hub.close()


def test_a_former_layout_ends_with_the_windows_of_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last row before the change is joined for two seconds, both ends included: though its stream is ahead of the other, and when the punctuation
    of both is there.
    """
    hub = prepared(tmp_path)
    hub.register(PAIRS, "q")
    first = int(hashes(pa.array([HOT]))[0])

    def chosen(*known: Any) -> dict[int, Division]:
        _, join, _, divided, *_ = known
        return {first: Division(1, 4)} if join.divides_keys and not divided else {}

    def loads(receipts: Sequence[StateReceipt], _: Any) -> dict[str, tuple[int, ...]]:
        return {name: () for receipt in receipts for name in receipt.operators}

    def take(**streams: list[tuple[int, int, int]]) -> list[int]:
        """Push (key, value, seconds); how many former layouts there are."""
        for name, drawn in streams.items():
            hub.push(name, [{"k": k, "v": v, "at": at * SECOND} for k, v, at in drawn])
        hub.catch_up()
        return [len(key.former) for key in keys(hub)]

    with monkeypatch.context() as patched:
        patched.setattr(SplitKeys, "chosen", chosen)
        patched.setattr(adaptive, "task_loads", loads)
        assert take(a=[(HOT, 1, 4)], b=[(0, 2, 0)]) == [1]
    assert take(b=[(6, 4, 5)]) == [1]
    assert take(a=[(5, 3, 6)], b=[(6, 4, 6)]) == [1]
    assert take(b=[(HOT, 5, 6)]) == [1]
    assert take(a=[(5, 6, 7)], b=[(6, 7, 7)]) == [0]
    assert answer(hub) == [(1, 5)]
    hub.close()


def test_all_rows_of_a_join_without_an_equality_are_divided_as_those_of_one_key(tmp_path: Path) -> None:
    hub = prepared(tmp_path, 3)
    band = "ISTREAM(x.v, y.v AS w) FROM a x [RANGE 1 SECOND], b y [RANGE 1 SECOND] WHERE y.v - x.v BETWEEN 299 AND 301"
    hub.register(f"SELECT {band}", "q")
    loads = run(hub, range(8))
    pairs, shown = answer(hub), hub.execute("EXPLAIN ADAPTIVE q")[0].message
    hub.close()
    before, after = np.sum(loads[:2], axis=0), np.sum(loads[5:], axis=0)
    assert sorted(before)[:2] == [0, 0]
    assert max(after) / after.mean() < 1.15
    assert pairs == met([150] * 8, lambda _, value: np.abs(value - 300) <= 1, SECOND)
    assert "  all rows, since epoch 3: those of " in shown
    assert " are in 3 parts by position, those of " in shown


def test_even_keys_are_not_divided_and_nothing_is_recorded(tmp_path: Path) -> None:
    hub = prepared(tmp_path)
    hub.register(PAIRS, "q")
    run(hub, range(6), 2)
    assert SPLIT_KEYS not in hub.home.latest().facts
    assert "loads" not in hub.status()["last_epoch"]
    hub.close()
