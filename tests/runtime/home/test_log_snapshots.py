"""Snapshots in the query log: what they amount to is what all records before do, and the files of these are deleted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.catalog import folded_log
from headrace.catalog.catalog import Catalog
from headrace.catalog.folded_log import FoldedLog
from headrace.errors import CorruptStore, StoreError
from headrace.runtime.epoch.engine import Engine
from headrace.runtime.home.home import Home
from headrace.runtime.hub.hub import Hub
from headrace.store.files.filesystem import LocalStore
from headrace.store.logs.manifest import KEPT
from headrace.store.logs.record_log import QUERY_LOG, Chunk, RecordLog
from headrace.store.maintenance.garbage_collection import names_in_logs
from tests.runtime.rig import QUERIES, Rig, answers, cut, expected, faults, faults_once_tidy, made_rows

FILES = cut(made_rows(5, 60), *range(4, 60, 4))
STATEMENTS = (
    "CREATE STREAM p (a BIGINT, at TIMESTAMP) USING push OPTIONS (archive 'copy') TIMESTAMP BY at",
    f"CREATE QUERY c AS {QUERIES['tumble']}",
    "REFRESH RELATION names; CREATE REDUCER few ON s AS 'uniform(0.5)'",
    "PAUSE QUERY c; ALTER QUERY a SET (owner 'me', tags 'x, y')",
    "ALTER QUERY c RENAME TO d; ALTER STREAM s SET (keep '0.5')",
    "DROP STREAM p; RESUME QUERY d",
    "CREATE STREAM p (b STRING) USING push; REFRESH RELATION names",
    f"ALTER QUERY d AS {QUERIES['now']}; CREATE QUERY e AS SELECT b FROM p",
    "DROP QUERY e; CREATE REDUCER some ON s AS 'uniform(0.1)'; DROP REDUCER few ON s",
    f"CREATE OR REPLACE QUERY d AS {QUERIES['slide']}; PAUSE QUERY a; RESUME QUERY a",
    "REFRESH RELATION names; DROP STREAM p",
    f"CREATE QUERY f AS {QUERIES['tumble']}; DROP QUERY f",
)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folded_log, "_LEAST", 4)
    monkeypatch.setattr(folded_log, "_FOR_EACH", 0)


class Copies:
    """A folder with all files that a home's query log ever had."""

    def __init__(self, rig: Rig) -> None:
        self.rig, self.folder = rig, rig.folder / "copies"

    def take(self) -> None:
        shutil.copytree(self.rig.home / QUERY_LOG, self.folder / QUERY_LOG, dirs_exist_ok=True)

    def chunks(self) -> list[Chunk]:
        return list(RecordLog(LocalStore(str(self.folder)), QUERY_LOG).chunks())


def compared(catalog: Catalog) -> Catalog:
    return replace(catalog, queries=dict(catalog.queries), ignored_entries=())  # type: ignore[arg-type]


def epochs(hub: Hub, rig: Rig, count: int) -> Iterator[None]:
    """So many epochs, each with a file and a collection after it."""
    for rows in FILES[rig.written : rig.written + count]:
        rig.drop(rows)
        hub.catch_up()
        hub.loop.engine.housekeeping.collect_retired()
        yield


def numbers(rig: Rig) -> list[int]:
    return sorted(int(file.stem) for file in (rig.home / QUERY_LOG).glob("*.json"))


def test_a_log_that_was_shortened_amounts_to_what_all_of_it_does(tmp_path: Path) -> None:
    rig = Rig(tmp_path, {"blocks": "16"})
    copies = Copies(rig)
    with rig.hub(2, {"a": QUERIES["slide"]}) as hub:
        follower = Home.at(rig.home)
        for statements in STATEMENTS:
            hub.execute(statements)
            copies.take()
            for _ in epochs(hub, rig, 1):
                pass
            at = FoldedLog().then(copies.chunks())
            assert compared(hub.catalog) == compared(at.catalog)
            assert hub.home.folded.births == at.births
            read = Home.at(rig.home)
            assert compared(read.catalog) == compared(at.catalog)
            assert list(read.catalog.queries) == list(at.catalog.queries)
            assert read.folded.appends == at.appends
            assert read.folded.births.items() <= at.births.items()
            assert {name for name in at.births if read.catalog.stream(name)} <= read.folded.births.keys()
        assert numbers(rig)[0] > len(STATEMENTS)
        assert compared(follower.newest_catalog()) == compared(hub.catalog)
        assert faults_once_tidy(hub) == []
    folds = {chunk.first: chunk.snapshot for chunk in copies.chunks() if chunk.snapshot is not None}
    assert len(folds) > 3
    for position, snapshot in folds.items():
        before = [chunk for chunk in copies.chunks() if chunk.end <= position]
        assert FoldedLog.from_json(snapshot).as_json() == FoldedLog().then(before).as_json()


def test_queries_continue_over_a_shortened_log_and_relations_keep_their_file(tmp_path: Path) -> None:
    rig = Rig(tmp_path, {"blocks": "16"})
    kept = {name: QUERIES[name] for name in ("slide", "some", "now")}
    with rig.hub(2, kept) as hub:
        for statements in STATEMENTS[1:5]:
            hub.execute(statements.replace(" a ", " slide "))
            hub.execute("PAUSE QUERY c" if hub.catalog.query("c") else "PAUSE QUERY d")
            for _ in epochs(hub, rig, 2):
                pass
        for _ in range(4):
            hub.execute("PAUSE QUERY slide; RESUME QUERY slide")
    for _ in range(KEPT):
        with rig.hub(2) as hub:
            assert faults_once_tidy(hub) == []
            for _ in epochs(hub, rig, 1):
                pass
            assert faults_once_tidy(hub) == []
    assert numbers(rig)[0] > 0
    home = Home.at(rig.home)
    records = [
        entry["do"] for chunk in home.query_log.chunks(home.query_log.start) for entry in chunk.records
    ]
    assert "put_relation" not in records
    assert home.catalog.require_relation("names").file in names_in_logs(home.store, home.latest())
    with rig.hub(2) as hub:
        hub.execute("REFRESH RELATION names")
        read = FILES[: rig.written]
        answered = answers(hub, hub.run_once())
        for name in kept:
            assert answered[name] == expected(hub.operator_and_query(name)[1], read), name


def to_be_shortened(rig: Rig, monkeypatch: pytest.MonkeyPatch, later: int = 2) -> int:
    """A home that has to delete files of its log, and has deleted none; how many it would. The snapshot is in the last file but `later`."""
    with monkeypatch.context() as patched, rig.hub(2, {"a": QUERIES["slide"]}) as hub:
        patched.setattr(RecordLog, "drop_before", lambda *_: ())
        for _ in range(8):
            hub.execute("PAUSE QUERY a; RESUME QUERY a")
        patched.setattr(folded_log, "_LEAST", 1)
        hub.execute("PAUSE QUERY a")
        patched.setattr(folded_log, "_LEAST", 1000)
        for number in range(later):
            hub.execute(f"ALTER QUERY a SET (owner '{number}')")
        for _ in epochs(hub, rig, KEPT + 1):
            pass
    return len(numbers(rig)) - 1 - later


@pytest.mark.parametrize("later", [0, 2])
def test_a_home_opens_wherever_the_deletion_was_cut_short(
    later: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path / "rig")
    most = to_be_shortened(rig, monkeypatch, later)
    assert most > 3
    monkeypatch.setattr(folded_log, "_LEAST", 1000)
    meant = compared(Home.at(rig.home).catalog)
    for deleted in range(most + 1):
        opened = Rig(tmp_path / f"{deleted}")
        shutil.copytree(rig.home, opened.home)
        for number in numbers(opened)[deleted % 2 : deleted]:  # a power cut may bring the first one back
            (opened.home / QUERY_LOG / f"{number:012}.json").unlink()
        assert compared(Home.at(opened.home).catalog) == meant
        assert faults(opened.home) == []
        with opened.hub(2) as hub:
            assert compared(hub.catalog) == meant
            hub.execute(f"CREATE QUERY b AS {QUERIES['tumble']}")
        with opened.hub(2) as hub:
            assert numbers(opened)[0] == most
            assert hub.catalog.query("b") is not None


def test_a_snapshot_that_is_missing_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)
    most = to_be_shortened(rig, monkeypatch)
    with rig.hub(2):
        pass
    assert numbers(rig)[0] == most
    (rig.home / QUERY_LOG / f"{most:012}.json").unlink()
    with pytest.raises(StoreError, match="dropped or lost"), rig.hub(2):
        pass
    assert any(fault.startswith("FAULT querylog/") for fault in faults(rig.home))


@pytest.mark.parametrize("damaged", [1, -2, -1])
def test_a_damaged_record_is_no_reason_to_begin_at_a_snapshot(
    damaged: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path)
    to_be_shortened(rig, monkeypatch)
    name = f"{QUERY_LOG}/{numbers(rig)[damaged]:012}.json"
    (rig.home / name).write_text("{}")
    with pytest.raises(CorruptStore, match=name):
        Home.at(rig.home)


def test_no_snapshot_is_written_of_less_than_the_log_has(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    with rig.hub(2, {"a": QUERIES["slide"]}) as hub:
        home, before = hub.home, hub.home.folded
        for _ in range(4):
            hub.execute("PAUSE QUERY a; RESUME QUERY a")
        home.folded, home.snapshot_at = before, -9
        assert home.append([{"do": "pause", "name": "a"}], "id")
    assert [chunk.append for chunk in home.query_log.chunks() if chunk.snapshot is not None] != ["id"]
    assert list(home.query_log.chunks())[-1].snapshot is None


def test_no_record_is_deleted_that_a_manifest_has_not_applied(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    with rig.hub(2, {"a": QUERIES["slide"]}) as hub:
        engine: Engine = hub.loop.engine
        for _ in range(8):
            hub.execute("PAUSE QUERY a; RESUME QUERY a")
        for passed, _ in enumerate(epochs(hub, rig, KEPT + 1), 1):
            oldest = engine.home.manifests.retained()[0].querylog
            assert RecordLog(engine.home.store, QUERY_LOG).start <= oldest, passed
        assert numbers(rig)[0] > 0


def test_a_reader_that_was_left_behind_begins_at_a_snapshot(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    with rig.hub(2, {"a": QUERIES["slide"]}) as hub:
        behind, empty = Home.at(rig.home), Home.at(rig.home)
        empty.folded = FoldedLog()
        for _ in range(8):
            hub.execute("PAUSE QUERY a; RESUME QUERY a")
        for _ in epochs(hub, rig, KEPT + 1):
            pass
        assert behind.catalog.position < numbers(rig)[0]
        for reader in (behind, empty):
            assert compared(reader.newest_catalog()) == compared(hub.catalog)
            assert reader.born("s") == hub.home.born("s")
            assert reader.created("s") == hub.home.created("s") > 0
