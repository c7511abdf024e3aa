"""Stop every operation of the store at every call it makes, with and without a power cut, and start again."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import AlreadyPublished, StoreError
from headrace.store.files.container import parts
from headrace.store.files.filesystem import LocalStore
from headrace.store.logs.manifest import SUMMARISED, Manifest, ManifestLog, StateRun
from headrace.store.logs.radix_list import ListFiles, RadixList
from headrace.store.logs.record_log import INGEST_LOG, RecordLog
from headrace.store.maintenance.garbage_collection import collect
from headrace.store.maintenance.integrity_check import check_home
from headrace.time import FOREVER, HOUR
from tests.store.faults import Fault, FaultyDisk, SimulatedCrash, kill_points

ENTRIES_AN_EPOCH = 40


class UnsyncedStore(LocalStore):
    """Wrong on purpose: believes that what was written is durable."""

    def _write_unfinished(self, path, parts, syncs):
        return super()._write_unfinished(path, parts, None)


class HastyStore(LocalStore):
    """Wrong on purpose: publishes a file without those that have to be durable before it."""

    def put_if_absent(self, name, data, *, after=()):
        return super().put_if_absent(name, data)


class ReplacingStore(LocalStore):
    """Wrong on purpose: looks whether the name is free, then renames over it."""

    def put_if_absent(self, name, data, *, after=()):
        path = self.path(name)
        if self.exists(name):
            return False
        unfinished, _ = self._write_unfinished(path, [data], self._syncs(after))
        self._disk.rename(unfinished, path)
        return True


@dataclass
class Home:
    """A folder with a store on it, and what a driver would do with it."""

    folder: Path
    kind: type[LocalStore] = LocalStore
    names = itertools.count()

    def __post_init__(self) -> None:
        (self.folder / "graves").mkdir(parents=True, exist_ok=True)
        self.disk = FaultyDisk(graves=str(self.folder / "graves"))
        self.store = self.kind(self.folder / "home", self.disk)

    def commit(self) -> Manifest:
        """An epoch: ingest records, state run and list entries, then the manifest."""
        log = ManifestLog(self.store)
        before = log.latest()
        assert before is not None
        ingest = RecordLog(self.store, INGEST_LOG)
        ingest.append([{"uri": f"file-{before.epoch}"}, {"uri": "another"}])
        name = f"state/{before.epoch + 1:012d}-{next(self.names)}.run"
        table = pa.table({"slot": np.arange(5), "at": np.arange(5) + before.epoch})
        size = self.store.write_once(name, parts({"op/rows": table}), durable=False)
        files = ListFiles(self.store)
        count = len(before.lists.get("results", RadixList()))
        entries = [{"n": n} for n in range(count, count + ENTRIES_AN_EPOCH)]
        grown = before.lists.get("results", RadixList()).append(entries, files.write)
        last_runs = before.state[-2:]
        after = replace(
            before,
            epoch=before.epoch + 1,
            kind="epoch",
            ingest=ingest.length,
            facts={SUMMARISED: {"upto": ingest.length}},
            lists=before.lists.changed({"results": grown.drop_before(ENTRIES_AN_EPOCH * (before.epoch - 2))}),
            state=(*last_runs, StateRun(name, 0, 256, size)),
        )
        log.publish(after, [name, *files.unsynced])
        return after

    def commit_named(self) -> Manifest:
        self.disk.has_nameless = False
        return self.commit()

    def collect(self) -> object:
        RecordLog(self.store, INGEST_LOG).drop_before(5)
        return collect(self.store, ManifestLog(self.store), now=FOREVER, grace=HOUR, keep=2)


def prepared(folder: Path, kind: type[LocalStore] = LocalStore, epochs: int = 5) -> Home:
    home = Home(folder, kind)
    ManifestLog(home.store).takeover()
    for _ in range(epochs):
        home.commit()
    # What a crashed attempt leaves behind, to be collected.
    home.store.write_once("state/of-an-attempt-that-failed.run", parts({"x": pa.table({"a": [1]})}))
    return home


OPERATIONS: dict[str, Callable[[Home], object]] = {
    "commit": Home.commit,
    "commit where no file is without a name": lambda home: home.commit_named(),
    "takeover": lambda home: ManifestLog(home.store).takeover(),
    "append to a log": lambda home: RecordLog(home.store, INGEST_LOG).append([{"uri": "new"}]),
    "collect": Home.collect,
    "drop from a log": lambda home: RecordLog(home.store, INGEST_LOG).drop_before(5),
}
PUBLISHING = {"commit", "commit where no file is without a name", "takeover"}


def problems_after_restart(home: Home, epoch_before: int, published: bool, operation: str) -> list[str]:
    """What a new process finds wrong; it also works further, to see that it can."""
    fresh = Home(home.folder)
    try:
        problems = [
            str(finding)
            for finding in check_home(fresh.store, now=0, grace=FOREVER)
            if finding.severity == "fault"
        ]
        latest = ManifestLog(fresh.store).latest()
        assert latest is not None
        expected = {epoch_before, epoch_before + 1} if operation in PUBLISHING else {epoch_before}
        if published and operation in PUBLISHING:
            expected = {epoch_before + 1}
        if latest.epoch not in expected:
            problems.append(f"epoch {latest.epoch} after the restart, expected one of {expected}")
        ManifestLog(fresh.store).takeover()
        again = fresh.commit()
        if again.epoch != latest.epoch + 2:
            problems.append(f"went on with epoch {again.epoch}")
        rows = [index for index, _ in again.lists["results"].iterate(fresh.store.read)]
        if rows != list(range(again.lists["results"].start, again.lists["results"].length)):
            problems.append("the list has gaps")
        fresh.collect()
        if fresh.store.list(unfinished=True):
            problems.append("unfinished files are left")
        problems += [str(finding) for finding in check_home(fresh.store, now=FOREVER, grace=HOUR)]
    except StoreError as error:
        problems = [str(error)]
    return problems


def trace_of(operation: str, folder: Path, kind: type[LocalStore] = LocalStore) -> list[str]:
    home = prepared(folder, kind)
    before = len(home.disk.trace)
    OPERATIONS[operation](home)
    return home.disk.trace[before:]


def run_stopped(
    home: Home, operation: str, fault: Fault | None, undone: Callable[[int], bool] | None
) -> list[str]:
    home.disk.trace.clear()
    home.disk.fault = fault
    epoch = ManifestLog(LocalStore(home.store.root)).latest().epoch
    finished = False
    try:
        OPERATIONS[operation](home)
        finished = True
    except SimulatedCrash:
        pass
    assert finished == (fault is None)
    if undone is not None:
        home.disk.lose_power(home.store.root, undone)
    return problems_after_restart(home, epoch, finished, operation)


@pytest.mark.parametrize("power", ["kept", "lost"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_stopped_at_any_call_the_home_is_whole_and_work_goes_on(
    operation: str, power: str, tmp_path: Path
) -> None:
    undone = (lambda _: True) if power == "lost" else None
    faults = [*kill_points(trace_of(operation, tmp_path / "trace")), None]
    assert len(faults) > 2
    for number, fault in enumerate(faults):
        home = prepared(tmp_path / str(number))
        assert run_stopped(home, operation, fault, undone) == [], f"{operation} stopped {fault}"


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_part_of_what_was_not_synced_may_be_lost(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        operation = data.draw(st.sampled_from(sorted(OPERATIONS)))
        points = [*kill_points(trace_of(operation, Path(folder) / "trace")), None]
        fault = data.draw(st.sampled_from(points))
        lost = data.draw(st.sets(st.integers(0, 60)))
        home = prepared(Path(folder) / "run")
        assert run_stopped(home, operation, fault, lambda number: number in lost) == []


@pytest.mark.parametrize("kind", [UnsyncedStore, HastyStore])
def test_a_store_that_does_not_sync_is_caught_when_power_is_lost(
    kind: type[LocalStore], tmp_path: Path
) -> None:
    home = prepared(tmp_path, kind)
    assert run_stopped(home, "commit", None, lambda _: True) != []


@pytest.mark.parametrize(("kind", "winners"), [(LocalStore, 1), (ReplacingStore, 2)])
def test_a_publisher_overtaken_just_before_it_publishes_loses_and_one_that_replaces_does_not_notice(
    kind: type[LocalStore], winners: int, tmp_path: Path
) -> None:
    home = prepared(tmp_path, kind)
    latest = ManifestLog(home.store).latest()
    assert latest is not None
    won = []

    def publish(store: LocalStore, incarnation: int) -> None:
        try:
            ManifestLog(store).publish(replace(latest, epoch=latest.epoch + 1, incarnation=incarnation))
        except AlreadyPublished:
            return
        won.append(incarnation)

    def overtake(call: str) -> None:
        if call in {"link", "rename"}:
            home.disk.before_call = None
            publish(kind(home.store.root, FaultyDisk()), 2)

    home.disk.before_call = overtake
    publish(home.store, 1)
    assert len(won) == winners
    if kind is LocalStore:
        assert ManifestLog(home.store).latest().incarnation == won[0]


def test_a_full_disk_is_reported_and_leaves_nothing_that_counts(tmp_path: Path) -> None:
    trace = trace_of("commit", tmp_path / "trace")
    refused = 0
    for number, name in enumerate(trace):
        if name not in {"create", "write", "name", "mkdir", "link", "fsync"}:
            continue
        home = prepared(tmp_path / str(number))
        before = ManifestLog(home.store).latest()
        home.disk.trace.clear()
        home.disk.full_at = number
        with pytest.raises(StoreError, match=r"disk of the home .* is full.*Free some space"):
            home.commit()
        refused += 1
        assert ManifestLog(home.store).latest() == before
        assert home.store.list(unfinished=True) == []
        assert problems_after_restart(home, before.epoch, False, "commit") == []
    assert refused > 5


def test_a_driver_killed_again_and_again_commits_every_epoch_it_said_it_did(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tests.store.test_kill_points import Home\n"
        "from headrace.store.files.filesystem import LocalStore; from headrace.store.logs.manifest import ManifestLog\n"
        "home = Home(Path(sys.argv[1])); home.store = LocalStore(home.store.root)\n"
        "home.names = iter(range(int(sys.argv[2]) * 10**6, 10**9))\n"
        "print(ManifestLog(home.store).takeover().epoch, flush=True)\n"
        "while True: print(home.commit().epoch, flush=True)"
    )
    said, root = -1, Path(__file__).parents[2]
    for attempt in range(3):
        driver = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path), str(attempt + 1)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])},
        )
        lines = [driver.stdout.readline() for _ in range(5 + attempt)]
        driver.kill()
        rest = driver.communicate()[0].splitlines()
        epochs = [int(line) for line in (*lines, *rest) if line.strip().isdigit()]
        assert epochs == list(range(epochs[0], epochs[-1] + 1))
        # One more may have been published than the driver lived to print.
        assert epochs[0] - said in ({1} if said < 0 else {1, 2})
        said = epochs[-1]
        store = LocalStore(tmp_path / "home")
        faults = [
            finding for finding in check_home(store, now=0, grace=FOREVER) if finding.severity == "fault"
        ]
        assert faults == []
        latest = ManifestLog(store).latest()
        assert latest.epoch in {said, said + 1}
        assert latest.incarnation == attempt + 1
