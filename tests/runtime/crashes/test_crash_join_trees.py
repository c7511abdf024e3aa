"""Killed at calls that change the disk while a tree of joins grows, comes into force and replaces another: every combination once."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan import plan_files
from headrace.store.files import filesystem
from headrace.store.files.disk import Disk
from tests.runtime.queries.test_trees_that_adapt import STAR, answer, expected, opened, prepared, push
from tests.store.faults import Fault, FaultyDisk, SimulatedCrash, kill_points, share_of

BEFORE, EPOCHS = 2, 10
"""A tree begins to grow after the second epoch, and is in force before the last ones."""


def lived(folder: Path, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that takes the epochs after the first ones, on a disk that fails."""
    hub = prepared(folder)
    hub.register(STAR, "q")
    take(hub, range(BEFORE))
    hub.close()
    monkeypatch.setattr(filesystem, "Disk", lambda: disk)
    with suppress(SimulatedCrash), opened(folder) as dying:
        take(dying, range(BEFORE, EPOCHS))
    monkeypatch.setattr(filesystem, "Disk", Disk)
    plan_files.clear_caches()


def take(hub: Hub, epochs: range) -> None:
    for epoch in epochs:
        push(hub, epoch)
        hub.catch_up()


def numbers(hub: Hub) -> list[int]:
    """The trees that were in force, or grow."""
    return [tree.number for tree in hub.catalog.require_query("q").definition.join_trees]


def test_killed_at_any_call_while_trees_change_every_combination_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = FaultyDisk()
    lived(tmp_path / "whole", recorded, monkeypatch)
    points: list[Fault] = list(kill_points(recorded.trace))
    seed = str(len(points))
    for number, fault in enumerate(share_of(points, len(points) // 6, seed)):
        folder = tmp_path / f"killed{number}"
        lived(folder, FaultyDisk(fault=fault), monkeypatch)
        with opened(folder) as hub:
            take(hub, range(EPOCHS))  # what is there already counts once
            assert answer(hub) == expected(range(EPOCHS - 1))
            assert len(numbers(hub)) == 2
