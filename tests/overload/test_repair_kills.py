"""Killed at any call that changes the disk while answers are repaired: the next run continues, and every answer is corrected once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan import plan_files
from headrace.store.files import filesystem
from headrace.store.files.disk import Disk
from tests.overload.floods import STREAM
from tests.overload.test_repair import (
    REPAIR,
    SLIDING,
    TUMBLING,
    exact_answers,
    in_parts,
    plain_answers,
    rows_between,
)
from tests.runtime.rig import faults_once_tidy
from tests.soak.ledger import digest
from tests.store.faults import Fault, FaultyDisk, SimulatedCrash, kill_points, share_of

Use = Callable[[FaultyDisk | None], None]
PART = 60
"""Rows of an epoch of repair."""


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Every store made from now on writes on this disk."""

    def use(faulty: FaultyDisk | None) -> None:
        monkeypatch.setattr(filesystem, "Disk", (lambda: faulty) if faulty is not None else Disk)

    in_parts(PART, monkeypatch)
    return use


@pytest.fixture(scope="module")
def flooded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home after a flood whose shares are back at one, nothing repaired yet."""
    path = tmp_path_factory.mktemp("flooded") / "home"
    with Hub(path, LocalExecutor()) as hub:
        hub.execute(STREAM)
        hub.execute(f"CREATE QUERY slide AS {SLIDING}{REPAIR}; CREATE QUERY tumble AS {TUMBLING}{REPAIR}")
        hub.execute(f"CREATE QUERY exact_slide AS {SLIDING}; CREATE QUERY exact_tumble AS {TUMBLING}")
        hub.execute("ALTER STREAM s SET (keep '0.25')")
        for second in range(0, 36, 12):
            hub.push("s", rows_between(second, second + 12))
            hub.catch_up()
        hub.execute("ALTER STREAM s SET (keep '1')")
    return path


def die(path: Path, faulty: FaultyDisk, use: Use) -> None:
    """Repair what waits, with live rows between, on a disk that fails."""
    use(None)
    with suppress(SimulatedCrash), Hub(path, LocalExecutor()) as hub:
        use(faulty)
        for store in (hub.home.store, hub.loop.engine.home.store):
            store._disk = faulty
        assert hub.loop.step() is not None
        hub.push("s", rows_between(36, 38), producer="p", sequence=1)
        while hub.loop.step() is not None:
            pass
    use(None)
    plan_files.clear_caches()


def test_killed_at_any_call_of_a_repair_every_answer_is_corrected_once(
    flooded: Path, tmp_path: Path, disk: Use
) -> None:
    shutil.copytree(flooded, tmp_path / "traced")
    traced = FaultyDisk()
    die(tmp_path / "traced", traced, disk)
    points: list[Fault] = list(kill_points(traced.trace))
    assert len(points) > 100
    points = share_of(points, 12, digest() + "repair")  # all of them in `make soak`
    for number, fault in enumerate(points):
        path = tmp_path / f"home{number}"
        shutil.copytree(flooded, path)
        die(path, FaultyDisk(fault=fault), disk)
        with Hub(path, LocalExecutor(), tasks=1 + number % 3) as hub:
            hub.push("s", rows_between(36, 38), producer="p", sequence=1)
            hub.push("s", rows_between(38, 50))
            hub.catch_up()
            for name in ("slide", "tumble"):
                assert exact_answers(hub, name) == plain_answers(hub, f"exact_{name}"), (fault, name)
                retracted = [row for row in hub.query(name).history().to_pylist() if row["__change"] < 0]
                assert len({(row["window_end"], row["k"]) for row in retracted}) == len(retracted) > 0
                assert hub.status()["repairs"][name]["waiting"] == 0
            assert faults_once_tidy(hub) == []
        shutil.rmtree(path)
