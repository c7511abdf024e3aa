"""Archives that thin with their load: bytes that are stored, and rows that wait for the vacuum."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from headrace.archive.blocks import hashes_of, seed_of
from headrace.archive.runs import POSITION
from headrace.catalog.definition_json import from_json, to_json
from headrace.catalog.definitions import StreamDefinition
from headrace.catalog.reductions import Reduction
from headrace.language.statements.parse_script import parse_script
from headrace.language.statements.statement import CreateReducer, CreateStream
from headrace.runtime.backfill.archive_entries import Piece
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.home.home import Home
from headrace.runtime.hub.hub import Hub
from headrace.runtime.reduction import vacuum
from headrace.runtime.reduction.segment_writer import bytes_of
from headrace.runtime.reduction.segments import segments_of
from tests.runtime.backfill.test_vacuum import HOUR_ROWS, ages, asked, fill, hour, opened
from tests.runtime.backfill.test_vacuum_levels import check_segments

LIMIT = 60_000
BY_BYTES = f"blocks '8', reduce 'load({LIMIT} B)'"
BEHIND = "blocks '8', reduce 'uniform(0.5), load(8000 ROWS BEHIND)'"


def stored_bytes(hub: Hub) -> int:
    """Bytes of the files that the newest manifest names."""
    manifest = hub.home.latest()
    files = {segment.file for segment in segments_of(manifest, "s")}
    files |= {name for entry in hub.home.entries(manifest, "archive:s") for name in entry["files"]}
    return sum((Path(hub.home.store.root) / file).stat().st_size for file in files)


def test_an_archive_below_its_limit_is_whole(tmp_path: Path) -> None:
    with opened(tmp_path / "home", "blocks '8', reduce 'load(1 GB)'") as hub:
        fill(hub, 0, 5)
        hub.vacuum()
        assert ages(hub) == []
        hub.register("SELECT COUNT(*) AS n FROM s [RANGE TUMBLING 1 HOUR]", "late")
        hub.catch_up()
        assert hub.query("late").history()["n"].to_pylist() == [HOUR_ROWS] * 4


def test_a_look_at_an_archive_opens_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened_files: list[Piece] = []

    def counted(home: Home, piece: Piece) -> int:
        opened_files.append(piece)
        return bytes_of(home, piece)

    monkeypatch.setattr(vacuum, "bytes_of", counted)
    with opened(tmp_path / "home", "blocks '8', reduce 'load(1 GB)'") as hub:
        hub.loop.engine.vacuuming.every = 1
        fill(hub, 0, 5)
        hub.catch_up()
        looked = len(opened_files)
        assert looked == len(set(opened_files)) > 2
        fill(hub, 5, 7)
        hub.catch_up()
        assert len(opened_files) - looked <= 3


def test_damaged_runs_in_one_file_count_for_nothing(tmp_path: Path) -> None:
    """So that `status` and the reduction of the others continue; who reads the run gets the error."""
    with opened(tmp_path / "home", BY_BYTES) as hub:
        fill(hub, 0, 1)
        (file,) = (tmp_path / "home" / "archive" / "s").iterdir()
        name = f"archive/s/{file.name}"
        assert bytes_of(hub.home, Piece(name)) == file.stat().st_size
        data = file.read_bytes()
        file.unlink()
        file.write_bytes(data[:100])
        assert bytes_of(hub.home, Piece(name, (0,))) == 0


def test_an_archive_above_its_limit_is_halved_evenly_until_it_fits(tmp_path: Path) -> None:
    with opened(tmp_path / "home", BY_BYTES) as hub:
        for number in range(2, 40, 6):
            fill(hub, max(0, number - 6), number)
            hub.vacuum()
            assert stored_bytes(hub) <= LIMIT
            check_segments(hub)
            shares = [keep for keep, _ in ages(hub)]
            assert all(keep in {2.0**-n for n in range(1, 12)} for keep in shares)
            if number > 8:
                assert max(shares) <= 2 * min(shares), shares
        assert stored_bytes(hub) > LIMIT / 4
        report = hub.status()["archives"]["s"]
        assert (report["limit"], report["bytes"]) == (LIMIT, stored_bytes(hub))
        row = asked(hub, "SELECT COUNT(*) AS n, SUM(v) AS total FROM s WITHIN 0 PERCENT")
        hours = hub.home.latest().stream("s").rows
        assert 0 < row["n_error"] < 0.1 * hours
        assert abs(row["n"] - hours) <= row["n_error"]
        total = np.arange(hours).sum()
        assert abs(row["total"] - total) <= 2 * row["total_error"]


def test_what_a_query_has_not_read_is_not_dropped_whatever_the_limit(tmp_path: Path) -> None:
    with opened(tmp_path / "home", BY_BYTES) as hub:
        hub.register("SELECT COUNT(*) AS n FROM s [RANGE TUMBLING 1 HOUR]", "q")
        fill(hub, 0, 2)
        hub.execute("PAUSE QUERY q")
        fill(hub, 2, 12)
        hub.vacuum()
        assert sum(rows for _, rows in ages(hub)) == 2 * HOUR_ROWS
        hub.execute("RESUME QUERY q")
        hub.catch_up()
        assert set(hub.query("q").history()["n"].to_pylist()) == {HOUR_ROWS}
        hub.vacuum()
        assert stored_bytes(hub) <= LIMIT


def test_a_vacuum_that_falls_behind_keeps_less_and_later_as_much_as_before(tmp_path: Path) -> None:
    with opened(tmp_path / "home", BEHIND) as hub:
        hub.loop.engine.vacuuming.every = 1000
        fill(hub, 0, 3)
        hub.vacuum()
        assert ages(hub) == [(0.5, 2 * HOUR_ROWS)]
        fill(hub, 3, 12)
        hub.vacuum()  # 9 hours wait, 32,400 rows: more than 4 times 8,000 and less than 8 times
        assert ages(hub)[1:] == [(0.125, 9 * HOUR_ROWS)]
        fill(hub, 12, 14)
        hub.vacuum()
        assert ages(hub)[-1] == (0.5, 2 * HOUR_ROWS)
        check_segments(hub)


@pytest.mark.parametrize("options", [BY_BYTES, BEHIND])
def test_what_is_kept_follows_from_the_home_alone(tmp_path: Path, options: str) -> None:
    """Two vacuums of one home, one of them stopped and started again after every step, write the same bytes."""
    with opened(tmp_path / "one", options) as hub:
        hub.loop.engine.vacuuming.every = 1000
        fill(hub, 0, 14)
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    with Hub(tmp_path / "one", LocalExecutor()) as hub:
        hub.vacuum()
        written = [
            Path(hub.home.store.root, segment.file).read_bytes()
            for segment in segments_of(hub.home.latest(), "s")
        ]
        expected = ages(hub)
    epochs = 0
    while True:
        with Hub(tmp_path / "other", LocalExecutor()) as hub:
            engine = hub.loop.engine
            from headrace.runtime.epoch import commit
            from headrace.runtime.messages.epoch_work import EpochWork
            from headrace.runtime.progress.plan_index import index_of

            readers = commit.archive_readers(engine.manifest, engine.plan, engine.home.store.read)
            if engine.vacuuming.due(engine.manifest, index_of(engine.plan).sources, readers) is None:
                break
            engine._run(EpochWork("tick"))
            epochs += 1
    with Hub(tmp_path / "other", LocalExecutor()) as hub:
        assert ages(hub) == expected
        again = [
            Path(hub.home.store.root, segment.file).read_bytes()
            for segment in segments_of(hub.home.latest(), "s")
        ]
    assert epochs >= 1
    assert again == written


def test_rows_are_kept_by_their_hash_also_at_shares_below_a_block(tmp_path: Path) -> None:
    with opened(tmp_path / "home", "blocks '2', reduce 'load(12 KB)'") as hub:
        fill(hub, 0, 12)
        hub.vacuum()
        (least, *_) = sorted(segments_of(hub.home.latest(), "s"), key=lambda segment: segment.keep)
        assert least.keep < 0.5
        position = pq.read_table(tmp_path / "home" / least.file).column(POSITION).to_numpy()
        below = hashes_of(position, seed_of("s")) >> np.uint64(32)
        assert (below < least.keep * 2**32).all()
        hub.push("s", hour(12))
        hub.catch_up()
        assert hub.check().faults == 0


def test_reductions_of_older_logs_are_read_and_every_kind_is_written_as_it_is_read() -> None:
    (statement,) = parse_script(
        "CREATE STREAM s (at TIMESTAMP, v BIGINT) USING push OPTIONS (blocks '8', reduce"
        " 'age(1 DAY 0.5, 2 DAYS 0.75), load(1500 B, 10 ROWS BEHIND), error(2.5 PERCENT OF V PER At EVERY 90 MINUTES)') TIMESTAMP BY at"
    )
    assert isinstance(statement, CreateStream)
    definition = statement.definition
    assert from_json(StreamDefinition, json.loads(json.dumps(to_json(definition)))) == definition
    assert definition.reduce is not None
    text = str(definition.reduce)
    assert text == (
        "age(1 DAY 0.5, 2 DAYS 0.75), load(1500 B, 10 ROWS BEHIND), error(2.5 PERCENT OF v PER at EVERY 90 MINUTES)"
    )
    (again,) = parse_script(f"CREATE REDUCER r ON s AS '{text}'")
    assert isinstance(again, CreateReducer)
    assert again.reducer.reduction == definition.reduce
    older = from_json(StreamDefinition, {**to_json(definition), "reduce": [[0, 0.5]]})
    assert older.reduce == Reduction(((0, 0.5),))
