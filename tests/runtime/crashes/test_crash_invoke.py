"""Killed while selections are kept, while INVOKE reads them, and while a client acknowledges: nothing acknowledged is lost."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.runtime.delivery.client import connect
from headrace.runtime.hub.hub import Hub
from headrace.runtime.invoke.home_reader import Reader
from headrace.runtime.plan import plan_files
from headrace.store.files import filesystem
from headrace.store.files.disk import Disk
from tests.laws.test_materialize import MODES, invoked, meant
from tests.runtime.rig import Rig, cut, faults_once_tidy, made_rows
from tests.soak.ledger import digest
from tests.store.faults import FaultyDisk, SimulatedCrash, kill_points, share_of

FILES = cut(made_rows(5, 40), *range(10, 40, 10))
TEXT = "SELECT k, x FROM s WHERE x > 1 BEGIN NOW - INTERVAL 15 SECONDS END NOW"
EVER = "SELECT COUNT(*) AS n, SUM(x) AS total FROM s WHERE x > 1 BEGIN TIMESTAMP '1970-01-01' END NOW"


class Life:
    """One process: keeps selections, answers, acknowledges, registers one more that reads the archive, reads further."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.done: list[str] = []

    def live(self, rig: Rig, from_here: Callable[[Hub], None]) -> None:
        with rig.hub(2, {}) as hub:
            for mode in MODES:
                hub.execute(f"CREATE QUERY {mode} OPTIONS (materialize '{mode}') AS {TEXT}")
            rig.drop(FILES[0])
            hub.catch_up()
            from_here(hub)
            rig.drop(FILES[1])
            hub.catch_up()
            for mode in MODES:
                assert invoked(hub, mode) == meant(hub, mode, FILES[:2], 0)
            hub.register(EVER, "late")
            self.done.append("late")
            hub.catch_up()
            hub.query("late").invoke()
            client = hub.query("complete").client("me")
            delivery = client.fetch()
            assert delivery is not None
            client.acknowledge(delivery)
            self.acknowledged = delivery.position
            hub.drop_query("none")
            rig.drop(FILES[2])
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


def test_killed_at_any_call_every_selection_answers_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = FaultyDisk()
    _, life = lived(tmp_path / "whole", recorded, monkeypatch)
    assert life.acknowledged
    points = share_of(list(kill_points(recorded.trace)), 9, digest())
    assert len(points) > 10
    for number, fault in enumerate(points):
        rig, life = lived(tmp_path / f"killed{number}", FaultyDisk(fault=fault), monkeypatch)
        with rig.hub(1 + number % 3) as hub:
            assert hub.catalog.query("late") is not None or "late" not in life.done
            client = hub.query("complete").client("me")
            delivery = client.fetch()
            assert delivery is None or delivery.position > life.acknowledged
            rig.drop(*FILES[rig.written :])
            hub.catch_up()
            for query in hub.catalog.queries.values():
                name = query.definition.name
                assert invoked(hub, name) == meant(hub, name, FILES, 0), (name, fault)
            assert faults_once_tidy(hub) == []


def test_an_invocation_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"})
    rig.drop(*FILES)
    with rig.hub(2, {}) as hub:
        for mode in MODES:
            hub.execute(f"CREATE QUERY {mode} OPTIONS (materialize '{mode}') AS {TEXT}")
        hub.catch_up()
    disk = FaultyDisk()
    monkeypatch.setattr(filesystem, "Disk", lambda: disk)
    reader = Reader.at(rig.home)
    assert all(reader.invoke(mode).num_rows for mode in MODES)
    assert disk.trace == []


def _invoke_for_ever(home: Path, ready) -> None:
    reader, client = Reader.at(home), connect(home, "complete", "victim")
    while True:
        for mode in MODES:
            reader.invoke(mode)
        delivery = client.fetch()
        if delivery is not None:
            with (home.parent / "taken").open(
                "a"
            ) as file:  # what it did with the rows, before it acknowledges
                file.write(f"{delivery.position}\n")
            client.acknowledge(delivery)
        ready.set()


def test_whoever_invokes_is_killed_by_the_system_and_nobody_else_notices(tmp_path: Path) -> None:
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"})
    context = multiprocessing.get_context("spawn")
    with rig.hub(2, {}) as hub:
        for mode in MODES:
            hub.execute(f"CREATE QUERY {mode} OPTIONS (materialize '{mode}') AS {TEXT}")
        for number, file in enumerate(FILES):
            rig.drop(file)
            ready = context.Event()
            victim = context.Process(target=_invoke_for_ever, args=(rig.home, ready))
            if number % 2:
                victim.start()
                assert ready.wait(60)
            hub.catch_up()
            if number % 2:
                victim.kill()
                victim.join()
            for mode in MODES:
                assert invoked(hub, mode) == meant(hub, mode, FILES[: number + 1], 0)
        taken = [int(line) for line in (tmp_path / "taken").read_text().split()]
        rest = [delivery.position for delivery in hub.query("complete").client("victim").pending()]
        whole = [delivery.position for delivery in hub.query("complete").client("whole").pending()]
        assert sorted({*taken, *rest}) == whole
        assert len(set(taken) & set(rest)) <= 1  # taken, and killed before it could acknowledge
        assert faults_once_tidy(hub) == []
