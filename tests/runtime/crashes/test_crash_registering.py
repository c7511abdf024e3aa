"""Killed while many queries are registered, at any call that changes the disk: all of them are there, or none.

What was acknowledged stays, and whatever is there answers as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan import plan_files
from headrace.store.files import filesystem
from headrace.store.files.disk import Disk
from tests.runtime.rig import QUERIES, Rig, answers, cut, expected, faults_once_tidy, made_rows
from tests.soak.ledger import digest
from tests.store.faults import FaultyDisk, SimulatedCrash, kill_points, share_of

FILES = cut(made_rows(5, 24), 8, 16)
MANY = [f"many{n}" for n in range(5)]
TEXT = QUERIES["tumble"]


class Life:
    """One process: opens the home, reads, registers five queries at once, drops one, reads on; `done` is what it knows."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def live(self, rig: Rig, from_here: Callable[[Hub], None]) -> None:
        with rig.hub(2, {"first": TEXT}) as hub:
            rig.drop(FILES[0])
            hub.catch_up()
            from_here(hub)
            hub.execute("".join(f"CREATE QUERY {name} AS {TEXT};" for name in MANY))
            self.done.append("registered")
            rig.drop(FILES[1])
            hub.catch_up()
            hub.execute("DROP QUERY many3")
            self.done.append("dropped")
            hub.catch_up()


def lived(folder: Path, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> tuple[Rig, Life]:
    """A life on a disk that fails once the home is there."""
    rig, life = Rig(folder, {"maxFilesPerTrigger": "1"}), Life()

    def use(hub: Hub) -> None:
        monkeypatch.setattr(filesystem, "Disk", lambda: disk)
        for store in (hub.home.store, hub.loop.engine.home.store):
            store._disk = disk

    with suppress(SimulatedCrash):
        life.live(rig, use)
    monkeypatch.setattr(filesystem, "Disk", Disk)
    plan_files.clear_caches()
    return rig, life


def test_killed_at_any_call_queries_are_all_registered_or_none_and_acknowledged_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = FaultyDisk()
    _, life = lived(tmp_path / "whole", recorded, monkeypatch)
    assert life.done == ["registered", "dropped"]
    with Rig(tmp_path / "meant").hub(1, {"q": TEXT}) as hub:
        meant = expected(hub.operator_and_query("q")[1], FILES)
    seen = set()
    points = share_of(list(kill_points(recorded.trace)), 4, digest())
    assert len(points) > 6
    for number, fault in enumerate(points):
        rig, life = lived(tmp_path / f"killed{number}", FaultyDisk(fault=fault), monkeypatch)
        with rig.hub(1 + number % 3) as hub:
            there = frozenset(name for name in MANY if hub.catalog.query(name) is not None)
            assert there in (frozenset(), frozenset(MANY), frozenset(MANY) - {"many3"})
            assert there or "registered" not in life.done
            assert "many3" not in there or "dropped" not in life.done
            seen.add(len(there))
            rig.drop(*FILES[rig.written :])
            answered = answers(hub, hub.run_once())
            assert set(answered) == {"first", *there}
            assert all(rows == meant for rows in answered.values())
            assert faults_once_tidy(hub) == []
    assert {0, 4, 5} >= seen >= {0, 5}
