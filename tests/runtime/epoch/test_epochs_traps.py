"""Faults of a recovery that was tried on Spark, one test each: none of them may happen here."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.connectors.sources.segment_files import batch_name, segment_record, write_segment
from headrace.errors import AlreadyPublished, CorruptStore, EpochFailed
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.home import run_cache
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.invoke import current_answer as answers_of_runtime
from headrace.runtime.invoke.home_reader import Reader
from headrace.runtime.messages.task_messages import ScanMessage, StateMessage, StateReceipt
from headrace.runtime.plan import plan_files
from headrace.store.files.filesystem import MissingFile
from headrace.store.files.lock import HomeLock
from tests.runtime.rig import QUERIES, Rig, answers, cut, expected, faults_once_tidy, made_rows

FEW = {name: QUERIES[name] for name in ("slide", "now", "rows", "some")}
ONE_FILE = {"maxFilesPerTrigger": "1"}
FILES = cut(made_rows(31, 60), *range(6, 60, 6))


def rig_of(folder: Path, **options: str) -> Rig:
    return Rig(folder, {**ONE_FILE, **options})


def assert_right(hub: Hub, files: Sequence[Sequence[dict]] = FILES) -> None:
    for name, rows in answers(hub, hub.run_once()).items():
        assert rows == expected(hub.operator_and_query(name)[1], files), name


class Haunted(LocalExecutor):
    """Every job fails once after its tasks have written; the tasks of failed jobs write again long after."""

    def __init__(self) -> None:
        self.ghosts: list[tuple[Sequence[ScanMessage], Sequence[StateMessage]]] = []
        self.failed: set[int] = set()

    def run(self, scans: Sequence[ScanMessage], states: Sequence[StateMessage]) -> list[StateReceipt]:
        receipts = super().run(scans, states)
        if states[0].epoch not in self.failed:
            self.failed.add(states[0].epoch)
            self.ghosts.append((scans, states))
            raise EpochFailed("lost an executor")
        return receipts

    def wander(self) -> None:
        """The tasks that no epoch waits for any more write their files."""
        for scans, states in self.ghosts:
            super().run(scans, states)
        self.ghosts.clear()


def test_a_task_that_writes_after_its_job_has_failed_changes_nothing(tmp_path: Path) -> None:
    rig = rig_of(tmp_path)
    rig.drop(*FILES)
    executor = Haunted()
    with Hub(rig.home, executor, tasks=2) as hub:
        hub.execute(rig.script(FEW))
        for _ in FILES:
            with pytest.raises(EpochFailed, match="lost an executor"):
                hub.loop.step()
            hub.loop.step()
            executor.wander()
        assert_right(hub)
        named = len(hub.home.entries(hub.home.latest(), "archive:s"))
        assert named == len(FILES)
        assert len(hub.home.store.list("archive/")) > named
        assert faults_once_tidy(hub) == []
        assert len(hub.home.store.list("archive/")) == named
        assert_right(hub)


def test_of_two_drivers_the_replaced_one_can_publish_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = rig_of(tmp_path)
    rig.drop(*FILES[:3])
    # The lock is a courtesy: here it is broken, as on a file system that has none.
    monkeypatch.setattr(HomeLock, "acquire", lambda self: self)
    with rig.hub(2, FEW) as old:
        old.loop.step()
        with rig.hub(3) as new:
            with pytest.raises(AlreadyPublished, match="start it again to take over"):
                old.loop.step()
            rig.drop(FILES[3])
            with pytest.raises(AlreadyPublished):
                old.loop.step()
            with pytest.raises(AlreadyPublished):
                old.execute(f"CREATE QUERY mine AS {QUERIES['tumble']}")
            rig.drop(*FILES[4:])
            assert_right(new)
            assert faults_once_tidy(new) == []


def test_a_registration_of_a_replaced_driver_does_not_reach_the_log_even_when_nothing_else_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = rig_of(tmp_path)
    monkeypatch.setattr(HomeLock, "acquire", lambda self: self)
    with rig.hub(2, FEW) as old, rig.hub(2) as new:
        with pytest.raises(AlreadyPublished):
            old.execute(f"CREATE QUERY mine AS {QUERIES['tumble']}")
        new.execute(f"CREATE QUERY mine AS {QUERIES['best']}")
        rig.drop(*FILES)
        assert_right(new)


def test_no_file_that_has_been_read_ever_changes(tmp_path: Path) -> None:
    rig = rig_of(tmp_path)
    seen: dict[str, str] = {}
    with rig.hub(2, FEW) as hub:
        hub.loop.engine.housekeeping.grace = -1
        held: list[tuple[pa.Table, list]] = []
        for file in cut(made_rows(31, 60), *range(3, 60, 3)):
            rig.drop(file)
            hub.catch_up()
            manifest = hub.home.latest()
            for run in manifest.state:
                held += [
                    (table, table.to_pylist())
                    for table in run_cache.open_run(hub.home.store, run.name).values()
                ]
            for stored in hub.home.store.list():
                if stored.name in {"LOCK", "epochs.jsonl"}:
                    continue
                digest = hashlib.sha256(hub.home.store.read(stored.name)).hexdigest()
                assert seen.setdefault(stored.name, digest) == digest
            hub.loop.engine.collect()
        gone = set(seen) - {stored.name for stored in hub.home.store.list()}
        assert any(name.startswith("state/") for name in gone)
        for table, rows in held:
            assert table.to_pylist() == rows


def test_every_file_is_listed_once_whatever_happens(tmp_path: Path) -> None:
    rig = rig_of(tmp_path)
    for number, file in enumerate(FILES):
        rig.drop(file)
        with rig.hub(1 + number % 3, FEW if number == 0 else None) as hub:
            hub.loop.engine.intake.listen(hub.loop.engine.plan.streams.values())
            if number % 2:
                hub.loop.step()
    with rig.hub(2) as hub:
        assert_right(hub)
        listed = [record["uri"] for _, record in hub.home.ingest_log.read()]
        assert len(listed) == len(set(listed)) == len(FILES)


def test_a_source_read_in_place_again_shows_the_rows_of_then(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, archive="in place")
    rig.drop(*FILES[:5])
    with rig.hub(2, {"slide": FEW["slide"]}) as hub:
        hub.catch_up()
        rig.drop(*FILES[5:])  # there, but not consumed, when the archive is read
        hub.execute(f"CREATE QUERY tumble AS {QUERIES['tumble']}")
        assert hub.loop.step().kind == "replay"
        assert_right(hub)


def test_what_a_replaced_driver_got_in_at_the_last_moment_counts_once_and_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = rig_of(tmp_path)
    monkeypatch.setattr(HomeLock, "acquire", lambda self: self)
    with rig.hub(2, FEW) as old, rig.hub(2) as new:
        # It looked just before it was replaced, and writes just after.
        with monkeypatch.context() as asleep:
            asleep.setattr(type(old.home), "fence", lambda self: None)
            rig.drop(*FILES[:4])
            old.loop.engine.intake.listen(old.loop.engine.plan.streams.values())
            old.execute(f"CREATE QUERY last AS {QUERIES['best']}")
        rig.drop(*FILES[4:])
        new.execute(f"CREATE QUERY mine AS {QUERIES['tumble']}")
        assert_right(new)
        assert {query.definition.name for query in new.catalog.queries.values()} == {*FEW, "last", "mine"}
        assert new.status()["streams"]["s"]["rows"] == 60
        assert faults_once_tidy(new) == []


class Moving(LocalExecutor):
    """A task never finds what another left in its process."""

    def run(self, scans: Sequence[ScanMessage], states: Sequence[StateMessage]) -> list[StateReceipt]:
        run_cache._cache.clear()
        plan_files.clear_caches()
        return super().run(scans, states)


def test_a_task_that_runs_in_another_worker_each_time_answers_the_same(tmp_path: Path) -> None:
    moving, staying = rig_of(tmp_path / "moving"), rig_of(tmp_path / "staying")
    moving.drop(*FILES)
    staying.drop(*FILES)
    with Hub(moving.home, Moving(), tasks=2) as one, staying.hub(2, FEW) as other:
        one.execute(moving.script(FEW))
        for (
            _
        ) in FILES:  # in one process by turns, and of equal names: neither may meet the other's plan or state
            one.loop.step()
            other.loop.step()
        assert_right(one)
        assert_right(other)


def test_a_home_without_its_manifests_is_not_opened_until_they_are_back(tmp_path: Path) -> None:
    """Its sources may have been deleted since, and rows that were pushed are in its archive alone, which nothing names."""
    rig = rig_of(tmp_path)
    rig.drop(*FILES)
    with rig.hub(2, FEW) as hub:
        hub.catch_up()
    manifests = (rig.home / "manifests").rename(tmp_path / "manifests")
    (rig.home / "manifests").mkdir()
    files = sorted(rig.home.rglob("*"))
    with pytest.raises(CorruptStore, match="manifests/ has none"), rig.hub(2):
        pass
    assert sorted(rig.home.rglob("*")) == files
    (rig.home / "manifests").rmdir()
    manifests.rename(rig.home / "manifests")
    with rig.hub(2) as hub:
        assert_right(hub)


def test_what_one_epoch_promised_is_there_for_whoever_comes_next(tmp_path: Path) -> None:
    rig = rig_of(tmp_path)
    rig.drop(*FILES)
    epochs = []
    with rig.hub(2, FEW) as hub:
        hub.on_epoch(lambda seen: epochs.append((seen.epoch, answers(hub))))
        hub.catch_up()
        for (_, earlier), (_, later) in itertools.pairwise(epochs):
            for name, rows in earlier.items():
                missing = list(rows)
                for row in later[name]:
                    if row in missing:
                        missing.remove(row)
                assert not missing
        assert [epoch for epoch, _ in epochs] == list(range(epochs[0][0], epochs[0][0] + len(FILES)))


def test_an_opening_that_fails_gives_the_lock_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = rig_of(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr("headrace.store.logs.manifest.ManifestLog.takeover", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError), rig.hub(2, FEW):
            pass
    rig.drop(*FILES)
    with rig.hub(2, FEW) as hub:
        assert_right(hub)


def test_a_reader_whose_epoch_is_collected_under_it_answers_from_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = rig_of(tmp_path)
    files = cut(made_rows(31, 60), *range(3, 60, 3))
    rig.drop(files[0])
    with rig.hub(2, {"now": QUERIES["now"]}) as hub:
        hub.loop.engine.housekeeping.grace = -1
        hub.catch_up()
        reader = Reader.at(rig.home)
        slept = [reader.home.latest()]
        rig.drop(*files[1:])
        hub.catch_up()
        assert any(file.name.startswith("state/") for file in hub.home.store.list("state/"))
        assert hub.loop.engine.collect().deleted
        awake = type(reader.home).latest
        run_cache._cache.clear()
        plan_files.clear_caches()
        operator, query = reader.operator_and_query("now")
        with pytest.raises(MissingFile):
            answers_of_runtime.answer_at(reader.home, slept[0], operator, query)
        monkeypatch.setattr(type(reader.home), "latest", lambda self: slept.pop() if slept else awake(self))
        rows = reader.invoke("now").to_pylist()
        assert not slept
        assert rows == hub.query("now").invoke().to_pylist()


def test_a_micro_batch_that_is_handed_in_twice_before_it_is_logged_counts_once(tmp_path: Path) -> None:
    """Found again when the program starts, and repeated by Spark, which did not know that it was done."""
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute("CREATE STREAM s (v BIGINT) USING push; CREATE QUERY q AS SELECT COUNT(*) AS n FROM s")
        intake, folder = hub.loop.engine.intake, hub.path / "segments" / "s"
        table = pa.table({"v": [1, 2, 3]})
        for batch in (0, 1):
            write_segment(folder, batch_name(batch), table.schema, table.to_batches())
        for batch in (0, 1, 0, 1, 1):
            path = folder / batch_name(batch)
            record = segment_record(hub.stream_definition("s"), path, 3, 5, batch=batch, root=hub.path)
            intake.queue(record)
            if batch == 0:
                intake.queue(record)
        hub.run_once()
        assert hub.query("q").invoke().to_pylist() == [{"n": 6}]
