"""Killed at calls that change the disk while a hot key is divided between tasks, and put together again: every pair once."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan import plan_files
from headrace.store.files import filesystem
from headrace.store.files.disk import Disk
from tests.runtime.queries.test_hot_key_joins import PAIRS, answer, expected, keys, opened, prepared, push
from tests.store.faults import Fault, FaultyDisk, SimulatedCrash, kill_points, share_of

HOT = [150, 150, 150, *[1] * 11]
"""Rows of the hot key: it is divided from the third epoch on, and in one task again before the last, while rows of before are in their windows."""


def take(hub: Hub, epochs: range) -> None:
    for epoch in epochs:
        push(hub, epoch, HOT[epoch])
        hub.catch_up()


def lived(folder: Path, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that takes the epochs after the first one, on a disk that fails."""
    hub = prepared(folder)
    hub.register(PAIRS, "q")
    take(hub, range(1))
    hub.close()
    monkeypatch.setattr(filesystem, "Disk", lambda: disk)
    with suppress(SimulatedCrash), opened(folder) as dying:
        take(dying, range(1, len(HOT)))
    monkeypatch.setattr(filesystem, "Disk", Disk)
    plan_files.clear_caches()


def test_killed_at_any_call_while_layouts_change_every_pair_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = FaultyDisk()
    lived(tmp_path / "whole", recorded, monkeypatch)
    with opened(tmp_path / "whole") as hub:
        assert [[layout.parts for layout in key.layouts] for key in keys(hub)] == [[4, 1]]
    points: list[Fault] = list(kill_points(recorded.trace))
    for number, fault in enumerate(share_of(points, len(points) // 8, str(len(points)))):
        folder = tmp_path / f"killed{number}"
        lived(folder, FaultyDisk(fault=fault), monkeypatch)
        with opened(folder) as hub:
            take(hub, range(len(HOT)))  # what is there already counts once
            assert answer(hub) == expected(HOT)
