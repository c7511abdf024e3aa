"""Constraints of streams in the engine: the same answers from less state, over restarts and late registration; what breaks a
constraint; and what is shown and refused.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import UserError
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND

Rows = Sequence[tuple[int, int]]
"""(key, second)."""
LINKS = ("entered", "passed", "left_it")
WINDOW = "[RANGE 10 MINUTES]"
PAIRS = f"SELECT ISTREAM(e.k, e.v, p.v AS w) FROM entered e {WINDOW}, passed p {WINDOW} WHERE e.k = p.k"
THREE = (
    f"SELECT SUM(e.v) AS bytes FROM entered e {WINDOW}, passed p {WINDOW}, left_it l {WINDOW} "
    "WHERE e.k = p.k AND p.k = l.k"
)
EPOCHS, RATE = 30, 40
BOTH = {
    "entered": "CONSTRAINT UNIQUE (k) CONSTRAINT (k) REFERENCES passed (k) WITHIN 15 SECONDS",
    "passed": """CONSTRAINT UNIQUE (k) CONSTRAINT (k) REFERENCES entered (k) WITHIN 0 SECONDS
                 CONSTRAINT (k) REFERENCES left_it (k) WITHIN 15 SECONDS""",
    "left_it": "CONSTRAINT UNIQUE (k) CONSTRAINT (k) REFERENCES passed (k) WITHIN 0 SECONDS",
}
BY_KEY = {
    "entered": "CONSTRAINT CLUSTERED BY (k) WITHIN 0 SECONDS CONSTRAINT ORDERED BY (k) WITHIN 0 SECONDS",
    "passed": "CONSTRAINT CLUSTERED BY (k) WITHIN 0 SECONDS CONSTRAINT ORDERED BY (k) WITHIN 25 SECONDS",
}


def network(latency: int = 15) -> list[dict[str, Rows]]:
    """By epoch of ten seconds and link the packets: a fifth of those on a link is on the next up to `latency` seconds later."""
    drawn = random.Random(1)
    epochs: list[dict[str, list[tuple[int, int]]]] = [{name: [] for name in LINKS} for _ in range(EPOCHS)]

    def put(link: int, key: int, at: int) -> None:
        if at < 10 * EPOCHS:
            epochs[at // 10][LINKS[link]].append((key, at))
            if link < 2 and drawn.random() < 0.2:
                put(link + 1, key, at + drawn.randint(0, latency))

    for number in range(EPOCHS * RATE):
        put(0, number, 10 * number // RATE)
    return [{name: sorted(rows, key=lambda row: row[1]) for name, rows in epoch.items()} for epoch in epochs]


def opened(folder: Path, constraints: Mapping[str, str], queries: Mapping[str, str]) -> Hub:
    hub = Hub(folder, LocalExecutor(), tasks=2)
    for name in LINKS:
        hub.execute(
            f"CREATE STREAM {name} (k BIGINT, v INT, at TIMESTAMP) USING push TIMESTAMP BY at {constraints.get(name, '')}"
        )
    for name, select in queries.items():
        hub.register(select, name)
    return hub


def push(hub: Hub, epoch: Mapping[str, Rows]) -> None:
    for name, rows in epoch.items():
        if rows:
            times = pa.array([at * SECOND for _, at in rows]).cast(pa.timestamp("us", tz="UTC"))
            values = pa.array([key % 97 for key, _ in rows], pa.int32())
            hub.push(
                name,
                pa.table({"k": pa.array([key for key, _ in rows], pa.int64()), "v": values, "at": times}),
            )
    hub.catch_up()


def answer(hub: Hub, query: str) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row.values()) for row in hub.query(query).history().to_pylist())


def rows_of_joins(hub: Hub) -> int:
    """The stored rows of all joins, in the newest epoch."""
    assert hub.last is not None
    return sum(
        seen.state_rows for name, seen in hub.last.operators.items() if hub.plan.operators[name].makes_pairs
    )


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """The network without constraints."""
    hub = opened(tmp_path_factory.mktemp("plain") / "home", {}, {"pairs": PAIRS, "three": THREE})
    for epoch in network():
        push(hub, epoch)
    yield hub
    hub.close()


@pytest.mark.parametrize("constraints", [BOTH, BY_KEY], ids=["in time", "by key"])
def test_answers_are_the_same_from_less_state(
    tmp_path: Path, plain: Hub, constraints: Mapping[str, str]
) -> None:
    hub = opened(tmp_path / "home", constraints, {"pairs": PAIRS, "three": THREE})
    for number, epoch in enumerate(network()):
        push(hub, epoch)
        if number == EPOCHS // 2:
            hub.close()
            hub = Hub(tmp_path / "home", LocalExecutor(), tasks=3)
    most = 1.5 if constraints is BOTH else 1.2
    assert rows_of_joins(hub) * most < rows_of_joins(plain)
    hub.register(PAIRS.replace("p.v AS w", "p.v AS later"), "late")
    hub.catch_up()
    assert answer(hub, "pairs") == answer(plain, "pairs") == answer(hub, "late")
    assert answer(hub, "three") == answer(plain, "three")
    assert answer(hub, "three").total() > 20
    assert hub.status()["rejected"] == {}
    hub.close()


def test_pairs_that_break_a_constraint_are_missing_and_counted(tmp_path: Path) -> None:
    found = []
    for name, constraints in (("plain", {}), ("declared", BOTH)):
        hub = opened(tmp_path / name, constraints, {"pairs": PAIRS})
        for epoch in network(latency=20):
            push(hub, epoch)
        found.append(answer(hub, "pairs"))
        rejected = hub.status()["rejected"]
        hub.close()
    times = {name: {key: at for epoch in network(latency=20) for key, at in epoch[name]} for name in LINKS}
    in_time = {key for key, at in times["passed"].items() if at <= times["entered"][key] + 15}
    assert found[1] == Counter({row: count for row, count in found[0].items() if row[0] in in_time})
    assert 0 < rejected["pairs"] <= len(times["passed"]) - len(in_time)


def test_a_repeated_value_is_counted_and_its_row_stays(tmp_path: Path) -> None:
    hub = opened(tmp_path / "home", {"passed": "CONSTRAINT UNIQUE (k)"}, {"pairs": PAIRS})
    push(hub, {"entered": [(7, 1)], "passed": [(7, 2), (7, 3)]})
    push(hub, {"passed": [(7, 4), (8, 4)]})
    push(hub, {"entered": [(9, 9)], "passed": [(9, 9)]})
    assert hub.status()["rejected"] == {"pairs": 2}
    assert answer(hub, "pairs").total() == 3
    hub.close()


def test_constraints_are_described_and_compared(tmp_path: Path) -> None:
    hub = opened(tmp_path / "home", BOTH, {})
    create = "CREATE STREAM entered (k BIGINT, v INT, at TIMESTAMP) USING push TIMESTAMP BY at "
    (again,) = hub.execute(create + BOTH["entered"])
    assert "is there already" in again.message
    with pytest.raises(
        UserError, match=r"differs in CONSTRAINT \(UNIQUE \(k\), .* there, UNIQUE \(v\) here\)"
    ):
        hub.execute(create + "CONSTRAINT UNIQUE (v)")
    hub.close()
    hub = Hub(tmp_path / "home", LocalExecutor())
    (table,) = hub.execute("DESCRIBE EXTENDED entered")
    assert table.table is not None
    shown = [row["value"] for row in table.table.to_pylist() if row["property"] == "constraint"]
    assert shown == ["UNIQUE (k)", "(k) REFERENCES passed (k) WITHIN 15 SECONDS"]
    hub.close()


def test_constraints_stay_while_a_query_reads_the_stream(tmp_path: Path) -> None:
    hub = opened(tmp_path / "home", BOTH, {"pairs": PAIRS})
    replaced = "CREATE OR REPLACE STREAM entered (k BIGINT, v INT, at TIMESTAMP) USING push TIMESTAMP BY at"
    with pytest.raises(UserError, match="'entered' cannot get other constraints while pairs reads it"):
        hub.execute(replaced)
    hub.execute("DROP QUERY pairs")
    hub.execute(replaced)
    hub.close()
