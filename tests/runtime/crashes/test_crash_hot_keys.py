"""Killed at calls that change the disk while a hot key is divided between tasks, and put together again: every pair once."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

import pytest

from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan import plan_files
from headrace.store.files import filesystem
from headrace.store.files.disk import Disk
from tests.runtime.queries import test_hot_key_joins as of_two
from tests.runtime.queries import test_hot_key_joins_of_three as of_three
from tests.runtime.queries.test_hot_key_joins import keys, opened
from tests.store.faults import Fault, FaultyDisk, SimulatedCrash, kill_points, share_of

HOT = {of_two: [150, 150, 150, *[1] * 11], of_three: [15, 15, 15, *[1] * 6]}
"""Rows of the hot key: it is divided from the third epoch on, and in one task again before the last, while rows of before are in their windows."""
Join: TypeAlias = ModuleType


def take(hub: Hub, join: Join, epochs: range) -> None:
    for epoch in epochs:
        join.push(hub, epoch, HOT[join][epoch])
        hub.catch_up()


def lived(folder: Path, join: Join, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that takes the epochs after the first one, on a disk that fails."""
    hub = join.prepared(folder)
    hub.register(join.PAIRS if join is of_two else join.TRIPLES, "q")
    take(hub, join, range(1))
    hub.close()
    monkeypatch.setattr(filesystem, "Disk", lambda: disk)
    with suppress(SimulatedCrash), opened(folder) as dying:
        take(dying, join, range(1, len(HOT[join])))
    monkeypatch.setattr(filesystem, "Disk", Disk)
    plan_files.clear_caches()


@pytest.mark.parametrize("join", [of_two, of_three], ids=["two streams", "three"])
def test_killed_at_any_call_while_layouts_change_every_pair_is_there_once(
    join: Join, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = FaultyDisk()
    lived(tmp_path / "whole", join, recorded, monkeypatch)
    with opened(tmp_path / "whole") as hub:
        assert [[layout.parts for layout in key.layouts] for key in keys(hub)] == [[4, 1]]
    points: list[Fault] = list(kill_points(recorded.trace))
    for number, fault in enumerate(share_of(points, len(points) // 8, str(len(points)))):
        folder = tmp_path / f"killed{number}"
        lived(folder, join, FaultyDisk(fault=fault), monkeypatch)
        with opened(folder) as hub:
            take(hub, join, range(len(HOT[join])))  # what is there already counts once
            assert join.answer(hub) == join.expected(HOT[join])
