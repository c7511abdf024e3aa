"""Killed while a window that was changed is filled from panes: at any call, and when the epoch itself fails; nothing is half filled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.messages.task_messages import ScanMessage, StateMessage, StateReceipt
from headrace.runtime.plan import plan_files
from headrace.store.files import filesystem
from headrace.store.files.disk import Disk
from tests.runtime.rig import Rig, cut, expected, faults_once_tidy
from tests.runtime.statements.test_alter_window import (
    ONE_FILE,
    SLACK,
    TEXT,
    UNKEPT,
    WINDOWS,
    after,
    all_answers,
    comparable,
    disordered,
    kinds,
    place,
    punctuation,
)
from tests.store.faults import Fault, FaultyDisk, SimulatedCrash, kill_points

FILES = cut(disordered(9, 60), 20, 40, 50)
OLD, NEW = WINDOWS[0], WINDOWS[1]
QUERIES = {"q": TEXT.format(window=OLD, where=""), "other": TEXT.format(window=OLD, where="WHERE x > 0")}


class Life:
    """One process: reads, changes a window, hands it the panes, reads on; `done` is what it knows."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self.done: list[str] = []
        self.changed_at = 0

    def live(self, rig: Rig, from_here: Callable[[Hub], None]) -> None:
        with rig.hub(2, QUERIES) as hub:
            rig.drop(*FILES[:2])
            hub.catch_up()
            self.changed_at = punctuation(hub)
            seen = kinds(hub)
            from_here(hub)
            hub.execute(f"ALTER QUERY q SET WINDOW {NEW}")
            self.done.append("altered")
            assert hub.loop.step() is not None
            assert seen == ["fill"]
            self.done.append("filled")
            rig.drop(FILES[2])
            hub.catch_up()


def lived(
    folder: Path, disk: FaultyDisk, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> tuple[Rig, Life]:
    """A life on a disk that fails once the first files are read."""
    rig, life = Rig(folder, options, SLACK), Life(options)

    def use(hub: Hub) -> None:
        monkeypatch.setattr(filesystem, "Disk", lambda: disk)
        for store in (hub.home.store, hub.loop.engine.home.store):
            store._disk = disk

    with suppress(SimulatedCrash):
        life.live(rig, use)
    monkeypatch.setattr(filesystem, "Disk", Disk)
    plan_files.clear_caches()
    return rig, life


def assert_filled(rig: Rig, life: Life, tasks: int) -> None:
    """Finish; the changed window answers as if it had always been so, from its change on, and nothing else noticed."""
    with rig.hub(tasks) as hub:
        if NEW not in hub.catalog.require_query("q").definition.text:
            assert "altered" not in life.done
            hub.execute(f"ALTER QUERY q SET WINDOW {NEW}")
        hub.catch_up()
        assert place(hub, "q").backfilled_from == "the panes of q"
        rig.drop(*FILES[rig.written :])
        answered = all_answers(hub)
        whole = {name: expected(hub.operator_and_query(name)[1], FILES, SLACK) for name in answered}
        assert answered["q"] == after(whole["q"], life.changed_at)
        assert answered["other"] == comparable(whole["other"])
        assert faults_once_tidy(hub) == []


@pytest.mark.parametrize("options", [ONE_FILE, UNKEPT])
def test_killed_at_any_call_a_changed_window_is_filled_whole(
    options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = FaultyDisk()
    _, life = lived(tmp_path / "whole", recorded, options, monkeypatch)
    assert life.done == ["altered", "filled"]
    points = list(kill_points(recorded.trace))[:: 7 if options is ONE_FILE else 11]
    assert len(points) > 6
    progress = set()
    for number, fault in enumerate(points):
        rig, life = lived(tmp_path / f"killed{number}", FaultyDisk(fault=fault), options, monkeypatch)
        progress.add(len(life.done))
        assert_filled(rig, life, 1 + number % 3)
    assert progress == {0, 1, 2}


def test_when_power_fails_a_window_that_was_changed_stays_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = FaultyDisk()
    lived(tmp_path / "whole", recorded, ONE_FILE, monkeypatch)
    for number in range(0, len(recorded.trace), 14):
        (tmp_path / f"graves{number}").mkdir()
        faulty = FaultyDisk(fault=Fault(number, "after"), graves=str(tmp_path / f"graves{number}"))
        rig, life = lived(tmp_path / f"cut{number}", faulty, ONE_FILE, monkeypatch)
        faulty.lose_power(str(rig.home))
        plan_files.clear_caches()
        assert_filled(rig, life, 1 + number % 3)


class FailsOnce(LocalExecutor):
    """The first epoch that copies panes fails, after its tasks have run."""

    failed = 0

    def run(self, scans: Sequence[ScanMessage], states: Sequence[StateMessage]) -> list[StateReceipt]:
        receipts = super().run(scans, states)
        if not self.failed and any(
            piece.pane_backfill is not None for scan in scans for piece in scan.splits
        ):
            self.failed += 1
            raise OSError("a worker is gone")
        return receipts


def test_a_fill_that_failed_is_done_again_and_no_pane_counts_twice(tmp_path: Path) -> None:
    rig, executor = Rig(tmp_path, ONE_FILE, SLACK), FailsOnce()
    life: Any = Life(dict(ONE_FILE))
    with rig.hub(2, QUERIES, executor=executor, waits=(0.0,)) as hub:
        rig.drop(*FILES[:2])
        hub.catch_up()
        life.changed_at = punctuation(hub)
        hub.execute(f"ALTER QUERY q SET WINDOW {NEW}")
        hub.catch_up()
        assert executor.failed == 1
    assert_filled(rig, life, 3)
