"""Files of rejected rows, joined: whatever reads rejects reads the same rows at the same positions, in far fewer files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import CorruptStore
from headrace.runtime.backfill.archive_entries import ArchiveEntry
from headrace.runtime.epoch import commit
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.home import reject_files
from headrace.runtime.home.reject_files import encode_rejects, read_rejects
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.introspection.loss_report import loss_report
from headrace.runtime.messages import epoch_work
from headrace.runtime.messages.task_messages import RejectsFile
from headrace.runtime.samples import joined_rejects, periodic_write
from headrace.runtime.samples.joined_rejects import LARGE, Joiner
from headrace.store.files import filesystem
from headrace.store.files.disk import Disk
from headrace.store.files.filesystem import LocalStore
from headrace.store.logs import radix_list
from headrace.store.logs.manifest import Manifest
from headrace.store.logs.radix_list import ListFiles, RadixList
from tests.examples import examples
from tests.runtime.rig import faults_once_tidy
from tests.store.faults import FaultyDisk, SimulatedCrash, kill_points

FEW = 4
"""Entries that are joined, in these tests; and joined files."""
SCRIPT = """
CREATE STREAM s (t STRING, v BIGINT) USING push OPTIONS ({stream}) TIMESTAMP BY CAST(t AS TIMESTAMP) SLACK INTERVAL 3 SECONDS;
CREATE QUERY odd OPTIONS ({query}) AS SELECT v, 6 / v AS part FROM s;
"""
LONG = {"stream": "retain '10 DAYS'", "query": "retain '10 DAYS'"}
BRIEF = {"stream": "retain '20 SECONDS'", "query": "retain '10 SECONDS'"}
OF_STREAM = "CREATE QUERY {name} AS SELECT position, text, reason FROM s REJECTS"
BAD = [(None, 1), (3, 0)]


@pytest.fixture(autouse=True)
def few_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four entries are joined at once, and four such files, so that few epochs suffice; a row group has three rows."""
    monkeypatch.setattr(radix_list, "FANOUT", FEW)
    monkeypatch.setattr(periodic_write, "EVERY", 1)
    monkeypatch.setattr(reject_files, "GROUP", 3)


@contextmanager
def opened(path: Path, options: Mapping[str, str] = LONG) -> Iterator[Hub]:
    with open_hub(path, local=True) as hub:
        hub.execute(SCRIPT.format(**options))
        yield hub


def push(hub: Hub, *rows: tuple[int | None, int]) -> None:
    """An epoch of rows at seconds: those without one are rejected by the stream, those with v = 0 by the query."""
    times = [
        f"no time {v}" if at is None else f"2024-01-01 00:{at // 60:02d}:{at % 60:02d}" for at, v in rows
    ]
    hub.push("s", [{"t": time, "v": v} for time, (_, v) in zip(times, rows, strict=True)])
    hub.catch_up()


def fill(hub: Hub, first: int, last: int) -> None:
    for number in range(first, last):
        push(hub, (None, number), (number, 0), (None, number), (number, number + 1))


def failures(hub: Hub) -> str:
    return f"failures:{hub.operator_and_query('odd')[0].id}"


def entries(hub: Hub, name: str) -> list[RejectsFile]:
    return [RejectsFile.of_entry(entry) for entry in hub.home.entries(hub.home.latest(), name)]


def rows_of(hub: Hub, name: str) -> list[list[dict[str, Any]]]:
    """The rejected rows of a list, entry by entry."""
    store = hub.home.store
    return [read_rejects(store, file.name, file.part, file.rows).to_pylist() for file in entries(hub, name)]


def there(hub: Hub) -> set[str]:
    root = Path(hub.home.store.root)
    return {str(path.relative_to(root)) for path in (root / "rejects").rglob("*") if path.is_file()}


def named(hub: Hub) -> set[str]:
    return {file.name for name in ("rejects:s", failures(hub)) for file in entries(hub, name)}


def read_by_all(hub: Hub, name: str) -> dict[str, Any]:
    """What the readers of rejects get: the files, a query registered now, and the report of losses."""
    latest = hub.home.latest()
    report = list(loss_report(hub.home, Manifest(epoch=0, incarnation=0), latest, persistent=False))
    hub.execute(OF_STREAM.format(name=name))
    hub.catch_up()
    return {
        "stream": rows_of(hub, "rejects:s"),
        "query": rows_of(hub, failures(hub)),
        "later": hub.query(name).history().to_pylist(),
        "report": report,
    }


@examples(15, shares_fixtures=True)
@given(
    epochs=st.lists(
        st.lists(
            st.one_of(st.sampled_from(BAD), st.tuples(st.integers(0, 60), st.integers(0, 2))), max_size=6
        ),
        min_size=4,
        max_size=40,
    ),
    options=st.sampled_from((LONG, BRIEF)),
    large=st.sampled_from((3, LARGE)),
    again=st.integers(0, 39),
)
def test_every_reader_of_joined_rejects_gets_what_it_gets_of_the_files(
    epochs: list[list[tuple[int | None, int]]],
    options: Mapping[str, str],
    large: int,
    again: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Epochs with and without rejects, those that expire, a restart, and collection of what was replaced."""
    answers = {}
    for least in (0, large):
        path = tmp_path_factory.mktemp("home")
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(joined_rejects, "LARGE", least)
            for part in (epochs[:again], epochs[again:]):
                with opened(path, options) as hub:
                    for rows in part:
                        push(hub, *rows)
            with opened(path, options) as hub:
                hub.catch_up()
                assert faults_once_tidy(hub) == []
                assert named(hub) <= there(hub)
                answers[least] = read_by_all(hub, "later")
    assert answers[0] == answers[large]


def test_many_epochs_with_rejects_have_few_files(tmp_path: Path) -> None:
    """One for every sixteen entries, and a few of the newest, of the stream and of the query; the others are deleted at once."""
    with opened(tmp_path / "home") as hub:
        housekeeping = hub.loop.engine.housekeeping
        housekeeping.every, housekeeping.readers = 1, -1
        fill(hub, 0, 70)
        for name in ("rejects:s", failures(hub)):
            rows = rows_of(hub, name)
            assert [len(of_epoch) for of_epoch in rows] == [2 if name == "rejects:s" else 1] * 70
            files = [file.name for file in entries(hub, name)]
            assert len(set(files[:64])) == 4
            assert len(set(files)) <= 4 + 2 * FEW
        assert [row["text"] for (row, _) in rows_of(hub, "rejects:s")] == [
            row["text"] for (_, row) in rows_of(hub, "rejects:s")
        ]
        assert faults_once_tidy(hub) == []
        assert named(hub) <= there(hub)
        assert len(there(hub)) < 50  # those of the last eight manifests among them


def test_files_of_rejects_that_expire_are_deleted_with_the_last_of_their_entries(tmp_path: Path) -> None:
    with opened(tmp_path / "home", BRIEF) as hub:
        engine = hub.loop.engine
        engine.housekeeping.every, engine.housekeeping.readers = 1, -1
        joined = 0
        for number in range(90):
            fill(hub, number, number + 1)
            assert named(hub) <= there(hub), number
            joined += any(file.part for file in entries(hub, "rejects:s"))
            assert len(there(hub)) < 70, number
        assert joined > 20
        assert faults_once_tidy(hub) == []


def test_a_reader_that_waits_at_an_old_position_continues_in_joined_files(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        hub.execute(OF_STREAM.format(name="waits"))
        fill(hub, 0, 3)
        hub.execute("PAUSE QUERY waits")
        fill(hub, 3, 41)
        assert len({file.name for file in entries(hub, "rejects:s")}) < 15
        hub.execute("RESUME QUERY waits")
        fill(hub, 41, 43)
        hub.execute(OF_STREAM.format(name="later"))
        hub.catch_up()
        waited = hub.query("waits").history().to_pylist()
        assert len(waited) == 2 * 43
        assert waited == hub.query("later").history().to_pylist()


@contextmanager
def earlier_version() -> Iterator[None]:
    """Archive entries name files of rejects themselves, and the entries of the list have no part."""
    of_epoch = commit._archived

    def with_names(done: Any, seen: Any, *rest: Any) -> dict[str, ArchiveEntry]:
        return {
            name: replace(entry, rejects=tuple(file.name for file in seen[name].rejects), rejected=())
            for name, entry in of_epoch(done, seen, *rest).items()
        }

    def without_part(file: RejectsFile, epoch: int) -> dict[str, Any]:
        return {"epoch": epoch, "name": file.name, "rows": file.rows}

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(commit, "_archived", with_names)
        patched.setattr(RejectsFile, "as_entry", without_part)
        yield


def test_rejects_that_archives_of_an_earlier_version_name_stay_as_they_are(tmp_path: Path) -> None:
    with earlier_version(), opened(tmp_path / "home") as hub:
        fill(hub, 0, 10)
        before = {file.name for file in entries(hub, "rejects:s")}
        assert len(before) == 10
    with opened(tmp_path / "home") as hub:
        housekeeping = hub.loop.engine.housekeeping
        housekeeping.every, housekeeping.readers = 1, -1
        fill(hub, 10, 30)
        after = [file.name for file in entries(hub, "rejects:s")]
        assert set(after[:10]) == before
        assert len(set(after[10:])) < 12
        assert len({file.name for file in entries(hub, failures(hub))}) < 15  # which no archive names
        hub.execute(OF_STREAM.format(name="later"))
        hub.catch_up()
        assert hub.query("later").history().num_rows == 2 * 30
        assert faults_once_tidy(hub) == []


def test_rejects_stay_when_the_archive_of_an_earlier_version_that_names_them_too_expires(
    tmp_path: Path,
) -> None:
    options = {"stream": "archive 'none'", "query": "retain '10 DAYS'"}
    with earlier_version(), opened(tmp_path / "home", options) as hub:
        housekeeping = hub.loop.engine.housekeeping
        housekeeping.every, housekeeping.readers = 1, -1
        hub.execute("PAUSE QUERY odd")
        fill(hub, 0, 10)
        assert len(hub.home.entries(hub.home.latest(), "archive:s")) == 10
        hub.execute("RESUME QUERY odd")
        fill(hub, 10, 30)
        assert hub.home.entries(hub.home.latest(), "archive:s") == []
        assert named(hub) <= there(hub)
        assert sum(map(len, rows_of(hub, "rejects:s"))) == 60


def test_a_damaged_file_stays_where_it_is_and_others_are_joined(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        fill(hub, 0, 2)
        bad = entries(hub, "rejects:s")[1].name
        (tmp_path / "home" / bad).chmod(0o600)
        (tmp_path / "home" / bad).write_bytes(b"PAR1 nonsense PAR1")
        fill(hub, 2, 20)
        files = [file.name for file in entries(hub, "rejects:s")]
        assert files[1] == bad
        assert len(set(files[FEW : 4 * FEW])) <= 3
        assert hub.status()["failures"]["count"] == 0


def test_each_scan_task_of_an_epoch_has_an_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalExecutor, "cores", 2)
    monkeypatch.setattr(epoch_work, "OF_A_TASK", 1)
    with opened(tmp_path / "home") as hub:
        for number in range(10):
            for task in range(2):
                hub.push("s", [{"t": f"no time {number} {task}", "v": 1}])
            hub.catch_up()
        rows = rows_of(hub, "rejects:s")
        assert [len(of_task) for of_task in rows] == [1] * 20
        hub.execute(OF_STREAM.format(name="later"))
        hub.catch_up()
        texts = hub.query("later").history().column("text").to_pylist()
        assert sorted(texts) == sorted(row["text"] for (row,) in rows)
        assert len(set(texts)) == 20


def test_rows_that_a_file_does_not_have_are_damage(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    whole = pa.table({"reason": [str(number) for number in range(10)]})
    store.write_once("rejects/f.parquet", [encode_rejects([whole, whole.slice(9)])])
    for first in range(11):
        for rows in range(1, 12 - first):
            read = read_rejects(store, "rejects/f.parquet", first, rows)["reason"].to_pylist()
            assert read == [*map(str, range(10)), "9"][first : first + rows]
    for first, rows in ((10, 2), (0, 12), (11, 1)):
        with pytest.raises(CorruptStore, match="has 11 rejected rows"):
            read_rejects(store, "rejects/f.parquet", first, rows)


def test_a_stream_of_the_same_name_begins_to_join_again(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        fill(hub, 0, 20)
        hub.execute("DROP QUERY odd; DROP STREAM s")
        hub.catch_up()
        assert "s" not in hub.home.latest().facts["joined rejects"]
    with opened(tmp_path / "home") as hub:
        fill(hub, 0, 2 * 8)
        assert hub.home.latest().facts["joined failures"].keys() == {failures(hub).partition(":")[2]}
        assert len({file.name for file in entries(hub, "rejects:s")}) < 16
        assert sum(map(len, rows_of(hub, "rejects:s"))) == 32
        assert faults_once_tidy(hub) == []


def test_a_kill_at_any_call_leaves_the_files_or_the_one_in_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, path = tmp_path / "saved", tmp_path / "home"
    with opened(saved) as hub:
        fill(hub, 0, 15)
    disk = FaultyDisk()
    run(path, saved, disk, monkeypatch)
    points = list(kill_points(disk.trace))
    deaths, joined = 0, set[int]()
    for point in points[:: max(1, len(points) // 30)]:
        disk = FaultyDisk(fault=point, graves=str(tmp_path))
        deaths += run(path, saved, disk, monkeypatch)
        disk.lose_power(str(path), lambda number: number % 2 == 0)
        with opened(path) as hub:
            hub.catch_up()
            committed = hub.home.latest().stream("s")
            assert sum(map(len, rows_of(hub, "rejects:s"))) == committed.rejected
            assert sum(map(len, rows_of(hub, failures(hub)))) == hub.status()["rejected"]["odd"]
            joined.add(len({file.name for file in entries(hub, "rejects:s")}))
            hub.execute(OF_STREAM.format(name="later"))
            hub.catch_up()
            assert hub.query("later").history().num_rows == committed.rejected
            assert faults_once_tidy(hub) == [], point
    assert deaths > 10
    assert len(joined) > 2


def run(path: Path, saved: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Epochs that join files at both levels, name the new one and collect, on a copy of a home and on this disk; whether it died."""
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(saved, path)
    with monkeypatch.context() as patched:
        try:
            with open_hub(path, local=True) as hub:
                patched.setattr(filesystem, "Disk", lambda: disk)
                hub.home.store._disk = disk
                hub.loop.engine.housekeeping.every = 2
                hub.loop.engine.housekeeping.readers = -1
                fill(hub, 15, 20)
                hub.home.store._disk = Disk()
        except SimulatedCrash:
            return True
    return False


@pytest.mark.parametrize(
    ("rows", "most", "expected"),
    [
        ([1, 1, 1, 1], 100, [[0, 1, 2, 3]]),
        ([1, 50, 1, 1], 100, [[2, 3]]),
        ([1, 50, 1], 100, []),
        ([1, 2, 3, 4], 4, [[0, 1]]),
        ([2, 2, 2, 2], 4, [[0, 1], [2, 3]]),
    ],
)
def test_large_files_stay_and_a_joined_one_has_a_limit(
    rows: list[int], most: int, expected: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joined_rejects, "LARGE", 50)
    monkeypatch.setattr(joined_rejects, "_MOST_ROWS", most)
    listed = [RejectsFile(f"f{number}", count).as_entry(number) for number, count in enumerate(rows)]
    assert list(joined_rejects._files("rejects", listed, 0)) == expected
    assert list(joined_rejects._files("rejects", listed, len(rows) - 1)) == []


def joined(hub: Hub, manifest: Manifest, lists: ListFiles) -> Manifest:
    """The manifest with all that is due in the stream's list of rejects."""
    for done in Joiner(hub.home, manifest).joined([("rejects", "s")]):
        manifest = done.settled(manifest, hub.home, lists)
    return manifest


def test_a_file_whose_first_entries_have_expired_is_joined_from_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(periodic_write, "EVERY", 1000)
    with opened(tmp_path / "home") as hub:
        fill(hub, 0, 16)
        store, lists = hub.home.store, ListFiles(hub.home.store)
        low = joined(hub, hub.home.latest(), lists)
        assert low.facts["joined rejects"] == {"s": [16, 0]}
        shorter = low.lists["rejects:s"].drop_before(2)
        high = joined(hub, replace(low, lists=low.lists.changed({"rejects:s": shorter})), lists)
        assert high.facts["joined rejects"] == {"s": [16, 16]}
        files = [RejectsFile.of_entry(entry) for entry in hub.home.entries(high, "rejects:s")]
        assert len({file.name for file in files}) == 1
        assert [file.part for file in files] == list(range(0, 28, 2))
        texts = [read_rejects(store, file.name, file.part, file.rows)["text"].to_pylist() for file in files]
        before = [rows[0]["text"] for rows in rows_of(hub, "rejects:s")]
        assert texts == [[text, text] for text in before[2:]]
        (sentence, *_) = loss_report(hub.home, Manifest(epoch=0, incarnation=0), high, persistent=False)
        assert "'no time 15'" in sentence


def test_a_manifest_does_not_name_what_was_collected_or_is_another_list_by_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(periodic_write, "EVERY", 1000)
    with opened(tmp_path / "home") as hub:
        fill(hub, 0, FEW)
        before, lists = hub.home.latest(), ListFiles(hub.home.store)
        one, other, lost = (Joiner(hub.home, before).joined([("rejects", "s")])[0] for _ in range(3))
        after = one.settled(before, hub.home, lists)
        assert after.lists["rejects:s"] != before.lists["rejects:s"]
        assert other.settled(after, hub.home, lists) is after
        hub.home.store.delete(lost.files[0])
        assert lost.settled(before, hub.home, lists) is before
        gone = replace(before, lists=before.lists.changed({}, ["rejects:s"]))
        assert one.settled(gone, hub.home, lists) is gone
        young = replace(before, lists=before.lists.changed({"rejects:s": RadixList()}))
        assert one.settled(young, hub.home, lists) is young
