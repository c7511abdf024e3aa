"""Constraints of single streams that joins find (clustered and ordered by key): used by a hub, over a restart; proposed in words that can be
declared; given up and counted when they break.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.operators.base.group_codes import hashes
from headrace.operators.joins.probing import key_monitor
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan.adaptive import join_orders
from headrace.runtime.plan.adaptive.partner_bounds import partner_bounds
from tests.runtime.queries.test_found_constraints import (
    FIND,
    Rows,
    adaptive,
    answer,
    opened,
    push,
    rows_of_joins,
)

WINDOW = "[RANGE 1 MINUTE]"
PAIRS = f"SELECT ISTREAM(e.k, e.v, p.v AS w) FROM entered e {WINDOW}, passed p {WINDOW} WHERE e.k = p.k"
QUERIES = {"pairs": f"AS {PAIRS}", "finds": f"{FIND} AS {PAIRS}"}
EPOCH, RATE, BURST, EPOCHS = 5, 20, 45, 120
Epochs = list[dict[str, list[tuple[int, int, int]]]]


@pytest.fixture(scope="module", autouse=True)
def _many_keys_are_watched() -> Iterator[None]:
    """One key of eight, as there are few; and keys are compared in each epoch."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(key_monitor, "SHADOWS", 1 / 8)
        patched.setattr(join_orders, "SEES_KEYS", 1)
        yield


def in_bursts() -> Epochs:
    """By epoch of 5 seconds and link the packets, numbered as they enter: one of four passes, in bursts every 45 seconds."""
    epochs: Epochs = [{"entered": [], "passed": []} for _ in range(EPOCHS)]
    for number in range(EPOCHS * EPOCH * RATE):
        at = number // RATE
        epochs[at // EPOCH]["entered"].append((number, 2 * number, at))
        burst = BURST * (at // BURST + 1)
        if number % 4 == 0 and burst < EPOCHS * EPOCH:
            epochs[burst // EPOCH]["passed"].append((number, 2 * number + 1, burst))
    return epochs


def in_any_order() -> Epochs:
    """Packets with random numbers, each on both links, up to 50 seconds before or after."""
    epochs: Epochs = [{"entered": [], "passed": []} for _ in range(EPOCHS)]
    for number in range(50 * RATE, (EPOCHS * EPOCH - 50) * RATE):
        at, key = number // RATE, number * 7919 % 1_000_003
        other = at + number * 31 % 101 - 50
        epochs[at // EPOCH]["entered"].append((key, 2 * number, at))
        epochs[other // EPOCH]["passed"].append((key, 2 * number + 1, other))
    return [{name: sorted(rows, key=lambda row: row[2]) for name, rows in epoch.items()} for epoch in epochs]


def after(
    folder: Path, epochs: Sequence[dict[str, list[tuple[int, int, int]]]], restart: int = 90
) -> tuple[Hub, list[dict[str, int]]]:
    """A hub after these epochs, and a restart among them; after each epoch the stored rows by query."""
    hub, stored = opened(folder, QUERIES), list[dict[str, int]]()
    for number, epoch in enumerate(epochs):
        push(hub, epoch)
        stored.append(rows_of_joins(hub))
        if number == restart:
            before = partner_bounds(hub.home.latest())
            hub.close()
            hub = Hub(folder / "home", LocalExecutor(), tasks=3)
            assert partner_bounds(hub.home.latest()) == before
            assert any(bound.kind != "partner" for bounds in before.values() for bound in bounds)
    return hub, stored


@pytest.fixture(scope="module")
def bursts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hub, list[dict[str, int]]]]:
    hub, stored = after(tmp_path_factory.mktemp("bursts"), in_bursts())
    yield hub, stored
    hub.close()


def least(stored: Sequence[dict[str, int]], query: str) -> int:
    """The rows stored at the end of a period between bursts, when merges have followed."""
    return min(rows[query] for rows in stored[-18:])


def test_keys_in_order_free_rows_that_no_bound_on_delays_would(
    bursts: tuple[Hub, list[dict[str, int]]],
) -> None:
    hub, stored = bursts
    assert answer(hub, "finds") == answer(hub, "pairs")
    assert answer(hub, "finds").total() > 2000
    found = hub.status()["found_constraints"]["finds"]
    assert found["noticed"] == 0
    assert found["bounds"]["ordered p"] == found["bounds"]["p to e"] == 0
    assert "ordered e" not in found["bounds"], "rows of p do not wait for e at all"
    assert "e to p" not in found["bounds"], "delays are nearly as long as the window"
    assert least(stored, "finds") * 1.1 < least(stored, "pairs")


def test_what_is_in_force_is_explained(bursts: tuple[Hub, list[dict[str, int]]]) -> None:
    text = adaptive(bursts[0], "finds")
    assert (
        "  a key of p is finished 0 SECONDS after a larger one: the newest came at most 0 SECONDS after larger ones"
        in text
    )
    assert "; keys of p in order within 0 SECONDS" in text
    assert "as found from how the keys of each side follow each other" in bursts[0].explain("finds")


def test_constraints_are_proposed_in_words_that_can_be_declared(
    bursts: tuple[Hub, list[dict[str, int]]], tmp_path: Path
) -> None:
    text = adaptive(bursts[0], "pairs")
    assert "no key of e came twice, in " in text
    assert "keys of p ascend, but for 0 SECONDS, in " in text
    clauses = [line.partition(": declare ")[2] for line in text.splitlines() if "declare" in line]
    assert "CONSTRAINT UNIQUE (k) of entered" in clauses
    assert "CONSTRAINT ORDERED BY (k) WITHIN 0 SECONDS of passed" in clauses
    with Hub(tmp_path / "home", LocalExecutor()) as hub:
        for name in ("entered", "passed"):
            declared = " ".join(
                clause.rpartition(" of ")[0] for clause in clauses if clause.endswith(f" of {name}")
            )
            hub.execute(
                f"CREATE STREAM {name} (k BIGINT, v INT, at TIMESTAMP) USING push TIMESTAMP BY at {declared}"
            )
        hub.execute(f"CREATE QUERY pairs AS {PAIRS}")
        for epoch in in_bursts():
            push(hub, epoch)
        assert answer(hub, "pairs") == answer(bursts[0], "pairs")
        assert hub.status()["rejected"] == {}


def test_keys_that_come_once_free_the_rows_that_have_met(tmp_path: Path) -> None:
    hub, stored = after(tmp_path, in_any_order())
    assert answer(hub, "finds") == answer(hub, "pairs")
    found = hub.status()["found_constraints"]["finds"]["bounds"]
    assert found == {"clustered e": 0, "clustered p": 0}
    freed = [rows["pairs"] - rows["finds"] for rows in stored[-40:-20]]
    assert min(freed) >= 0
    assert max(freed) > 0
    hub.close()


def test_an_order_that_breaks_loses_a_part_and_is_counted_and_given_up(tmp_path: Path) -> None:
    epochs: Epochs = in_bursts()[:99]
    old = [(number, 2 * number + 1, 493) for number in range(RATE * 452, RATE * 490, 4 * 10)]
    large = pa.array(range(10**6, 10**6 + 1000))
    watched = [(int(key), 1, 495) for key in np.array(large)[key_monitor.shadows(hashes(large))]]
    late: dict[str, Rows] = {"entered": [(10**6, 1, 495)], "passed": watched}
    hub, _ = after(tmp_path, epochs, restart=-1)
    assert "ordered p" in hub.status()["found_constraints"]["finds"]["bounds"]
    push(hub, late)
    push(hub, {"entered": [], "passed": [(key, value, 496) for key, value, _ in old]})
    push(hub, {"entered": [(10**6 + 1, 1, 510)], "passed": [(10**6 + 2000, 1, 510)]})
    assert answer(hub, "finds") <= answer(hub, "pairs")
    found = hub.status()["found_constraints"]["finds"]
    assert "ordered p" not in found["bounds"], "given up"
    assert found["noticed"] == len(old) == hub.status()["rejected"]["finds"]
    assert "after a larger key of p: given up" in adaptive(hub, "finds")
    hub.close()
