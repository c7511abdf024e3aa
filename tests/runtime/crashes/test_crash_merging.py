"""A driver that dies at any call to the disk while runs of results are merged: nothing is lost and nothing there twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headrace.runtime.home.home import Home
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.results import merging
from headrace.store.files import filesystem
from headrace.store.files.disk import Disk
from headrace.store.logs import radix_list
from tests.runtime.results.test_merging import KINDS, STREAM, forget, push, script, seen_of
from tests.runtime.rig import faults_once_tidy
from tests.store.faults import FaultyDisk, SimulatedCrash, kill_points

FEW = {name: KINDS[name] for name in ("windows", "rows", "above", "brief")}


def an_epoch_and_merges(hub: Hub) -> None:
    """The epochs of two pushes: the first merges by four and then by sixteen, the second names what was merged."""
    hub.loop.engine.housekeeping.every = 2
    hub.loop.engine.housekeeping.readers = -1
    for minute in (70, 71):
        push(hub, [(minute, 1)])


@pytest.mark.parametrize("by", [4, 16])
def test_a_kill_at_any_call_leaves_all_results_at_their_positions(
    by: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(radix_list, "FANOUT", 4)
    saved, path = tmp_path / "saved", tmp_path / "home"
    with open_hub(saved, local=True) as hub:
        hub.execute(STREAM + script(FEW))
        with monkeypatch.context() as patched:
            if by == 4:
                patched.setattr(merging.Merging, "look", lambda *_, **__: None)
            minute = 0
            while not is_due(hub, by) or minute < 25:
                push(hub, [(minute, minute)])
                minute += 1
            patched.setattr(merging.Merging, "look", lambda *_, **__: None)

    def results(hub: Hub) -> dict[str, dict[str, object]]:
        forget()
        return {name: seen_of(hub, name, [7]) for name in FEW}

    disk = FaultyDisk()
    run(path, saved, disk, monkeypatch)
    with open_hub(path, local=True) as hub:
        meant, marks = results(hub), merging.merged_to(hub.home.latest())
        assert marks[by > 4] > 0
    points = list(kill_points(disk.trace))
    assert len(points) > 60
    deaths = 0
    for point in points[:: max(1, len(points) // 16)]:
        disk = FaultyDisk(fault=point, graves=str(tmp_path))
        deaths += run(path, saved, disk, monkeypatch)
        disk.lose_power(str(path), lambda number: number % 2 == 0)
        with open_hub(path, local=True) as hub:
            pushed = hub.home.ingest_log.length - Home.at(saved).ingest_log.length
            hub.loop.drain()
            for minute in (70, 71)[pushed:]:
                push(hub, [(minute, 1)])
            after = results(hub)
            for name in ("windows", "rows", "above"):
                assert rows_of(after[name]) == rows_of(meant[name]), (point, name)
            assert faults_once_tidy(hub) == [], point
    assert deaths > 10


def rows_of(seen: dict[str, object]) -> dict[str, object]:
    """What does not depend on how many epochs there were: a restart adds some."""
    return {what: seen[what] for what in ("history", "since", "answer", "counts", "as of")}


def is_due(hub: Hub, by: int) -> bool:
    manifest = hub.home.latest()
    due = merging.next_range(hub.home.list_of(manifest, "results"), merging.merged_to(manifest))
    return due is not None and due[0] == (by > 4)


def run(path: Path, saved: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run on a copy of a home, on this disk; whether it died."""
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(saved, path)
    forget()
    with monkeypatch.context() as patched:
        try:
            with open_hub(path, local=True) as hub:
                patched.setattr(filesystem, "Disk", lambda: disk)
                hub.home.store._disk = disk
                an_epoch_and_merges(hub)
                hub.home.store._disk = Disk()
        except SimulatedCrash:
            return True
    return False
