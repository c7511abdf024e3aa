"""Hot keys of joins of three streams while a hub runs: divided between its tasks, in one place again, divided once more, over restarts with other numbers
of tasks; with every combination once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.adaptive.joins.hot_keys import UNDIVIDED, Division
from headrace.operators.base.group_codes import hashes
from headrace.runtime.hub.hub import Hub
from headrace.runtime.messages.task_messages import StateReceipt
from headrace.runtime.plan.adaptive import split_keys as adaptive
from headrace.runtime.plan.adaptive.split_keys import SPLIT_KEYS, SplitKeys, split_keys
from headrace.time import SECOND
from tests.runtime.queries.test_hot_key_joins import Rows, keys, opened, rows

WINDOWS = "a x [RANGE 2 SECONDS], b y [RANGE 2 SECONDS], c z [RANGE 2 SECONDS]"
TRIPLES = f"SELECT ISTREAM(x.v, y.v AS w, z.v AS u) FROM {WINDOWS} WHERE x.k = y.k AND y.k = z.k"
HOT = 15
"""Rows of the hot key in an epoch, of the first stream; two thirds and a third of it of the others."""


def prepared(folder: Path, tasks: int = 4) -> Hub:
    hub = opened(folder, tasks)
    for name in "abc":
        hub.execute(f"CREATE STREAM {name} (k BIGINT, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
    return hub


def push(hub: Hub, epoch: int, hot: int) -> None:
    """Rows of all streams, which count once however often they are pushed."""
    for side, name in enumerate("abc"):
        k, v, at = rows(side, epoch, hot)
        table = pa.table({"k": k, "v": v, "at": pa.array(at).cast(pa.timestamp("us", tz="UTC"))})
        hub.push(name, table, producer="test", sequence=epoch)


def run(hub: Hub, epochs: range, hot: int = HOT) -> list[list[int]]:
    """The work of the tasks in each epoch."""
    loads = []
    for epoch in epochs:
        push(hub, epoch, hot)
        hub.catch_up()
        loads += list(hub.status()["last_epoch"].get("loads", {}).values())
    return loads


def answer(hub: Hub, name: str = "q") -> list[tuple[int, ...]]:
    found = hub.query(name).history()
    return sorted(zip(*(found.column(column).to_pylist() for column in ("v", "w", "u")), strict=True))


def expected(hot: list[int]) -> list[tuple[int, ...]]:
    """All combinations, by comparing every row of a key with every other. The instant of the last row is not settled."""
    sides = [
        np.concatenate([rows(side, epoch, count) for epoch, count in enumerate(hot)], axis=1)
        for side in range(3)
    ]
    last, found = min(side[2].max() for side in sides), list[Rows]()
    for key in np.unique(sides[0][0]):
        of_key = [side[:, side[0] == key] for side in sides]
        _, values, times = np.stack(
            [np.meshgrid(*column, indexing="ij") for column in zip(*of_key, strict=True)]
        )
        at = times.max(axis=0)
        together = (at - times.min(axis=0) <= 2 * SECOND) & (at < last)
        found.append(values[:, together].T)
    return sorted(map(tuple, np.concatenate(found).tolist()))


def test_a_hot_key_of_three_streams_is_divided_and_tasks_are_even(tmp_path: Path) -> None:
    hub = prepared(tmp_path)
    hub.register(TRIPLES, "q")
    loads, found = run(hub, range(10)), keys(hub)
    triples, shown = answer(hub), hub.execute("EXPLAIN ADAPTIVE q")[0].message
    hub.close()
    before, after = np.sum(loads[:2], axis=0), np.sum(loads[6:], axis=0)
    assert max(before) / before.mean() > 1.5
    assert max(after) / after.mean() < 1.25
    assert [(key.current.parts, key.current.spread, key.former) for key in found] == [(4, 0, ())]
    assert triples == expected([HOT] * 10)
    assert "those of x are in 4 parts by position, those of y and z in each" in shown


def test_a_key_that_cools_and_is_hot_again_is_in_one_task_and_divided_again(tmp_path: Path) -> None:
    hub, hot, parts = prepared(tmp_path), [HOT] * 5 + [0] * 12 + [HOT] * 5, list[int]()
    hub.register(TRIPLES, "q")
    for epoch, count in enumerate(hot):
        run(hub, range(epoch, epoch + 1), count)
        parts += [key.current.parts for key in keys(hub)] or [0]
    triples = answer(hub)
    hub.close()
    changes = [now for before, now in zip([0, *parts], parts, strict=False) if now != before]
    assert changes == [4, 1, 0, 4]
    assert triples == expected(hot)


def test_restarts_with_other_numbers_of_tasks_find_what_was_sent_to_former_layouts(tmp_path: Path) -> None:
    hub = prepared(tmp_path)
    hub.register(TRIPLES, "q")
    run(hub, range(3))
    for epoch, tasks in enumerate((3, 2, 8, 4, 2), 3):
        found = split_keys(hub.home.latest())
        assert found
        hub.close()
        hub = opened(tmp_path, tasks)
        assert split_keys(hub.home.latest()) == found
        run(hub, range(epoch, epoch + 1))
    assert answer(hub) == expected([HOT] * 8)
    hub.close()


@pytest.mark.parametrize("divided", [3, 6])
def test_a_hub_with_one_task_puts_a_key_together_once_its_rows_from_before_have_ended(
    tmp_path: Path, divided: int
) -> None:
    """While they have not, and after that."""
    hub = prepared(tmp_path)
    hub.register(TRIPLES, "q")
    run(hub, range(divided))
    assert [bool(key.former) for key in keys(hub)] == [divided < 6]
    hub.close()
    hub = opened(tmp_path, 1)
    run(hub, range(divided, 14))
    assert SPLIT_KEYS not in hub.home.latest().facts
    assert answer(hub) == expected([HOT] * 14)
    hub.close()


def test_a_key_is_not_in_one_place_again_while_rows_of_the_place_before_are_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of each stream in an epoch of their own, between which it is asked to change: the first and the third one would be in one place, and the second one not."""
    hub, seen = prepared(tmp_path), list[list[int]]()
    hub.register(TRIPLES, "q")
    first = int(hashes(pa.array([7]))[0])

    def chosen(*known: Any) -> dict[int, Division]:
        _, join, _, divided, *_ = known
        if not join.divides_keys:
            return {}
        seen.append([layout.parts for key in divided for layout in key.layouts])
        is_divided = any(key.current.parts > 1 for key in divided)
        return {first: UNDIVIDED if is_divided else Division(0, 4)}

    def loads(receipts: Sequence[StateReceipt], _: Any) -> dict[str, tuple[int, ...]]:
        return {name: () for receipt in receipts for name in receipt.operators}

    monkeypatch.setattr(SplitKeys, "chosen", chosen)
    monkeypatch.setattr(adaptive, "task_loads", loads)
    for number, name in enumerate("abc"):
        hub.push(name, [{"k": 7, "v": number, "at": SECOND}])
        hub.catch_up()
    for at in (9, 10, 11):
        for name in "abc":
            hub.push(name, [{"k": 1, "v": at, "at": at * SECOND}])
        hub.catch_up()
    assert answer(hub)[:1] == [(0, 1, 2)]
    assert seen[:4] == [[], [1, 4], [1, 4], [1, 4]]
    assert [4, 1] in seen
    hub.close()


def test_readers_of_a_shared_join_of_three_streams_and_one_of_later_have_every_combination(
    tmp_path: Path,
) -> None:
    hub = prepared(tmp_path)
    for name in ("q", "p"):
        hub.register(TRIPLES, name)
    run(hub, range(5))
    assert keys(hub)
    hub.register(TRIPLES, "late")
    run(hub, range(5, 8))
    for name in ("q", "p", "late"):
        assert answer(hub, name) == expected([HOT] * 8), name
    hub.close()
