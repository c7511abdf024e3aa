"""Archive runs of small epochs, joined in one file: whatever reads an archive reads the same rows, in far fewer files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.archive.prefixes import Prefixes
from headrace.archive.run_file import RunFile
from headrace.archive.runs import POSITION
from headrace.errors import CorruptStore
from headrace.runtime.backfill import archive_reader
from headrace.runtime.backfill.archive_entries import ArchiveEntry
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.invoke.questions import run_sums
from headrace.runtime.samples import joined_runs, periodic_write
from headrace.runtime.samples.joined_runs import LARGE, neighbours
from headrace.store.files import filesystem
from headrace.store.files.disk import Disk
from headrace.store.logs import radix_list
from headrace.time import SECOND
from tests.examples import examples
from tests.overload.test_repair import in_parts
from tests.runtime.rig import faults_once_tidy
from tests.store.faults import FaultyDisk, SimulatedCrash, kill_points

START = 1_700_000_000 * SECOND
FEW = 4
"""Entries that are joined, in these tests."""
OPTIONS = ("", "blocks '4'", "blocks '8', blocksBy 'k'", "retain '40 SECONDS'")
LATER = {
    "windows": "SELECT k, COUNT(*) AS n, SUM(v) AS total FROM s [RANGE 20 SECONDS SLIDE 5 SECONDS] GROUP BY k",
    "rows": "SELECT k, v FROM s WHERE v > 2",
    "late": "SELECT k, v FROM s LATE",
}
ASKED = "SELECT k, COUNT(*) AS n, SUM(v) AS total FROM s GROUP BY k"


@pytest.fixture(autouse=True)
def few_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four epochs are joined at once, so that few suffice."""
    monkeypatch.setattr(radix_list, "FANOUT", FEW)
    monkeypatch.setattr(periodic_write, "EVERY", 1)


@contextmanager
def opened(path: Path, options: str = "") -> Iterator[Hub]:
    with open_hub(path, local=True) as hub:
        clause = f" OPTIONS ({options})" if options else ""
        hub.execute(
            f"CREATE STREAM s (at TIMESTAMP, k INT, v DOUBLE) USING push{clause}"
            " TIMESTAMP BY at SLACK INTERVAL 3 SECONDS"
        )
        yield hub


def rows_of(at: list[int]) -> pa.Table:
    """Rows at these seconds, each with values that follow from its second: NULL and NaN among them."""
    return pa.table(
        {
            "at": pa.array([START + one * SECOND for one in at]).cast(pa.timestamp("us", tz="UTC")),
            "k": pa.array([one % 3 for one in at], pa.int32()),
            "v": pa.array([(None, float("nan"), one / 4)[min(2, one % 7)] for one in at], pa.float64()),
        }
    )


def fill(hub: Hub, first: int, last: int, rows: int = 5) -> None:
    for number in range(first, last):
        hub.push("s", rows_of(list(range(number * rows, (number + 1) * rows))))
        hub.catch_up()


def entries(hub: Hub) -> list[ArchiveEntry]:
    return [ArchiveEntry.from_json(value) for value in hub.home.entries(hub.home.latest(), "archive:s")]


def files_named(hub: Hub) -> set[str]:
    return {name for entry in entries(hub) for name in entry.files}


def there(hub: Hub) -> set[str]:
    folder = Path(hub.home.store.root) / "archive" / "s"
    return {f"archive/s/{path.name}" for path in folder.glob("*")}


def exact(table: pa.Table) -> str:
    """A table as text in which NaN equals NaN."""
    return repr((table.column_names, table.to_pylist()))


def read_by_all(hub: Hub) -> dict[str, Any]:
    """What the readers of an archive get: queries registered now, questions, and the rows of the files themselves."""
    run_sums.cached.clear()
    for name, text in LATER.items():
        hub.execute(f"CREATE QUERY {name} AS {text}")
    hub.catch_up()
    answers = {name: exact(hub.query(name).history()) for name in LATER}
    stream = hub.catalog.stream("s")
    assert stream is not None
    if stream.blocks > 1:
        for within in ("0", "40"):
            (outcome,) = hub.execute(f"{ASKED} WITHIN {within} PERCENT")
            answers[f"asked within {within}"] = exact(outcome.table), outcome.message
    answers["rows"] = [
        pq.ParquetFile(Path(hub.home.store.root) / piece.file)
        .read_row_groups(list(piece.groups))
        .sort_by(POSITION)
        .to_pylist()
        .__repr__()
        if piece.groups is not None
        else pq.read_table(Path(hub.home.store.root) / piece.file).sort_by(POSITION).to_pylist().__repr__()
        for entry in entries(hub)
        for piece in entry.pieces
    ]
    return answers


@examples(15, shares_fixtures=True)
@given(
    epochs=st.lists(st.lists(st.integers(0, 60), max_size=8), min_size=4, max_size=18),
    options=st.sampled_from(OPTIONS),
    large=st.sampled_from((3, LARGE)),
    again=st.integers(0, 17),
)
def test_every_reader_of_joined_runs_gets_what_it_gets_of_the_runs(
    epochs: list[list[int]], options: str, large: int, again: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Rows late and in disorder, epochs without rows, entries that expire, a restart, and collection of what was replaced."""
    answers = {}
    for least in (0, large):
        path = tmp_path_factory.mktemp("home")
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(joined_runs, "LARGE", least)
            for part in (epochs[:again], epochs[again:]):
                with opened(path, options) as hub:
                    for at in part:
                        hub.push("s", rows_of(at))
                        hub.catch_up()
            with opened(path, options) as hub:
                hub.catch_up()
                assert faults_once_tidy(hub) == []
                assert files_named(hub) <= there(hub)
                answers[least] = read_by_all(hub)
    assert answers[0] == answers[large]


def test_an_archive_of_many_epochs_has_few_files(tmp_path: Path) -> None:
    """One for every four epochs, and one for each of the newest."""
    with opened(tmp_path / "home") as hub:
        fill(hub, 0, 60)
        assert len(entries(hub)) == 60
        assert len(files_named(hub)) <= 60 / FEW + FEW + 1
        assert faults_once_tidy(hub) == []
        assert len(there(hub)) <= 60 / FEW + 2 * FEW + 8
        joined = [entry for entry in entries(hub) if entry.within]
        assert len(joined) >= 60 - 2 * FEW
        footer = Prefixes.of(
            RunFile.of(hub.home.store.map(joined[0].within), joined[0].within).footer, (0,)
        ).footer
        assert footer.num_rows == FEW * 5


def test_a_reader_that_had_read_the_list_before_opens_the_joined_file(tmp_path: Path) -> None:
    """The list of entries is cached in the process; the runs that it named are deleted."""
    with opened(tmp_path / "home") as hub:
        hub.execute(
            "CREATE QUERY seldom OPTIONS (materialize 'none') AS SELECT k, COUNT(*) AS n FROM s"
            " BEGIN NOW - INTERVAL 3650 DAYS END NOW GROUP BY k"
        )
        fill(hub, 0, FEW - 1)
        former = files_named(hub)
        before = hub.query("seldom").invoke().to_pylist()
        assert sum(row["n"] for row in before) == 5 * (FEW - 1)
        fill(hub, FEW - 1, 2 * FEW)
        assert sum(row["n"] for row in hub.query("seldom").invoke().to_pylist()) == 5 * 2 * FEW
        fill(hub, 2 * FEW, 20)
        assert faults_once_tidy(hub) == []
        assert not former & there(hub)
        archive_reader._columns._values.clear()
        assert sum(row["n"] for row in hub.query("seldom").invoke().to_pylist()) == 5 * 20


@pytest.mark.parametrize("every", [1, 2])
def test_a_file_is_deleted_with_the_last_of_its_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """Files of more epochs than there are manifests; with every other entry empty they are the same."""
    monkeypatch.setattr(radix_list, "FANOUT", 24)
    with opened(tmp_path / "home", "retain '30 SECONDS'") as hub:
        engine = hub.loop.engine
        engine.housekeeping.every, engine.housekeeping.readers = 1, -1
        for number in range(100):
            hub.push("s", rows_of([] if number % every else [number]))
            hub.catch_up()
            assert files_named(hub) <= there(hub), number
        assert any(entry.within for entry in entries(hub))
        assert len(there(hub)) < 60
        assert faults_once_tidy(hub) == []


def entry(rows: int, within: str = "") -> ArchiveEntry:
    return ArchiveEntry(1, (1,), ("f",), (), rows, 0, 0, 0, 0, within=within)


def test_large_runs_stay_as_they_are_and_a_file_has_a_million_rows() -> None:
    sizes = [10, 20, LARGE, 5, 6, *[LARGE - 1] * 20]
    groups = [[one.rows for one in group] for group in neighbours([entry(rows) for rows in sizes])]
    assert [size for group in groups for size in group] == sizes
    assert groups[:2] == [[10, 20], [LARGE]]
    assert [len(group) for group in groups[2:]] == [2 + 16, 4]
    assert max(map(sum, groups)) <= 1 << 20
    assert [len(group) for group in neighbours([entry(1), entry(1, "g"), entry(1)])] == [1, 1, 1]


def test_a_backfill_in_slices_continues_in_a_joined_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many slices of an entry were read is the same number before and after its run is joined."""
    in_parts(3, monkeypatch)
    with opened(tmp_path / "home", "blocks '4'") as hub:
        engine = hub.loop.engine
        fill(hub, 0, 3)
        hub.execute(f"CREATE QUERY q AS {LATER['windows']}")
        engine.replan()
        hub.loop.step()
        progress = engine.manifest.operator(hub.operator_and_query("q")[0].id)
        assert (progress.replayed, progress.slices > 0) == (0, True)
        for number in range(3, 6):
            hub.push("s", rows_of(list(range(5 * number, 5 * number + 5))))
            engine.intake.listen(())
            engine._run(engine._live())
        assert entries(hub)[0].within
        assert engine.manifest.operator(hub.operator_and_query("q")[0].id).replayed == 0
        assert faults_once_tidy(hub) == []
        hub.catch_up()
        hub.execute(f"CREATE QUERY p AS {LATER['windows']}")
        hub.catch_up()
        assert exact(hub.query("q").history()) == exact(hub.query("p").history())


def test_the_vacuum_reduces_joined_runs_as_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = {}
    for large in (0, LARGE):
        monkeypatch.setattr(joined_runs, "LARGE", large)
        with opened(
            tmp_path / str(large), "blocks '4', reduce 'age(20 SECONDS 0.5, 90 SECONDS 0.75)'"
        ) as hub:
            hub.loop.engine.vacuuming.every = 1000
            fill(hub, 0, 40)
            free = hub.status()["archives"]["s"]
            hub.vacuum()
            files = sorted(there(hub) - files_named(hub))
            assert faults_once_tidy(hub) == []
            segments = hub.home.latest().facts["reduced"]["s"]
            stored[large] = (
                free,
                [{name: value for name, value in one.items() if name != "file"} for one in segments],
                [pq.read_table(tmp_path / str(large) / one["file"]).to_pylist() for one in segments],
            )
            assert files
    assert repr(stored[0]) == repr(stored[LARGE])


def test_a_stream_of_the_same_name_begins_to_join_again(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        fill(hub, 0, 10)
        assert any(entry.within for entry in entries(hub))
        hub.execute("DROP STREAM s")
        hub.catch_up()
        assert "s" not in hub.home.latest().facts.get("joined archives", {})
        assert faults_once_tidy(hub) == []
    with opened(tmp_path / "home") as hub:
        fill(hub, 0, 10)
        assert any(entry.within for entry in entries(hub))
        assert sum(entry.rows for entry in entries(hub)) == 50


def test_a_kill_at_any_call_leaves_the_runs_or_the_file_in_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, path = tmp_path / "saved", tmp_path / "home"
    with opened(saved, "blocks '4'") as hub:
        fill(hub, 0, FEW - 1)
    disk = FaultyDisk()
    run(path, saved, disk, monkeypatch)
    points = list(kill_points(disk.trace))
    deaths = joined = 0
    for point in points[:: max(1, len(points) // 24)]:
        disk = FaultyDisk(fault=point, graves=str(tmp_path))
        deaths += run(path, saved, disk, monkeypatch)
        disk.lose_power(str(path), lambda number: number % 2 == 0)
        with opened(path, "blocks '4'") as hub:
            hub.catch_up()
            joined += any(entry.within for entry in entries(hub))
            committed = hub.home.latest().stream("s").rows
            (outcome,) = hub.execute("SELECT COUNT(*) AS n FROM s WITHIN 0 PERCENT")
            assert outcome.table.to_pylist()[0]["n"] == committed
            hub.execute("CREATE QUERY later AS SELECT v FROM s")
            hub.catch_up()
            assert hub.query("later").history().num_rows == committed
            assert faults_once_tidy(hub) == [], point
    assert deaths > 10
    assert joined > 3


def run(path: Path, saved: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Epochs that join runs, name the file and collect, on a copy of a home and on this disk; whether it died."""
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(saved, path)
    with monkeypatch.context() as patched:
        try:
            with open_hub(path, local=True) as hub:
                patched.setattr(filesystem, "Disk", lambda: disk)
                hub.home.store._disk = disk
                hub.loop.engine.housekeeping.every = 2
                hub.loop.engine.housekeeping.readers = -1
                fill(hub, FEW - 1, FEW + 4)
                hub.home.store._disk = Disk()
        except SimulatedCrash:
            return True
    return False


@pytest.mark.soak
def test_five_thousand_epochs_have_files_in_the_hundreds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(radix_list, "FANOUT", 64)
    with Hub(tmp_path / "home", LocalExecutor()) as hub:
        hub.execute("CREATE STREAM s (at TIMESTAMP, k INT, v DOUBLE) USING push TIMESTAMP BY at")
        fill(hub, 0, 5000, rows=2)
        assert len(files_named(hub)) < 150
        assert faults_once_tidy(hub) == []
        assert len(there(hub)) < 300
        hub.execute(f"CREATE QUERY q AS {LATER['rows']}")
        hub.catch_up()
        assert hub.query("q").history().num_rows > 8000


@pytest.mark.parametrize("options", ["", "blocks '4'"])
@pytest.mark.parametrize("left", [0, 100])
def test_a_damaged_run_is_an_error_of_those_who_read_it_and_stops_no_other_query(
    tmp_path: Path, options: str, left: int
) -> None:
    """It is neither joined nor sampled; the error names it."""
    with opened(tmp_path / "home", options) as hub:
        hub.register(LATER["rows"], "first")
        hub.push("s", rows_of([0, 1, 2]))
        hub.loop.drain()
        (file,) = (tmp_path / "home" / "archive" / "s").iterdir()
        data = file.read_bytes()
        file.unlink()
        file.write_bytes(data[:left])
        for number in range(1, 4 * FEW):
            hub.push("s", rows_of([3 * number, 3 * number + 1, 3 * number + 2]))
            hub.loop.drain()
        answered = repr(hub.query("first").history().to_pylist())
        hub.register(LATER["rows"], "late")
        with pytest.raises(CorruptStore, match=file.name):
            hub.loop.drain()
        with pytest.raises(CorruptStore, match=file.name):
            hub.execute(f"{ASKED} WITHIN 0 PERCENT")
        file.unlink()
        file.write_bytes(data)
        hub.loop.drain()
        assert repr(hub.query("late").history().to_pylist()) == answered
