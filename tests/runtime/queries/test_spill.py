"""`OPTIONS (spill …)`: joins keep the rows that constraints finish on disk, and answers are those without constraints, over restarts, other
numbers of tasks, and a death at any call; what is on disk is counted, and leaves with the windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import UserError
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan.adaptive import join_orders
from headrace.store.files.container import Container
from headrace.time import SECOND
from tests.runtime.ingest.test_repeated_push import again, on
from tests.runtime.queries import test_constraints as declared
from tests.runtime.queries.test_found_constraints import (
    FIND,
    LINKS,
    PAIRS,
    THREE,
    adaptive,
    answer,
    network,
    opened,
    push,
    rows_of_joins,
)
from tests.soak.ledger import digest
from tests.store.faults import FaultyDisk, SimulatedCrash, kill_points, share_of

SPILL = "OPTIONS (constraints 'find', spill 'ALL')"
SHORT, LONG = 5, 40
"""Seconds of latency, before and after it rises."""


@pytest.fixture(scope="module", autouse=True)
def _each_epoch_is_measured() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(join_orders, "SEES_DELAYS", 1)
        yield


@pytest.fixture(scope="module")
def rising(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A latency that rises, for queries without constraints, that find them, and that spill besides; restarts with other numbers of tasks."""
    folder = tmp_path_factory.mktemp("rising")
    queries = {
        "pairs": f"AS {PAIRS}",
        "finds": f"{FIND} AS {PAIRS}",
        "spills": f"{SPILL} AS {PAIRS}",
        "three": f"OPTIONS (sharing 'off') AS {THREE}",
        "spills_three": f"{SPILL} AS {THREE}",
    }
    hub = opened(folder, queries)
    for number, epoch in enumerate(network([SHORT] * 15 + [LONG] * 15)):
        push(hub, epoch)
        if number in (12, 17):
            hub.close()
            hub = Hub(folder / "home", LocalExecutor(), tasks=number % 4 + 1)
    hub.run_once()
    yield hub
    hub.close()


def test_no_pair_is_lost_when_a_found_bound_breaks(rising: Hub) -> None:
    assert answer(rising, "finds") < answer(rising, "pairs")
    assert answer(rising, "spills") == answer(rising, "pairs")
    assert answer(rising, "spills_three") == answer(rising, "three")
    status = rising.status()
    assert set(status["rejected"]) == {"finds"}
    assert status["found_constraints"]["spills"]["noticed"] == 0
    assert status["found_constraints"]["spills"]["left_out"] == 0


def test_what_is_on_disk_and_what_came_from_there_is_counted(rising: Hub) -> None:
    lost = answer(rising, "pairs") - answer(rising, "finds")
    spilled = rising.status()["spilled"]
    assert spilled.keys() == {"spills", "spills_three"}
    assert 0 < lost.total() / 2 < spilled["spills"]["read"]
    stored = {"rows": 0, "bytes": 0}
    operator = rising.catalog.require_query("spills").operator_id
    for run in rising.home.latest().state:
        for name, section in Container.open(rising.home.store.map(run.name), run.name).sections().items():
            if name.startswith(f"{operator}.") and name.endswith("_spilled"):
                stored = {"rows": stored["rows"] + section.rows, "bytes": stored["bytes"] + section.bytes}
    assert stored["rows"] > 500
    assert {name: spilled["spills"][name] for name in stored} == stored
    text = adaptive(rising, "spills")
    assert f"has made {spilled['spills']['read']:,} combinations with spilled rows" in text
    assert "spilled for their whole windows" in rising.explain("spills")
    assert "spilled" not in rising.explain("finds")


@pytest.mark.parametrize(("spill", "whole"), [("1 MINUTE", True), ("17 SECONDS", False)])
def test_declared_constraints_that_break_lose_only_what_is_beyond_the_length(
    tmp_path: Path, spill: str, whole: bool
) -> None:
    answers = []
    for name, constraints in (("plain", {}), ("spilling", declared.BOTH)):
        hub = declared.opened(tmp_path / name, constraints, {})
        options = f"OPTIONS (spill '{spill}')" if constraints else ""
        hub.execute(f"CREATE QUERY pairs {options} AS {PAIRS}")
        for epoch in declared.network(latency=20):
            declared.push(hub, epoch)
        answers.append(answer(hub, "pairs"))
        seen = hub.status()
        hub.close()
    times = {
        name: {key: at for epoch in declared.network(latency=20) for key, at in epoch[name]} for name in LINKS
    }
    delays = {key: at - times["entered"][key] for key, at in times["passed"].items()}
    found = {row: count for row, count in answers[0].items() if delays[row[0]] <= 17 or whole}
    assert answers[1] == found
    assert (answers[1] == answers[0]) == whole
    assert (seen["spilled"]["pairs"]["read"] > 0) >= whole
    assert bool(seen["rejected"]) != whole


def test_spilled_rows_leave_the_disk_with_their_windows(rising: Hub, tmp_path: Path) -> None:
    hub = opened(tmp_path, {"spills": f"{SPILL} AS {PAIRS.replace('10 MINUTES', '1 MINUTE')}"})
    most = 0
    for number, epoch in enumerate(network([SHORT] * 60)):
        push(hub, epoch)
        if number >= 20:
            most = max(most, hub.status()["spilled"]["spills"]["rows"])
    rows = sum(len(epoch[name]) for epoch in network([SHORT] * 60) for name in LINKS[:2])
    assert 0 < most < rows / 2
    assert most < rising.status()["spilled"]["spills"]["rows"]
    hub.close()


def test_a_memory_budget_counts_no_row_on_disk(tmp_path: Path) -> None:
    used, rows = [], []
    for options in ("", SPILL):
        hub = opened(tmp_path / (options[:3] or "plain"), {"q": f"{options} AS {PAIRS}"})
        hub.loop.engine.rounds.memory.limits = type(hub.loop.engine.rounds.memory.limits)(hub=1 << 30)
        for epoch in network([SHORT] * 40):
            push(hub, epoch)
        used.append(hub.status()["memory"]["queries"]["q"])
        spilled = hub.status()["spilled"]
        rows.append(rows_of_joins(hub)["q"])
        hub.close()
    assert used[1] < 0.7 * used[0]
    assert rows[1] < 0.5 * rows[0], "in EXPLAIN"
    assert spilled["q"]["bytes"] > 0.3 * used[0]


@contextmanager
def small(home: Path) -> Iterator[Hub]:
    with Hub(home, LocalExecutor(), tasks=2) as hub:
        yield hub


def test_killed_at_any_call_no_pair_is_lost_or_made_twice(tmp_path: Path) -> None:
    """In the epoch that merges six runs, moves rows to the spill, and joins others with rows there: a third of the calls at a time."""
    constraint = "CONSTRAINT UNIQUE (k) CONSTRAINT (k) REFERENCES passed (k) WITHIN 1 SECOND"
    with Hub(tmp_path / "home", LocalExecutor(), tasks=2) as hub:
        for name in LINKS[:2]:
            own = constraint if name == "entered" else ""
            hub.execute(
                f"CREATE STREAM {name} (k BIGINT, v INT, at TIMESTAMP) USING push TIMESTAMP BY at {own}"
            )
        hub.execute(f"CREATE QUERY spills OPTIONS (spill 'ALL') AS {PAIRS}")
        for number in range(11):
            put(hub, number)
            hub.run_once()
        put(hub, 11)

    def work(home: Path, disk: FaultyDisk) -> None:
        with suppress(SimulatedCrash), small(home) as hub, on(hub, disk):
            hub.run_once()

    traced = FaultyDisk()
    work(again(tmp_path / "home", "traced"), traced)
    points = list(kill_points(traced.trace))
    assert len(points) > 15
    for number, fault in enumerate(share_of(points, 3, digest() + "spill")):
        place = again(tmp_path / "home", f"home{number}")
        work(place, FaultyDisk(fault=fault))
        with small(place) as hub:
            put(hub, 12)
            hub.catch_up()
            late = {
                (10 * (number - 7) + key, key, key): 1 for number in range(7, 12) for key in range(0, 10, 2)
            }
            assert answer(hub, "spills") == late
            assert hub.status()["spilled"]["spills"]["read"] >= len(late)


def put(hub: Hub, number: int) -> None:
    """Ten seconds: ten new keys enter, and half of those of seventy seconds before pass, though one second was promised."""
    entered = [(10 * number + key, key) for key in range(10)]
    passed = [
        (key - 70, value) for key, value in entered[::2]
    ]  # of keys that never came, in the first minute
    for name, own in (("entered", entered), ("passed", passed)):
        at = pa.array([10 * number * SECOND] * len(own)).cast(pa.timestamp("us", tz="UTC"))
        values = pa.array([value for _, value in own], pa.int32())
        hub.push(name, pa.table({"k": pa.array([key for key, _ in own]), "v": values, "at": at}))


def test_the_option_is_shown_changed_and_refused_where_nothing_would_heed_it(tmp_path: Path) -> None:
    hub = opened(tmp_path, {"spills": f"OPTIONS (constraints 'find', spill '90 SECONDS') AS {PAIRS}"})
    (shown,) = hub.execute("SHOW CREATE QUERY spills")
    assert shown.table is not None
    assert "OPTIONS ('constraints' 'find', 'spill' '90 SECONDS')" in shown.table.to_pylist()[0]["statement"]
    assert "spilled up to 90 SECONDS" in hub.explain("spills")
    with pytest.raises(UserError, match=r"differs in spill \(90 SECONDS there, ALL here\)"):
        hub.execute(f"CREATE QUERY spills {SPILL} AS {PAIRS}")
    for text in (
        "SELECT COUNT(*) AS n FROM entered [RANGE 1 MINUTE]",
        "SELECT ISTREAM(e.k) FROM entered e [RANGE 1 MINUTE] LEFT JOIN passed p [RANGE 1 MINUTE] ON e.k = p.k",
    ):
        with pytest.raises(UserError, match="spill is for joins of windows of time by a common key"):
            hub.execute(f"CREATE QUERY other OPTIONS (spill '1 HOUR') AS {text}")
    (outcome,) = hub.execute("ALTER QUERY spills SET (spill 'OFF')")
    assert "drops rows that constraints finish" in outcome.message
    assert "spilled" not in hub.explain("spills")
    assert hub.status()["spilled"] == {}
    (outcome,) = hub.execute("ALTER QUERY spills SET (spill 'ALL')")
    assert "spills rows that constraints finish for whole windows" in outcome.message
    hub.close()
    with Hub(tmp_path / "home", LocalExecutor()) as hub:
        assert hub.catalog.require_query("spills").definition.spill is None
