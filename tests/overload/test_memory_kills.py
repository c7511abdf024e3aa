"""Killed at any call that changes the disk while a memory budget makes sketches coarser and suspends a query: the next run is within the budget after
every epoch too, each row counts once, and every answer is within the bound that it states.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.overload.memory import Limits
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.plan import plan_files
from headrace.store.files import filesystem
from headrace.store.files.disk import Disk
from tests.overload.test_coarser_synopses import (
    EXACT,
    STREAM,
    answers,
    assert_within_bounds,
    by_name,
    rows,
    text,
)
from tests.overload.test_memory_of_a_hub import suspended, used
from tests.runtime.rig import faults_once_tidy
from tests.soak.ledger import digest
from tests.store.faults import Fault, FaultyDisk, SimulatedCrash, kill_points, share_of

Use = Callable[[FaultyDisk | None], None]
QUERIES = {
    "mid": text("mid"),
    "exact": EXACT,
    "wide": "SELECT k, v, COUNT(*) AS n FROM s [RANGE 60 SECONDS SLIDE 2 SECONDS] GROUP BY k, v",
}
BEFORE, AFTER, COUNT = 5, 9, 500
"""Epochs before any kill, and with it, and the rows of each."""


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Every store made from now on writes on this disk."""

    def use(faulty: FaultyDisk | None) -> None:
        monkeypatch.setattr(filesystem, "Disk", (lambda: faulty) if faulty is not None else Disk)

    return use


def push(hub: Hub, number: int) -> None:
    hub.push("s", rows(number * COUNT, COUNT), producer="p", sequence=number)
    hub.catch_up()


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, list[object]]:
    """A home whose state is at the beginning of its budget, the budget, and the exact answers of all rows."""
    folder = tmp_path_factory.mktemp("limited")
    with open_hub(folder / "whole", local=True) as hub:
        hub.execute(STREAM)
        for name, query in QUERIES.items():
            hub.register(query, name)
        most = 0
        for number in range(AFTER + 1):
            push(hub, number)
            most = max(most, sum(used(hub).values()))
        exact = answers(hub, "exact")
    limit = int(0.75 * most)
    with open_hub(folder / "home", local=True, memory=limit) as hub:
        hub.execute(STREAM)
        for name, query in QUERIES.items():
            hub.register(query, name)
        for number in range(BEFORE):
            push(hub, number)
        assert not suspended(hub)
    return folder / "home", limit, exact


def die(path: Path, limit: int, faulty: FaultyDisk, use: Use) -> None:
    """The epochs in which the budget is short, on a disk that fails."""
    use(None)
    with suppress(SimulatedCrash), open_hub(path, local=True, memory=limit) as hub:
        use(faulty)
        for store in (hub.home.store, hub.loop.engine.home.store):
            store._disk = faulty
        for number in range(BEFORE, AFTER):
            push(hub, number)
    use(None)
    plan_files.clear_caches()


def test_killed_at_any_call_the_budget_holds_and_answers_are_within_their_bounds(
    limited: tuple[Path, int, list[object]], tmp_path: Path, disk: Use
) -> None:
    home, limit, exact = limited
    shutil.copytree(home, tmp_path / "traced")
    traced = FaultyDisk()
    die(tmp_path / "traced", limit, traced, disk)
    with open_hub(tmp_path / "traced", local=True, memory=limit) as hub:
        assert by_name(hub).keys() == {"mid"}
        assert suspended(hub).keys() == {"wide"}
    points: list[Fault] = list(kill_points(traced.trace))
    assert len(points) > 50
    points = share_of(points, 12, digest() + "memory")  # all of them in `make soak`
    for number, fault in enumerate(points):
        path = tmp_path / f"home{number}"
        shutil.copytree(home, path)
        die(path, limit, FaultyDisk(fault=fault), disk)
        with Hub(path, LocalExecutor(), tasks=1 + number % 3) as hub:
            hub.loop.engine.rounds.memory.limits = Limits(limit)
            for later in range(BEFORE, AFTER + 1):
                before = hub.home.latest().epoch
                push(hub, later)
                if hub.home.latest().epoch > before:  # rows that were pushed before the kill make none
                    assert sum(used(hub).values()) <= limit, (fault, later)
            assert suspended(hub).keys() <= {"wide"}, fault
            assert answers(hub, "exact") == exact, fault
            assert_within_bounds("mid", answers(hub, "mid"))
            assert faults_once_tidy(hub) == []
        shutil.rmtree(path)
