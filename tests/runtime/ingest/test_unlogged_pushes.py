"""Pushes to a stream with the option durability: they wait for no sync, are durable soon all the same, and after a power cut at any call
at most the last ones are missing, which is reported, and which their producer can repeat.
"""

from __future__ import annotations

import errno
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest

from headrace.errors import StoreError
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan import plan_files
from headrace.store.files import filesystem
from headrace.store.files.disk import Disk
from headrace.store.logs.record_log import RecordLog
from headrace.time import HOUR, SECOND
from tests.overload.slow_machine import START
from tests.soak.ledger import digest
from tests.store.faults import FaultyDisk, SimulatedCrash, Trouble, kill_points, share_of

LATE = "CREATE STREAM s (at TIMESTAMP, v INT) USING push OPTIONS (durability '{}') TIMESTAMP BY at"
PLAIN = "CREATE STREAM s (at TIMESTAMP, v INT) USING push TIMESTAMP BY at"
COUNTED = "CREATE QUERY q AS SELECT v FROM s"
BATCHES = 12


def rows(number: int) -> list[dict[str, int]]:
    return [{"at": START + number * SECOND, "v": number}]


def made(path: Path, statement: str = LATE.format("1 HOUR")) -> Hub:
    """A hub whose rows no timer logs during a test, unless the statement has a short durability."""
    hub = Hub(path, LocalExecutor())
    hub.execute(f"{statement}; {COUNTED}")
    hub.catch_up()
    return hub


def on(hub: Hub, disk: Disk) -> None:
    for store in (hub.home.store, hub.loop.engine.home.store):
        store._disk = disk  # type: ignore[attr-defined]


def abandon(hub: Hub) -> None:
    """What is left of a process that has died."""
    timer = hub._pushing.unlogged._timer
    if timer is not None:
        timer.cancel()
    hub._pushing.unlogged._due = 0.0
    hub.loop.engine.intake._arrivals.clear()
    hub._pushing.unlogged._marked.clear()
    with suppress(SimulatedCrash):
        hub.close()
    plan_files.clear_caches()


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> FaultyDisk:
    """The disk of segments that are pushed from now on, and of all else."""
    disk = FaultyDisk()
    monkeypatch.setattr(filesystem, "Disk", lambda: disk)
    return disk


def syncs(disk: FaultyDisk) -> int:
    return sum(call.startswith("fsync") for call in disk.trace)


def test_a_push_waits_for_no_sync_and_the_next_epoch_makes_it_durable(
    tmp_path: Path, files: FaultyDisk
) -> None:
    with made(tmp_path / "home") as hub:
        hub.push("s", rows(0))  # makes the mark
        before = syncs(files)
        for number in range(1, 5):
            hub.push("s", rows(number), producer="p", sequence=number)
        assert syncs(files) == before
        assert hub.pushed("s", "p") is None
        hub.catch_up()
        assert syncs(files) > before
        assert hub.pushed("s", "p") == 4
        assert sorted(hub.query("q").history()["v"].to_pylist()) == [0, 1, 2, 3, 4]


def test_without_epochs_a_thread_logs_them_and_a_close_leaves_no_mark(tmp_path: Path) -> None:
    with made(tmp_path / "home", LATE.format("5 MILLISECONDS")) as hub:
        hub.push("s", rows(0), producer="p", sequence=0)
        hub.push("s", rows(1), producer="p", sequence=1)
        until = time.monotonic() + 60
        while hub.pushed("s", "p") != 1:
            assert time.monotonic() < until
            time.sleep(0.001)
        assert hub.home.store.list("unlogged/")
        hub.push("s", rows(2), producer="p", sequence=2)
    with Hub(tmp_path / "home", LocalExecutor()) as hub:
        assert hub.home.store.list("unlogged/") == []
        assert hub.status()["amnesia"] == []
        assert hub.pushed("s", "p") == 2


def test_a_close_waits_for_an_append_that_the_thread_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, began, proceed = RecordLog.append, threading.Event(), threading.Event()

    def held(log: RecordLog, *arguments: Any, **named: Any) -> int:
        if isinstance(threading.current_thread(), threading.Timer):
            began.set()
            assert proceed.wait(60)
        return append(log, *arguments, **named)

    with made(tmp_path / "home", LATE.format("5 MILLISECONDS")) as hub, ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(RecordLog, "append", held)
        hub.push("s", rows(0), producer="p", sequence=0)
        assert began.wait(60)
        closing = pool.submit(hub._pushing.unlogged.close)
        with pytest.raises(TimeoutError):
            closing.result(0.2)
        assert hub.home.store.list("unlogged/")
        proceed.set()
        closing.result(60)
        assert hub.home.store.list("unlogged/") == []
        assert hub.pushed("s", "p") == 0


def test_after_a_close_that_fails_no_timer_goes_on_and_the_loss_is_reported(tmp_path: Path) -> None:
    hub = made(tmp_path / "home", LATE.format("1 SECOND"))
    hub.push("s", rows(0), producer="p", sequence=0)
    timer = hub._pushing.unlogged._timer
    disk = FaultyDisk()
    on(hub, disk)
    disk.trouble = Trouble(0, errno.ENOSPC, lasting=True)
    with pytest.raises(StoreError):
        hub.close()
    assert timer is not None
    assert not timer.is_alive()
    hub._pushing.unlogged._log(0.001)  # of a thread that had begun before the close
    assert hub._pushing.unlogged._timer is timer
    disk.trouble = None
    with Hub(tmp_path / "home", LocalExecutor()) as again:
        assert [report["stream"] for report in again.status()["amnesia"]] == ["s"]


def test_a_push_that_overtakes_a_close_is_durable_on_return(tmp_path: Path) -> None:
    with made(tmp_path / "home") as hub:
        hub._pushing.unlogged.close()
        hub.push("s", rows(0), producer="p", sequence=0)
        assert hub.pushed("s", "p") == 0
        assert hub.home.store.list("unlogged/") == []


def test_a_push_after_them_logs_them_too_in_their_order(tmp_path: Path) -> None:
    with made(tmp_path / "home") as hub:
        hub.execute(PLAIN.replace("STREAM s", "STREAM t"))
        for number in range(3):
            hub.push("s", rows(number), producer="p", sequence=number)
        hub.push("t", rows(9))
        while hub.pushed("s", "p") != 2:
            hub.push("t", rows(9))
        abandon(hub)
    with Hub(tmp_path / "home", LocalExecutor()) as hub:
        hub.catch_up()
        assert hub.query("q").history()["v"].to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_append_that_fails_at_any_call_loses_none_of_them_and_repeats_none(
    tmp_path: Path, when: Literal["before", "after"]
) -> None:
    with made(tmp_path / "home") as hub:
        expected: list[int] = []
        failures, is_done = 0, False
        while not is_done:
            disk = FaultyDisk()
            for number in (len(expected), len(expected) + 1):
                hub.push("s", rows(number), producer="p", sequence=number)
                expected.append(number)
            on(hub, disk)
            disk.trouble = Trouble(failures, errno.ENOSPC, lasting=True, when=when)
            try:
                hub.loop.engine.intake.log_queued()
                is_done = True
            except StoreError:
                failures += 1
            disk.trouble = None
            hub.catch_up()
            assert hub.query("q").history()["v"].to_pylist() == expected, failures
        assert failures > 4


def test_after_a_power_cut_at_any_call_the_last_ones_are_missing_at_most_and_that_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "made").close()
    traced = FaultyDisk()
    lived(tmp_path, "traced", traced, monkeypatch)
    points = share_of(
        list(kill_points(traced.trace)), 12, digest() + "unlogged"
    )  # all of them in `make soak`
    lost = 0
    for number, fault in enumerate(points):
        disk = FaultyDisk(fault=fault)
        returned, durable = lived(tmp_path, f"home{number}", disk, monkeypatch)
        path = tmp_path / f"home{number}"
        disk.lose_power(str(path))
        with Hub(path, LocalExecutor()) as hub:
            last = hub.pushed("s", "p")
            there = -1 if last is None else last
            assert there >= durable, fault
            assert there <= returned + 1
            reports = hub.status()["amnesia"]
            if there < returned:
                lost += 1
                (report,) = reports
                assert report["stream"] == "s"
                assert report["within"] == HOUR
            for repeated in range(there + 1, BATCHES):
                hub.push("s", rows(repeated), producer="p", sequence=repeated)
            hub.catch_up()
            assert sorted(hub.query("q").history()["v"].to_pylist()) == list(range(BATCHES))
            assert hub.status()["amnesia"] == reports
        with Hub(path, LocalExecutor()) as hub:
            assert hub.status()["amnesia"] == reports
        shutil.rmtree(path)
    assert lost > 0


def test_a_loss_is_reported_until_it_is_acknowledged_and_then_never_again(tmp_path: Path) -> None:
    hub = made(tmp_path / "home")
    hub.execute(LATE.format("1 HOUR").replace("STREAM s", "STREAM t"))
    for stream in ("s", "t"):
        hub.push(stream, rows(0))
    abandon(hub)
    with Hub(tmp_path / "home", LocalExecutor()) as hub:
        assert sorted(report["stream"] for report in hub.status()["amnesia"]) == ["s", "t"]
    with Hub(tmp_path / "home", LocalExecutor()) as hub:
        assert hub.acknowledge_amnesia("s") == 1
        assert [report["stream"] for report in hub.status()["amnesia"]] == ["t"]
    with Hub(tmp_path / "home", LocalExecutor()) as hub:
        assert [report["stream"] for report in hub.status()["amnesia"]] == ["t"]
        assert hub.acknowledge_amnesia() == 1
        assert hub.acknowledge_amnesia() == 0
    with Hub(tmp_path / "home", LocalExecutor()) as hub:
        assert hub.status()["amnesia"] == []
        assert hub.home.store.list("unlogged/") == []


def lived(folder: Path, name: str, disk: FaultyDisk, patch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Batches pushed on a disk that may fail, with an epoch after every fourth; the last that returned, and the last durable one."""
    shutil.copytree(folder / "made", folder / name)
    hub, returned, durable = Hub(folder / name, LocalExecutor()), -1, -1
    with patch.context() as patched, suppress(SimulatedCrash):
        patched.setattr(filesystem, "Disk", lambda: disk)
        on(hub, disk)
        for number in range(BATCHES):
            hub.push("s", rows(number), producer="p", sequence=number)
            returned = number
            if number % 4 == 3:
                hub.catch_up()
                durable = number
    abandon(hub)
    return returned, durable
