"""Collection between epochs: exactly what they retire is deleted, at its own cost, and nothing that is needed."""

from __future__ import annotations

import datetime as dt
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from headrace.connectors.sources import segment_files
from headrace.errors import StoreError
from headrace.runtime.hub.check import check
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.samples import run_samples
from headrace.store.files.filesystem import LocalStore
from headrace.store.logs import radix_list
from headrace.store.logs.manifest import KEPT, Manifest
from headrace.store.maintenance.garbage_collection import LiveNames
from headrace.store.maintenance.retired_names import FOLDERS, retired
from headrace.time import DAY, now
from tests.runtime.epoch.work import disk_calls, steps
from tests.runtime.rig import faults, faults_once_tidy

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
SCRIPT = """
CREATE STREAM s (at TIMESTAMP, v BIGINT) USING push OPTIONS (retain '30 MINUTES') TIMESTAMP BY at;
CREATE QUERY windows AS SELECT COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE];
CREATE QUERY groups OPTIONS (retain '10 MINUTES') AS
  SELECT v % 3 AS k, COUNT(*) AS n FROM s [RANGE 2 MINUTES] GROUP BY v % 3;
CREATE QUERY quick OPTIONS (retain '3 MINUTES') AS SELECT v, 6 / (v % 5) AS part FROM s WHERE v % 2 = 0;
CREATE QUERY over OPTIONS (retain '100 MINUTES') AS SELECT SUM(n) AS n FROM windows [RANGE 5 MINUTES SLIDE 5 MINUTES];
"""
"""Results of four retentions and of none, relations whose changes are added up, rows that fail, a query over another one."""
OLD_HOME = f"""
{SCRIPT.replace("QUERY windows", "QUERY windows OPTIONS (retain '20 MINUTES')")}
CREATE QUERY faulty AS SELECT 6 / (v % 4) AS part FROM s WHERE v % 4 = 0;
"""
"""The same for homes that get old: all of it expires, but the rows on which one query fails, which has no others."""


def push(hub: Hub, first: int, count: int) -> None:
    """A row a minute, each read by itself."""
    for minute in range(first, first + count):
        hub.push("s", [{"at": START + dt.timedelta(minutes=minute), "v": minute}])
        hub.loop.drain()


@pytest.mark.parametrize("merged_by", [4, radix_list.FANOUT])
def test_what_an_epoch_retires_is_what_its_manifest_no_longer_needs(
    tmp_path: Path, merged_by: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same as the difference of all names of both manifests, which is what the full collection computes."""
    monkeypatch.setattr(radix_list, "FANOUT", merged_by)
    monkeypatch.setattr(run_samples, "GROUP", 4)
    monkeypatch.setattr(run_samples, "LEAST_ROWS", 1)
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(SCRIPT.replace("retain '30 MINUTES'", "retain '30 MINUTES', blocks '4'"))
        housekeeping, store = hub.loop.engine.housekeeping, hub.home.store
        housekeeping.every = 10**9
        noted = type(housekeeping).published
        pairs: list[tuple[Manifest, Manifest]] = []
        counts: Counter[str] = Counter()

        def note(self: Any, before: Manifest, after: Manifest, superseded: Any) -> None:
            pairs.append((before, after))
            noted(self, before, after, superseded)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(type(housekeeping), "published", note)
            push(hub, 0, 200)
            hub.execute("DROP QUERY quick; DROP QUERY over")
            push(hub, 200, 60)
        live = LiveNames(store)
        for before, after in pairs:
            names = {name for name in live.of(before) - live.of(after) if name.startswith(FOLDERS)}
            assert retired(before, after, store.read, store.root) == names, after.epoch
            counts.update(name.partition("/")[0] + "/" for name in names)
        assert set(counts) == set(FOLDERS)
        assert min(counts.values()) >= 3


def test_epochs_and_their_collection_ask_as_much_of_the_disk_at_epoch_1000_as_at_100(tmp_path: Path) -> None:
    """Calls, bytes read and written, and steps of the interpreter; as many files are there, rejected rows among them."""
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(OLD_HOME)
        hub.loop.engine.housekeeping.readers = -1
        work: dict[int, Counter[str]] = {}
        first, last = 0, 1064
        while (epoch := hub.loop.engine.published.epoch) < last:
            is_counted = 100 <= epoch < 260 or epoch >= last - 128
            with disk_calls() as asked, steps() if is_counted else nullcontext(Counter[str]()) as executed:
                push(hub, first, 64)
            first += 64
            asked.update(executed)
            work[epoch] = asked
            asked["files"] = sum(path.is_file() for path in tmp_path.rglob("*"))
        young = [asked for epoch, asked in work.items() if 100 <= epoch < 260]
        old = [asked for epoch, asked in work.items() if epoch >= last - 128]
        assert len(young) >= 2
        assert len(old) >= 2, list(work)
        for name in {name for asked in old for name in asked}:
            most = max(asked[name] for asked in young)
            assert max(asked[name] for asked in old) <= 1.2 * most + 8, (name, work)
        assert faults_once_tidy(hub) == []


def test_readers_have_time_to_open_what_their_manifest_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_files, "IN_RECORD", 0)
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(SCRIPT)
        push(hub, 0, 70)
        epoch = hub.loop.engine.published.epoch
        runs = set((tmp_path / "home" / "state").glob("*.run"))
        names = hub.loop.engine.housekeeping.collect_retired()
        assert names  # segments that were read: no reader opens them
        assert not any(name.startswith(FOLDERS) for name in names)
        assert set((tmp_path / "home" / "state").glob("*.run")) == runs
        hub.loop.engine.housekeeping.readers = -1
        names = hub.loop.engine.housekeeping.collect_retired()
        assert any(name.startswith("state/") for name in names)
        assert {name.partition("/")[0] for name in names} <= {
            "state",
            "results",
            "lists",
            "archive",
            "rejects",
            "segments",
        }
        assert epoch == hub.loop.engine.published.epoch
        assert faults_once_tidy(hub) == []


def test_an_error_of_the_thread_is_raised_by_the_next_collection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_files, "IN_RECORD", 0)  # the segments of pushes are collected
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(SCRIPT)
        housekeeping = hub.loop.engine.housekeeping
        housekeeping.every, housekeeping.readers = 3, -1

        def refuse(*_: Any, **__: Any) -> bool:
            raise StoreError("no such luck")

        with housekeeping.in_background():
            with monkeypatch.context() as broken:
                broken.setattr(LocalStore, "delete", refuse)
                push(hub, 0, 6)
                assert housekeeping._thread is not None
                assert housekeeping._thread is not threading.current_thread()
                housekeeping._thread.join()
            push(hub, 6, 6)
        push(hub, 12, 12)
        failure = hub.status()["failures"]["last"]
        assert failure["message"] == "no such luck"
        assert faults_once_tidy(hub) == []


def test_files_of_former_plans_are_collected_while_the_hub_runs(tmp_path: Path) -> None:
    """A plan may name a file of a former one again, as its files are named by their content: such a file stays."""
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(SCRIPT)
        engine = hub.loop.engine
        housekeeping = engine.housekeeping
        housekeeping.every, housekeeping.readers = 3, -1
        for number in range(30):
            hub.register(f"SELECT v + {number} AS v FROM s", f"q{number}")
            push(hub, number, 1)
            if number:
                hub.drop_query(f"q{number - 1}")
        assert len(list((tmp_path / "home" / "plans").iterdir())) <= 4 * (KEPT + housekeeping.every)
        push(hub, 30, 1)
        plan = engine._saved.files
        for files in (("plans/another.plan",), plan):
            housekeeping.follow_plan(engine.published.epoch, files)
        push(hub, 31, 2 * KEPT)
        assert all(map(hub.home.store.exists, plan))
        assert faults(hub) == []
        assert hub.query("q29").history().num_rows == 31 + 2 * KEPT


VICTIM = """
import sys, threading
from pathlib import Path
from headrace.runtime.hub.opening import open_hub
from tests.runtime.epoch.test_collecting import SCRIPT, START, dt

with open_hub(Path(sys.argv[1]), local=True) as hub:
    if hub.catalog.query("windows") is None:
        hub.execute(SCRIPT)
    hub.loop.engine.housekeeping.every, hub.loop.engine.housekeeping.readers = 3, -1
    last = hub.pushed("s", "me")
    with hub.running():
        for number in range(0 if last is None else last + 1, int(sys.argv[2])):
            hub.push("s", [{"at": START + dt.timedelta(minutes=number), "v": number}], producer="me", sequence=number)
            print(number, flush=True)
        hub.stop()
    hub.catch_up()
    print("done", flush=True)
"""


def test_killed_while_the_thread_collects_nothing_that_is_needed_is_gone(tmp_path: Path) -> None:
    """SIGKILL after some pushes, four times, of a process that collects every third epoch; then it runs to its end."""
    home, said = tmp_path / "home", -1
    for lines in (20, 35, 50, 28, None):
        victim = subprocess.Popen(
            [sys.executable, "-c", VICTIM, str(home), "240"], stdout=subprocess.PIPE, text=True
        )
        assert victim.stdout is not None
        for count, line in enumerate(victim.stdout):
            if line.strip() != "done":
                assert int(line) > said
                said = int(line)
            if count == lines:
                victim.kill()
                break
        victim.communicate()
        assert victim.returncode == (0 if lines is None else -signal.SIGKILL)
        assert [fault for fault in faults(home) if "the next start collects" not in fault] == []
    with open_hub(home, local=True) as hub:
        hub.catch_up()
        assert hub.status()["streams"]["s"]["rows"] == 240
        assert [row["n"] for row in hub.query("windows").history().to_pylist()] == [1] * 239
        assert faults_once_tidy(hub) == []


def test_a_home_that_was_closed_in_order_is_whole_a_day_later(tmp_path: Path) -> None:
    """The second start finds files of the first that are too young for it, and no epoch after it collects them."""
    home = tmp_path / "home"
    with open_hub(home, local=True) as hub:
        hub.execute("CREATE STREAM s (k BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
        hub.register("SELECT k, COUNT(*) AS n FROM s [RANGE 1 HOUR SLIDE 1 MINUTE] GROUP BY k", "q")
        for minute in range(20):
            hub.push("s", [{"k": minute, "at": f"2024-01-01T00:{minute:02d}:00Z"}])
            hub.catch_up()
    with open_hub(home, local=True):
        pass
    report = check(home, at=now() + DAY)
    assert report.faults == 0, report.lines
    assert "that no manifest names: the next start collects them" in report.lines[0]
    assert report.lines[-1] == f"{home} is whole"
